"""The embedded LM in the steps of the baselines: thoughts, turns, notes, empty inputs."""

from __future__ import annotations

from typing import Any

import dspy
import pytest
from hypothesis import given
from hypothesis import strategies as st

from extractive_lm import extractive_lm
from extractive_lm.fill import read_notes
from extractive_lm.prompt import Doc, Prompt, read_passages
from ga_dspy.lm.adapters import PlainAdapter
from ga_dspy.signatures import (
    AnswerFromMemory,
    AskFromNotes,
    NextThought,
    ReadAndJudge,
    ThinkOrSearch,
    UpdateNotes,
    answer_signature,
)

ADAPTERS: dict[str, dspy.Adapter] = {
    "chat": dspy.ChatAdapter(use_json_adapter_fallback=False),
    "json": dspy.JSONAdapter(use_native_function_calling=False),
    "plain": PlainAdapter(),
}
QUESTION = "Which engineer built the harbour of the town where Mira Oldfield was born?"
PAINTER = """[1] Mira Oldfield
Mira Oldfield (born 4 May 1931) was a painter. She was born in Tarvin Bay and taught Orla Brand."""
TOWN = """[2] Tarvin Bay
Tarvin Bay is a fishing town in Lorne County. Its harbour was built by Jonas Reck in 1820."""
QUERY = "Tarvin Bay engineer built harbour town"
BRIDGE = "Tarvin Bay must be looked up: engineer built harbour town."
PAINTER_NOTES = """- Mira Oldfield: Mira Oldfield (born 4 May 1931) was a painter. [1]
- Mira Oldfield: She was born in Tarvin Bay and taught Orla Brand. [1]"""
TOWN_NOTES = "- Tarvin Bay: Its harbour was built by Jonas Reck in 1820. [2]"
BOTH_NOTES = f"{PAINTER_NOTES}\n{TOWN_NOTES}"
ONE_TRIED = f"1. {QUESTION} => [1] Mira Oldfield; notes rewritten"
TWO_TRIED = f"{ONE_TRIED}\n2. {QUERY} => [2] Tarvin Bay; notes rewritten"
SEARCHED = f"Thought: Nothing was read yet.\n\nSearch: {QUESTION}\n\n{PAINTER}"
ANSWER_ON_NOTES = answer_signature("text", passages=False)
STEPS: dict[str, tuple[Any, dict[str, Any], dict[str, str]]] = {
    "a thought that leads on": (
        NextThought, {"passages": PAINTER, "thoughts": "(empty)"}, {"thought": BRIDGE},
    ),
    "a thought that ends": (
        NextThought, {"passages": f"{PAINTER}\n\n{TOWN}", "thoughts": BRIDGE},
        {"thought": "So the answer is: Jonas Reck."},
    ),
    "a first turn": (
        ThinkOrSearch, {"transcript": "(empty)", "searches_left": 4},
        {"query": QUESTION, "answer": ""},
    ),
    "a turn that searches": (
        ThinkOrSearch, {"transcript": SEARCHED, "searches_left": 3},
        {"query": QUERY, "answer": ""},
    ),
    "a turn that answers": (
        ThinkOrSearch,
        {"transcript": f"{SEARCHED}\n\nSearch: {QUERY}\n\n{TOWN}", "searches_left": 2},
        {"query": "", "answer": "Jonas Reck"},
    ),
    "a gap in the notes": (
        AskFromNotes, {"tried": ONE_TRIED, "notes": PAINTER_NOTES},
        {"next_query": QUERY},
    ),
    "notes without a gap": (
        AskFromNotes, {"tried": TWO_TRIED, "notes": BOTH_NOTES}, {"next_query": ""},
    ),
    "notes to answer from": (
        ANSWER_ON_NOTES, {"notes": BOTH_NOTES},
        {
            "links": "Jonas Reck [2]", "verdict": "answered", "answer": "Jonas Reck",
        },
    ),
    "nothing to answer from": (
        answer_signature("graph"),
        {"graph": "(empty)", "passages": "(empty)"},
        {"links": "missing", "verdict": "not in passages", "answer": ""},
    ),
    "nothing to read": (AnswerFromMemory, {}, {"answer": ""}),
}  # fmt: skip


def ask(signature: Any, adapter: str = "chat", **inputs: Any) -> dspy.Prediction:
    with dspy.context(lm=extractive_lm(), adapter=ADAPTERS[adapter]):
        return dspy.Predict(signature)(**{"question": QUESTION, **inputs})


def think(passages: str, thoughts: str = "(empty)", question: str = QUESTION) -> str:
    reply = ask(NextThought, passages=passages, thoughts=thoughts, question=question)
    return str(reply.thought)


def turn(transcript: str, left: int, question: str = QUESTION) -> dspy.Prediction:
    return ask(ThinkOrSearch, transcript=transcript, searches_left=left, question=question)


@pytest.mark.parametrize("adapter", ADAPTERS)
@pytest.mark.parametrize("step", STEPS)
def test_every_step_of_the_baselines_is_answered_under_every_adapter(
    step: str, adapter: str
) -> None:
    signature, inputs, expected = STEPS[step]
    reply = ask(signature, adapter, **inputs).toDict()
    assert {name: reply[name] for name in expected} == expected
    assert set(reply) == set(signature.output_fields)


def test_a_name_that_no_passage_mentions_must_be_looked_up() -> None:
    question = "Was Mira Oldfield a pupil of Ingrid Solvay?"
    thought = think(PAINTER, question=question)
    assert thought == "Ingrid Solvay must be looked up: Mira Oldfield pupil."


def test_a_chain_of_thought_does_not_repeat_itself_and_ends_with_the_answer() -> None:
    thoughts = [think(PAINTER)]
    while not thoughts[-1].startswith("So the answer is: "):
        thoughts.append(think(PAINTER, "\n".join(thoughts)))
        assert len(thoughts) < 12
    assert len(set(thoughts)) == len(thoughts) > 1


def test_without_a_passage_or_a_name_the_thought_is_empty() -> None:
    assert think("(empty)", question="what is moss?") == ""


def test_the_thought_of_a_turn_names_what_is_missing() -> None:
    assert turn(SEARCHED, 3).thought == BRIDGE


def test_the_best_answer_is_given_when_no_search_is_left() -> None:
    reply = turn(SEARCHED, 0)
    assert (reply.query, reply.answer) == ("", "Mira Oldfield")


@pytest.mark.parametrize("left", [0, 1, 4])
@pytest.mark.parametrize("question", [QUESTION, "what is moss?", "Is moss older than fern?"])
@pytest.mark.parametrize(
    "transcript",
    [
        "(empty)",
        "Thought: Nothing was read yet.",
        "Search: moss\n\n(nothing new)",
        f"Search: {QUESTION}\n\n(nothing new)\n\nSearch: Mira Oldfield\n\n(nothing new)",
        SEARCHED,
        f"{SEARCHED}\n\nThought: Tarvin Bay?\n\nSearch: {QUERY}\n\n(nothing new)",
    ],
)
def test_a_turn_either_searches_or_answers(transcript: str, question: str, left: int) -> None:
    reply = turn(transcript, left, question)
    assert bool(reply.query) is not bool(reply.answer)
    assert reply.answer or left
    assert not reply.query or f"Search: {reply.query}" not in transcript


_WORD = st.sampled_from(("Thought:", "Search:", "moss", "[4]", "Fern", "(nothing new)", "a: b"))
_LINE = st.lists(_WORD, min_size=1, max_size=5).map(" ".join)
_TEXT = st.lists(_WORD, max_size=5).map(lambda words: " ".join(["It", *words]))
_FOUND = st.lists(st.tuples(_LINE, _TEXT), max_size=3)


@given(st.lists(st.tuples(_TEXT, _TEXT, _FOUND), max_size=4))
def test_a_transcript_is_read_back_as_it_was_written(turns: list[Any]) -> None:
    blocks: list[str] = []
    docs: list[Doc] = []
    for thought, search, found in turns:
        fresh = [Doc(len(docs) + n, *told) for n, told in enumerate(found, 1)]
        docs += fresh
        passages = [f"[{doc.label}] {doc.title}\n{doc.text}" for doc in fresh]
        blocks += [f"Thought: {thought}", f"Search: {search}", *(passages or ["(nothing new)"])]
    transcript = "\n\n".join(blocks)
    assert read_passages(transcript) == tuple(docs)
    assert Prompt({"transcript": transcript}, (), "chat", "").tried == tuple(
        search for _, search, _ in turns
    )


def test_a_search_ends_if_nothing_new_is_missing() -> None:
    tried = [QUESTION]
    while query := ask(
        AskFromNotes,
        tried="\n".join(f"{n}. {old} => nothing new" for n, old in enumerate(tried, 1)),
        notes=PAINTER_NOTES,
    ).next_query:
        assert query not in tried
        tried.append(query)
        assert len(tried) < 8


def test_notes_are_read_back_with_their_titles_and_numbers() -> None:
    assert read_notes(BOTH_NOTES)[1:] == (
        Doc(1, "Mira Oldfield", "She was born in Tarvin Bay and taught Orla Brand."),
        Doc(2, "Tarvin Bay", "Its harbour was built by Jonas Reck in 1820."),
    )


def test_updated_notes_have_old_and_new_facts_within_the_length_limit() -> None:
    crowd = "\n\n".join(f"[{n}] Stall {n}\nStall {n} sells fish. It is {n} years old." for n in
                        range(3, 13))  # fmt: skip
    written = ask(
        UpdateNotes,
        query=QUERY,
        notes_so_far=PAINTER_NOTES,
        previous_reasoning="",
        passages=f"{TOWN}\n\n{crowd}",
    ).notes
    assert "taught Orla Brand. [1]" in written
    assert "built by Jonas Reck in 1820. [2]" in written
    assert len(written.splitlines()) == 12


def test_a_step_searches_only_if_a_link_is_missing() -> None:
    step = {"search": "1 of 4", "tried": f"1. {QUESTION} => [1]", "graph": "(empty)"}
    lacking = ask(ReadAndJudge, **step, passages=PAINTER)
    assert (lacking.judgement, lacking.next_query) == ("insufficient", QUERY)
    assert lacking.reasoning.endswith("Missing: what is asked about Tarvin Bay.")
    whole = ask(ReadAndJudge, **step, passages=f"{PAINTER}\n\n{TOWN}")
    assert (whole.judgement, whole.next_query) == ("sufficient", "")
    assert whole.candidate == "Jonas Reck"


def test_no_query_is_repeated() -> None:
    tried = f"1. {QUESTION} => [1]\n2. {QUERY} => nothing new"
    step = {"search": "2 of 4", "tried": tried, "graph": "(empty)"}
    assert ask(ReadAndJudge, **step, passages=PAINTER).next_query not in (QUESTION, QUERY)


@pytest.mark.parametrize(
    "question",
    [
        QUESTION,
        "Is Tarvin Bay a town?",
        "Which is older, Tarvin Bay or Lorne County?",
        "Who was born first, Mira Oldfield or Ingrid Solvay?",
    ],
)
def test_no_answer_comes_from_memory(question: str) -> None:
    assert ask(AnswerFromMemory, question=question).answer == ""
