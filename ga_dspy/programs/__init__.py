"""Programs: DSPy modules that answer a question from passages, all called the same way."""

from __future__ import annotations

from ga_dspy.programs.base import MultiHopProgram as MultiHopProgram
from ga_dspy.programs.graph_anchor import GraphAnchor as GraphAnchor
from ga_dspy.programs.prediction import EvidenceLink as EvidenceLink
from ga_dspy.programs.prediction import Step as Step
from ga_dspy.programs.salvage import StepFailed as StepFailed
from ga_dspy.programs.vanilla_rag import VanillaRAG as VanillaRAG
