"""Programs: DSPy modules that answer a question from passages, all called the same way."""

from __future__ import annotations

from ga_dspy.programs.base import MultiHopProgram as MultiHopProgram
from ga_dspy.programs.closed_book import ClosedBook as ClosedBook
from ga_dspy.programs.deep_note import DeepNote as DeepNote
from ga_dspy.programs.graph_anchor import GraphAnchor as GraphAnchor
from ga_dspy.programs.ircot import IRCoT as IRCoT
from ga_dspy.programs.iter_retgen import IterRetGen as IterRetGen
from ga_dspy.programs.iterative import IterativeProgram as IterativeProgram
from ga_dspy.programs.prediction import EvidenceLink as EvidenceLink
from ga_dspy.programs.prediction import Step as Step
from ga_dspy.programs.salvage import StepFailed as StepFailed
from ga_dspy.programs.search_r1 import SearchR1 as SearchR1
from ga_dspy.programs.usage import Usage as Usage
from ga_dspy.programs.vanilla_rag import VanillaRAG as VanillaRAG
