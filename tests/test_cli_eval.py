"""`ga-dspy eval` where something goes wrong: what it prints, its exit codes, how it goes on."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import dspy
import pytest
from endpoint import Behaviour, Endpoint, Outage

import ga_dspy
from ga_dspy import Index, Passage
from ga_dspy.cli.choices import choose_lms
from ga_dspy.demo import corpus, questions
from ga_dspy.eval import Report, load, protocol_of, run
from ga_dspy.eval.result import RunJournal
from ga_dspy.lm.failures import EndpointDown

Command = Callable[..., subprocess.CompletedProcess[str]]
QUESTION = json.loads(questions("dev").read_text())[0]["question"]


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A sparse index over the shipped corpus."""
    out = tmp_path_factory.mktemp("runs") / "index"
    Index.build(corpus(), out, kind="sparse")
    return out


@pytest.fixture
def serve() -> Iterator[Callable[..., Endpoint]]:
    started: list[Endpoint] = []

    def start(**behaviour: Any) -> Endpoint:
        started.append(Endpoint(Behaviour(**behaviour)))
        return started[-1]

    yield start
    for endpoint in started:
        endpoint.close()


def words(index: Path, out: Path, *more: object) -> list[str]:
    args = ("eval", "--dataset", "hotpotqa", "--data", questions("dev"), "--index", index,
            "--program", "vanilla-rag", "--limit", "3", "--out", out, *more)  # fmt: skip
    return [str(arg) for arg in args]


def at(endpoint: Endpoint, *more: object) -> tuple[object, ...]:
    return ("--lm", "openai/local", "--api-base", endpoint.url, *more)


def test_permanently_failed_questions_are_retried_only_on_request(
    command: Command, index: Path, serve: Callable[..., Endpoint], tmp_path: Path
) -> None:
    bad = serve(marked={QUESTION: "context"})
    args = words(index, tmp_path / "run", *at(bad))
    done = command(*args, cwd=tmp_path)
    assert done.returncode == 1, done.stderr
    told = " ".join(done.stdout.split())
    assert "1 question failed: run again to retry those that an outage" in told
    assert "with --retry-failed also the others (1)" in told
    assert "of 2 LM calls from the cache; 0 failed attempts" in told

    asked = len(bad.requests)
    assert command(*args, cwd=tmp_path).returncode == 1
    assert len(bad.requests) == asked
    object.__setattr__(bad.behaviour, "marked", {})
    again = command(*args, "--retry-failed", cwd=tmp_path)
    assert again.returncode == 0, again.stdout
    assert len(bad.requests) == asked + 1
    assert json.loads((tmp_path / "run" / "summary.json").read_text())["failures"] == 0


def test_a_run_is_not_resumed_with_changed_prompts(
    command: Command, index: Path, tmp_path: Path
) -> None:
    def compiled(instruction: str) -> None:
        program = ga_dspy.VanillaRAG(Index.open(index))
        program.answer.signature = program.answer.signature.with_instructions(instruction)
        ga_dspy.save(program, tmp_path / "mine", overwrite=True)

    compiled("Answer the question.")
    args = [*words(index, tmp_path / "run"), "--artifact", str(tmp_path / "mine")]
    assert command(*args, cwd=tmp_path).returncode == 0
    compiled("Answer the question briefly.")
    done = command(*args, cwd=tmp_path)
    assert done.returncode == 2
    assert "holds a run under another protocol" in done.stderr
    assert "different: prompts was" in done.stderr


def test_a_run_is_not_resumed_with_the_model_at_another_address(
    command: Command, index: Path, serve: Callable[..., Endpoint], tmp_path: Path
) -> None:
    args = words(index, tmp_path / "run")
    assert command(*args, *at(serve()), cwd=tmp_path).returncode == 0
    done = command(*args, *at(serve()), cwd=tmp_path)
    assert done.returncode == 2
    assert "different: endpoint was" in done.stderr


def test_the_judge_is_called_at_its_own_address(
    command: Command, index: Path, serve: Callable[..., Endpoint], tmp_path: Path
) -> None:
    asked = serve()
    judge = serve(reply="[[ ## verdict ## ]]\nright\n\n[[ ## completed ## ]]")
    args = words(index, tmp_path / "run", *at(asked, "--judge", "openai/judge"))
    done = command(*args, "--api-base", f"judge={judge.url}", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "judged by openai/judge: 3 calls" in " ".join(done.stdout.split())
    assert {request["model"] for request in judge.requests} == {"judge"}
    assert {request["model"] for request in asked.requests} == {"local"}


def test_the_address_named_judge_is_that_of_a_step_unless_there_is_a_judge() -> None:
    addresses = ["http://localhost:1/v1", "judge="]
    lms = choose_lms(["openai/m"], addresses)
    assert lms.judge is None and lms.steps["judge"].kwargs.get("api_base") is None
    lms = choose_lms(["openai/m", "judge=openai/step"], addresses, judge="openai/big")
    assert lms.judge is not None and lms.judge.kwargs.get("api_base") is None
    assert lms.steps["judge"].kwargs["api_base"] == "http://localhost:1/v1"


@pytest.mark.parametrize("kind", ["401", "404", "quota"])
def test_a_refusing_endpoint_ends_the_run_at_once_and_nothing_is_recorded(
    command: Command, index: Path, serve: Callable[..., Endpoint], tmp_path: Path, kind: str
) -> None:
    refusing = serve(rate=1.0, kinds=(kind,))
    done = command(*words(index, tmp_path / "run"), *at(refusing, "--threads", 3), cwd=tmp_path)
    assert done.returncode == 2, done.stderr
    assert "Traceback" not in done.stderr and " again" in done.stderr.splitlines()[-1]
    assert len(refusing.requests) <= 3
    with RunJournal(tmp_path / "run" / "journal.sqlite") as journal:
        assert journal.results() == {}


def test_an_outage_longer_than_the_patience_ends_the_run_which_can_be_resumed(
    serve: Callable[..., Endpoint], tmp_path: Path
) -> None:
    examples = load("hotpotqa", questions("dev"), limit=4)
    program = ga_dspy.VanillaRAG(Index.from_passages(corpus(), kind="sparse"))
    down = serve(outages=(Outage(3.0, after_calls=2),))

    def start() -> Report:
        lm = down.lm(timeout=20)
        protocol = protocol_of(program, examples, name="a", dataset="b", source="c", lm=lm)
        with dspy.context(lm=lm):
            return run(program, examples, out=tmp_path, protocol=protocol)

    with ga_dspy.patient(outage=0.5), pytest.raises(EndpointDown):
        start()
    with RunJournal(tmp_path / "journal.sqlite") as journal:
        assert len(journal.results()) == 2
    time.sleep(3.0)
    assert start().failed == ()


def test_the_corpus_fingerprint_of_a_retriever_is_in_the_protocol() -> None:
    class Known:
        fingerprint = "ab12"

        def __call__(self, query: str, k: int) -> list[Passage]:
            return []

    examples = load("hotpotqa", questions("dev"), limit=1)
    about: dict[str, Any] = {"name": "a", "dataset": "b", "source": "c", "lm": dspy.LM("openai/m")}
    known = protocol_of(ga_dspy.VanillaRAG(Known()), examples, **about)
    unknown = protocol_of(ga_dspy.VanillaRAG(lambda query, k: []), examples, **about)
    assert (known.corpus, unknown.corpus) == ("ab12", None)


def started(args: list[str], folder: Path) -> subprocess.Popen[str]:
    code = "from ga_dspy.cli import main; main()"
    return subprocess.Popen(
        [sys.executable, "-c", code, *args], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        text=True, env={**os.environ, "DSPY_CACHEDIR": str(folder)},
    )  # fmt: skip


def test_ctrl_c_during_calls_exits_with_130_and_explains_how_to_resume(
    index: Path, serve: Callable[..., Endpoint], tmp_path: Path
) -> None:
    slow = serve(latency=60.0)
    args = words(index, tmp_path / "run", *at(slow, "--threads", 3))
    with started(args, tmp_path) as process:
        deadline = time.monotonic() + 60
        while slow.counts()["peak"] < 3 and time.monotonic() < deadline:
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        begun = time.monotonic()
        out, err = process.communicate(timeout=60)
    assert process.returncode == 130, out + err
    assert time.monotonic() - begun < 20
    assert "Traceback" not in err
    assert err.splitlines()[-1] == (
        "ga-dspy: stopped. Finished work is kept: run the same command again to resume."
    )


def test_an_endpoint_that_stays_down_ends_the_run_with_one_line_on_how_to_resume(
    command: Command, index: Path, serve: Callable[..., Endpoint], tmp_path: Path
) -> None:
    endpoint = serve(script=("503",) * 200)
    done = command(*words(index, tmp_path / "a"), *at(endpoint, "--patience", "2m"), cwd=tmp_path)
    assert done.returncode == 2, done.stderr
    waits, ends = done.stderr.strip().splitlines()
    assert "all calls wait for it, at most 2 min" in waits
    assert "has been down for 2" in ends and "run the same command again" in ends


def test_an_outage_fails_no_question_and_is_reported_while_it_lasts(
    command: Command, index: Path, serve: Callable[..., Endpoint], tmp_path: Path
) -> None:
    endpoint = serve(script=("503",) * 20)
    done = command(*words(index, tmp_path / "a"), *at(endpoint, "--threads", "3"), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    waits, goes_on = done.stderr.strip().splitlines()
    assert "at most 1 h" in waits and "answers again after" in goes_on


def test_an_invalid_duration_is_refused(command: Command, index: Path, tmp_path: Path) -> None:
    done = command(*words(index, tmp_path / "a", "--patience", "soon"), cwd=tmp_path)
    assert (done.returncode, "Pass 90, 90s, 10m or 2h" in done.stderr) == (2, True)


def test_without_the_cache_every_call_is_sent(
    command: Command, index: Path, serve: Callable[..., Endpoint], tmp_path: Path
) -> None:
    endpoint = serve()
    dspy.configure_cache(enable_disk_cache=False, enable_memory_cache=True)
    asked = []
    for out, more in (("a", ()), ("b", ()), ("c", ("--no-cache",))):
        args = words(index, tmp_path / out)
        assert command(*args, *at(endpoint, *more), cwd=tmp_path).returncode == 0
        asked.append(len(endpoint.requests))
    assert asked == [3, 3, 6]


def test_a_custom_adapter_is_part_of_the_protocol() -> None:
    examples = [dspy.Example(id="1", question="Who?", answer="A").with_inputs("question")]
    program = ga_dspy.VanillaRAG(lambda query, k: [])
    about: dict[str, Any] = {"name": "a", "dataset": "b", "source": "c", "lm": dspy.LM("openai/m")}
    adapters: tuple[Any, ...] = (None, ga_dspy.PlainAdapter(), dspy.JSONAdapter())
    sampled = []
    for adapter in adapters:
        with dspy.context(adapter=adapter):
            sampled.append(protocol_of(program, examples, **about).sampling)
    assert "adapter" not in sampled[0]
    assert sampled[0] == sampled[1] and sampled[2] == {**sampled[0], "adapter": "JSONAdapter"}
