"""An LM that replays recorded replies, and demos made from them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import dspy
import pytest

from ga_dspy import GraphAnchor, Passage, PlainAdapter, VanillaRAG
from ga_dspy.errors import InputError
from ga_dspy.optimize import compile, recipe
from ga_dspy.optimize.demos import faults
from ga_dspy.signatures import (
    AskFromNotes,
    CompareNotes,
    NextThought,
    ReadAndJudge,
    ThinkOrSearch,
    UpdateNotes,
    answer_signature,
    judge_signature,
)
from ga_dspy.signatures.examples import examples
from ga_dspy.testing import recorded_lm, scripted_lm

QUESTION = "In which state is Red Lodge?"
LODGE = Passage(id="lodge", title="Red Lodge", text="Red Lodge is a city in Montana.")
TITAN = Passage(id="titan", title="Titan", text="Titan is a moon of Saturn.")
RECORD = {
    "inputs": {
        "question": QUESTION,
        "passages": f"[1] Titan\n{TITAN.text}\n\n[2] Red Lodge\n{LODGE.text}",
    },
    "outputs": {"links": "It is there [2].", "answer": "Montana", "verdict": "answered"},
}


def written(folder: Path, *rows: Any) -> Path:
    file = folder / "runs.jsonl"
    file.write_text("\n".join(row if isinstance(row, str) else json.dumps(row) for row in rows))
    return file


def asked(lm: dspy.LM, *passages: Passage, question: str = QUESTION) -> dspy.Prediction:
    with dspy.context(lm=lm):
        return VanillaRAG(lambda query, k: list(passages))(question=question)


def test_a_replayed_reply_is_renumbered_to_the_current_labels(tmp_path: Path) -> None:
    found = asked(recorded_lm(written(tmp_path, RECORD)), LODGE, TITAN)
    assert (found.answer, found.cited, found.supported) == ("Montana", ("lodge",), "quoted")


@pytest.mark.parametrize("question", [QUESTION, "Who was the first mayor of Butte?"])
def test_an_unrecorded_question_gets_no_answer(question: str, tmp_path: Path) -> None:
    found = asked(recorded_lm(written(tmp_path, RECORD)), TITAN, question=question)
    assert (found.answer, found.supported) == ("", None) and found.failures


@pytest.mark.parametrize("line", ["{", "[]", '{"inputs": {}}'])
def test_an_invalid_line_is_named(line: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"line 2 of .* is not a record; expected an object"):
        recorded_lm(written(tmp_path, RECORD, line))


def test_the_name_of_a_recorded_lm_identifies_its_recording(tmp_path: Path) -> None:
    first = recorded_lm(written(tmp_path, RECORD)).model
    assert first.startswith("ga-dspy/recorded-runs-")
    assert first != recorded_lm(written(tmp_path, RECORD, RECORD)).model


def step(passages: str, answer: str, **inputs: str) -> dict[str, Any]:
    given = {"question": QUESTION, **inputs, "passages": passages}
    return {"inputs": given, "outputs": {"links": "", "answer": answer, "verdict": "answered"}}


def test_among_several_replies_the_one_for_the_same_passages_is_replayed(
    tmp_path: Path,
) -> None:
    rows = step("[1] Titan", "Saturn"), step("[1] Titan\n\n[2] Red Lodge", "Montana")
    lm = recorded_lm(written(tmp_path, *rows))
    assert asked(lm, TITAN, LODGE).answer == "Montana"
    assert lm.engine.script.unused == [rows[0]]
    assert asked(lm, TITAN).answer == "Saturn" and not lm.engine.script.unused


def test_among_replies_for_the_same_passages_the_most_similar_prompt_wins(tmp_path: Path) -> None:
    rows = [step("[1] Titan", name, search=f"{name} of 4") for name in ("1", "2")]
    lm = recorded_lm(written(tmp_path, *rows))
    ask = dspy.Predict("question, search, passages -> links, answer, verdict")
    shown = f"[1] Titan\n{TITAN.text}"
    for name in ("2", "1", "2"):
        with dspy.context(lm=lm, adapter=PlainAdapter()):
            found = ask(question=QUESTION, search=f"{name} of 4", passages=shown)
        assert found.answer == name


def example(question: str) -> dspy.Example:
    return dspy.Example(id=question, question=question, answer="Montana").with_inputs("question")


@pytest.mark.parametrize("known", [True, False])
def test_teacher_runs_become_demos_and_without_any_the_example_stays(
    known: bool, tmp_path: Path
) -> None:
    rows = [RECORD] if known else [{**RECORD, "inputs": {"question": "Other?", "passages": ""}}]
    program = VanillaRAG(lambda query, k: [LODGE, TITAN])
    wordy = scripted_lm(lambda prompt: {"links": "", "answer": "It is Montana", "verdict": "x"})
    outcome = compile(
        program, recipe("bootstrap", demos=1), [example(QUESTION)], [example("Which state?")],
        out=tmp_path / "out", lm=wordy, teacher_lm=recorded_lm(written(tmp_path, *rows)),
        threads=1, keep=True,
    )  # fmt: skip
    shown = outcome.prompts_after["answer"].demos
    assert len(shown) == 1 and (QUESTION in shown[0]) is known
    assert outcome.lms["teacher"].startswith("ga-dspy/recorded-runs-")


@pytest.mark.parametrize(
    "signature",
    [ReadAndJudge, judge_signature("graph"), judge_signature(None), answer_signature("graph"),
     answer_signature("text"), answer_signature(None), answer_signature("graph", passages=False),
     NextThought, ThinkOrSearch, UpdateNotes, AskFromNotes, CompareNotes],
)  # fmt: skip
def test_the_worked_example_of_a_step_has_no_fault(signature: Any) -> None:
    shown = examples(signature)
    assert shown
    for demo in shown:
        assert not list(faults(demo, signature, ("Salem",)))


def test_an_unknown_signature_has_no_worked_example() -> None:
    assert not examples(dspy.Signature("question -> answer"))
    assert not GraphAnchor(lambda q, k: [], answer_with=dspy.Signature("q -> answer")).answer.demos
