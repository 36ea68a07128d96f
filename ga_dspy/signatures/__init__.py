"""What the LM is asked: one step of the algorithm a file."""

from __future__ import annotations

from ga_dspy.signatures.answer import AnswerQuestion as AnswerQuestion
from ga_dspy.signatures.answer import Verdict as Verdict
from ga_dspy.signatures.community_answer import AnswerFromPoints as AnswerFromPoints
from ga_dspy.signatures.community_answer import CollectPoints as CollectPoints
from ga_dspy.signatures.judge import Judgement as Judgement
from ga_dspy.signatures.judge import JudgeSufficiency as JudgeSufficiency
from ga_dspy.signatures.memory import AnswerFromMemory as AnswerFromMemory
from ga_dspy.signatures.notes import AskFromNotes as AskFromNotes
from ga_dspy.signatures.notes import CompareNotes as CompareNotes
from ga_dspy.signatures.notes import ReadNotesAndJudge as ReadNotesAndJudge
from ga_dspy.signatures.notes import UpdateNotes as UpdateNotes
from ga_dspy.signatures.proposal import GraphProposal as GraphProposal
from ga_dspy.signatures.question_entities import QuestionEntities as QuestionEntities
from ga_dspy.signatures.read import ReadAndJudge as ReadAndJudge
from ga_dspy.signatures.search import ThinkOrSearch as ThinkOrSearch
from ga_dspy.signatures.thought import NextThought as NextThought
from ga_dspy.signatures.update_graph import UpdateGraph as UpdateGraph
