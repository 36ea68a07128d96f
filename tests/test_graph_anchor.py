"""GraphAnchor's loop, rules, settings and prediction, with a scripted LM."""

from __future__ import annotations

import asyncio
import copy
import re
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from typing import Any

import dspy
import pytest

from ga_dspy import GraphAnchor, Passage, VanillaRAG
from ga_dspy.errors import InputError
from ga_dspy.testing import CutOff, Reply, scripted_lm

LODGE = Passage(id="lodge", title="Red Lodge", text="Red Lodge is the seat of Carbon County.")
CARBON = Passage(id="carbon", title="Carbon County", text="Carbon County lies in Montana.")
MONTANA = Passage(id="montana", title="Montana", text="Montana is a state; its capital is Helena.")
QUESTION = "In which state is the county whose seat is Red Lodge?"
CORPUS = {QUESTION: [LODGE], "Carbon County": [CARBON, LODGE], "Montana": [MONTANA]}


def search(query: str, k: int) -> list[Passage]:
    return CORPUS.get(query, [LODGE])[:k]


def read(additions: str, judgement: str, query: str = "", candidate: str = "") -> dict[str, str]:
    return {
        "additions": additions,
        "reasoning": "because",
        "judgement": judgement,
        "candidate": candidate,
        "next_query": query,
    }


SEAT = "Relations:\n1. Red Lodge -> is the seat of -> Carbon County [1]"
STATE = "Relations:\n1. Carbon County -> lies in -> Montana [2]"
INVENTED = "Relations:\n1. Red Lodge -> was founded by -> Bob Smith [1]"
FIRST = read(SEAT, "insufficient", "Carbon County")
SECOND = read(STATE, "sufficient", candidate="Montana")
EXHAUSTED = read(STATE, "exhausted", candidate="Montana")
ANSWER = {"verdict": "answered", "links": "[2]", "answer": "Montana"}


def run(script: Sequence[Reply], retriever: Any = search, **settings: Any) -> Any:
    lm = scripted_lm(script)
    with dspy.context(lm=lm):
        prediction = GraphAnchor(retriever, **settings)(question=QUESTION)
    prediction.prompts = lm.engine.prompts
    return prediction


def test_two_steps_lead_to_a_supported_answer_with_its_chain() -> None:
    prediction = run([FIRST, SECOND])
    assert (prediction.answer, prediction.supported, prediction.calls) == ("Montana", "chained", 2)
    assert [str(link) for link in prediction.evidence] == [
        'Red Lodge -> is the seat of -> Carbon County: "Red Lodge is the seat of Carbon County."'
        " (Red Lodge)",
        'Carbon County -> lies in -> Montana: "Carbon County lies in Montana." (Carbon County)',
    ]


def test_a_sufficient_verdict_without_a_candidate_asks_the_answer_step() -> None:
    guess = {**FIRST, "candidate": "Montana"}
    prediction = run([guess, {**SECOND, "candidate": ""}, ANSWER])
    assert (prediction.answer, prediction.calls) == ("Montana", 3)


def test_invented_entities_never_enter_the_graph() -> None:
    bad = read(INVENTED, "insufficient", "Montana")
    prediction = run([bad, bad, ANSWER], max_steps=2)
    assert all(not step.relations for step in prediction.steps)
    assert prediction.calls == 3 and "Bob Smith" not in "".join(prediction.prompts)
    assert "Bob Smith" not in str(prediction.graph)
    assert '"Bob Smith" not found' in str(prediction.steps[0].dropped[0])


def test_only_new_passages_go_to_the_read_step_under_stable_labels() -> None:
    prompts = run([FIRST, EXHAUSTED, ANSWER]).prompts
    assert "[1] Red Lodge\n" in prompts[0]
    assert "[2] Carbon County\n" in prompts[1] and "[1] Red Lodge\n" not in prompts[1]
    assert "[1] Red Lodge\n" in prompts[2] and "[2] Carbon County\n" in prompts[2]


def test_the_judge_sees_every_query_and_its_result() -> None:
    prompt = run([FIRST, SECOND]).prompts[1]
    assert f"1. {QUESTION} => [1] Red Lodge; 2 entities, 1 relations added\n" in prompt
    assert "2. Carbon County => [2]\n" in prompt


def test_the_answer_prompt_lacks_the_candidate_which_small_lms_would_repeat() -> None:
    prompt = run([FIRST, EXHAUSTED, ANSWER]).prompts[-1]
    assert "verdict" in prompt and "candidate ## ]]" not in prompt


def test_the_word_none_never_enters_a_prompt() -> None:
    script = [read(SEAT, "insufficient", "None", "N/A"), EXHAUSTED, ANSWER]
    prediction = run(script, by_words)
    assert prediction.steps[0].rule.startswith("no next query")
    assert not any(re.search(r"\]\]\n(None|N/A)\b", prompt) for prompt in prediction.prompts)


def test_a_next_query_is_ignored_if_the_judgement_is_sufficient() -> None:
    prediction = run([read(SEAT, "sufficient", "Carbon County"), ANSWER])
    assert len(prediction.steps) == 1


def test_a_missing_next_query_is_made_from_the_graph() -> None:
    prediction = run([read(SEAT, "insufficient"), SECOND], by_words)
    assert prediction.steps[1].query.startswith("Carbon County")


def test_only_queries_made_by_the_program_are_marked() -> None:
    asked = read(STATE, "insufficient", "Montana")
    prediction = run([read(SEAT, "insufficient"), asked, EXHAUSTED, ANSWER], by_words)
    assert [step.made for step in prediction.steps] == [False, True, False]


@pytest.mark.parametrize(
    ("reply", "query"),
    [
        ("1. FC Köln stadium", "1. FC Köln stadium"),
        ("2. Bundesliga 2010 top scorer", "2. Bundesliga 2010 top scorer"),
        ("Montana\n2. Bundesliga", "Montana 2. Bundesliga"),
    ],
)
def test_a_number_is_kept_in_a_query(reply: str, query: str) -> None:
    prediction = run([read(SEAT, "insufficient", reply), ANSWER])
    assert prediction.steps[1].query == query


def test_a_repeated_query_is_not_searched_again() -> None:
    prediction = run([read(SEAT, "insufficient", QUESTION.upper()), SECOND], by_words)
    assert "tried before" in prediction.steps[0].rule
    assert prediction.steps[1].query != QUESTION


def test_a_query_without_new_results_is_reformulated_once_from_the_graph() -> None:
    prediction = run([read(SEAT, "insufficient", "its state"), SECOND], by_words)
    assert prediction.steps[1].reformulated.startswith("Carbon County")
    assert prediction.steps[1].passage_ids == ("carbon",)


def test_the_search_ends_when_nothing_new_is_found() -> None:
    prediction = run([read(SEAT, "insufficient", "x"), ANSWER], lambda query, k: [LODGE])
    assert prediction.steps[-1].rule == "nothing new was found: the search ends"
    assert prediction.calls == 2


def test_a_retriever_that_finds_nothing_still_gets_an_answer() -> None:
    nothing = {"verdict": "not in passages", "links": "", "answer": "Montana"}
    prediction = run([nothing], lambda query, k: [])
    assert (prediction.answer, prediction.supported) == ("Montana", None)


def test_at_most_max_steps_rounds_are_run() -> None:
    assert len(run([FIRST, ANSWER], max_steps=1).steps) == 1


def by_words(query: str, k: int) -> list[Passage]:
    return [CARBON] if "Carbon" in query else [LODGE]


def test_a_failed_read_step_is_reported_and_the_question_still_answered() -> None:
    prediction = run([FIRST, *["gibberish"] * 4, ANSWER], max_steps=2)
    assert "read step got no usable output" in prediction.failures[0]
    assert (prediction.answer, prediction.supported) == ("Montana", "quoted")


def test_the_next_round_reads_the_passages_of_a_failed_read_step() -> None:
    prediction = run([FIRST, *["gibberish"] * 4, SECOND])
    assert prediction.failures == (prediction.steps[1].failure,)
    assert prediction.steps[1].rule == "the round failed: one was made from the graph"
    assert prediction.steps[2].made and "[2] Carbon County\n" in prediction.prompts[3]
    assert (prediction.answer, prediction.supported) == ("Montana", "chained")


def test_a_truncated_graph_is_requested_again() -> None:
    cut = CutOff("[[ ## additions ## ]]\nRelations:\n1. Red Lodge -> is the seat of -> Carb")
    prediction = run([cut, FIRST, SECOND])
    assert (prediction.calls, prediction.usage["read"].failed) == (2, 1)


def test_as_published_makes_separate_calls_to_index_to_judge_and_to_answer() -> None:
    def halves(reply: dict[str, str]) -> list[Reply]:
        judged = {name: text for name, text in reply.items() if name != "additions"}
        return [{"additions": reply["additions"]}, judged]

    prediction = run([*halves(FIRST), *halves(SECOND), ANSWER], as_published=True)
    assert (prediction.answer, prediction.calls) == ("Montana", 5)
    assert {name: cost.calls for name, cost in prediction.usage.items()} == {
        "update": 2, "judge": 2, "answer": 1,
    }  # fmt: skip


def test_a_text_index_replaces_the_graph() -> None:
    def notes(reply: dict[str, str], text: str) -> dict[str, str]:
        kept = {name: said for name, said in reply.items() if name != "additions"}
        return {"notes": text, **kept}

    script: list[Reply] = [notes(FIRST, "seat [1]"), notes(SECOND, "seat [1], state [2]"), ANSWER]
    prediction = run(script, index="text")
    assert prediction.notes == "seat [1], state [2]"
    assert "seat [1], state [2]" in prediction.prompts[-1]
    assert "graph ##" not in prediction.prompts[-1]


def test_without_an_index_the_prompts_have_passages_only() -> None:
    def judged(reply: dict[str, str]) -> dict[str, str]:
        return {name: said for name, said in reply.items() if name != "additions"}

    prediction = run([judged(FIRST), judged(SECOND), ANSWER], index=None)
    assert prediction.answer == "Montana"
    assert not any("graph ##" in prompt for prompt in prediction.prompts)


@pytest.mark.parametrize(
    ("answer_from", "seen", "hidden"),
    [("passages", "passages ##", "graph ##"), ("graph", "graph ##", "passages ##")],
)
def test_answer_from_limits_what_the_answer_prompt_contains(
    answer_from: str, seen: str, hidden: str
) -> None:
    prompt = run([FIRST, EXHAUSTED, ANSWER], answer_from=answer_from).prompts[-1]
    assert seen in prompt and hidden not in prompt


@pytest.mark.parametrize(
    ("reply", "supported"),
    [
        ({"verdict": "answered", "links": "[2]", "answer": "Montana"}, "chained"),
        ({"verdict": "answered", "links": "", "answer": "Montana"}, "chained"),
        ({"verdict": "answered", "links": "[1]", "answer": "seat"}, "quoted"),
        ({"verdict": "answered", "links": "", "answer": "seat"}, "quoted"),
        ({"verdict": "answered", "links": "[2]", "answer": "Wyoming"}, None),
        ({"verdict": "not in passages", "links": "[2]", "answer": "Montana"}, None),
        ({"verdict": "answered", "links": "[2]", "answer": "yes"}, "quoted"),
        ({"verdict": "answered", "links": "", "answer": "yes"}, None),
        (
            {"verdict": "premise refuted", "links": "[1]", "answer": "Red Lodge is a seat."},
            "quoted",
        ),
        ({"verdict": "premise refuted", "links": "", "answer": "Red Lodge is a seat."}, None),
        ({"verdict": "premise refuted", "links": "[1]", "answer": "It is no seat."}, None),
        ({"verdict": "premise refuted", "links": "[1]", "answer": "Bob Smith is dead."}, None),
    ],
)
def test_only_passages_that_were_read_support_an_answer(
    reply: dict[str, str], supported: str | None
) -> None:
    assert run([FIRST, EXHAUSTED, reply]).supported == supported


def test_abstaining_leaves_an_unsupported_answer_empty_and_keeps_the_guess() -> None:
    guess = {"verdict": "not in passages", "links": "", "answer": "Wyoming"}
    prediction = run([FIRST, EXHAUSTED, guess], abstain="quoted")
    assert (prediction.answer, prediction.guess) == ("", "Wyoming")


def test_a_passage_that_did_not_fit_is_shown_once_in_the_next_round() -> None:
    texts = [f"Town {n} lies on the river. " + "It has a mill and a bridge. " * 12 for n in (1, 2)]
    towns = [Passage(id=t[:6], title=t[:6], text=t) for t in texts]
    script = [read("", "insufficient", "a mill"), read("", "insufficient", "a bridge"), ANSWER]
    prediction = run(script, lambda query, k: towns, passage_tokens=100, max_steps=3)
    first, second, *_ = prediction.prompts
    assert "[1] Town 1\n" in first and "[2] Town 2\n" not in first
    assert "[2] Town 2\n" in second and "[1] Town 1\n" not in second
    assert [step.unread for step in prediction.steps] == [("Town 2",), (), ()]


def test_a_chain_satisfies_abstain_quoted() -> None:
    assert run([FIRST, SECOND], abstain="quoted").answer == "Montana"


def test_a_yes_without_a_chain_needs_an_answer_call() -> None:
    unsure = read(INVENTED, "sufficient", candidate="yes")
    assert run([unsure, {"verdict": "answered", "links": "", "answer": "no"}]).answer == "no"


def test_a_refuted_premise_without_an_answer_is_not_replaced_by_the_candidate() -> None:
    prediction = run([FIRST, EXHAUSTED, {"verdict": "premise refuted", "links": "", "answer": ""}])
    assert (prediction.answer, prediction.verdict) == ("", "premise refuted")


@pytest.mark.parametrize("script", [[FIRST, SECOND], [FIRST, EXHAUSTED, ANSWER]])
def test_async_makes_the_same_calls_and_the_same_prediction(script: list[Reply]) -> None:
    program = GraphAnchor(search)
    one, other = scripted_lm(script), scripted_lm(script)
    with dspy.context(lm=one):
        sync = program(question=QUESTION)

    async def ask() -> Any:
        with dspy.context(lm=other):
            return await program.acall(question=QUESTION)

    assert dict(asyncio.run(ask()).items()) == dict(sync.items())
    assert one.engine.prompts == other.engine.prompts and len(one.engine.prompts) == len(script)


def test_threads_share_a_program_without_mixing_questions() -> None:
    program = GraphAnchor(lambda query, k: [Passage(id=query, text=f"{query} is a thing.")])

    def reply(prompt: str) -> dict[str, str]:
        number = re.findall(r"question ## \]\]\n(\d+)", prompt)[-1]
        if "verdict" in prompt:
            return {"verdict": "answered", "links": "[1]", "answer": number}
        return read("(empty)", "sufficient", candidate=number)

    with dspy.context(lm=scripted_lm(reply)), ThreadPoolExecutor(8) as pool:
        jobs = [pool.submit(copy_context().run, program, question=str(n)) for n in range(40)]
        predictions = [job.result() for job in jobs]
    assert [p.answer for p in predictions] == [str(n) for n in range(40)]
    assert {(p.calls, len(p.passages)) for p in predictions} == {(2, 1)}


def test_unsupported_items_are_removed_from_the_trace() -> None:
    program = GraphAnchor(search)
    mixed = read(f"{SEAT}\n2. Red Lodge -> founded by -> Bob Smith [1]", "sufficient")
    with dspy.context(lm=scripted_lm([mixed, ANSWER]), trace=[]):
        program(question=QUESTION)
        trace = list(dspy.settings.trace)
    assert [predictor for predictor, _, _ in trace] == [program.read, program.answer]
    reply = trace[0][2]
    assert "Bob Smith" not in reply.additions.format()
    assert "Carbon County" in reply.additions.format()


def test_a_deep_copy_shares_the_retriever() -> None:
    program = GraphAnchor(search)
    assert copy.deepcopy(program).retriever is program.retriever
    assert program.deepcopy().retriever is program.retriever


@pytest.mark.parametrize(
    "settings",
    [
        {"k": 0},
        {"max_steps": 0},
        {"index": "grph"},
        {"graph_form": "yaml"},
        {"answer_from": "graph", "index": None},
        {"graph_form": "json", "index": "text"},
        {"graph_tokens": -1},
        {"as_published": "no"},
        {"as_published": 1},
    ],
)
def test_an_invalid_setting_is_one_clear_error(settings: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=r"expected .*; pass "):
        GraphAnchor(search, **settings)


def test_an_empty_question_is_one_clear_error() -> None:
    with pytest.raises(InputError, match="the question is ' '"):
        GraphAnchor(search)(question=" ")


def test_vanilla_rag_returns_the_same_fields_in_one_call() -> None:
    with dspy.context(lm=scripted_lm([{**ANSWER, "links": "[1]"}])):
        prediction = VanillaRAG(lambda query, k: [CARBON])(question=QUESTION)
    assert (prediction.answer, prediction.calls, prediction.supported) == ("Montana", 1, "quoted")
    assert prediction.evidence[0].quote == "Carbon County lies in Montana."
    assert set(dict(prediction.items())) | {"notes"} == set(dict(run([FIRST, SECOND]).items())) - {
        "prompts"
    }


def test_a_passage_budget_leaves_out_what_does_not_fit_and_says_so() -> None:
    long = Passage(
        id="long", title="Long", text=" ".join(f"Sentence {n} is here." for n in range(300))
    )
    prediction = run(
        [FIRST, EXHAUSTED, ANSWER],
        lambda q, k: [LODGE, long] if q == QUESTION else [CARBON],
        passage_tokens=60,
    )
    assert "Sentence 299" not in prediction.prompts[-1]
    assert "Carbon County lies in Montana" in prediction.prompts[-1]


def test_the_answer_can_be_streamed() -> None:
    program = GraphAnchor(search)
    listener = dspy.streaming.StreamListener("answer", predict=program.answer)
    streamed = dspy.streamify(program, stream_listeners=[listener], async_streaming=False)
    with dspy.context(lm=scripted_lm([FIRST, EXHAUSTED, ANSWER])):
        parts = list(streamed(question=QUESTION))
    assert "".join(p.chunk for p in parts if isinstance(p, dspy.streaming.StreamResponse)) == (
        "Montana"
    )
    assert parts[-1].answer == "Montana"


def test_the_answer_corrects_a_refuted_premise() -> None:
    lee = Passage(id="lee", title="Harper Lee", text="Harper Lee wrote a novel. She never married.")
    refuted = {
        "verdict": "premise refuted",
        "links": "[1]",
        "answer": "Harper Lee, the author of the novel, never married.",
    }
    script = [read("Relations:\n1. Harper Lee -> never -> married [1]", "sufficient"), refuted]
    prediction = run(script, lambda query, k: [lee])
    assert (prediction.verdict, prediction.supported) == ("premise refuted", "quoted")
    assert prediction.answer.endswith("never married.")
    assert [link.passage_id for link in prediction.evidence] == ["lee"]
