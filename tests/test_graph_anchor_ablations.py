"""Prompts of an ablation differ from the full program's only in what the ablation removes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

import dspy
import pytest

from ga_dspy.eval.methods import METHODS, Method
from ga_dspy.lm.adapters import ASKED
from ga_dspy.passage import Passage
from ga_dspy.programs import GraphAnchor
from ga_dspy.testing import asked_fields, scripted_lm

QUESTION = "Which river flows past the birthplace of Ines Marlow?"
MARLOW = Passage(id="marlow", title="Ines Marlow", text="Ines Marlow was born in Tavira.")
DOURO = Passage(id="douro", title="Douro", text="The Douro reaches the sea at Porto.")
TAVIRA = Passage(id="tavira", title="Tavira", text="The river Gilão flows through Tavira.")
NOTES = ("Ines Marlow was born in Tavira [1].", "Born in Tavira [1]; the Gilão flows there [3].")
ADDITIONS = (
    "Relations:\n1. Ines Marlow -> was born in -> Tavira [1]",
    "Relations:\n1. Gilão -> flows through -> Tavira [3]",
)


class Asked(NamedTuple):
    """One prompt: what is said before the inputs, and the inputs by field."""

    system: str
    inputs: dict[str, str]
    text: str


def search(query: str, k: int) -> list[Passage]:
    return [MARLOW, DOURO] if query == QUESTION else [TAVIRA, MARLOW]


def reply(prompt: str) -> Mapping[str, str]:
    """The same words whatever is kept: the river is missing at first, then found."""
    later = "[3] Tavira" in prompt
    said = {
        "additions": ADDITIONS[later],
        "notes": NOTES[later],
        "reasoning": "The river is found." if later else "The river is missing.",
        "judgement": "exhausted" if later else "insufficient",
        "candidate": "Gilão" if later else "",
        "next_query": "" if later else "river in Tavira",
        "verdict": "answered",
        "links": "[3]",
        "answer": "Gilão",
    }
    wanted = asked_fields(prompt)
    return {name: said[name] for name in wanted if name in said}


def prompts(**settings: Any) -> list[Asked]:
    lm = scripted_lm(reply)
    with dspy.context(lm=lm):
        GraphAnchor(search, **settings)(question=QUESTION)
    return [asked(prompt) for prompt in lm.engine.prompts]


def asked(prompt: str) -> Asked:
    system, rest = re.split(r"\n\n(?=\[\[ ## )", prompt, maxsplit=1)
    behind = rest.rpartition(f"[[ ## {asked_fields(prompt)[-1]} ## ]]\n")[2]
    last = behind[behind.index("\n\n[[ ## ") :]
    parts = re.split(r"\n\n\[\[ ## (\w+) ## \]\]\n", last)[1:]
    return Asked(system, dict(zip(parts[::2], parts[1::2], strict=True)), prompt)


def unfolded(system: str) -> str:
    """What is said before the inputs, with lines of one length."""
    return " ".join(system.split())


def test_qa_with_docs_changes_only_the_answer_prompt_which_lacks_the_graph() -> None:
    full, ablated = prompts(), prompts(answer_from="passages")
    assert [p.text for p in ablated[:-1]] == [p.text for p in full[:-1]]
    graph = full[-1].inputs.pop("graph")
    assert "Gilão -> flows through -> Tavira" in graph
    assert ablated[-1].inputs == full[-1].inputs
    expected = unfolded(full[-1].system).replace(" and the graph", "")
    assert unfolded(ablated[-1].system) == expected != unfolded(full[-1].system)


def test_qa_with_graph_changes_only_the_answer_prompt_which_lacks_the_passages() -> None:
    full, ablated = prompts(), prompts(answer_from="graph")
    assert [p.text for p in ablated[:-1]] == [p.text for p in full[:-1]]
    passages = full[-1].inputs.pop("passages")
    assert "[3] Tavira" in passages
    assert ablated[-1].inputs == full[-1].inputs
    expected = unfolded(full[-1].system)
    for words, others in (
        ("the passages and the graph", "the graph"),
        ("complete span of the passages", "complete span of the graph"),
    ):
        assert expected.count(words) == 1
        expected = expected.replace(words, others)
    assert unfolded(ablated[-1].system) == expected


def test_without_iterative_retrieval_only_the_first_read_prompt_remains() -> None:
    full, ablated = prompts(), prompts(max_steps=1)
    assert len(ablated) == 2
    assert ablated[0].system == full[0].system
    first = full[0].inputs | {"search": "1 of 1, the last: a candidate, no query"}
    assert ablated[0].inputs == first
    assert ablated[1].system == full[-1].system
    assert ablated[1].inputs["passages"] == full[0].inputs["passages"]
    assert "Ines Marlow -> was born in -> Tavira" in ablated[1].inputs["graph"]


def test_a_text_index_changes_only_the_graph_parts_of_the_prompts() -> None:
    full, ablated = prompts(), prompts(index="text")
    assert len(ablated) == len(full)
    for mine, theirs in zip(ablated[:-1], full[:-1], strict=True):
        given = {"graph": mine.inputs.pop("notes_so_far"), **mine.inputs}
        changed = {"graph", "tried"}
        assert given.keys() == theirs.inputs.keys()
        assert {n: v for n, v in given.items() if n not in changed} == {
            name: text for name, text in theirs.inputs.items() if name not in changed
        }
        assert judging(mine.system) == judging(theirs.system)
        assert "link by link" in judging(mine.system) and "next_query" in judging(mine.system)
    assert [p.inputs.get("notes") for p in ablated] == [None, None, NOTES[1]]
    assert untold(ablated[1].inputs["tried"]) == untold(full[1].inputs["tried"])


def judging(system: str) -> str:
    """What a step that indexes and judges is told of judging."""
    told, _, form = system.partition(f"\n\n{ASKED}\n")
    return told.rpartition("\n\n")[2] + form[form.index("- reasoning") :]


def test_the_answer_prompt_with_a_text_index_says_notes_instead_of_graph() -> None:
    full, ablated = prompts()[-1], prompts(index="text")[-1]
    theirs, mine = full.inputs.pop("graph"), ablated.inputs.pop("notes")
    assert "Gilão" in theirs and mine == NOTES[1]
    assert ablated.inputs == full.inputs
    expected = unfolded(full.system).replace("and the graph", "and the notes")
    assert unfolded(ablated.system) == expected != unfolded(full.system)


def untold(tried: str) -> str:
    """The queries tried, without what the index gained by them."""
    return re.sub(r"; .*$", "", tried, flags=re.MULTILINE)


def test_the_judge_prompt_with_a_text_index_says_notes_instead_of_graph() -> None:
    full, ablated = prompts(as_published=True), prompts(as_published=True, index="text")
    for theirs, mine in zip(full[1:4:2], ablated[1:4:2], strict=True):
        expected = unfolded(theirs.system).replace("Judge from the graph", "Judge from the notes")
        assert unfolded(mine.system) == expected != unfolded(theirs.system)
        assert theirs.inputs.pop("graph") != mine.inputs.pop("notes")
        assert untold(theirs.inputs.pop("tried")) == untold(mine.inputs.pop("tried"))
        assert mine.inputs == theirs.inputs


def test_without_a_graph_the_judge_prompts_lack_only_the_graph() -> None:
    full, ablated = prompts(as_published=True), prompts(index=None)
    assert len(full) == 5 and len(ablated) == 3
    for theirs, mine in zip(full[1:4:2], ablated[:2], strict=True):
        expected = unfolded(theirs.system).replace(
            "Judge from the graph", "Judge from the passages"
        )
        assert unfolded(mine.system) == expected != unfolded(theirs.system)
        assert theirs.inputs.pop("graph") != "(empty)"
        assert untold(theirs.inputs["tried"]) == mine.inputs["tried"]
        theirs.inputs.pop("tried"), mine.inputs.pop("tried")
        assert mine.inputs == theirs.inputs


def test_without_a_graph_the_answer_prompt_is_that_of_qa_with_docs() -> None:
    assert prompts(index=None)[-1].text == prompts(answer_from="passages")[-1].text


def test_ablations_search_the_same_queries_given_the_same_replies() -> None:
    for settings in ({}, {"answer_from": "passages"}, {"index": "text"}, {"index": None}):
        queries: list[str] = []

        def note(query: str, k: int, queries: list[str] = queries) -> list[Passage]:
            queries.append(query)
            return search(query, k)

        with dspy.context(lm=scripted_lm(reply)):
            GraphAnchor(note, **settings)(question=QUESTION)
        assert queries == [QUESTION, "river in Tavira"], settings


@pytest.mark.parametrize("method", METHODS.values(), ids=METHODS)
def test_no_instruction_mentions_an_input_that_its_predictor_lacks(method: Method) -> None:
    for settings in ({}, {"as_published": True}):
        for name, predictor in method.make(search, **settings).named_predictors():
            signature = predictor.signature
            given = " ".join(signature.fields)
            spoken = " ".join(
                [
                    signature.instructions,
                    *(f.json_schema_extra["desc"] for f in signature.fields.values()),
                ]
            )
            for word, field in (
                ("graph", "graph"),
                ("notes", "notes"),
                ("transcript", "transcript"),
            ):
                assert field in given or not re.search(rf"\b{word}\b", spoken), (name, word)
            if "passages" not in given and "transcript" not in given:
                assert not re.search(r"\b(from|through|wording of) the passages\b", spoken), name
