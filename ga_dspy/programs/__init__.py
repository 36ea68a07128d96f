"""Programs: DSPy modules that answer a question from passages, all called the same way."""

from __future__ import annotations

from ga_dspy.programs.baselines import ClosedBook as ClosedBook
from ga_dspy.programs.baselines import DeepNote as DeepNote
from ga_dspy.programs.baselines import IRCoT as IRCoT
from ga_dspy.programs.baselines import IterRetGen as IterRetGen
from ga_dspy.programs.baselines import SearchR1 as SearchR1
from ga_dspy.programs.baselines import VanillaRAG as VanillaRAG
from ga_dspy.programs.calls import StepFailed as StepFailed
from ga_dspy.programs.events import Event as Event
from ga_dspy.programs.events import watching as watching
from ga_dspy.programs.evidence import EvidenceLink as EvidenceLink
from ga_dspy.programs.gaps import GapLog as GapLog
from ga_dspy.programs.graph_anchor import GraphAnchor as GraphAnchor
from ga_dspy.programs.meter import Usage as Usage
from ga_dspy.programs.prediction import Prediction as Prediction
from ga_dspy.programs.prediction import Step as Step
from ga_dspy.programs.program import IterativeProgram as IterativeProgram
from ga_dspy.programs.program import MultiHopProgram as MultiHopProgram
from ga_dspy.programs.settings import setting as setting
