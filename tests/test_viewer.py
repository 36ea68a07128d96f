"""Pages on which one sees how an answer was found: what stands in the file."""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dspy
import pytest

import ga_dspy
from ga_dspy import viewer
from ga_dspy.demo import DEMO_QUESTION, corpus
from ga_dspy.errors import InputError
from ga_dspy.eval import Protocol, Report, Result, run
from ga_dspy.grounding import Dropped

HERE = Path(viewer.__file__).parent
CYTOSCAPE = "081591ab735b2b6a3b31a3c60f8f3a3e2fee8c92939e0c7820ad1208571b6cd8"
Command = Callable[..., subprocess.CompletedProcess[str]]


def data_of(page: str) -> dict[str, Any]:
    found = re.search(r'<script type="application/json" id="ga-data">(.*?)</script>', page, re.S)
    assert found is not None
    data: dict[str, Any] = json.loads(found[1])
    return data


@pytest.fixture(scope="module")
def prediction() -> dspy.Prediction:
    program = ga_dspy.GraphAnchor(ga_dspy.Index.from_passages(corpus(), kind="sparse"))
    with dspy.context(lm=ga_dspy.extractive_lm()):
        return program(question=DEMO_QUESTION)


def asked(prediction: dspy.Prediction, *answers: str) -> Report:
    """A run over the demo question, asked once for each answer that is given."""
    examples = [
        dspy.Example(id=f"q{n}", question=DEMO_QUESTION, answer="The Hague", gold_titles=["Titan"])
        for n in range(len(answers))
    ]
    made = [dspy.Prediction(**{**prediction.toDict(), "answer": answer}) for answer in answers]
    results = tuple(map(Result.from_prediction, examples, made))
    protocol = Protocol.of(examples, dataset="made", source="made", program="p", lm="none")
    return Report(protocol, results)


def test_the_bundled_cytoscape_is_the_published_file() -> None:
    """Version 3.34.4 from npm, `package/dist/cytoscape.min.js`."""
    assert hashlib.sha256((HERE / "cytoscape.min.js").read_bytes()).hexdigest() == CYTOSCAPE
    assert "The Cytoscape Consortium" in (HERE / "cytoscape.LICENSE").read_text("utf-8")


def test_markup_in_a_text_cannot_end_a_script_and_is_shown_unchanged() -> None:
    hostile = '</script><!--<script>alert(1)</script> & "\\u003c"'
    page = viewer.page(hostile, {"answer": hostile})
    assert data_of(page) == {"question": hostile, "prediction": {"answer": hostile}}
    assert page.count("alert(1)") == 2 + 1 and "<script>alert(1)" not in page


def test_a_page_may_load_nothing_and_run_only_its_own_scripts() -> None:
    page = viewer.page("Who?", {"answer": "she"})
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', page)
    assert policy is not None and "default-src 'none'" in policy[1]
    assert "unsafe" not in policy[1] and policy[1].count("sha256-") == 3
    assert not re.search(r"<(link|img|iframe|script)[^>]* (src|href)=", page)


def test_a_saved_run_shows_the_same_steps_and_sentences(prediction: dspy.Prediction) -> None:
    (row,) = data_of(viewer.run_page(asked(prediction, "Hague")))["rows"]
    kept, whole = row["results"][0]["prediction"], prediction.to_dict()
    assert kept["evidence"] == whole["evidence"] and kept["passages"] == whole["passages"]
    for one, other in zip(kept["steps"], whole["steps"], strict=True):
        same = ("number", "query", "passage_ids", "judgement", "candidate")
        assert [one[name] for name in same] == [other[name] for name in same]
        names = ({entity["name"] for entity in step["entities"]} for step in (one, other))
        assert next(names) == next(names)
    stated = ("head", "relation", "tail", "evidence")
    relations = [[r[name] for name in stated] for r in whole["graph"]["relations"]]
    assert [[r[name] for name in stated] for r in kept["graph"]["relations"]] == relations


def test_a_run_saves_the_first_dropped_items_with_their_reasons(
    prediction: dspy.Prediction,
) -> None:
    many = tuple(
        Dropped(
            kind="entity", item=f"{n} \ud800" + 999 * "x", cause="ungrounded", reason="not found"
        )
        for n in range(30)
    )
    step, *others = prediction.steps
    changed = {**prediction.toDict(), "steps": (step.model_copy(update={"dropped": many}), *others)}
    report = asked(dspy.Prediction(**changed), "Hague")
    (kept,) = (Result.model_validate_json(one.model_dump_json()) for one in report.results)
    assert kept.trace[0].dropped == 30
    shown = _steps(report._replace(results=(kept,)))[0]
    assert (shown["dropped_count"], len(shown["dropped"])) == (30, 20)
    assert (shown["dropped"][0]["kind"], shown["dropped"][0]["reason"]) == ("entity", "not found")
    assert max(len(item["item"]) for item in shown["dropped"]) == 300


def test_a_run_of_an_earlier_version_shows_only_the_number_of_dropped_items(
    prediction: dspy.Prediction,
) -> None:
    report = asked(prediction, "Hague")
    (old,) = (one.model_dump(mode="json") for one in report.results)
    for step in old["trace"]:
        del step["dropped_items"]
        step["dropped"] = 3
    (step, *_) = _steps(report._replace(results=(Result.model_validate(old),)))
    assert (step["dropped_count"], step["dropped"]) == (3, [])


def _steps(report: Report) -> list[dict[str, Any]]:
    (row,) = data_of(viewer.run_page(report))["rows"]
    steps: list[dict[str, Any]] = row["results"][0]["prediction"]["steps"]
    return steps


def test_runs_without_a_question_in_common_are_refused(prediction: dspy.Prediction) -> None:
    one, other = asked(prediction, "Hague"), asked(prediction, "Hague", "Paris")
    apart = other._replace(results=other.results[1:])
    with pytest.raises(InputError, match="share no question"):
        viewer.run_page(one, apart)


def test_the_command_writes_a_page_for_a_prediction_or_for_runs(
    command: Command, prediction: dspy.Prediction, tmp_path: Path
) -> None:
    record = {"question": DEMO_QUESTION, **prediction.to_dict()}
    (tmp_path / "answer.json").write_text(json.dumps(record), "utf-8")
    done = command("view", "answer.json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    page = (tmp_path / "page.html").read_text("utf-8")
    assert data_of(page) == {"question": DEMO_QUESTION, "prediction": prediction.to_dict()}
    examples = [dspy.Example(id="q", question=DEMO_QUESTION, answer="The Hague")]
    for name in ("one", "other"):
        protocol = Protocol.of(examples, dataset="made", source="made", program=name, lm="none")
        run(lambda question: prediction, examples, out=tmp_path / name, protocol=protocol)
    done = command("view", "one", "--beside", "other", "--out", "two.html", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    names = [run["name"] for run in data_of((tmp_path / "two.html").read_text("utf-8"))["runs"]]
    assert names == ["one", "other"]


@pytest.mark.parametrize("content", ["", "[]", '{"question": "Who?"}'])
def test_the_command_refuses_a_file_that_is_not_a_prediction(
    command: Command, content: str, tmp_path: Path
) -> None:
    (tmp_path / "answer.json").write_text(content, "utf-8")
    done = command("view", "answer.json", cwd=tmp_path)
    assert done.returncode == 2 and "Expected a prediction as JSON" in done.stderr
