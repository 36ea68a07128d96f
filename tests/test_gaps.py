"""The gap log has the questions without evidence, and no text of passages."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import dspy
import pytest

from ga_dspy import GapLog, GraphAnchor, Index, Passage, VanillaRAG
from ga_dspy.errors import InputError, RunAborted
from ga_dspy.programs.gaps import report_gaps
from ga_dspy.testing import asked_fields, scripted_lm

PASSAGES = [
    Passage(id="toll", title="Toll", text="The toll of the bridge is 3 crowns.",
            metadata={"tenant": "acme"}),
    Passage(id="haug", title="Nils Haug", text="Nils Haug designed the bridge in Halden."),
]  # fmt: skip
QUESTION = "Where did Nils Haug meet Ida Lund when he led the Orion Society?"
REPLIES = {
    "reasoning": "Nils Haug designed the bridge in Halden, but nothing on Ida Lund.",
    "judgement": "insufficient",
    "candidate": "none",
    "next_query": "Ida Lund biography",
    "verdict": "not in passages",
}


def reply(prompt: str) -> dict[str, str]:
    return {name: REPLIES.get(name, "") for name in asked_fields(prompt)}


def ask(program: Any, question: str = QUESTION, **options: Any) -> dspy.Prediction:
    with dspy.context(lm=scripted_lm(reply)):
        found: dspy.Prediction = program(question=question, **options)
    return found


def lines(log: GapLog) -> list[dict[str, Any]]:
    return [json.loads(line) for line in log.path.read_text().splitlines()]


@pytest.fixture(scope="module")
def index() -> Index:
    return Index.from_passages(PASSAGES, encoder="hash-64")


@pytest.fixture
def log(tmp_path: Path) -> GapLog:
    return GapLog(tmp_path / "logs" / "gaps.jsonl")


def test_a_gap_records_the_queries_and_no_passage_text(index: Index, log: GapLog) -> None:
    assert log.add(ask(GraphAnchor(index, max_steps=2)))
    (gap,) = lines(log)
    assert gap.pop("time").endswith("Z")
    assert gap == {
        "program": "GraphAnchor",
        "verdict": "not in passages",
        "question": QUESTION,
        "names": ["Ida Lund", "Orion Society"],
        "queries": ["Ida Lund biography"],
        "wanted": "Ida Lund biography",
    }
    assert log.path.stat().st_mode & 0o077 == 0


def test_an_answered_question_is_not_a_gap(
    index: Index, log: GapLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(REPLIES, "verdict", "answered")
    monkeypatch.setitem(REPLIES, "answer", "Nils Haug")
    assert not log.add(ask(VanillaRAG(index), "Who designed the bridge?"))
    assert lines(log) == []


def test_an_answer_withheld_for_lack_of_support_is_a_gap(
    index: Index, log: GapLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(REPLIES, "verdict", "answered")
    monkeypatch.setitem(REPLIES, "answer", "Bo Ek")
    assert log.add(ask(VanillaRAG(index, abstain="quoted"), "Who painted the bridge?"))


def test_a_timeout_is_not_a_gap(index: Index, log: GapLog) -> None:
    prediction = ask(VanillaRAG(index))
    prediction.is_transient = True
    assert not log.add(prediction)


def test_a_restricted_question_is_counted_without_any_text(index: Index, log: GapLog) -> None:
    program, where = GraphAnchor(index, max_steps=2), {"tenant": "acme"}
    assert log.add(ask(program.only(where)))
    assert log.add(ask(program, where=where))
    for gap in lines(log):
        del gap["time"]
        assert gap == {"program": "GraphAnchor", "verdict": "not in passages", "restricted": True}
    assert report_gaps(log.path)[:4] == (2, 2, [], [])


def test_names_that_the_graph_does_not_know_are_logged(index: Index, log: GapLog) -> None:
    pytest.importorskip("igraph")
    from ga_dspy.graph import Entity, Evidence, GraphUpdate
    from ga_dspy.graphrag import Access, CorpusGraph, GraphIndex, GraphRAG

    place = Evidence(passage="haug", start=10, end=19)
    stated = GraphUpdate(entities=(Entity(name="Nils Haug", evidence=(place,)),))
    program = GraphRAG(GraphIndex(index, CorpusGraph.of({"haug": stated})))
    found = ask(program)
    assert found.linked == ("Nils Haug",) and not found.gap
    assert log.add(found)
    assert log.add(ask(program, "Who is Ada Holm?"))
    assert log.add(ask(program.for_caller(Access(labels=frozenset({"hr"})))))
    known, unknown, restricted = lines(log)
    assert known["names"] == ["Ida Lund", "Orion Society"] and "gap" not in known
    assert unknown["names"] == ["Ada Holm"] and unknown["gap"]
    assert restricted["restricted"] and "question" not in restricted


def test_a_copy_of_a_prediction_is_refused(index: Index, log: GapLog) -> None:
    prediction = ask(VanillaRAG(index))
    with pytest.raises(InputError, match="the prediction that a program returned"):
        log.add(prediction.copy())
    assert "asked" not in prediction.to_dict()


def test_concurrent_threads_and_a_killed_process_lose_no_line(index: Index, log: GapLog) -> None:
    prediction = ask(VanillaRAG(index))
    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(lambda _: log.add(prediction), range(200)))
    assert len(lines(log)) == 200
    acknowledged, told = os.pipe()
    child = os.fork()
    if not child:
        while log.add(prediction):
            os.write(told, b".")
    seen = sum(len(os.read(acknowledged, 1)) for _ in range(50))
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    os.close(told)
    while more := os.read(acknowledged, 1000):
        seen += len(more)
    assert len(lines(log)) - 200 in (seen, seen + 1)


def test_a_truncated_line_does_not_affect_others(index: Index, log: GapLog) -> None:
    log.path.write_text('{"program": "Vani')
    log.add(ask(VanillaRAG(index)))
    found = report_gaps(log.path)
    assert (found.questions, found.unreadable) == (1, 1)


def test_a_configured_key_is_not_logged(
    index: Index, log: GapLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOME_API_KEY", "k3y-0123456789-of-mine")
    log.add(ask(VanillaRAG(index), "Who has k3y-0123456789-of-mine?"))
    assert "k3y" not in log.path.read_text() and len(lines(log)) == 1


@pytest.mark.parametrize(
    "secret", ['password: "hunter22"', "Authorization: Digest user=ann", "Set-Cookie: id=abc"]
)
def test_a_secret_in_a_question_is_withheld_from_the_log(
    index: Index, log: GapLog, secret: str
) -> None:
    log.add(ask(VanillaRAG(index), f"Did Ida Lund set {secret}"))
    assert secret.split()[-1] not in log.path.read_text()
    assert (report_gaps(log.path).questions, report_gaps(log.path).unreadable) == (1, 0)


def test_a_file_that_cannot_be_written_is_an_error_at_once(tmp_path: Path) -> None:
    with pytest.raises(RunAborted, match=str(tmp_path)):
        GapLog(tmp_path)


def test_a_service_logs_gaps_and_still_answers_if_logging_fails(
    index: Index, log: GapLog, caplog: pytest.LogCaptureFixture
) -> None:
    pytest.importorskip("fastapi")
    from ga_dspy.serve import Service

    with dspy.context(lm=scripted_lm(reply)):
        service = Service(VanillaRAG(index), gaps=log)

        async def verdict(**options: Any) -> str:
            found = await service.ask(QUESTION, **options).task
            return str(found.verdict)

        assert asyncio.run(verdict()) == "not in passages"
        assert asyncio.run(verdict(where={"tenant": "acme"})) == "not in passages"
        assert [gap.get("question") for gap in lines(log)] == [QUESTION, None]
        log.path.unlink()
        log.path.mkdir()
        assert asyncio.run(verdict()) == "not in passages"
    assert "cannot write the gap log: " in caplog.text


def test_spelling_variants_of_a_wanted_name_are_counted_together(
    index: Index, log: GapLog, command: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    program = GraphAnchor(index, max_steps=2)
    for question in (QUESTION, "Did IDA LUND paint?", "Who is Bo Ek?"):
        log.add(ask(program, question))
    log.add(ask(program.only({"tenant": "acme"})))
    found = report_gaps(log.path)
    assert found.names[0] == ("Ida Lund", 2, QUESTION)
    assert found.queries == [("Ida Lund biography", 3, QUESTION)]
    shown = command("gaps", log.path.name, "--most", "1", cwd=log.path.parent)
    assert shown.returncode == 0, shown.stderr
    assert shown.stdout.splitlines()[:2] == [
        "4 questions without evidence",
        "1 restricted by conditions or labels, without text",
    ]
    assert "Ida Lund" in shown.stdout and "Bo Ek" not in shown.stdout
    missing = command("gaps", "nowhere.jsonl", cwd=log.path.parent)
    assert missing.returncode == 2 and "nowhere.jsonl" in missing.stderr
