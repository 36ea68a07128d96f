"""Resuming killed compilations: no finished LM call is made twice."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import dspy
import pytest

from ga_dspy import GraphAnchor, Passage, patient
from ga_dspy.errors import DamagedFile, InUse, RunAborted
from ga_dspy.lm.store import CallStore
from ga_dspy.optimize import Outcome, compile, recipe
from ga_dspy.testing import Reply, scripted_lm

WORLD = textwrap.dedent(
    """
    import re, sys, time
    from pathlib import Path
    import dspy
    from ga_dspy import GraphAnchor, Passage
    from ga_dspy.testing import scripted_lm
    from ga_dspy.optimize import compile, recipe

    dspy.configure_cache(enable_disk_cache=False, enable_memory_cache=False)

    def row(i):
        return dspy.Example(
            id=f"q{i}", question=f"Where is Town{i}?", answer=f"Land{i}", gold_titles=(f"Town{i}",)
        ).with_inputs("question")

    def search(query, k):
        i = re.findall(r"\\d+", query)[0]
        return [Passage(id=i, title=f"Town{i}", text=f"Town{i} lies in Land{i}.")]

    def task(prompt):
        with open(sys.argv[3], "a") as calls:
            calls.write(f"{hash(prompt)}\\n")
        time.sleep(0.004)
        i = re.findall(r"Where is Town(\\d+)", prompt)[-1]
        if "`proposed_instruction`" in prompt or "`new_instruction`" in prompt:
            return "nothing"
        if "[[ ## answer ## ]]" in prompt:
            wordy = "[[ ## answer ## ]]\\nLand" not in prompt and int(i) % 2
            return {"verdict": "answered", "links": "[1]", "answer": ("the " if wordy else "") + (
                f"land of Land{i}" if wordy else f"Land{i}")}
        return {"additions": f"Relations:\\n1. Town{i} -> lies in -> Land{i} [1]",
                "reasoning": "seen", "judgement": "sufficient", "candidate": "", "next_query": ""}

    settings = {"bootstrap-rs": {"candidates": 3, "demos": 2},
                "gepa": {"evaluations": 40}}[sys.argv[1]]
    def reflect(prompt):
        with open(sys.argv[3], "a") as calls:
            calls.write(f"{hash(prompt)}\\n")
        return {"new_instruction": f"Try {len(prompt)}."}

    outcome = compile(
        GraphAnchor(search), recipe(sys.argv[1], **settings),
        [row(i) for i in range(8)], [row(i) for i in range(10, 18)],
        test=[row(i) for i in range(20, 32)], out=Path(sys.argv[2]), lm=scripted_lm(task),
        reflection_lm=scripted_lm(reflect), threads=2,
    )
    """
)


def start(name: str, out: Path, calls: Path) -> subprocess.Popen[bytes]:
    script = out.parent / "world.py"
    script.write_text(WORLD)
    environment = {**os.environ, "PYTHONHASHSEED": "0", "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        [sys.executable, str(script), name, str(out), str(calls)],
        env=environment,
        stdout=subprocess.DEVNULL,
    )


def made(calls: Path) -> list[str]:
    return calls.read_text().split() if calls.exists() else []


@pytest.mark.slow
@pytest.mark.parametrize("name", ["bootstrap-rs", "gepa"])
def test_a_killed_compilation_does_not_pay_for_finished_calls_again(
    name: str, tmp_path: Path
) -> None:
    whole, calls, out = tmp_path / "whole.txt", tmp_path / "calls.txt", tmp_path / "out"
    assert start(name, tmp_path / "undisturbed", whole).wait(120) == 0
    killed = start(name, out, calls)
    deadline = time.monotonic() + 60
    while len(made(calls)) < len(made(whole)) * 2 // 3 and time.monotonic() < deadline:
        time.sleep(0.01)
    os.kill(killed.pid, signal.SIGKILL)
    assert killed.wait(10) == -signal.SIGKILL
    before = len(made(calls))
    assert 0 < before < len(made(whole))

    assert start(name, out, calls).wait(120) == 0
    in_flight = 2  # calls that two threads may have had under way
    assert len(made(calls)) <= len(made(whole)) + in_flight
    assert len(set(made(calls))) == len(set(made(whole)))
    summary = json.loads((out / "summary.json").read_text())
    assert before - in_flight <= summary["replayed"] <= before
    state = (tmp_path / "undisturbed" / "program.json").read_bytes()
    assert (out / "program.json").read_bytes() == state
    same = json.loads((tmp_path / "undisturbed" / "summary.json").read_text())
    assert [c["score"] for c in summary["candidates"]] == [c["score"] for c in same["candidates"]]
    assert (summary["calls"], summary["tokens"]) == (same["calls"], same["tokens"])


def search(query: str, k: int) -> list[Passage]:
    return [Passage(id=query[-2], title=query, text=f"{query} Answer{query[-2]}.")]


def rows(first: int, last: int) -> list[dspy.Example]:
    return [
        dspy.Example(id=f"q{i}", question=f"Question {i}?", answer=f"Answer{i}").with_inputs(
            "question"
        )
        for i in range(first, last)
    ]


def task(prompt: str) -> Reply:
    i = prompt.rpartition("Question ")[2][0]
    if "[[ ## answer ## ]]" in prompt:
        return {"verdict": "answered", "links": "[1]", "answer": f"Answer{i}"}
    return {
        "additions": "(empty)",
        "reasoning": "r",
        "judgement": "sufficient",
        "candidate": "",
        "next_query": "",
    }


def compiled(out: Path, lm: dspy.LM) -> Outcome:
    return compile(
        GraphAnchor(search, k=1),
        recipe("bootstrap", demos=1),
        rows(1, 2),
        rows(2, 5),
        test=rows(5, 8),
        out=out,
        lm=lm,
        threads=1,
    )


def test_a_second_run_calls_no_lm_and_gives_the_same_bytes_except_times(tmp_path: Path) -> None:
    first = compiled(tmp_path, scripted_lm(task))
    state = (tmp_path / "program.json").read_bytes()
    manifest = json.loads((tmp_path / "manifest.json").read_text())
    silent = scripted_lm([])
    second = compiled(tmp_path, silent)
    assert not silent.engine.prompts
    assert (first.spent.replayed, second.spent.replayed) == (0, first.spent.calls)
    assert (first.spent.calls, first.spent.tokens) == (second.spent.calls, second.spent.tokens)
    assert (tmp_path / "program.json").read_bytes() == state
    again = json.loads((tmp_path / "manifest.json").read_text())
    for record in (manifest, again):
        del record["created"], record["cost"]["seconds"], record["cost"]["replayed"]
    assert again == manifest


def test_an_lm_that_stops_answering_stops_the_compilation_which_can_be_resumed(
    tmp_path: Path,
) -> None:
    answered = 0

    def dying(prompt: str) -> Reply:
        nonlocal answered
        answered += 1
        return ConnectionError("the server is gone") if answered > 8 else task(prompt)

    gone = r"the LM stopped answering: .*the server is gone"
    with patient(outage=5), pytest.raises(RunAborted, match=gone):
        compiled(tmp_path, scripted_lm(dying))
    assert not (tmp_path / "manifest.json").exists()
    healed = scripted_lm(task)
    outcome = compiled(tmp_path, healed)
    assert outcome.spent.replayed == 8
    assert len(healed.engine.prompts) == outcome.spent.calls - 8


def test_two_compilations_cannot_share_a_folder(tmp_path: Path) -> None:
    held = "import sys, time; from pathlib import Path; from ga_dspy.lm.store import CallStore"
    opened = "store = CallStore(Path(sys.argv[1]), 'compilation')"
    code = f"{held}; {opened}; print('open', flush=True); time.sleep(60)"
    path = tmp_path / "ledger.sqlite"
    other = subprocess.Popen([sys.executable, "-c", code, str(path)], stdout=subprocess.PIPE)
    try:
        assert other.stdout is not None and other.stdout.readline() == b"open\n"
        with pytest.raises(InUse, match="in use by another compilation"):
            CallStore(path, "compilation")
    finally:
        other.kill()
        other.wait()


def test_a_file_that_is_not_a_ledger_is_not_written_to(tmp_path: Path) -> None:
    path = tmp_path / "ledger.sqlite"
    path.write_text("something else, and long enough to be looked at as a database header" * 20)
    with pytest.raises(DamagedFile, match="of a ga_dspy compilation"):
        CallStore(path, "compilation")
    assert path.read_text().startswith("something else")
