"""The prompts, as DSPy signatures: one file per family of methods."""

from __future__ import annotations

from ga_dspy.signatures.baselines import AnswerFromMemory as AnswerFromMemory
from ga_dspy.signatures.baselines import AskFromNotes as AskFromNotes
from ga_dspy.signatures.baselines import CompareNotes as CompareNotes
from ga_dspy.signatures.baselines import NextThought as NextThought
from ga_dspy.signatures.baselines import ThinkOrSearch as ThinkOrSearch
from ga_dspy.signatures.facts import GraphFacts as GraphFacts
from ga_dspy.signatures.graph_anchor import AnswerQuestion as AnswerQuestion
from ga_dspy.signatures.graph_anchor import CompareFacts as CompareFacts
from ga_dspy.signatures.graph_anchor import GraphProposal as GraphProposal
from ga_dspy.signatures.graph_anchor import IndexKind as IndexKind
from ga_dspy.signatures.graph_anchor import Judgement as Judgement
from ga_dspy.signatures.graph_anchor import ReadAndJudge as ReadAndJudge
from ga_dspy.signatures.graph_anchor import Style as Style
from ga_dspy.signatures.graph_anchor import UpdateGraph as UpdateGraph
from ga_dspy.signatures.graph_anchor import UpdateNotes as UpdateNotes
from ga_dspy.signatures.graph_anchor import Verdict as Verdict
from ga_dspy.signatures.graph_anchor import answer_signature as answer_signature
from ga_dspy.signatures.graph_anchor import judge_signature as judge_signature
from ga_dspy.signatures.graph_anchor import read_signature as read_signature
from ga_dspy.signatures.graphrag import AnswerFromPoints as AnswerFromPoints
from ga_dspy.signatures.graphrag import CollectPoints as CollectPoints
