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
from ga_dspy.eval.facts import joint_score
from ga_dspy.eval.journal import Entry, Journal
from ga_dspy.eval.measures import (
    StepPoint,
    by_step,
    faithful_share,
    grounded_share,
    judgements,
    mean_percent,
    spent,
    steps_reached,
)
from ga_dspy.eval.protocol import Protocol
from ga_dspy.eval.result import Result
from ga_dspy.eval.scores import answer_overlap
from ga_dspy.eval.statistics import Paired, bootstrap_interval, paired_permutation

ScoreName = Literal["f1", "em", "acc", "f1_squad"]
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

    def values(self, score: ScoreName = "f1") -> list[float]:
        """A score of every question, from 0 to 1; "f1" is the one the protocol says counts."""
        if score == "f1" and self.protocol.score == "squad":
            score = "f1_squad"
        return [getattr(result, score) for result in self.results]

    @property
    def f1(self) -> float:
        """Mean token F1 by the rule that the protocol names, in percent."""
        return _percent(self.values())

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
        return mean_percent(self.results, lambda result: result.support_recall)

    @property
    def ci95(self) -> tuple[float, float]:
        """95 % bootstrap interval of the mean F1, in percent."""
        low, high = bootstrap_interval(self.values())
        return 100.0 * low, 100.0 * high

    def by_type(self) -> dict[str, dict[str, Any]]:
        """Scores by the dataset's kind of question; questions without one are "(none)"."""
        return self._breakdown(sorted(self.results, key=lambda result: result.type), _type)

    def by_steps(self) -> dict[str, dict[str, Any]]:
        """Scores by the number of steps, then of those "failed" and those with steps "(none)"."""
        known = [result for result in self.results if result.steps is not None]
        untold = [result for result in self.results if result.steps is None]
        return self._breakdown(
            [*sorted(known, key=lambda result: result.steps or 0), *untold], _steps
        )

    def summary(self) -> dict[str, Any]:
        """The content of summary.json; all but `seconds` is the same for the same answers."""
        return {
            "dataset": self.protocol.dataset,
            "program": self.protocol.program,
            "lm": self.protocol.lm,
            **self._scores(self.results),
            **self.measures(),
            "steps_mean": _mean_count([result.steps for result in self.results]),
            "lm_calls_mean": _mean_count([result.calls for result in self.results]),
            "tokens_mean": _mean_count([result.tokens for result in self.results]),
            "seconds": round(self.seconds, 2),
            "ci95": [round(bound, 2) for bound in self.ci95],
            "by_type": self.by_type(),
            "failed": [{"id": result.id, "error": result.error} for result in self.failed],
            "protocol": self.protocol.model_dump(mode="json"),
            "protocol_hash": self.protocol.hash,
        }

    def measures(self) -> dict[str, Any]:
        """Every measure beside answer scores and counts; percent, None where it has no meaning."""
        judged, most = (
            judgements(self.results),
            max((len(r.trace) for r in self.results), default=0),
        )
        percent = {name: mean_percent(self.results, score) for name, score in _MEASURES.items()}
        ratios = ("precision", "recall", "f1", "accuracy", "stopped_early", "searched_long")
        shares = {name: getattr(judged, name) for name in ratios}
        return {
            **{name: _rounded(value) for name, value in percent.items()},
            "grounded_share": _rounded(grounded_share(self.results)),
            "faithful_share": _rounded(faithful_share(self.results)),
            "sufficiency": {
                **{n: None if v is None else _rounded(100 * v) for n, v in shares.items()},
                "questions": judged.questions,
            },
            "by_step": [_point(point) for point in by_step(self.results, most)],
            "steps_reached": steps_reached(self.results),
            "usage": {name: u.model_dump(mode="json") for name, u in spent(self.results).items()},
        }

    def _scores(self, results: Sequence[Result]) -> dict[str, Any]:
        part = self._replace(results=tuple(results))
        return {
            "n": len(results),
            "f1": _rounded(part.f1),
            "em": _rounded(part.em),
            "acc": _rounded(part.acc),
            "support_recall": _rounded(part.support_recall),
            "failures": len(part.failed),
        }

    def _breakdown(
        self, results: Sequence[Result], key: Callable[[Result], str]
    ) -> dict[str, dict[str, Any]]:
        groups: dict[str, list[Result]] = {}
        for result in results:
            groups.setdefault(key(result), []).append(result)
        return {name: self._scores(group) for name, group in groups.items()}

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


def paired_test(a: Report, b: Report, score: ScoreName = "f1") -> Paired:
    """Whether two runs differ: a paired permutation test over the questions they share.

    Raises:
        InputError: they share no question (by id and wording).
    """
    first = {(r.id, r.question): value for r, value in zip(a.results, a.values(score), strict=True)}
    second = {
        (r.id, r.question): value for r, value in zip(b.results, b.values(score), strict=True)
    }
    shared = [key for key in first if key in second]
    if not shared:
        raise InputError(
            f"the runs ({a.protocol.source}, {b.protocol.source}) share no question",
            expected="two runs over the same questions",
            remedy="run both programs on one file",
        )
    return paired_permutation([first[key] for key in shared], [second[key] for key in shared])


def _type(result: Result) -> str:
    return result.type or "(none)"


def _steps(result: Result) -> str:
    if result.error is not None:
        return "failed"
    return "(none)" if result.steps is None else str(result.steps)


def _percent(values: Sequence[float]) -> float:
    return 100.0 * fsum(values) / len(values)


def _mean_count(counts: Sequence[int | None]) -> float | None:
    """Mean with an untold count as 0 (a failed question's too); None where none is told."""
    told = [count for count in counts if count is not None]
    return round(sum(told) / len(counts), 2) if told else None


def _joint(result: Result, which: str) -> float | None:
    if result.support is None:
        return None
    if result.answer is None:
        return 0.0
    overlap = answer_overlap(result.answer, result.gold)
    return float(getattr(joint_score(overlap, result.em, result.support), which))


_MEASURES: dict[str, Callable[[Result], float | None]] = {
    "f1_official": lambda r: r.f1,
    "f1_squad": lambda r: r.f1_squad,
    "support_precision": lambda r: r.support_precision,
    "fact_em": lambda r: r.support and r.support.em,
    "fact_f1": lambda r: r.support and r.support.f1,
    "joint_em": lambda r: _joint(r, "em"),
    "joint_f1": lambda r: _joint(r, "f1"),
    "graph_precision": lambda r: r.coverage and r.coverage.precision,
    "graph_recall": lambda r: r.coverage and r.coverage.recall,
    "chain_precision": lambda r: r.reasoning and r.reasoning.precision,
    "chain_recall": lambda r: r.reasoning and r.reasoning.recall,
    "supported": lambda r: (
        None if r.supported is None and r.error is None else float(bool(r.supported))
    ),
}


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 2)


def _point(point: StepPoint) -> dict[str, Any]:
    told = point._asdict()
    return {
        name: value if isinstance(value, int) else _rounded(value) for name, value in told.items()
    }


def _prediction(result: Result) -> dict[str, Any]:
    return {
        "id": result.id,
        "type": result.type,
        "question": result.question,
        "answer": result.answer,
        "gold": list(result.gold),
        "f1": result.f1,
        "f1_squad": result.f1_squad,
        "em": result.em,
        "acc": result.acc,
        "support_recall": result.support_recall,
        "titles": list(result.titles),
        "steps": result.steps,
        "calls": result.calls,
        "tokens": result.tokens,
        "supported": result.supported,
        "evidence": result.evidence,
        "rounds": [step.model_dump(mode="json", exclude={"graph"}) for step in result.trace],
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
