"""The report of a run: means over every question asked, and the files it is kept in.

Means and intervals are in percent, from 0 to 100. A failed question counts as 0 in every mean,
never as absent.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Sequence
from math import fsum
from pathlib import Path
from typing import Any, Literal, NamedTuple

from ga_dspy.errors import GaDspyError, InputError
from ga_dspy.eval.journal import Entry, Journal
from ga_dspy.eval.protocol import Protocol
from ga_dspy.eval.result import Result
from ga_dspy.eval.statistics import Paired, bootstrap_interval, paired_permutation

JOURNAL, SUMMARY, PREDICTIONS = "journal.sqlite", "summary.json", "predictions.jsonl"


class Unfinished(GaDspyError):
    """A report was asked of a run that has not come to its end."""

    def __init__(self, out: Path, asked: int, n: int) -> None:
        super().__init__(
            f"{out} holds {asked} of {n} questions; expected all of them; start the same run "
            "again to finish it"
        )


class Report(NamedTuple):
    """All results of a finished run, in the order of the questions.

    `seconds` is the time the program took, summed over the questions whatever the number of
    threads; it alone is not reproducible.
    """

    protocol: Protocol
    results: tuple[Result, ...]
    seconds: float

    @classmethod
    def from_entries(cls, protocol: Protocol, entries: Iterable[Entry]) -> Report:
        """The report of journaled entries, which must be in the order of the questions."""
        kept = tuple(entries)
        return cls(protocol, tuple(e.result for e in kept), fsum(e.seconds for e in kept))

    @property
    def failed(self) -> tuple[Result, ...]:
        """The questions whose program raised an error; `error` says which."""
        return tuple(result for result in self.results if result.error is not None)

    @property
    def f1(self) -> float:
        """Mean token F1, in percent."""
        return _percent([result.f1 for result in self.results])

    @property
    def em(self) -> float:
        """Mean exact match, in percent."""
        return _percent([result.em for result in self.results])

    @property
    def acc(self) -> float:
        """Share of answers that contain an accepted answer, in percent."""
        return _percent([result.acc for result in self.results])

    @property
    def support_recall(self) -> float | None:
        """Mean recall over the questions that name gold titles, in percent; None without any."""
        return _support_recall(self.results)

    @property
    def ci95(self) -> tuple[float, float]:
        """95 % bootstrap interval of the mean F1, in percent."""
        low, high = bootstrap_interval([result.f1 for result in self.results])
        return 100.0 * low, 100.0 * high

    def by_type(self) -> dict[str, dict[str, Any]]:
        """Scores by the dataset's kind of question; questions without one are "(none)"."""
        return _breakdown(sorted(self.results, key=lambda result: result.type), _type)

    def by_steps(self) -> dict[str, dict[str, Any]]:
        """Scores by the number of steps, then of those "failed" and those with steps "(none)"."""
        known = [result for result in self.results if result.steps is not None]
        untold = [result for result in self.results if result.steps is None]
        return _breakdown([*sorted(known, key=lambda result: result.steps or 0), *untold], _steps)

    def summary(self) -> dict[str, Any]:
        """The content of summary.json; all but `seconds` is the same for the same answers."""
        return {
            "dataset": self.protocol.dataset,
            "program": self.protocol.program,
            "lm": self.protocol.lm,
            **_scores(self.results),
            "steps_mean": _mean_count([result.steps for result in self.results]),
            "lm_calls_mean": _mean_count([result.calls for result in self.results]),
            "tokens_mean": _mean_count([result.tokens for result in self.results]),
            "seconds": round(self.seconds, 2),
            "ci95": [round(bound, 2) for bound in self.ci95],
            "by_type": self.by_type(),
            "failed": [{"id": result.id, "error": result.error} for result in self.failed],
            "protocol": self.protocol.model_dump(mode="json"),
        }

    def write(self, out: Path) -> None:
        """Write predictions.jsonl and summary.json into `out`, each at once or not at all.

        Scores are percent in the summary, and fractions from 0 to 1 in each prediction.
        """
        lines = [json.dumps(_prediction(result), ensure_ascii=False) for result in self.results]
        _write(out / PREDICTIONS, "".join(f"{line}\n" for line in lines))
        _write(out / SUMMARY, json.dumps(self.summary(), ensure_ascii=False, indent=2) + "\n")


def load_report(out: Path) -> Report:
    """The report of the finished run in `out`, from its journal.

    Raises:
        Unfinished: questions of the run have not been asked yet.
        JournalUnreadable: there is no run in `out`.
    """
    with Journal(out / JOURNAL) as journal:
        entries = journal.entries()
        if len(entries) < journal.protocol.n:
            raise Unfinished(out, len(entries), journal.protocol.n)
        return Report.from_entries(journal.protocol, entries.values())


def paired_test(a: Report, b: Report, score: Literal["f1", "em", "acc"] = "f1") -> Paired:
    """Whether two runs differ: a paired permutation test over the questions they share.

    Raises:
        InputError: they share no question (by id and wording).
    """
    first = {(result.id, result.question): getattr(result, score) for result in a.results}
    second = {(result.id, result.question): getattr(result, score) for result in b.results}
    shared = [key for key in first if key in second]
    if not shared:
        raise InputError(
            f"the runs ({a.protocol.source}, {b.protocol.source}) share no question",
            expected="two runs over the same questions",
            remedy="run both programs on one file",
        )
    return paired_permutation([first[key] for key in shared], [second[key] for key in shared])


def _scores(results: Sequence[Result]) -> dict[str, Any]:
    recall = _support_recall(results)
    return {
        "n": len(results),
        "f1": round(_percent([result.f1 for result in results]), 2),
        "em": round(_percent([result.em for result in results]), 2),
        "acc": round(_percent([result.acc for result in results]), 2),
        "support_recall": None if recall is None else round(recall, 2),
        "failures": sum(result.error is not None for result in results),
    }


def _breakdown(
    results: Sequence[Result], key: Callable[[Result], str]
) -> dict[str, dict[str, Any]]:
    groups: dict[str, list[Result]] = {}
    for result in results:
        groups.setdefault(key(result), []).append(result)
    return {name: _scores(group) for name, group in groups.items()}


def _type(result: Result) -> str:
    return result.type or "(none)"


def _steps(result: Result) -> str:
    if result.error is not None:
        return "failed"
    return "(none)" if result.steps is None else str(result.steps)


def _percent(values: Sequence[float]) -> float:
    return 100.0 * fsum(values) / len(values)


def _support_recall(results: Iterable[Result]) -> float | None:
    recalls = [result.support_recall for result in results]
    told = [recall for recall in recalls if recall is not None]
    return _percent(told) if told else None


def _mean_count(counts: Sequence[int | None]) -> float | None:
    """Mean with an untold count as 0 (a failed question's too); None where none is told."""
    told = [count for count in counts if count is not None]
    return round(sum(told) / len(counts), 2) if told else None


def _prediction(result: Result) -> dict[str, Any]:
    return {
        "id": result.id,
        "type": result.type,
        "question": result.question,
        "answer": result.answer,
        "gold": list(result.gold),
        "f1": result.f1,
        "em": result.em,
        "acc": result.acc,
        "support_recall": result.support_recall,
        "titles": list(result.titles),
        "steps": result.steps,
        "calls": result.calls,
        "tokens": result.tokens,
        "supported": result.supported,
        "evidence": result.evidence,
        "step_failures": list(result.step_failures),
        "error": result.error,
    }


def _write(path: Path, text: str) -> None:
    partial = path.with_name(path.name + ".partial")
    with partial.open("w", encoding="utf-8", newline="\n") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    partial.replace(path)
