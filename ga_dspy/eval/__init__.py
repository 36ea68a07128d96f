"""Evaluation: datasets, official scores, runs that can be resumed, and comparisons of runs.

The files, each of which builds on those before: `datasets` (questions), `scores` (of an answer),
`statistics` (intervals and tests), `protocol` (what determines a run's numbers), `result` (of a
question, and the journal), `report` (of a run), `run` (and an LM that judges answers), `methods`
(of the paper, by name), `arena` (runs of many methods), `plots`, `comparison` (which method is
best: tables, figures and a report).
"""

from __future__ import annotations

from ga_dspy.eval.datasets import DATASETS as DATASETS
from ga_dspy.eval.datasets import DatasetName as DatasetName
from ga_dspy.eval.datasets import detect as detect
from ga_dspy.eval.datasets import load as load
from ga_dspy.eval.protocol import Protocol as Protocol
from ga_dspy.eval.protocol import ProtocolMismatch as ProtocolMismatch
from ga_dspy.eval.protocol import ScoreVariant as ScoreVariant
from ga_dspy.eval.protocol import protocol_of as protocol_of
from ga_dspy.eval.report import Report as Report
from ga_dspy.eval.report import load_report as load_report
from ga_dspy.eval.report import paired_test as paired_test
from ga_dspy.eval.result import Result as Result
from ga_dspy.eval.run import Judge as Judge
from ga_dspy.eval.run import RunProgress as RunProgress
from ga_dspy.eval.run import run as run
from ga_dspy.eval.run import run_program as run_program
from ga_dspy.eval.scores import exact_match as exact_match
from ga_dspy.eval.scores import f1 as f1
from ga_dspy.eval.scores import normalise as normalise
