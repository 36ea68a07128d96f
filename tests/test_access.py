"""Two tenants in one index: however one of them asks, it gets nothing of the other.

Everything of the other tenant has "zenith", "Brackwater" or "Burwick" in it: ids, metadata, titles,
texts. It stands under the names of the first tenant's passages too, so that words, links, anchors
and entities lead to it.
"""

from __future__ import annotations

import asyncio
import copy
import inspect
import json
import pickle
import re
import threading
from collections.abc import AsyncIterator, Callable, Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import dspy
import pytest
from dspy.teleprompt.bootstrap_trace import bootstrap_trace_data
from starlette.concurrency import iterate_in_threadpool

from ga_dspy import GraphAnchor, Index, Passage, VanillaRAG
from ga_dspy.errors import InputError
from ga_dspy.eval import protocol_of, run
from ga_dspy.eval.protocol import ProtocolMismatch
from ga_dspy.programs import MultiHopProgram, watching
from ga_dspy.testing import Reply, asked_fields, given_fields, scripted_lm

QUESTION = "Where was the designer of the Halden Bridge born?"
FACTS = {
    "acme": [
        ("Halden Bridge", "Amberline designed the Halden Bridge."),
        ("Amberline", "Amberline was born in Aldermoor."),
        ("Aldermoor", "Aldermoor lies by the sea."),
    ],
    "zenith": [
        ("Halden Bridge", "Brackwater designed the Halden Bridge."),
        ("Brackwater", "Brackwater was born in Burwick."),
        ("Amberline", "Amberline, the designer, was taught by Brackwater in Burwick."),
    ],
}
PASSAGES = [
    Passage(id=f"{tenant}-{n}", title=title, text=text, metadata={"tenant": tenant, "lang": "en"})
    for tenant, facts in FACTS.items()
    for n, (title, text) in enumerate(facts)
]
OURS, THEIRS = {"tenant": "acme"}, {"tenant": "zenith"}
ALL = {"tenant": ["acme", "zenith"]}
FOREIGN = re.compile("zenith|Brackwater|Burwick", re.IGNORECASE)
OWN = re.compile("acme|Amberline|Aldermoor", re.IGNORECASE)


def reply(prompt: str) -> Reply:
    """Reads whichever designer it is shown, goes on to that name, and answers."""
    shown = "\n".join(given_fields(prompt).values()) or prompt
    who, where = ("Brackwater", "Burwick") if "Brackwater" in shown else ("Amberline", "Aldermoor")
    is_told = "observation_0" in prompt
    fields = {
        "additions": f"{who} -> designed -> Halden Bridge [1]",
        "reasoning": f"{who} was born in {where}",
        "judgement": "sufficient" if f"born in {where}" in shown else "insufficient",
        "candidate": where,
        "next_query": f"{who} born",
        "links": f"{who} [1, 2]",
        "verdict": "answered",
        "answer": where,
        "next_thought": "ask",
        "next_tool_name": "finish" if is_told else "answer_from_documents",
        "next_tool_args": "{}" if is_told else json.dumps({"question": QUESTION}),
        "discussion": "none",
        "advice": "{}",
    }
    return {name: fields.get(name, where) for name in asked_fields(prompt)}


@pytest.fixture(scope="module")
def index() -> Index:
    return Index.from_passages(PASSAGES, encoder="hash-64")


class World:
    """A program over both tenants' passages, asked by the other tenant before anybody else."""

    def __init__(self, index: Index, kind: type[MultiHopProgram] = GraphAnchor) -> None:
        self.index, self.prompts = index, list[str]()
        prompts = self.prompts

        def record(prompt: str) -> Reply:  # also of copies of the LM
            prompts.append(prompt)
            return reply(prompt)

        self.lm = scripted_lm(record)
        self.program = self.made(kind)
        assert FOREIGN.search(told(self.program(question=QUESTION, where=THEIRS)))
        self.prompts.clear()

    def made(self, kind: type[MultiHopProgram]) -> Any:
        program = kind(self.index)
        program.set_lm(self.lm)
        if isinstance(program, Composed):
            program.compose(self.lm)
        return program


@pytest.fixture
def world(index: Index) -> World:
    return World(index)


def told(found: Any) -> str:
    """All that an outcome says."""
    if isinstance(found, dspy.Prediction):
        found = [repr(found), dict(found)]
    return json.dumps(found, default=repr, ensure_ascii=False)


def check(world: World, found: Any, *beside: Any) -> None:
    """What came out, and what the LM was shown, is of the first tenant."""
    texts = [told(found), *map(told, beside), *world.prompts]
    assert OWN.search(texts[0]) and world.prompts
    leaks = [text for text in texts if FOREIGN.search(text)]
    assert not leaks, leaks[0][:2000]


# --- Python and DSPy: each function gets a program and the arguments of its call


def questions(program: Any, given: Any, count: int = 3) -> Generator[Any, None, None]:
    for _ in range(count):
        yield program(question=QUESTION, **given)


async def aquestions(program: Any, given: Any, count: int = 3) -> AsyncIterator[Any]:
    for _ in range(count):
        yield await program.acall(question=QUESTION, **given)


async def listed(items: AsyncIterator[Any]) -> list[Any]:
    return [item async for item in items]


def in_a_thread(program: Any, given: Any) -> Any:
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.extend(questions(program, given, 1)))
    thread.start()
    thread.join()
    return found


def in_an_executor(program: Any, given: Any) -> Any:
    with ThreadPoolExecutor(2) as pool:
        return list(pool.map(lambda _: program(question=QUESTION, **given), range(3)))


async def in_a_loops_executor(program: Any, given: Any) -> Any:
    loop = asyncio.get_running_loop()
    return await loop.run_in_executor(None, lambda: program(question=QUESTION, **given))


def example(given: Any) -> dspy.Example:
    return dspy.Example(question=QUESTION, answer="Aldermoor", **given).with_inputs(
        "question", *given
    )


def optimized(program: Any, given: Any) -> Any:
    """With `forward` replaced on the object, as GEPA does."""
    return bootstrap_trace_data(
        program, [example(given)], metric=lambda *_: 1.0, num_threads=1, raise_on_error=True
    )


def demonstrated(program: Any, given: Any) -> Any:
    optimizer = dspy.BootstrapFewShot(metric=lambda *_: True, max_labeled_demos=0)
    compiled = optimizer.compile(program, trainset=[example(given)])
    return [predictor.demos for predictor in compiled.predictors()]


def best(kind: Any, program: Any, given: Any) -> Any:
    module = kind(module=program, N=2, reward_fn=lambda args, found: 0.0, threshold=1.0)
    return module(question=QUESTION, **given)


def watched(program: Any, given: Any) -> Any:
    heard: list[Any] = []
    with watching(lambda event: heard.append(vars(event))), dspy.context(trace=[]):
        found = program(question=QUESTION, **given)
        return [heard, dict(found), dspy.settings.trace]


def asyncified(program: Any, given: Any) -> Any:
    return asyncio.run(dspy.asyncify(program)(question=QUESTION, **given))


WAYS: dict[str, Callable[[Any, Any], Any]] = {
    "call": lambda p, given: p(question=QUESTION, **given),
    "acall": lambda p, given: asyncio.run(p.acall(question=QUESTION, **given)),
    "events, trace": watched,
    "config": lambda p, given: p(question=QUESTION, config={"temperature": 0.5}, **given),
    "asyncify": asyncified,
    "syncify": lambda p, given: dspy.syncify(p, in_place=False)(question=QUESTION, **given),
    "syncify in place": lambda p, given: dspy.syncify(copy.copy(p))(question=QUESTION, **given),
    "batch": lambda p, given: p.batch([example(given)] * 3, num_threads=2),
    "Parallel": lambda p, given: dspy.Parallel(num_threads=2)([(p, example(given))] * 3),
    "Evaluate": lambda p, given: (
        dspy.Evaluate(devset=[example(given)], metric=lambda *_: 1.0, num_threads=2)(p).results
    ),
    "Thread": in_a_thread,
    "ThreadPoolExecutor": in_an_executor,
    "run_in_executor": lambda p, given: asyncio.run(in_a_loops_executor(p, given)),
    "to_thread": lambda p, given: asyncio.run(asyncio.to_thread(p, question=QUESTION, **given)),
    "generator": lambda p, given: list(questions(p, given)),
    "generator in threads": lambda p, given: asyncio.run(
        listed(iterate_in_threadpool(questions(p, given)))
    ),
    "async generator": lambda p, given: asyncio.run(listed(aquestions(p, given))),
    "Refine": lambda p, given: best(dspy.Refine, p, given),
    "BestOfN": lambda p, given: best(dspy.BestOfN, p, given),
    "deepcopy": lambda p, given: p.deepcopy()(question=QUESTION, **given),
    "forward replaced": optimized,
    "demonstrations": demonstrated,
}


@pytest.mark.parametrize("given", [{}, {"where": OURS}], ids=["only", "where"])
@pytest.mark.parametrize("way", WAYS)
def test_a_tenant_gets_its_own_passages_however_it_asks(world: World, way: str, given: Any) -> None:
    program = world.program if given else world.program.only(OURS)
    check(world, WAYS[way](program, given), [] if given else program.history)


class OwnForward(GraphAnchor):
    """A program of a user's, which searches by itself too."""

    def forward(self, question: str, config: Any = None) -> Any:
        found = super().forward(question, config)
        found.beside = [passage.content for passage in self.retriever(question, 9)]
        return found


class OwnAforward(GraphAnchor):
    async def aforward(self, question: str) -> Any:
        found = await super().aforward(question)
        found.beside = [passage.content for passage in await self.retriever.acall(question, 9)]
        return found


class Takes:
    """A `forward` that is inherited from elsewhere, and passes over what it does not know."""

    def forward(self, question: str, **_: Any) -> Any:
        return MultiHopProgram.forward(self, question)


class Mixed(Takes, GraphAnchor):
    pass


class Composed(GraphAnchor):
    """One with other retrievers, programs and tools among its attributes."""

    def compose(self, lm: dspy.LM) -> None:
        inner = VanillaRAG(self.retriever)
        self.parts = {"programs": [inner], "look": self.retriever.search}
        self.agent = dspy.ReAct("question -> answer", tools=[inner.as_tool()])
        for part in (inner, self.agent):
            part.set_lm(lm)

    def forward(self, question: str) -> Any:
        inner, look = self.parts["programs"][0], self.parts["look"]
        found = [self.agent(question=question), inner(question=question), look(question, 9)]
        return dspy.Prediction(found=found)


@pytest.mark.parametrize("way", ["call", "acall", "asyncify", "batch", "Refine", "Thread"])
@pytest.mark.parametrize("kind", [OwnForward, OwnAforward, Mixed, Composed])
@pytest.mark.parametrize("given", [{}, {"where": OURS}], ids=["only", "where"])
def test_a_subclass_with_its_own_forward_sees_only_the_tenants_passages(
    index: Index, kind: type[GraphAnchor], way: str, given: Any
) -> None:
    world = World(index, kind)
    program = world.program if given else world.program.only(OURS)
    check(world, WAYS[way](program, given))


def test_interleaved_generators_keep_separate_access_scopes(world: World) -> None:
    ours = questions(world.program.only(OURS), {})
    theirs = questions(world.program, {"where": THEIRS})
    turns = [(next(theirs), next(ours)) for _ in range(2)]
    theirs.close()
    turns.append((turns[0][0], next(ours)))
    assert all(
        not FOREIGN.search(told(own)) and FOREIGN.search(told(other)) for other, own in turns
    )
    assert FOREIGN.search(told(world.program(question=QUESTION))), "the whole program stays whole"


# --- Web apps, agents and servers


@pytest.mark.parametrize("path", ["sync", "async", "stream", "astream"])
def test_a_web_app_gives_each_user_its_own_access_scope(world: World, path: str) -> None:
    from fastapi import Depends, FastAPI
    from fastapi.responses import PlainTextResponse, StreamingResponse
    from fastapi.testclient import TestClient

    app = FastAPI()

    def sync_program(tenant: str) -> Iterator[Any]:
        yield world.program.only({"tenant": tenant})

    async def async_program(tenant: str) -> AsyncIterator[Any]:
        yield world.program.only({"tenant": tenant})

    in_thread, in_loop = Depends(sync_program), Depends(async_program)

    def sync_answer(program: Any = in_thread) -> Any:
        return PlainTextResponse(told(program(question=QUESTION)))

    async def async_answer(program: Any = in_loop) -> Any:
        return PlainTextResponse(told(await program.acall(question=QUESTION)))

    def stream(program: Any = in_thread) -> Any:
        return StreamingResponse(map(told, questions(program, {})))

    async def astream(program: Any = in_loop) -> Any:
        return StreamingResponse(told(one) async for one in aquestions(program, {}))

    for name, endpoint in (
        ("sync", sync_answer), ("async", async_answer), ("stream", stream), ("astream", astream)
    ):  # fmt: skip
        app.get(f"/{name}", response_model=None)(endpoint)
    client = TestClient(app)
    assert FOREIGN.search(client.get(f"/{path}", params=THEIRS).text)
    world.prompts.clear()
    check(world, client.get(f"/{path}", params=OURS).text)


@pytest.fixture
def service(world: World) -> Any:
    from ga_dspy.serve import Service

    return Service(world.program.only(OURS))


SENT = {
    "ask": ("/ask", {"question": QUESTION}, {}),
    "ask for more": ("/ask", {"question": QUESTION, "where": ALL}, {}),
    "stream": ("/ask", {"question": QUESTION}, {"Accept": "text/event-stream"}),
    "search": ("/search", {"query": QUESTION, "k": 9}, {}),
    "search for more": ("/search", {"query": "Brackwater Amberline", "where": ALL}, {}),
    "chat": ("/v1/chat/completions", {"messages": [{"role": "user", "content": QUESTION}]}, {}),
    "chat stream": (
        "/v1/chat/completions",
        {"messages": [{"role": "user", "content": QUESTION}], "stream": True}, {},
    ),
}  # fmt: skip


@pytest.mark.parametrize("sent", SENT)
def test_a_request_cannot_widen_the_access_scope_of_the_served_program(
    world: World, service: Any, sent: str
) -> None:
    from fastapi.testclient import TestClient

    from ga_dspy.serve import make_app

    path, body, headers = SENT[sent]
    with TestClient(make_app(service), base_url="http://localhost") as client:
        found = client.post(path, json=body, headers=headers).text
        world.program(question=QUESTION, where=OURS)  # a prompt, where none was sent
        check(world, found, client.get("/metrics").text, list(map(repr, service.records.values())))
        foreign = client.post("/search", json={"query": "Brackwater", "where": THEIRS})
        assert foreign.status_code == 200 and foreign.json() == []


def test_an_mcp_agent_sees_only_what_the_service_may_read(world: World, service: Any) -> None:
    from mcp import Client

    from ga_dspy.serve.agents import make_mcp

    heard: list[Any] = []

    async def hear(progress: float, total: float | None, message: str | None) -> None:
        heard.append(message)

    async def session() -> list[Any]:
        async with Client(make_mcp(service)) as client:
            asked = await client.call_tool("ask", {"question": QUESTION}, progress_callback=hear)
            found = await client.call_tool("search", {"query": "Brackwater Amberline", "k": 9})
            return [asked.content, found.content]

    check(world, asyncio.run(session()), heard)


@pytest.mark.parametrize("is_async", [False, True])
def test_an_agent_sees_only_what_its_tool_may_read(world: World, is_async: bool) -> None:
    agent = dspy.ReAct("question -> answer", tools=[world.program.only(OURS).as_tool()])
    agent.set_lm(world.lm)
    asked = {"question": QUESTION}
    check(world, asyncio.run(agent.acall(**asked)) if is_async else agent(**asked))


def test_an_mlflow_model_sees_only_what_its_server_may_read(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pandas, _ = pytest.importorskip("pandas"), pytest.importorskip("mlflow")
    from ga_dspy import artifact
    from ga_dspy.optimize.served import ServedProgram

    Index.build(PASSAGES, tmp_path / "index", encoder="hash-64", require=["tenant"])
    artifact.save(VanillaRAG(world.index), tmp_path / "artifact")
    config = tmp_path / "artifact" / "ga-dspy.toml"
    config.write_text('artifact = "."')
    context = type("Context", (), {"artifacts": {"config": config}})
    monkeypatch.setenv("GA_DSPY_INDEX", str(tmp_path / "index"))
    monkeypatch.setenv("GA_DSPY_LM", "ga-dspy/extractive")
    with pytest.raises(InputError, match="no condition on 'tenant'"):
        ServedProgram().load_context(context)
    monkeypatch.setenv("GA_DSPY_WHERE", "tenant=acme")
    with pytest.raises(InputError, match="GA_DSPY_WHERE"):
        ServedProgram().load_context(context)
    monkeypatch.setenv("GA_DSPY_WHERE", json.dumps(OURS))
    model = ServedProgram()
    model.load_context(context)
    model.program.set_lm(world.lm)
    check(world, model.predict(pandas.DataFrame({"question": [QUESTION]})))


def test_an_evaluation_resumes_only_for_the_tenant_that_began_it(
    world: World, tmp_path: Path
) -> None:
    rows = [dspy.Example(id="q", question=QUESTION, answer="Aldermoor").with_inputs("question")]

    def evaluated(where: Any) -> str:
        program = world.program.only(where)
        about = {"name": "a", "dataset": "b", "source": "c", "lm": world.lm}
        with dspy.context(lm=world.lm):
            run(program, rows, out=tmp_path, protocol=protocol_of(program, rows, **about))
        return "".join(p.read_text(errors="replace") for p in tmp_path.iterdir() if p.is_file())

    check(world, evaluated(OURS))
    asked = len(world.prompts)
    with pytest.raises(ProtocolMismatch, match="acme"):
        evaluated(THEIRS)
    evaluated(OURS)
    assert len(world.prompts) == asked


# --- Views of an index, and retrievers that cannot be restricted


VIEWS: dict[str, Callable[[Index], Index]] = {
    "only": lambda index: index.only(OURS),
    "of a view": lambda index: index.only({"tenant": {"!=": "b"}}).only(OURS),
    "pickled": lambda index: pickle.loads(pickle.dumps(index.only(OURS))),
    "copied": lambda index: copy.copy(copy.deepcopy(index.only(OURS))),
    "of another kind": lambda index: index.as_kind("hybrid").only(OURS),
    "then of another kind": lambda index: index.only(OURS).as_kind("dense"),
}


@pytest.mark.parametrize("way", VIEWS)
def test_a_view_behaves_like_an_index_of_its_own_passages(index: Index, way: str) -> None:
    view = VIEWS[way](index)
    alone = Index.from_passages(PASSAGES[:3], encoder="hash-64")
    assert list(view) == PASSAGES[:3] and len(view) == view.manifest.passages == 3
    assert OURS in view.scope and view.fingerprint == alone.fingerprint
    assert "acme-1" in view and "zenith-1" not in view and view.get("acme-1") == PASSAGES[1]
    with pytest.raises(InputError, match="has no passage"):
        view.get("zenith-1")
    asked = "Brackwater, designer of the Halden Bridge, taught Amberline", 9
    found = view(*asked)
    assert found == alone.as_kind(view.kind)(*asked)
    shown = told([view._repr_html_(), [passage.model_dump() for passage in found]])
    assert OWN.search(shown) and not FOREIGN.search(shown)


def test_a_view_reflects_changes_of_its_index_and_is_read_only() -> None:
    index = Index.from_passages(PASSAGES, encoder="hash-64")
    view = index.only(OURS)
    assert len(view) == 3
    index.delete(["acme-2"])
    index.add([Passage(id="new", text="Brackwater is new.", metadata=OURS), PASSAGES[2]])
    assert {passage.id for passage in view} == {"acme-0", "acme-1", "acme-2", "new"}
    changes: list[Callable[[Any], Any]] = [view.add, view.upsert, view.sync]
    for change in changes:
        with pytest.raises(InputError, match="a view of an index cannot be changed"):
            change(PASSAGES)
    with pytest.raises(InputError, match="a view of an index cannot be changed"):
        view.delete(["acme-1"])


@pytest.mark.parametrize(
    ("where", "found"),
    [
        (OURS, 2),
        (ALL, 3),
        ({"tenant": []}, 0),
        ({"tenant": {"within": ["acme"], "!=": "x"}}, 2),
    ],
)
def test_a_value_a_list_or_within_meets_a_required_condition(where: Any, found: int) -> None:
    index = Index.from_passages(PASSAGES, kind="sparse", require=["tenant"])
    assert len(index("Amberline", where=where)) == found
    assert len(index.only({"lang": {"!=": "de"}}).only(where)("Amberline")) == found


@pytest.mark.parametrize(
    "where", [None, {"lang": "en"}, {"tenant": {"!=": "zenith"}}, {"tenant": {">=": "a", "<": "b"}}]
)
def test_without_a_required_condition_nothing_is_read(tmp_path: Path, where: Any) -> None:
    Index.build(PASSAGES, tmp_path / "i", kind="sparse", require=["tenant"])
    for index in (
        Index.open(tmp_path / "i"),
        pickle.loads(pickle.dumps(Index.open(tmp_path / "i"))),
        Index.from_passages(PASSAGES, kind="sparse", require=["tenant"]),
        Index.open(tmp_path / "i", require=["lang"]).as_kind("sparse").only({"lang": "en"}),
    ):
        program = GraphAnchor(index)
        program.set_lm(scripted_lm([]))
        if where is not None:
            index, program = index.only(where), program.only(where)
        for read in (
            lambda: index("Amberline"),  # noqa: B023
            lambda: index.get("acme-1"),  # noqa: B023
            lambda: program(question=QUESTION),  # noqa: B023
            lambda: asyncio.run(program.acall(question=QUESTION)),  # noqa: B023
        ):
            with pytest.raises(InputError, match="no condition on 'tenant'"):
                read()
        assert "Amberline" not in index._repr_html_()


def test_a_required_condition_is_enforced_by_every_command(
    tmp_path: Path, command: Callable[..., Any]
) -> None:
    docs = tmp_path / "docs.jsonl"
    docs.write_text("\n".join(p.model_dump_json() for p in PASSAGES))
    built = command(
        "index", "build", "docs.jsonl", "--out", "i", "--kind", "sparse", "--require", "tenant",
        cwd=tmp_path,
    )  # fmt: skip
    assert built.returncode == 0, built.stderr
    assert command("index", "sync", "--index", "i", cwd=tmp_path).returncode == 0
    for asked in (("ask", QUESTION), ("index", "search", "Amberline"), ("serve",), ("mcp",)):
        refused = command(*asked, "--index", "i", cwd=tmp_path)
        assert refused.returncode == 2 and "--where tenant=" in " ".join(refused.stderr.split())
    found = command("ask", QUESTION, "--index", "i", "--where", "tenant=acme", cwd=tmp_path)
    assert found.returncode == 0 and OWN.search(found.stdout) and not FOREIGN.search(found.stdout)


def test_a_string_is_refused_as_the_list_of_required_fields() -> None:
    with pytest.raises(InputError, match="require is 'tenant'"):
        Index.from_passages(PASSAGES, kind="sparse", require="tenant")


class OfAUser:
    def __call__(self, query: str, k: int) -> Sequence[str]:
        return ["Brackwater | He was born in Burwick."]


@pytest.mark.parametrize("given", [{}, {"where": OURS}], ids=["only", "where"])
@pytest.mark.parametrize("beside", [False, True])
def test_conditions_that_a_retriever_does_not_support_are_refused(
    index: Index, beside: bool, given: Any
) -> None:
    lm = scripted_lm([])
    program: Any = GraphAnchor(index if beside else OfAUser())
    if beside:
        program.fallback = VanillaRAG(OfAUser())
    program.set_lm(lm)
    with pytest.raises(InputError, match="conditions on metadata for OfAUser, which cannot apply"):
        program(question=QUESTION, **given) if given else program.only(OURS)
    assert not lm.engine.prompts


def test_a_program_with_a_replaced_forward_cannot_be_restricted(world: World) -> None:
    program = dspy.syncify(world.program)
    with pytest.raises(InputError, match="the forward of this GraphAnchor was replaced"):
        program.only(OURS)


def test_an_inner_program_with_a_replaced_forward_is_restricted(index: Index) -> None:
    world = World(index, Composed)
    inner = world.program.parts["programs"][0]
    whole = object.__getattribute__(inner, "forward")
    inner.forward = lambda **asked: whole(**asked)
    check(world, world.program.only(OURS)(question=QUESTION))


def test_a_restricted_program_shares_predictors_but_not_settings(
    world: World,
) -> None:
    narrowed = world.program.only(OURS)
    assert dict(narrowed.named_predictors()) == dict(world.program.named_predictors())
    narrowed.k, narrowed.passage_tokens = 2, 500
    assert (world.program.k, world.program.passage_tokens) == (5, 6000)
    for name, fresh in GraphAnchor(world.index).named_predictors():
        assert getattr(world.program, name).signature.equals(fresh.signature)
    assert "where" in inspect.signature(narrowed).parameters
