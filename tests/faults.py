"""What a bad endpoint costs a run: the same questions with and without its faults."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from operator import eq
from pathlib import Path
from typing import Any, NamedTuple

import dspy
from endpoint import FAULTS, Behaviour, Endpoint, Outage

from ga_dspy.eval import protocol_of, run
from ga_dspy.lm.patience import patient
from ga_dspy.programs import MultiHopProgram


class FaultyRun(NamedTuple):
    """A run against an endpoint.

    Attributes:
        name: What the endpoint did.
        questions: How many were asked.
        failed: How many of them had no answer in the end.
        degraded: How many were answered though a step failed.
        again: How many were asked again at the end.
        f1: Mean F1 in percent.
        em: Mean exact match in percent.
        same: How many answers are those of the run without faults.
        calls: Replies that the endpoint gave as it should.
        failures: Requests that it failed: what the retries cost.
        seconds: How long the run took; the endpoint knows all replies after the first run.
    """

    name: str
    questions: int
    failed: int
    degraded: int
    again: int
    f1: float
    em: float
    same: int
    calls: int
    failures: int
    seconds: float

    @property
    def is_whole(self) -> bool:
        """Whether no question was lost and no answer differs."""
        return self.failed == 0 and self.same == self.questions


def runs_under_faults(
    program: MultiHopProgram,
    examples: Sequence[dspy.Example],
    out: Path,
    *,
    rate: float = 0.3,
    outage: float = 5.0,
    threads: int = 8,
    seed: int = 0,
    timeout: float = 10.0,
) -> Iterator[FaultyRun]:
    """Ask the questions of an endpoint without faults, then with more and more of them.

    The embedded LM answers, behind a local server, so that every prompt has one right reply and
    whatever differs is the doing of a fault.

    Args:
        program: What is asked.
        examples: The questions.
        out: Folder for the runs.
        rate: The share of requests that fail, in ten ways alike.
        outage: Seconds for which the endpoint is down in the middle of a run.
        threads: Questions asked at once.
        seed: Of the faults.
        timeout: Seconds to wait for a call; a request that hangs takes so long.
    """
    calls, answers, replies = 0, list[str | None](), dict[str, str]()
    random, cut, both = f"{rate:.0%} faults", f"outage of {outage:g} s", "both"
    for name in ("no faults", random, cut, both):
        behaviour = Behaviour(
            rate=rate if name in (random, both) else 0.0, seed=seed,
            outages=(Outage(outage, after_calls=calls // 2),) if name in (cut, both) else (),
        )  # fmt: skip
        asked = Counter[str]()

        def ask(question: str, asked: Counter[str] = asked) -> Any:
            asked[question] += 1
            return program(question=question)

        with Endpoint(behaviour, replies=replies) as endpoint:
            lm = endpoint.lm(timeout=timeout)
            protocol = protocol_of(
                program, examples, name=type(program).__name__, dataset=name, source=name, lm=lm
            )
            begun = time.monotonic()
            with dspy.context(lm=lm), patient(outage=4 * outage + 60):
                report = run(
                    ask, examples, out=out / name.replace(" ", "-"), protocol=protocol,
                    threads=threads,
                )  # fmt: skip
            seconds, counts = time.monotonic() - begun, endpoint.counts()
        given = [result.answer for result in report.results]
        calls, answers = calls or counts["ok"], answers or given
        yield FaultyRun(
            name, len(given), len(report.failed), len(report.degraded),
            sum(count > 1 for count in asked.values()), report.f1, report.em,
            sum(map(eq, given, answers)), counts["ok"],
            sum(counts[kind] for kind in FAULTS), seconds,
        )  # fmt: skip
