"""An LM that judges answers: its prompts, its cost, its failures."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import dspy
import pytest
from endpoint import Behaviour, Endpoint

import ga_dspy
from ga_dspy.demo import corpus
from ga_dspy.eval import Judge, Protocol, Report, load_report, run
from ga_dspy.programs.calls import StepFailed
from ga_dspy.testing import Reply, scripted_lm

EXAMPLES = [
    dspy.Example(id=f"q{n}", question=f"{n}?", answer=answer).with_inputs("question")
    for n, answer in enumerate(("Ann Fox", "1901", "Rome"))
]
ANSWERS = {"0?": "the engineer Fox", "1?": "1902"}


def program(question: str) -> dspy.Prediction:
    return dspy.Prediction(answer=ANSWERS[question])  # the third question fails


def judged(out: Path, lm: dspy.LM | None) -> Report:
    fields = {"dataset": "qa", "source": "s", "program": "p", "lm": "m"}
    protocol = Protocol.of(EXAMPLES, **fields, judge=lm.model if lm else None)
    return run(program, EXAMPLES, out=out, protocol=protocol, judge=lm)


def by_answer(prompt: str) -> dict[str, str]:
    return {"verdict": "right" if "engineer Fox" in prompt else "wrong"}


def test_a_judge_has_its_own_verdicts_summary_and_cost(tmp_path: Path) -> None:
    lm = scripted_lm(by_answer)
    report = judged(tmp_path, lm)
    assert [r.judged and r.judged.right for r in report.results] == [True, False, None]
    assert report.judged == pytest.approx(100 / 3)  # the question that failed counts as wrong
    assert report.usage.calls == 0 and len(lm.engine.prompts) == 2
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert summary["judge"]["lm"] == "ga-dspy/scripted" == summary["protocol"]["judge"]
    assert summary["judge"]["usage"]["calls"] == 2 and summary["judge"]["failed"] == []
    rows = [json.loads(line) for line in (tmp_path / "predictions.jsonl").read_text().splitlines()]
    assert [row.get("judged", {}).get("right") for row in rows] == [True, False, None]
    assert load_report(tmp_path) == report
    assert judged(tmp_path, lm) == report and len(lm.engine.prompts) == 2


def test_answers_that_the_judge_failed_on_are_named_and_retried(tmp_path: Path) -> None:
    unclear = ["I would rather not say."] * 4
    replies: list[Reply] = [{"verdict": "right"}, *unclear, {"verdict": "wrong"}]
    lm = scripted_lm(replies)
    report = judged(tmp_path, lm)
    (failed,) = report.summary()["judge"]["failed"]
    assert failed["id"] == "q1" and "StepFailed" in failed["error"]
    assert report.judged == 50.0
    assert judged(tmp_path, lm).summary()["judge"]["failed"] == []


def test_a_run_without_a_judge_has_no_judge_fields(tmp_path: Path) -> None:
    report = judged(tmp_path, None)
    assert report.judged is None and "judge" not in report.summary()
    fields = {"dataset": "qa", "source": "s", "program": "p", "lm": "m"}
    protocol = Protocol.of(EXAMPLES, **fields)
    assert "judge" not in json.loads(protocol.model_dump_json(exclude_none=True))
    assert protocol.hash != protocol.model_copy(update={"judge": "j"}).hash


def test_an_empty_answer_is_wrong_without_a_call() -> None:
    with dspy.context(lm=scripted_lm([])):
        assert Judge()(question="?", accepted=("x",), answer=" ").verdict == "wrong"


def test_a_judge_without_a_verdict_is_an_error() -> None:
    with dspy.context(lm=scripted_lm(lambda prompt: "well")), pytest.raises(StepFailed):
        Judge()(question="?", accepted=("x",), answer="y")


def test_custom_questions_are_scored_and_judged_on_the_command_line(
    command: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path
) -> None:
    ga_dspy.Index.build(corpus(), tmp_path / "index", kind="sparse")
    (tmp_path / "mine.csv").write_text(
        "question,answer\nWhich river does Bath lie on?,River Avon\n"
    )
    said = "[[ ## verdict ## ]]\nright\n[[ ## completed ## ]]"
    endpoint = Endpoint(Behaviour(replies={"by the accepted answers": said}))
    try:
        done = command("eval", "--dataset", "qa", "--data", "mine.csv", "--index", "index",
                       "--program", "vanilla-rag", "--out", "run", "--judge", "openai/judge",
                       "--lm", "openai/m", "--api-base", endpoint.url, "--adapter", "chat",
                       cwd=tmp_path)  # fmt: skip
    finally:
        endpoint.close()
    assert done.returncode == 0, done.stderr
    told = " ".join(done.stdout.split())
    assert "judged by openai/judge: 1 call" in told
    assert "F1 and EM by HotpotQA's official rule" in told
    refused = command("eval", "--dataset", "qa", "--data", "mine.csv", "--index", "index", "--out",
                      "r", "--judge", "ga-dspy/extractive", cwd=tmp_path)  # fmt: skip
    assert refused.returncode == 2 and "Expected an LLM" in refused.stderr
