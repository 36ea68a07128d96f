"""An LM for each step: its calls, its cost, its name in artifacts, and the identity of a run."""

from __future__ import annotations

import json
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import dspy
import pytest
from endpoint import Behaviour, Endpoint

from ga_dspy import GraphAnchor, Index, demo
from ga_dspy.artifact import load, save, show
from ga_dspy.cli.choices import choose_lms
from ga_dspy.errors import InputError, RunAborted
from ga_dspy.eval import ProtocolMismatch, Report, load_report, protocol_of, run
from ga_dspy.eval import load as load_questions
from ga_dspy.eval.arena import Benchmark, plan_runs, run_arena, select_methods
from ga_dspy.eval.comparison import collect
from ga_dspy.lm.wrapper import StepLMs, wrap
from ga_dspy.testing import scripted_lm

Command = Callable[..., subprocess.CompletedProcess[str]]
QUESTION = "Which river does Bath lie on?"
KEY = "a-key-that-nobody-may-see-1"
ASKED = ("--lm", "openai/gpt-4.1-nano", "--lm", "answer=openai/gpt-4.1")


class World(NamedTuple):
    """An index, and the endpoints of two LMs."""

    folder: Path
    small: Endpoint
    big: Endpoint

    @property
    def options(self) -> tuple[str, ...]:
        """The LM of the answer at the big endpoint, all others at the small one."""
        return (*ASKED, "--api-base", self.small.url, "--api-base", f"answer={self.big.url}",
                "--index", str(self.folder))  # fmt: skip


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("steps") / "index"
    Index.build(demo.corpus(), folder, kind="sparse")
    return folder


@pytest.fixture
def world(index: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    with Endpoint() as small, Endpoint() as big:
        yield World(index, small, big)


def models(endpoint: Endpoint) -> set[str]:
    return {str(body["model"]) for body in endpoint.requests}


def test_each_step_asks_its_own_lm_and_its_cost_is_shown(
    command: Command, world: World, tmp_path: Path
) -> None:
    done = command("ask", QUESTION, *world.options, "--no-cache", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert models(world.small) == {"gpt-4.1-nano"} and models(world.big) == {"gpt-4.1"}
    assert "read, by openai/gpt-4.1-nano: 1 call, " in done.stdout
    (line,) = (one for one in done.stdout.splitlines() if one.startswith("answer, by"))
    assert line.startswith("answer, by openai/gpt-4.1: 1 call, ") and ", $0.00" in line


def test_json_output_has_the_lm_of_each_step_with_its_usage(
    command: Command, world: World, tmp_path: Path
) -> None:
    record = json.loads(command("ask", QUESTION, *world.options, "--json", cwd=tmp_path).stdout)
    assert record["lm"] == "openai/gpt-4.1-nano"
    assert record["lms"] == {"read": "openai/gpt-4.1-nano", "answer": "openai/gpt-4.1"}
    assert record["usage"]["answer"]["cost"] > record["usage"]["read"]["cost"] > 0


def test_a_single_lm_is_not_listed_per_step(command: Command, world: World, tmp_path: Path) -> None:
    asked = ("ask", QUESTION, "--lm", "openai/m", "--api-base", world.small.url, "--index",
             world.folder)  # fmt: skip
    assert ", by openai" not in command(*asked, cwd=tmp_path).stdout
    assert "lms" not in json.loads(command(*asked, "--json", cwd=tmp_path).stdout)


@pytest.mark.parametrize(
    ("named", "said"),
    [
        (["openai/m", "think=openai/n"], "the step 'think'. Expected one of read, answer."),
        (["answer=openai/m"], "names no LM for the step read. Add --lm NAME, or --lm read=NAME"),
        (["answer=openai/m", "answer=openai/n"], "two --lm for answer: openai/m and openai/n"),
        (["openai/m", "openai/n"], "two --lm for all steps: openai/m and openai/n"),
    ],
)
def test_an_unknown_missing_or_repeated_step_lm_is_one_clear_error(
    named: list[str], said: str, command: Command, index: Path, tmp_path: Path
) -> None:
    options = [part for one in named for part in ("--lm", one)]
    done = command("ask", QUESTION, "--index", index, *options, cwd=tmp_path)
    assert done.returncode == 2 and said in done.stderr and done.stderr.count("\n") == 1


def test_an_address_applies_to_every_lm_without_its_own() -> None:
    lms = choose_lms(
        ["openai/m", "read=ga-dspy/extractive", "judge=openai/j", "answer=openai/big"],
        ["http://small/v1", "answer=http://big/v1", "update=http://other/v1", "judge="],
        7.0,
    )
    places = {step: (lm.model, lm.kwargs.get("api_base")) for step, lm in lms.steps.items()}
    assert (lms.lm.model, lms.lm.kwargs["api_base"]) == ("openai/m", "http://small/v1")
    assert places == {
        "read": ("ga-dspy/extractive", None), "judge": ("openai/j", None),
        "answer": ("openai/big", "http://big/v1"), "update": ("openai/m", "http://other/v1"),
    }  # fmt: skip
    assert {lm.kwargs["timeout"] for lm in lms.all if lm.model != "ga-dspy/extractive"} == {7.0}


def test_each_lm_of_compile_can_have_its_own_address() -> None:
    addresses = ["http://localhost:1/v1", "reflection=", "teacher=http://localhost:2/v1"]
    lms = choose_lms(["openai/small"], addresses)
    assert list(lms.steps) == []
    asked = [lms.named("openai/big", role) for role in ("reflection", "prompt", "teacher")]
    found = [lm.kwargs.get("api_base") for lm in (lms.lm, *asked)]
    assert found == [
        "http://localhost:1/v1",
        None,
        "http://localhost:1/v1",
        "http://localhost:2/v1",
    ]


def test_each_lm_has_the_timeout_of_its_own_address() -> None:
    lms = choose_lms(["openai/m", "answer=openai/big"], ["http://localhost:1/v1", "answer="], None)
    assert [lm.kwargs["timeout"] for lm in lms.all] == [600, 120]


def test_the_reply_cap_is_that_of_the_steps_own_lm(index: Path) -> None:
    program = GraphAnchor(Index.open(index), style="sentence")  # a style that is always asked for
    with Endpoint() as small, Endpoint() as big:
        program.read.lm = small.lm(max_tokens=200)
        lm = StepLMs(wrap(small.lm()), {"answer": wrap(big.lm(max_tokens=300))})
        with dspy.context(lm=lm):
            program(question=QUESTION)
    assert {request["max_tokens"] for request in small.requests} == {200}
    assert {request["max_tokens"] for request in big.requests} == {300}


def test_if_every_step_has_an_lm_the_answer_lm_is_the_default() -> None:
    lms = choose_lms(["read=openai/r", "answer=openai/a"], None, 7.0)
    lms.check(GraphAnchor(lambda query, k: []))
    assert lms.lm.model == "openai/a"


def test_an_artifact_stores_only_lm_names_and_the_command_line_sets_the_lms(
    command: Command, world: World, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    program = GraphAnchor(Index.open(world.folder))
    program.answer.lm = dspy.LM("openai/gpt-4.1", api_base=world.big.url, api_key=KEY)
    folder = save(program, tmp_path / "artifact", lms={"task": "openai/gpt-4.1-nano"})
    assert show(folder).manifest.predictor_lms["answer"] == "openai/gpt-4.1"
    texts = "".join(path.read_text() for path in folder.iterdir())
    assert KEY not in texts and world.big.url not in texts
    asked = ("ask", QUESTION, "--artifact", folder)
    done = command(*asked, *world.options, "--no-cache", cwd=tmp_path)
    assert done.returncode == 0 and "answer, by openai/gpt-4.1: 1 call" in done.stdout
    assert not caplog.text and "of its own" not in done.stderr
    command(*asked, "--index", world.folder, cwd=tmp_path)
    assert "or --lm answer=openai/gpt-4.1" in caplog.text
    wrong = command(*asked, *world.options, "--lm", "think=openai/m", cwd=tmp_path)
    assert wrong.returncode == 2 and "Expected one of read, answer" in wrong.stderr
    with pytest.raises(InputError, match="the step 'think'; expected one of read, answer"):
        load(folder, retriever=lambda query, k: [], lms={"think": None})


def compiled(folder: Path, **steps: str) -> Path:
    """An artifact with a demo of its own, compiled for an LM, or steps for others."""
    program = GraphAnchor(lambda query, k: [])
    program.answer.demos = [dspy.Example(question="Q", answer="A").with_inputs("question")]
    for step, name in steps.items():
        getattr(program, step).lm = dspy.LM(name)
    return save(program, folder, lms={"task": "openai/qwen2.5-coder-1.5b"})


def warned(artifact: Path, caplog: pytest.LogCaptureFixture, *names: str) -> list[str]:
    caplog.clear()
    lms = choose_lms(names, None, None)
    with dspy.context(lm=lms.lm):
        load(artifact, retriever=lambda query, k: [], lms=lms.steps)
    return [record.getMessage() for record in caplog.records]


def test_a_program_that_was_compiled_for_another_lm_warns_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    artifact = compiled(tmp_path / "a")
    for same in ("openai/qwen2.5-coder-1.5b", "ollama_chat/Qwen2.5-coder:1.5b"):
        assert not warned(artifact, caplog, same)
    (said,) = warned(artifact, caplog, "openai/gpt-4.1-mini")
    assert said.startswith(f"{artifact} asks openai/gpt-4.1-mini (read, answer); expected")
    assert "expected openai/qwen2.5-coder-1.5b, " in said
    assert said.endswith("compile again: ga-dspy compile … --lm openai/gpt-4.1-mini --out DIR")
    assert "(answer)" in warned(artifact, caplog, "openai/qwen2.5-coder-1.5b", "answer=openai/b")[0]


def test_a_step_lm_is_compared_with_the_one_it_was_compiled_for(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    artifact, task = compiled(tmp_path / "a", answer="openai/big"), "openai/qwen2.5-coder-1.5b"
    assert not warned(artifact, caplog, task, "answer=openai/big")
    (said,) = warned(artifact, caplog, task, "answer=openai/other")
    assert "(answer); expected openai/big" in said
    (said,) = warned(artifact, caplog, task)
    assert "was saved with its own LM" in said


def test_an_uncompiled_program_never_warns_about_its_lm(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    shipped = GraphAnchor(lambda query, k: [])
    unchanged = save(shipped, tmp_path / "a", lms={"task": "openai/small"})
    assert not warned(unchanged, caplog, "openai/other")
    assert not warned(save(shipped, tmp_path / "b"), caplog, "openai/other")


def test_ask_with_an_artifact_warns_on_stderr(
    command: Command, index: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    artifact = compiled(tmp_path / "a")
    done = command("ask", QUESTION, "--artifact", artifact, "--index", index, "--json",
                   cwd=tmp_path)  # fmt: skip
    assert json.loads(done.stdout)["answer"]
    heard = done.stderr + capfd.readouterr().err
    assert heard.count("expected openai/qwen2.5-coder-1.5b") == 1
    shown = command("artifact", "show", artifact, cwd=tmp_path).stdout
    assert "task: openai/qwen2.5-coder-1.5b" in shown.partition("predictors:")[0]


def evaluated(command: Command, world: World, out: Path, *options: str) -> Any:
    return command(
        "eval", "--dataset", "hotpotqa", "--data", demo.questions("dev"), "--limit", "3", "--out",
        out, *(options or world.options), cwd=out.parent,
    )  # fmt: skip


def test_a_run_records_step_lms_and_is_not_resumed_with_others(
    command: Command, world: World, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    done = evaluated(command, world, out)
    assert done.returncode == 0, done.stderr
    assert "openai/gpt-4.1-nano, answer: openai/gpt-4.1" in " ".join(done.stdout.split())
    assert "answer, by openai/gpt-4.1: 3 calls, " in done.stdout
    summary = json.loads((out / "summary.json").read_text())
    assert summary["lms"] == summary["protocol"]["lms"] == {"answer": "openai/gpt-4.1"}
    made = len(world.small.requests), len(world.big.requests)
    assert evaluated(command, world, out).returncode == 0
    for change, said in (
        ({"answer=openai/gpt-4.1": "answer=openai/gpt-4.1-mini"},
         'lms.answer was "openai/gpt-4.1", is "openai/gpt-4.1-mini"'),
        ({f"answer={world.big.url}": f"answer={world.small.url}"}, "digests.predictor answer"),
        ({"answer=openai/gpt-4.1": "read=openai/gpt-4.1"}, 'lms.answer was "openai/gpt-4.1"'),
    ):  # fmt: skip
        changed = (change.get(option, option) for option in world.options)
        refused = evaluated(command, world, out, *changed)
        assert refused.returncode == 2 and said in refused.stderr
    assert (len(world.small.requests), len(world.big.requests)) == made
    pytest.importorskip("mlflow")
    from ga_dspy.optimize.tracking import report_metrics

    metrics = report_metrics(load_report(out))
    assert (metrics["test/answer/calls"], metrics["test/read/tokens"]) == (
        1.0, summary["usage"]["read"]["prompt_tokens"] / 3
        + summary["usage"]["read"]["completion_tokens"] / 3,
    )  # fmt: skip
    for path in out.iterdir():
        found = path.read_bytes()
        assert KEY.encode() not in found and b"127.0.0.1" not in found, path


def of_two(index: Path, read: dspy.LM, answer: dspy.LM, out: Path) -> Report:
    program = GraphAnchor(Index.open(index))
    program.read.lm = read
    examples = load_questions("hotpotqa", demo.questions("dev"), limit=1)
    protocol = protocol_of(
        program, examples, name="graph-anchor", dataset="hotpotqa", source="demo", lm=answer
    )
    with dspy.context(lm=answer):
        return run(program, examples, out=out, protocol=protocol)


def test_replies_of_a_step_s_own_lm_are_not_paid_again_after_an_abort(
    index: Path, tmp_path: Path
) -> None:
    with Endpoint() as small, Endpoint(Behaviour(script=("401",))) as big:
        read, answer = small.lm(), big.lm()
        with pytest.raises(RunAborted):
            of_two(index, read, answer, tmp_path)
        calls = Counter(str(body["messages"]) for body in small.requests)
        report = of_two(index, read, answer, tmp_path)
        assert Counter(str(body["messages"]) for body in small.requests) == calls
    assert report.results[0].usage["read"].calls == calls.total() > 0
    with pytest.raises(ProtocolMismatch, match=r"lms\.read"):
        of_two(index, scripted_lm([]), answer, tmp_path)
    assert load_report(tmp_path).protocol.lm_names == "openai/local, read: openai/local"


class Failing(dspy.BaseLM):
    """An LM whose errors repeat its key."""

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        raise ValueError(f"the server does not know {self.kwargs['api_key']} today")


def test_no_failure_has_the_key_of_a_step_s_own_lm() -> None:
    program = GraphAnchor(lambda query, k: ["Bath | Bath lies on the Avon."])
    program.answer.lm = Failing("test/failing", api_key=KEY)
    with dspy.context(lm=scripted_lm(lambda prompt: {"judgement": "sufficient"})):
        found = program(question=QUESTION)
    assert "the server does not know (withheld) today" in found.failures[-1]
    assert KEY not in json.dumps(found.to_dict())


def test_a_served_model_calls_the_lms_in_its_environment(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("mlflow")
    import pandas

    from ga_dspy.optimize.served import ServedProgram

    artifact = save(GraphAnchor(Index.open(world.folder)), tmp_path / "artifact")
    config = artifact / "ga-dspy.toml"
    config.write_text(f'artifact = "."\nindex = "{world.folder}"')
    context: Any = type("Context", (), {"artifacts": {"config": str(config)}})()
    monkeypatch.setenv("GA_DSPY_API_BASE", world.small.url)
    both = "openai/small answer=openai/big"
    for named, expected in ((both, {"small", "big"}), ("openai/one", {"one"})):
        monkeypatch.setenv("GA_DSPY_LM", named)
        model = ServedProgram()
        model.load_context(context)
        world.small.requests.clear()
        with dspy.context(lm=None):
            assert model.predict(pandas.DataFrame({"question": [QUESTION]}))[0]["answer"]
        assert {body["model"] for body in world.small.requests} == expected


def test_methods_with_different_steps_share_one_table(index: Path, tmp_path: Path) -> None:
    with Endpoint() as endpoint:
        lm, big, small = endpoint.lm(), endpoint.lm(), endpoint.lm()
        big.model, small.model = "openai/big", "openai/small"
        own = {"answer": big, "think": small}
        benchmark = Benchmark("hotpotqa", demo.questions("dev"), index)
        taking_part = select_methods("vanilla-rag,ircot", lms=own)
        planned = plan_runs(taking_part, [benchmark], tmp_path)
        found = {one.contestant.name: r for one, r, _ in run_arena(planned, lm=lm, limit=1)}
        assert {body["model"] for body in endpoint.requests} == {"big", "small"}
        list(
            run_arena(
                plan_runs(select_methods("vanilla-rag"), [benchmark], tmp_path / "plain"),
                lm=lm,
                limit=1,
            )
        )
    assert found["vanilla-rag"].protocol.lms == {"answer": "openai/big"}
    runs = collect([tmp_path])
    assert [run.label for run in runs] == [
        "Vanilla RAG, answer: openai/big", "Vanilla RAG",
        "IRCoT, think: openai/small, answer: openai/big",
    ]  # fmt: skip
    assert {run.group for run in runs} == {"HotpotQA, openai/local"}
    with pytest.raises(InputError, match="the step 'thonk'; expected one of answer, think"):
        select_methods("vanilla-rag,ircot", lms={"thonk": lm})
