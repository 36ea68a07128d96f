"""What all programs share: the prediction's fields, passages by round, costs, the token budget."""

from __future__ import annotations

import asyncio
import inspect
import random
import re
from collections.abc import Callable, Mapping
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any, Literal

import dspy
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ga_dspy import Index, extractive_lm
from ga_dspy.demo import DEMO_QUESTION, corpus, questions
from ga_dspy.errors import InputError
from ga_dspy.eval import load
from ga_dspy.lm.adapters import PlainAdapter
from ga_dspy.passage import Passage
from ga_dspy.programs import (
    ClosedBook,
    DeepNote,
    GraphAnchor,
    IRCoT,
    IterativeProgram,
    IterRetGen,
    MultiHopProgram,
    SearchR1,
    Usage,
    VanillaRAG,
    setting,
)
from ga_dspy.programs.loop import State
from ga_dspy.programs.prediction import as_json
from ga_dspy.testing import asked_fields, scripted_lm

SEARCHING = (VanillaRAG, GraphAnchor, IRCoT, IterRetGen, DeepNote, SearchR1)
EVERY = (*SEARCHING, ClosedBook)
ITERATIVE = tuple(program for program in SEARCHING if issubclass(program, IterativeProgram))
ENDED = "the token budget allows no further round: the search ends"
FIELDS = {
    "answer", "verdict", "supported", "guess", "evidence", "cited", "citations", "passages",
    "left_out", "graph", "notes", "steps", "failures", "is_transient", "usage", "calls",
    "tokens",
}  # fmt: skip
QUESTION = "Which river flows past the birthplace of Ines Marlow?"
MARLOW = Passage(id="marlow", title="Ines Marlow", text="Ines Marlow was born in Tavira.")
AGAIN = Passage(id="copy", title="Ines Marlow", text="Ines Marlow was born in Tavira.")
TAVIRA = Passage(id="tavira", title="Tavira", text="The river Gilão flows through Tavira.")
EVERYTHING = {
    "additions": "Relations:\n1. Ines Marlow -> was born in -> Tavira [1]",
    "reasoning": "The river is missing.", "judgement": "insufficient", "candidate": "",
    "next_query": "Tavira river", "query": "Tavira river", "thought": "She was born in Tavira.",
    "notes": "Born in Tavira [1].", "better": "new", "verdict": "answered",
    "links": "born in Tavira [1]",
}  # fmt: skip


@cache
def index() -> Index:
    return Index.from_passages(corpus(), kind="sparse")


@cache
def demo_questions() -> list[str]:
    return [
        row.question for split in ("dev", "train") for row in load("hotpotqa", questions(split))
    ]


def fill(prompt: str) -> Mapping[str, str]:
    """Any output fields a prompt asks for; an answer from whoever must give one."""
    wanted = asked_fields(prompt)
    answer = "" if "query" in wanted else "Tavira"
    return {name: {**EVERYTHING, "answer": answer}[name] for name in wanted}


def ask(program: MultiHopProgram, question: str = QUESTION, lm: Any = None) -> Any:
    with dspy.context(lm=lm or scripted_lm(fill)):
        return program(question=question)


def two(query: str, k: int) -> list[Passage]:
    """The first query brings one passage, twice; every later one brings it and another."""
    return [MARLOW, AGAIN] if query in (QUESTION, EVERYTHING["query"]) else [AGAIN, TAVIRA]


@pytest.mark.parametrize("program", EVERY)
def test_every_program_s_prediction_has_the_same_fields(program: type[MultiHopProgram]) -> None:
    assert set(ask(program(two)).keys()) == FIELDS


@pytest.mark.parametrize("kind", [np.str_, np.array, lambda text: np.array(text, dtype=object)])
def test_a_question_may_be_a_numpy_string(kind: Callable[[str], Any]) -> None:
    assert ask(VanillaRAG(two), kind(QUESTION)).answer == "Tavira"


@pytest.mark.parametrize("other", [np.array([QUESTION]), np.array(7), QUESTION.encode(), None])
def test_a_question_that_is_not_a_string_is_refused(other: Any) -> None:
    with pytest.raises(InputError, match=r"(?s)the question is .*expected a text"):
        ask(VanillaRAG(two), other)


@pytest.mark.parametrize("program", EVERY)
def test_every_prediction_can_be_written_as_json(program: type[MultiHopProgram]) -> None:
    record = as_json(ask(program(two)))
    assert record["calls"] == sum(used["calls"] for used in record["usage"].values())
    assert all("retrieved" in step for step in record["steps"])


def finish(prompt: str) -> Mapping[str, str]:
    """As `fill`, from an LM that sees the answer at once."""
    seen = {"judgement": "sufficient", "next_query": "", "query": "", "answer": "Tavira",
            "thought": "So the answer is: Tavira."}  # fmt: skip
    return {name: seen.get(name, text) for name, text in fill(prompt).items()}


@pytest.mark.parametrize("script", [fill, finish])
@pytest.mark.parametrize("program", EVERY)
def test_async_makes_the_same_calls_and_the_same_prediction(
    program: type[MultiHopProgram], script: Callable[[str], Mapping[str, str]]
) -> None:
    queries: list[str] = []

    def search(query: str, k: int) -> list[Passage]:
        queries.append(query)
        return two(query, k)

    lms = [scripted_lm(script), scripted_lm(script)]
    made = program(search)
    sync = ask(made, lm=lms[0])
    searched = len(queries)

    async def answer() -> Any:
        with dspy.context(lm=lms[1]):
            return await made.acall(question=QUESTION)

    assert dict(asyncio.run(answer()).items()) == dict(sync.items())
    assert lms[1].engine.prompts == lms[0].engine.prompts
    assert queries[searched:] == queries[:searched]


@pytest.mark.parametrize("program", SEARCHING)
def test_a_step_records_its_results_and_which_of_them_are_new(
    program: type[MultiHopProgram],
) -> None:
    prediction = ask(program(two))
    first = prediction.steps[0]
    assert (first.retrieved, first.passage_ids) == (("marlow",), ("marlow",))
    if len(prediction.steps) > 1:
        later = prediction.steps[1:]
        read = [passage_id for step in prediction.steps for passage_id in step.passage_ids]
        assert read == [passage.id for passage in prediction.passages]
        assert all(set(step.passage_ids) <= set(step.retrieved) for step in later)


def test_a_passage_returned_again_counts_as_retrieved_and_not_as_new() -> None:
    steps = ask(IterRetGen(two)).steps
    assert (steps[1].retrieved, steps[1].passage_ids) == (("marlow", "tavira"), ("tavira",))


def test_a_passage_under_another_id_is_identified_with_the_first() -> None:
    prediction = ask(VanillaRAG(two))
    assert [passage.id for passage in prediction.passages] == ["marlow"]
    assert prediction.steps[0].retrieved == ("marlow",)


def test_a_reformulated_query_s_passages_belong_to_its_step() -> None:
    found = {QUESTION: [MARLOW], "Tavira river": [MARLOW]}
    prediction = ask(GraphAnchor(lambda query, k: found.get(query, [TAVIRA]), max_steps=2))
    step = prediction.steps[1]
    assert step.query == "Tavira river" and step.reformulated.startswith("Tavira")
    assert (step.retrieved, step.passage_ids) == (("marlow", "tavira"), ("tavira",))


@pytest.mark.parametrize("program", EVERY)
def test_the_costs_of_the_steps_add_up_to_the_questions_cost(
    program: type[MultiHopProgram],
) -> None:
    lm = extractive_lm()
    prediction = ask(program(index()), DEMO_QUESTION, lm)
    used = prediction.usage.values()
    assert sum(part.calls for part in used) == prediction.calls == len(lm.history)
    told = [entry["usage"] for entry in lm.history]
    assert sum(part.prompt_tokens for part in used) == sum(u["prompt_tokens"] for u in told)
    assert sum(part.completion_tokens for part in used) == sum(u["completion_tokens"] for u in told)
    assert sum(part.tokens for part in used) == prediction.tokens > 0


def as_published(retriever: Any) -> GraphAnchor:
    return GraphAnchor(retriever, as_published=True)


@pytest.mark.parametrize(
    ("program", "names"),
    [
        (as_published, {"update", "judge", "answer"}),
        (VanillaRAG, {"answer"}),
        (ClosedBook, {"answer"}),
        (IterRetGen, {"answer"}),
        (IRCoT, {"think", "answer"}),
        (SearchR1, {"think", "answer"}),
        (DeepNote, {"update", "compare", "ask", "answer"}),
        (GraphAnchor, {"read", "answer"}),
    ],
)
def test_costs_are_reported_by_predictor(
    program: Callable[[Any], MultiHopProgram], names: set[str]
) -> None:
    made = program(two)
    assert set(ask(made).usage) <= names == {name for name, _ in made.named_predictors()}


def test_an_unusable_attempt_is_counted() -> None:
    answer = {"verdict": "answered", "links": "[1]", "answer": "Tavira"}
    prediction = ask(VanillaRAG(two), lm=scripted_lm(["{", answer]))
    assert prediction.usage["answer"].failed == prediction.calls == 1


@pytest.mark.parametrize("program", EVERY)
def test_a_repeated_question_has_the_same_cost_and_counts_as_cached(
    program: type[MultiHopProgram], tmp_path: Path
) -> None:
    dspy.configure_cache(
        enable_disk_cache=True, enable_memory_cache=True, disk_cache_dir=str(tmp_path)
    )
    lm = extractive_lm(cache=True)
    first, again = (ask(program(index()), DEMO_QUESTION, lm) for _ in range(2))
    assert again.answer == first.answer
    assert sum(used.cached for used in again.usage.values()) == again.calls == first.calls
    assert again.tokens == first.tokens > 0
    uncached = {name: used.model_copy(update={"cached": 0}) for name, used in again.usage.items()}
    assert uncached == {n: u.model_copy(update={"cached": 0}) for n, u in first.usage.items()}


def test_a_call_without_a_known_price_has_cost_none_not_zero() -> None:
    prediction = ask(VanillaRAG(index()), DEMO_QUESTION, extractive_lm())
    assert prediction.usage["answer"].cost is None
    assert Usage.total([Usage(calls=1, cost=0.25), prediction.usage["answer"]]).cost is None
    assert Usage.total([Usage(calls=1, cost=0.25), Usage(calls=1, cost=0.5)]).cost == 0.75


@pytest.mark.parametrize("program", ITERATIVE)
def test_the_search_ends_when_the_budget_allows_no_further_round(
    program: type[IterativeProgram],
) -> None:
    calls = count()

    def wander(prompt: str) -> Mapping[str, str]:
        another = f"Tavira river {next(calls)}"
        answer = {"answer": another} if program is IterRetGen else {}
        new = {"next_query": another, "query": another, "thought": another, **answer}
        return {name: new.get(name, text) for name, text in fill(prompt).items()}

    said = " ".join(f"Boat {n} came in on the tide." for n in range(60))
    found = [p.model_copy(update={"text": f"{p.text} {said}"}) for p in (MARLOW, TAVIRA)]
    free = ask(
        program(lambda query, k: found, max_steps=5, token_budget=10**6), lm=scripted_lm(wander)
    )
    bound = ask(
        program(lambda query, k: found, max_steps=5, token_budget=2200), lm=scripted_lm(wander)
    )
    assert len(free.steps) > len(bound.steps)
    assert bound.steps[-1].rule.endswith(ENDED) and not bound.steps[-1].next_query
    assert bound.answer


def test_the_last_round_is_not_reported_as_ended_by_the_token_budget() -> None:
    lm = scripted_lm(lambda prompt: {**fill(prompt), "next_query": "Tavira river"})
    found = ask(GraphAnchor(index(), max_steps=1, token_budget=2200), lm=lm)
    assert ENDED not in found.steps[-1].rule


def test_a_budget_that_is_never_reached_changes_nothing() -> None:
    for program in SEARCHING:
        free, bound = (ask(program(index(), token_budget=b), DEMO_QUESTION, extractive_lm())
                       for b in (None, 10**6))  # fmt: skip
        assert dict(free.items()) == dict(bound.items())


@given(
    program=st.sampled_from(SEARCHING),
    budget=st.integers(2000, 12_000),
    k=st.sampled_from((3, 10, 20)),
    seed=st.integers(0, 59),
)
@settings(max_examples=50, database=None)
def test_a_question_never_exceeds_its_token_budget(
    program: type[MultiHopProgram], budget: int, k: int, seed: int
) -> None:
    steps: dict[str, Any] = {"max_steps": 12} if issubclass(program, IterativeProgram) else {}
    question = random.Random(seed).choice(demo_questions())
    made = program(index(), token_budget=budget, k=k, **steps)
    prediction = ask(made, question, extractive_lm())
    assert prediction.tokens <= budget


@pytest.mark.parametrize("program", SEARCHING)
def test_each_step_that_reads_starts_with_a_worked_example(program: type[MultiHopProgram]) -> None:
    adapter = PlainAdapter()
    for name, predictor in program(index()).named_predictors():
        assert predictor.demos, name
        for demo in predictor.demos:
            outputs = {field: demo[field] for field in predictor.signature.output_fields}
            turns = adapter.format_demos(predictor.signature, [demo.toDict()])
            reply = turns[-1]["content"]
            assert "None" not in reply and demo["question"] in turns[0]["content"]
            parsed = adapter.parse(predictor.signature, reply)
            written = {field: getattr(v, "text", v) for field, v in parsed.items()}
            assert written == outputs


def test_the_closed_book_example_contains_its_own_answer() -> None:
    (demo,) = ClosedBook(index()).answer.demos
    assert demo.answer in demo.question


def test_a_smaller_passage_budget_puts_fewer_passages_in_the_prompt() -> None:
    lm, sizes, left_out = extractive_lm(), [], []
    for budget in (2000, 4000, 8000):
        prediction = ask(VanillaRAG(index(), k=50, token_budget=budget), DEMO_QUESTION, lm)
        prompt = lm.history[-1]["messages"][-1]["content"]
        sizes.append(len(re.findall(r"^\[\d+\] ", prompt, re.MULTILINE)))
        left_out.append(len(prediction.left_out))
        assert prediction.tokens <= budget
        assert len(prediction.passages) == 50
    assert sizes == sorted(sizes) and sizes[0] < sizes[1] < sizes[2]
    assert [size + out for size, out in zip(sizes, left_out, strict=True)] == [50] * 3


def test_other_inputs_reduce_the_room_for_passages() -> None:
    long = " ".join(f"Fact {n} about Tavira [1]." for n in range(150))
    found = [
        Passage(id=str(n), title=f"T{n}", text=f"Tavira {n} lies by the sea.") for n in range(60)
    ]
    script = [{"notes": text, "reasoning": "r", "judgement": "sufficient", "candidate": "",
               "next_query": ""} for text in ("Short.", long)]  # fmt: skip
    answer = {"verdict": "answered", "links": "[1]", "answer": "Tavira"}
    shown = []
    for read in script:
        program = GraphAnchor(lambda q, k: found, index="text", token_budget=6000, k=60)
        shown.append(len(ask(program, lm=scripted_lm([read, answer])).left_out))
    assert shown[0] < shown[1]


def test_at_most_a_quarter_of_the_token_budget_is_reserved_for_the_answers_passages() -> None:
    def share(budget: int) -> int:
        program = VanillaRAG(two, token_budget=budget, passage_tokens=100_000)
        state = State(QUESTION, program)
        state.reading.add(QUESTION, [MARLOW.model_copy(update={"text": "It is old. " * 9_000})])
        return state.budget.answer_share()

    assert share(8000) - share(4000) == 1000


@pytest.mark.parametrize("budget", [0, 1999, 3000.0, True])
def test_a_budget_too_small_for_an_answer_is_one_clear_error(budget: Any) -> None:
    with pytest.raises(InputError, match=r"token_budget is .*; expected a whole number from 2000"):
        VanillaRAG(two, token_budget=budget)


class Louder(VanillaRAG):
    """An app's own program.

    Written for one test.
    """

    volume: int = setting("How loud.", default=3, minimum=1)
    tone: Literal["high", "low"] = setting("How high.", default="low")
    label: str = setting("What it is called; not saved.", default="", saved=False)


def test_a_setting_declared_in_a_class_body_is_checked_saved_and_explained() -> None:
    program = Louder(two, volume=5, k=2)
    assert list(program.settings().items()) == [
        ("volume", 5), ("tone", "low"), ("k", 2), ("passage_tokens", 6000),
        ("token_budget", None), ("abstain", None), ("compare_facts", False),
    ]  # fmt: skip
    assert "volume (int): How loud. Default: " in str(Louder.__doc__)
    assert "k (int): Passages" in str(Louder.__doc__)
    parameters = inspect.signature(Louder.__init__).parameters
    assert parameters["tone"].annotation == Literal["high", "low"]
    assert parameters["volume"].default == 3 and parameters["label"].default == ""


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"volume": 0}, "volume is 0; expected a whole number from 1 to 1,000,000; pass volume=5"),
        ({"volume": True}, "volume is True; expected a whole number from 1"),
        ({"tone": "flat"}, "tone is 'flat'; expected one of 'high', 'low'; pass tone='high'"),
    ],
)
def test_a_setting_outside_its_declaration_is_one_clear_error(
    wrong: dict[str, Any], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        Louder(two, **wrong)
