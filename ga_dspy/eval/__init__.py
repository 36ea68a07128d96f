"""Evaluation: datasets, official scores, and runs that are journaled and can be resumed.

The order in which the files build on one another: `scores`, `facts` and `triples` (of one answer),
`files`, `rows` and `datasets` (questions), `renaming` (copies of them), `protocol` and `described`
(what a run is), `trace` and `result` (of one question), `journal`, `sufficiency`, `measures`,
`statistics` and `report` (of a run), `runner`.
"""

from __future__ import annotations

from ga_dspy.eval.datasets import Loaded as Loaded
from ga_dspy.eval.datasets import LoadReport as LoadReport
from ga_dspy.eval.datasets import UnusableRows as UnusableRows
from ga_dspy.eval.datasets import from_hub as from_hub
from ga_dspy.eval.datasets import load as load
from ga_dspy.eval.datasets import load_hub as load_hub
from ga_dspy.eval.datasets import read as read
from ga_dspy.eval.datasets import sample as sample
from ga_dspy.eval.described import protocol_of as protocol_of
from ga_dspy.eval.files import DATASETS as DATASETS
from ga_dspy.eval.files import DatasetName as DatasetName
from ga_dspy.eval.files import UnknownDataset as UnknownDataset
from ga_dspy.eval.files import WrongFormat as WrongFormat
from ga_dspy.eval.files import detect as detect
from ga_dspy.eval.journal import JournalBusy as JournalBusy
from ga_dspy.eval.journal import JournalUnreadable as JournalUnreadable
from ga_dspy.eval.protocol import Protocol as Protocol
from ga_dspy.eval.protocol import ProtocolMismatch as ProtocolMismatch
from ga_dspy.eval.protocol import ScoreVariant as ScoreVariant
from ga_dspy.eval.renaming import provenance as provenance
from ga_dspy.eval.renaming import rename_file as rename_file
from ga_dspy.eval.renaming import rename_rows as rename_rows
from ga_dspy.eval.report import Report as Report
from ga_dspy.eval.report import Unfinished as Unfinished
from ga_dspy.eval.report import load_report as load_report
from ga_dspy.eval.report import paired_test as paired_test
from ga_dspy.eval.result import Result as Result
from ga_dspy.eval.rows import Unusable as Unusable
from ga_dspy.eval.runner import Progress as Progress
from ga_dspy.eval.runner import RunAborted as RunAborted
from ga_dspy.eval.runner import run as run
from ga_dspy.eval.scores import contained as contained
from ga_dspy.eval.scores import exact_match as exact_match
from ga_dspy.eval.scores import f1 as f1
from ga_dspy.eval.scores import normalise as normalise
from ga_dspy.eval.scores import support_recall as support_recall
from ga_dspy.eval.statistics import Paired as Paired
