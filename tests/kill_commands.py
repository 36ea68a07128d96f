"""Long commands killed at random moments: does each end as if nothing had happened, and at no cost?

A command is run undisturbed, then again and again with a `kill -9` in the middle, and started once
more. A local endpoint with the embedded LM counts what is asked; DSPy's cache is off, so that all
that is not asked twice is the doing of journals.
"""

from __future__ import annotations

import importlib
import json
import multiprocessing
import os
import random
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import dspy
from endpoint import Behaviour, Endpoint

import ga_dspy
from ga_dspy.demo import corpus, questions
from ga_dspy.errors import InputError, RunAborted
from ga_dspy.retrieval import Index
from ga_dspy.storage import write_atomically

GRACE = 0.5
"""Seconds: a reply that was sent so shortly before a kill may not have reached the command."""

_LATENCY = 0.1
_STOPPED = 1e6
_LM = "--lm openai/local --api-base {url} --threads 4 --index {work}/index --out {out}"
_EVAL = f"--dataset hotpotqa --data {{work}}/dev {_LM}"
_COMPILE = (
    "compile --dataset hotpotqa --train {work}/train --validation 6 --test {work}/dev --no-track "
    f"--yes {_LM} --recipe"
)
COMMANDS = {
    "index build": "index build {work}/passages.jsonl --out {out}",
    "eval": f"eval {_EVAL}",
    "arena": f"arena {_EVAL} --programs vanilla-rag,graph-anchor",
    "compile bootstrap-rs": f"{_COMPILE} bootstrap-rs --set candidates=2",
    "compile gepa": f"{_COMPILE} gepa --set evaluations=30 --reflection-lm openai/local",
    "graph build": f"graph build {_LM} --summaries --yes",
}
"""The long commands, on the shipped questions and passages."""


class Endurance(NamedTuple):
    """How a command took its kills.

    Attributes:
        command: Its name.
        kills: How often it was killed and started again.
        identical: How often the result then was that of the undisturbed run.
        calls: LM calls of the undisturbed run.
        in_all: LM calls of all killed runs with their second parts.
        cut_off: Calls that a kill cut off before their reply was taken, so asked again.
        paid_twice: Calls that were asked again though their reply had been taken.
        seconds: Of everything.
        differences: What was not as in the undisturbed run.
    """

    command: str
    kills: int
    identical: int
    calls: int
    in_all: int
    cut_off: int
    paid_twice: int
    seconds: float
    differences: tuple[str, ...]

    @property
    def held(self) -> bool:
        """Whether no kill cost anything."""
        return self.identical == self.kills and not self.paid_twice


def endure(
    commands: Sequence[str], work: Path, *, kills: int = 3, limit: int = 12, seed: int = 0
) -> Iterator[Endurance]:
    """Kill commands, and see what becomes of them.

    Args:
        commands: Names among `COMMANDS`.
        work: An empty folder for all that they write.
        kills: How often each is killed.
        limit: Questions of each file; the index has four times as many passages.
        seed: Of the moments.

    Raises:
        InputError: There is no such command.
        RunAborted: A command fails where nothing disturbs it.
    """
    if unknown := [name for name in commands if name not in COMMANDS]:
        raise InputError(
            f"there is no command {unknown[0]!r} to kill",
            expected=f"one of {', '.join(COMMANDS)}",
            remedy="leave it out for all of them",
        )
    passages = corpus()[: 4 * limit]
    lines = [passage.model_dump_json() for passage in passages]
    write_atomically(work / "passages.jsonl", "\n".join(lines))
    Index.build(passages, work / "index", kind="sparse")
    for split in ("dev", "train"):
        rows = json.loads(questions(split).read_bytes())[:limit]
        write_atomically(work / split, json.dumps(rows))
    with Endpoint(Behaviour(latency=_LATENCY), lm=_Replies()) as endpoint:
        for name in commands:
            rng = random.Random(f"{seed} {name}")
            yield _Trial(name, work, endpoint, rng).run(kills)


class _Replies:
    """The embedded LM; to an optimizer that reflects, a new instruction."""

    def __init__(self) -> None:
        self._lm = ga_dspy.extractive_lm()

    def __call__(self, *, messages: list[dict[str, Any]]) -> Any:
        if "new_instruction" in (prompt := str(messages)):
            return [json.dumps({"new_instruction": f"Read closely ({len(prompt)})."})]
        return self._lm(messages=messages)


class _Trial(NamedTuple):
    """A command, undisturbed once, then killed."""

    name: str
    work: Path
    endpoint: Endpoint
    rng: random.Random

    def run(self, kills: int) -> Endurance:
        begun = time.monotonic()
        whole = self.work / self.name.replace(" ", "-")
        asked, seconds = self._start(whole)
        calls, result = self._requests(asked), contents(whole)
        in_all, cut_off, twice = Counter[str](), Counter[str](), Counter[str]()
        differences: list[str] = []
        for number in range(kills):
            out, before = self.work / f"{whole.name}-{number}", len(self.endpoint.requests)
            lost = self._killed(out, calls.total(), seconds)
            self._start(out)
            made, found = self._requests(before), contents(out)
            in_all += made
            cut_off += (made - calls) & lost
            twice += made - calls - lost
            names = sorted(found.keys() | result.keys())
            if differing := [name for name in names if found.get(name) != result.get(name)]:
                differences.append(f"{out.name}: {', '.join(differing)}")
        return Endurance(
            self.name, kills, kills - len(differences), calls.total(), in_all.total(),
            cut_off.total(), twice.total(), time.monotonic() - begun, tuple(differences),
        )  # fmt: skip

    def _requests(self, since: int) -> Counter[str]:
        return Counter(map(_key, self.endpoint.requests[since:]))

    def _start(self, out: Path) -> tuple[int, float]:
        """Run the command to its end; requests before it, and seconds from its first work on.

        Raises:
            RunAborted: It fails.
        """
        asked, process = self._process(out)
        first = self._working(process, out, asked)
        process.join()
        if process.exitcode:
            raise RunAborted(
                f"`ga-dspy {self.name}` ended with exit code {process.exitcode}",
                expected="0",
                remedy=f"see {_log(out)}",
            )
        return asked, time.monotonic() - first

    def _killed(self, out: Path, calls: int, seconds: float) -> Counter[str]:
        """Run the command until a random moment; the requests whose replies it may lack.

        The moment is that of a call, or after the last one; a second earlier at most, the endpoint
        falls silent, so that some commands are killed while they work, others while they wait.
        """
        asked, process = self._process(out)
        first = self._working(process, out, asked)
        call = self.rng.randint(1, calls + max(1, calls // 10))
        while process.is_alive() and len(self.endpoint.requests) - asked < min(call, calls):
            time.sleep(0.002)
        heard = self.endpoint.behaviour
        if call < calls:
            time.sleep(self.rng.uniform(0, _LATENCY))
            self.endpoint.behaviour = replace(heard, latency=_STOPPED)
            time.sleep(self.rng.uniform(0, 2 * (GRACE + _LATENCY)))
        else:
            left = seconds - (time.monotonic() - first) if not calls else _LATENCY * 4
            time.sleep(self.rng.uniform(0, max(left, 0.1)))
        process.kill()
        process.join()
        killed, self.endpoint.behaviour = time.monotonic(), heard
        taken = (body for at, body in self.endpoint.answered if at < killed - GRACE)
        return self._requests(asked) - Counter(map(_key, taken))

    def _process(self, out: Path) -> tuple[int, Any]:
        self.endpoint.answered.clear()
        places = {"out": out, "work": self.work, "url": self.endpoint.url}
        arguments = [part.format_map(places) for part in COMMANDS[self.name].split()]
        process = _FORKS.Process(target=_command, args=(arguments, str(_log(out))), daemon=True)
        process.start()
        return len(self.endpoint.requests), process

    def _working(self, process: Any, out: Path, asked: int) -> float:
        """Wait until the command works: its start-up is no part of the test."""
        needs_lm = "{url}" in COMMANDS[self.name]
        while process.is_alive() and not (
            len(self.endpoint.requests) > asked if needs_lm else out.is_dir()
        ):
            time.sleep(0.002)
        return time.monotonic()


# Forked from a process that has imported everything, so that a start takes no time.
_FORKS = multiprocessing.get_context("forkserver")
_FORKS.set_forkserver_preload(["ga_dspy.cli.commands", "ga_dspy.optimize"])


def _command(arguments: list[str], log: str) -> None:
    """A command in its process, all that it prints in a file."""
    with open(log, "a", encoding="utf-8") as file:  # noqa: PTH123
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    dspy.configure_cache(enable_disk_cache=False, enable_memory_cache=False)
    sys.argv = ["ga-dspy", *arguments]
    # By its name, for the command line is above this package.
    importlib.import_module("ga_dspy.cli").main()


def _log(out: Path) -> Path:
    return out.with_name(f"{out.name}.log")


def _key(body: dict[str, Any]) -> str:
    return json.dumps(body, sort_keys=True)


# --- What a command leaves, without what is another one each time

_VARYING = {"seconds", "created", "replayed", "timing", "sha256", "hash"}
_WORKING = (".log", ".sqlite", ".sqlite-wal", ".sqlite-shm")


def contents(folder: Path) -> dict[str, Any]:
    """Every result that a command left, by its path, as it may be compared with another run's."""
    paths = (path for path in folder.rglob("*") if path.is_file() and path.suffix not in _WORKING)
    read = {str(path.relative_to(folder)): path.read_bytes() for path in paths}
    return {
        name: _steady(json.loads(content)) if name.endswith(".json") else content
        for name, content in read.items()
        if not name.endswith(".lock")
    }


def _steady(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _steady(inner) for key, inner in value.items() if key not in _VARYING}
    return [_steady(inner) for inner in value] if isinstance(value, list) else value
