"""DSPy's and MLflow's tools work with a program as with any module."""

from __future__ import annotations

import asyncio
import inspect
import random
from pathlib import Path
from typing import Any

import dspy
import pytest
from dspy.utils.callback import BaseCallback

from ga_dspy import grounding, load, save
from ga_dspy.errors import InputError
from ga_dspy.grounding import shown_passages
from ga_dspy.optimize.mlflow_store import mlflow_client
from ga_dspy.passage import Passage
from ga_dspy.programs import GraphAnchor, VanillaRAG
from ga_dspy.programs.calls import Ask
from ga_dspy.signatures.prompt import render_passages
from ga_dspy.testing import scripted_lm

QUESTION = "In which state is the city on Rock Creek?"
CREEK = Passage(id="creek", title="Rock Creek", text="Rock Creek flows through Red Lodge.")
LODGE = Passage(
    id="lodge", title="Red Lodge", text="Red Lodge is a city in Montana.", metadata={"page": 2}
)
READ = {
    "additions": "Relations:\n1. Rock Creek -> flows through -> Red Lodge [1]\n"
    "2. Red Lodge -> is a city in -> Montana [2]",
    "reasoning": "", "judgement": "sufficient", "candidate": "Montana", "next_query": "",
}  # fmt: skip
ANSWER = {"links": "[2]", "verdict": "answered", "answer": "Montana"}


def search(query: str, k: int) -> list[Passage]:
    return [CREEK, LODGE]


def ask(program: Any, script: Any = (READ,), **context: Any) -> Any:
    with dspy.context(lm=scripted_lm(list(script)), **context):
        return program(question=QUESTION)


# --- Callbacks and MLflow's spans


class Spy(BaseCallback):
    """Notes the searches and the adapters that a callback is told of."""

    def __init__(self) -> None:
        self.searches: list[Any] = []
        self.found: list[Any] = []
        self.adapters: set[str] = set()
        self._ids: set[str] = set()

    def on_module_start(self, call_id: str, instance: Any, inputs: dict[str, Any]) -> None:
        if isinstance(instance, dspy.Retrieve):
            self._ids.add(call_id)
            self.searches.append(inputs["kwargs"])

    def on_module_end(
        self, call_id: str, outputs: Any, exception: BaseException | None = None
    ) -> None:
        if call_id in self._ids:
            self.found.append(exception or [document["id"] for document in outputs])

    def on_adapter_format_start(self, call_id: str, instance: Any, inputs: dict[str, Any]) -> None:
        self.adapters.add(type(instance).__name__)


def test_a_callback_sees_each_search_and_the_adapter_by_name() -> None:
    spy = Spy()
    ask(GraphAnchor(search, k=3), callbacks=[spy])
    assert spy.searches == [{"query": QUESTION, "k": 3}]
    assert spy.found == [["creek", "lodge"]]
    assert spy.adapters == {"PlainAdapter"}


@pytest.mark.parametrize("is_async", [False, True])
def test_a_callback_sees_each_step_with_its_inputs_and_outputs(is_async: bool) -> None:
    class Steps(BaseCallback):
        def __init__(self) -> None:
            self.begun: dict[str, Any] = {}
            self.ended: list[tuple[str, Any]] = []

        def on_module_start(self, call_id: str, instance: Any, inputs: dict[str, Any]) -> None:
            if isinstance(instance, Ask):
                self.begun[call_id] = (type(instance).__name__, inputs["kwargs"]["question"])

        def on_module_end(
            self, call_id: str, outputs: Any, exception: BaseException | None = None
        ) -> None:
            if call_id in self.begun:
                self.ended.append((self.begun[call_id][0], exception or outputs.keys()))

    steps, program = Steps(), GraphAnchor(search, max_steps=1)
    replies: list[Any] = [{**READ, "judgement": "insufficient"}, *[dspy.LMError("refused")] * 9]
    with dspy.context(lm=scripted_lm(replies), callbacks=[steps]):
        asked = {"question": QUESTION}
        _ = asyncio.run(program.acall(**asked)) if is_async else program(**asked)
    assert [*steps.begun.values()] == [("read", QUESTION), ("answer", QUESTION)]
    (read, fields), (answer, error) = steps.ended
    assert (read, answer) == ("read", "answer")
    assert "judgement" in fields
    assert isinstance(error, dspy.LMError)


@pytest.mark.parametrize("is_async_source", [False, True])
def test_a_callback_sees_an_async_search(is_async_source: bool) -> None:
    async def asearch(query: str, k: int) -> list[Passage]:
        return search(query, k)

    spy, program = Spy(), VanillaRAG(asearch if is_async_source else search)
    with dspy.context(lm=scripted_lm([ANSWER]), callbacks=[spy]):
        asyncio.run(program.acall(question=QUESTION))
    assert (len(spy.searches), spy.found) == (1, [["creek", "lodge"]])


def test_a_callback_sees_the_error_of_a_search() -> None:
    def fail(query: str, k: int) -> list[Passage]:
        raise OSError("the store is away")

    spy = Spy()
    with pytest.raises(OSError, match="the store is away"):
        ask(VanillaRAG(fail), callbacks=[spy])
    assert [str(error) for error in spy.found] == ["the store is away"]


def test_a_search_by_a_dspy_retriever_triggers_callbacks_once() -> None:
    class Rows(dspy.Retrieve):
        def forward(self, query: str, k: int | None = None) -> Any:
            return [{"id": p.id, "text": p.text} for p in search(query, 3)]

    spy = Spy()
    ask(VanillaRAG(Rows(k=3)), [ANSWER], callbacks=[spy])
    assert len(spy.searches) == 1


def test_callbacks_do_not_advance_the_random_state() -> None:
    drawn = []
    for callbacks in ([], [Spy()]):
        random.seed(7)
        ask(VanillaRAG(search), [ANSWER], callbacks=callbacks)
        drawn.append(random.random())
    assert drawn[0] == drawn[1]


@pytest.fixture
def autologged(tmp_path: Path) -> Any:
    """A store of traces that `mlflow.dspy.autolog()` writes into."""
    mlflow = pytest.importorskip("mlflow")
    # Setting the URI that MLflow reports by default would leave it in the environment.
    with mlflow_client(f"sqlite:///{tmp_path / 'mlflow.db'}"):
        mlflow.dspy.autolog()
        try:
            yield mlflow
        finally:
            mlflow.dspy.autolog(disable=True)
            mlflow.flush_trace_async_logging(terminate=True)


def test_autolog_shows_a_search_as_a_retriever_span_with_its_documents(autologged: Any) -> None:
    program = GraphAnchor(search)
    with dspy.context(lm=scripted_lm([READ, READ])):
        program(question=QUESTION)
        asyncio.run(program.acall(question=QUESTION))
    autologged.flush_trace_async_logging()
    traces = autologged.search_traces(return_type="list", include_spans=True)
    assert len(traces) == 2
    for trace in traces:
        (found,) = trace.search_spans(span_type="RETRIEVER")
        assert found.inputs == {"query": QUESTION, "k": 5}
        assert found.outputs[1] == {
            "id": "lodge",
            "page_content": "Red Lodge is a city in Montana.",
            "metadata": {"title": "Red Lodge", "doc_uri": "Red Lodge", "page": 2},
        }
        root = next(span for span in trace.data.spans if span.parent_id is None)
        assert (root.name, found.parent_id) == ("GraphAnchor.forward", root.span_id)
        (step,) = trace.search_spans(name="read.forward")
        assert (step.parent_id, step.span_type) == (root.span_id, "CHAIN")
        assert (step.inputs["question"], step.outputs["candidate"]) == (QUESTION, "Montana")
        (predictor,) = trace.search_spans(name="Predict.forward")
        assert predictor.parent_id == step.span_id
        parsers = {span.name for span in trace.search_spans(span_type="PARSER")}
        assert parsers == {"PlainAdapter.format", "PlainAdapter.parse"}


# --- Majority votes


def test_dspy_majority_votes_by_answer() -> None:
    programs = [VanillaRAG(search) for _ in range(3)]
    replies = [{**ANSWER, "answer": text} for text in ("Idaho", "Montana", "montana")]
    ensemble = dspy.Ensemble(reduce_fn=dspy.majority).compile(programs)
    with dspy.context(lm=scripted_lm(replies)):
        voted = ensemble(question=QUESTION)
    assert (voted.answer, voted.supported) == ("Montana", "quoted")


def test_the_majority_of_one_prediction_is_that_prediction() -> None:
    assert dspy.majority(ask(VanillaRAG(search), [ANSWER])).answer == "Montana"


# --- Agents

STEPS = (
    {"next_thought": "Ask.", "next_tool_name": "answer_from_documents",
     "next_tool_args": f'{{"question": "{QUESTION}"}}'},
    READ,
    {"next_thought": "Done.", "next_tool_name": "finish", "next_tool_args": "{}"},
    {"reasoning": "", "answer": "Montana"},
)  # fmt: skip


def test_a_tool_of_an_async_agent_does_not_block_the_event_loop() -> None:
    turns: list[str] = []

    async def slow(query: str, k: int) -> list[Passage]:
        turns.append("search begins")
        await asyncio.sleep(0.05)
        turns.append("search ends")
        return search(query, k)

    async def other() -> None:
        while "search begins" not in turns:
            await asyncio.sleep(0.001)
        turns.append("other task")

    async def both() -> Any:
        agent = dspy.ReAct("question -> answer", tools=[GraphAnchor(slow).as_tool()])
        return (await asyncio.gather(agent.acall(question=QUESTION), other()))[0]

    with dspy.context(lm=scripted_lm(list(STEPS)), adapter=dspy.JSONAdapter()):
        found = asyncio.run(both())
    assert turns == ["search begins", "other task", "search ends"]
    assert found.trajectory["observation_0"].startswith("Montana\n[")


def test_the_same_tool_works_in_a_sync_agent() -> None:
    agent = dspy.ReAct("question -> answer", tools=[GraphAnchor(search).as_tool()])
    found = ask(agent, STEPS, adapter=dspy.JSONAdapter())
    assert found.trajectory["observation_0"].startswith("Montana\n[")
    assert agent.deepcopy().tools.keys() == agent.tools.keys()


def test_a_tool_has_a_description_for_agents() -> None:
    tool = GraphAnchor(search).as_tool()
    assert "complete question" in tool.args["question"]["description"]
    assert "setting" not in str(tool).lower()
    assert GraphAnchor(search).as_tool("wiki", "Knows Montana.").desc == "Knows Montana."


# --- Settings by assignment


def test_an_assigned_setting_applies_to_searches_settings_and_copies(
    tmp_path: Path,
) -> None:
    depths: list[int] = []

    def count(query: str, k: int) -> list[Passage]:
        depths.append(k)
        return [CREEK, LODGE]

    program = GraphAnchor(count)
    before = program.read
    program.k = 7
    ask(program)
    assert (depths, program.read is before) == ([7], True)
    assert program.settings()["k"] == program.deepcopy().k == 7
    program.style = "sentence"
    save(program, tmp_path / "artifact")
    loaded: Any = load(tmp_path / "artifact", retriever=count)
    assert (loaded.k, loaded.style) == (7, "sentence")


@pytest.mark.parametrize(
    ("name", "value", "steps"),
    [
        ("as_published", True, ["answer", "update", "judge"]),
        ("index", "text", ["answer", "read"]),
        ("index", None, ["answer", "judge"]),
        ("answer_from", "graph", ["read", "answer"]),
        ("style", "report", ["read", "answer"]),
        ("max_steps", 9, ["read", "answer"]),
    ],
)
def test_assigning_a_setting_rebuilds_the_predictors_that_depend_on_it(
    name: str, value: Any, steps: list[str]
) -> None:
    program = GraphAnchor(search)
    setattr(program, name, value)
    made = GraphAnchor(search, **{name: value})
    asked = {n: one.signature for n, one in program.named_predictors()}
    assert sorted(asked) == sorted(steps) == sorted(n for n, _ in made.named_predictors())
    for step, predictor in made.named_predictors():
        assert asked[step].equals(predictor.signature)
        assert list(asked[step].fields) == list(predictor.signature.fields)


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("k", 0, "k is 0"),
        ("k", "7", "k is '7'"),
        ("style", "essay", "style is 'essay'"),
        ("answer_from", "none", "answer_from is 'none'"),
        ("answer_with", dspy.Signature("question -> tone"), "an output field called answer"),
    ],
)
def test_an_assigned_setting_is_validated_like_an_argument(
    name: str, value: Any, says: str
) -> None:
    program = GraphAnchor(search)
    with pytest.raises(InputError, match=says):
        setattr(program, name, value)
    assert getattr(program, name) == getattr(GraphAnchor(search), name)


def test_conflicting_settings_are_refused_and_nothing_changes() -> None:
    program = GraphAnchor(search, answer_from="graph")
    with pytest.raises(InputError, match="answer_from='graph' and no index"):
        program.index = None
    assert (program.index, sorted(n for n, _ in program.named_predictors())) == (
        "graph",
        ["answer", "read"],
    )


def test_a_setting_that_would_discard_demos_is_refused() -> None:
    program = GraphAnchor(search)
    program.answer.demos = program.read.demos = [dspy.Example(question="?", answer="!")]
    program.k = 9
    for name, value, step in (("as_published", True, "read"), ("style", "sentence", "answer")):
        with pytest.raises(InputError, match=f"{name}={value!r} changes what {step} asks"):
            setattr(program, name, value)
    assert (program.as_published, program.style) == (False, "span")
    assert len(program.read.demos) == len(program.answer.demos) == 1
    program.read.demos = []
    program.read.signature = program.read.signature.with_instructions("Compiled.")
    with pytest.raises(InputError, match="changes what read, answer asks"):
        program.index = "text"


def test_a_state_of_other_predictors_is_refused_by_name(tmp_path: Path) -> None:
    GraphAnchor(search).save(tmp_path / "state.json")
    apart = GraphAnchor(search, as_published=True)
    with pytest.raises(InputError, match="the state has the predictors read, answer; expected"):
        apart.load(tmp_path / "state.json")


# --- Help


@pytest.mark.parametrize("kind", [GraphAnchor, VanillaRAG])
def test_a_program_s_help_lists_every_argument_with_type_and_default(kind: Any) -> None:
    parameters = inspect.signature(kind).parameters
    assert next(iter(parameters)) == "retriever" and parameters["k"].default == 5
    assert parameters.keys() == {"retriever", *kind.declared()}
    about = inspect.getdoc(kind) or ""
    assert about.count("Args:") == 1
    assert "    k (int): " in about and " Default: 5." in about and "    retriever: " in about
    assert all(f"    {name} (" in about for name in kind.declared())


def test_the_signature_of_an_instance_is_that_of_a_call() -> None:
    parameters = inspect.signature(GraphAnchor(search)).parameters
    assert list(parameters)[:2] == ["question", "config"]


# --- Grounding as a reward

INVENTED = {**READ, "additions": f"{READ['additions']}\n3. Red Lodge -> lies in -> Idaho [2]"}
SHOWN = render_passages(enumerate([CREEK, LODGE], 1))
GIVEN = {"question": QUESTION, "search": "1 of 4", "tried": "", "graph": "(empty)",
         "passages": SHOWN}  # fmt: skip


def test_shown_passages_reads_back_rendered_passages() -> None:
    lines = Passage(id="x", title="List", text="Cities:\n[9] Billings\n- Red Lodge")
    shown = shown_passages(render_passages([(1, CREEK), (4, lines), (7, LODGE)]))
    assert {n: (p.title, p.text) for n, p in shown.items()} == {
        1: (CREEK.title, CREEK.text), 4: (lines.title, lines.text), 7: (LODGE.title, LODGE.text),
    }  # fmt: skip


@pytest.mark.parametrize(
    ("lines", "share"),
    [
        (READ["additions"], 1.0),
        (INVENTED["additions"], 2 / 3),
        ("Relations:\n1. Bath -> in -> Mars [1]", 0.0),
        ("none", 1.0),
    ],
)
def test_the_reward_is_the_share_of_supported_items(lines: str, share: float) -> None:
    assert grounding.reward(GIVEN, dspy.Prediction(additions=lines)) == pytest.approx(share)


@pytest.mark.parametrize("kind", [dspy.Refine, dspy.BestOfN])
def test_refine_and_best_of_n_retry_the_read_step_until_it_is_grounded(kind: Any) -> None:
    wrapped = kind(GraphAnchor(search).read, N=3, reward_fn=grounding.reward, threshold=1.0)
    advice = {"discussion": "", "advice": '{"self": "Only what the passages state."}'}
    script = [INVENTED, *([advice] if kind is dspy.Refine else []), READ]
    lm = scripted_lm(script)
    with dspy.context(lm=lm, adapter=dspy.JSONAdapter()):
        found = wrapped(**GIVEN)
    assert "Idaho" not in found.additions.format() and len(lm.engine.prompts) == len(script)


@pytest.mark.parametrize("is_async", [False, True])
def test_a_program_accepts_best_of_n_in_place_of_a_predictor(is_async: bool) -> None:
    program = GraphAnchor(search)
    program.read = dspy.BestOfN(program.read, N=3, reward_fn=grounding.reward, threshold=1.0)
    with dspy.context(lm=scripted_lm([INVENTED, READ])):
        if is_async:
            found = asyncio.run(program.acall(question=QUESTION))
        else:
            found = program(question=QUESTION)
    assert (found.answer, found.calls, found.steps[0].dropped) == ("Montana", 2, ())


def test_the_reward_is_a_metric_of_whole_programs() -> None:
    program = GraphAnchor(search)
    found = ask(program, [INVENTED])
    kept = len(found.graph.entities) + len(found.graph.relations)
    assert grounding.reward(dspy.Example(question=QUESTION), found) == kept / (kept + 1)
    assert grounding.reward({}, ask(program)) == 1.0


def test_a_reward_for_a_reply_without_additions_is_refused() -> None:
    with pytest.raises(
        InputError, match="the inputs are question, the outputs answer; expected the addit"
    ):
        grounding.reward({"question": "?"}, dspy.Prediction(answer="!"))


def test_a_passage_supports_a_phrase_or_a_triple_whose_ends_it_names() -> None:
    assert grounding.supports(LODGE, "a city in Montana")
    assert grounding.supports(LODGE, ("Red Lodge", "is in", "Montana"))
    assert not grounding.supports(LODGE, ("Red Lodge", "is in", "Idaho"))
