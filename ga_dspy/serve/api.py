"""The HTTP API: access control, limits, questions, searches, OpenAI's chat API, health, pages."""

from __future__ import annotations

import asyncio
import json
import logging
import re
import time
from collections import Counter
from collections.abc import AsyncIterator, Collection, Mapping
from http import HTTPStatus
from ipaddress import IPv4Address, ip_address, ip_network
from pathlib import Path
from typing import Annotated, Any, Literal

import dspy
from fastapi import FastAPI, HTTPException, Request, Response, Security
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, JSONResponse, StreamingResponse
from fastapi.security import HTTPBearer
from openai.types.chat import ChatCompletion
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from pydantic import BaseModel, Field
from starlette.exceptions import HTTPException as Refusal
from starlette.types import ASGIApp, Message, Receive, Scope, Send

import ga_dspy
from extractive_lm import ExtractiveError
from ga_dspy.errors import GaDspyError, InputError, InUse
from ga_dspy.lm.failures import is_transient
from ga_dspy.passage import Passage, replace_invalid
from ga_dspy.programs import EvidenceLink
from ga_dspy.programs.conversation import Turn
from ga_dspy.programs.prediction import as_json, observation
from ga_dspy.programs.program import MAX_QUESTION_LENGTH
from ga_dspy.secrets import withheld
from ga_dspy.serve.documents import add_documents
from ga_dspy.serve.keys import ANYONE, Key, as_keys, find_key, may
from ga_dspy.serve.service import About, Asking, Busy, Limits, Service
from ga_dspy.storage import in_thread
from ga_dspy.text import defuse_markup
from ga_dspy.viewer import page as answer_page
from ga_dspy.viewer.page import asset, live_page

MODEL = "ga-dspy"
_STREAM: Any = {200: {"content": {"text/event-stream": {"schema": {"type": "string"}}}}}

Text = Annotated[str, Field(max_length=MAX_QUESTION_LENGTH, pattern=r"\S")]
Scalar = Annotated[str, Field(max_length=1_000)] | int | float | bool
Scalars = Annotated[list[Scalar], Field(max_length=1_000)]
Name = Annotated[str, Field(max_length=200)]
Expected = Annotated[str, Field(max_length=1_000)] | None
Some = Field(min_length=1, max_length=32)
Signs = Literal[">", ">=", "<", "<=", "=", "!="]
Bounds = Annotated[dict[Signs, Scalar], Some] | Annotated[dict[Literal["within"], Scalars], Some]
Where = Annotated[dict[Name, Scalar | Scalars | Bounds], Some] | None
"""Conditions on the metadata of passages, as in `Index.only`; limited, because each costs time."""


class Question(BaseModel):
    """A question."""

    question: Text
    where: Where = None


class Query(BaseModel):
    """A search."""

    query: Text
    k: int = Field(5, ge=1, le=100, description="Maximum number of passages.")
    where: Where = None


class Feedback(BaseModel):
    """A person's feedback on an answer."""

    right: bool = Field(description="Whether the answer is right.")
    comment: Annotated[str, Field(max_length=10_000)] | None = None
    expected: Expected = Field(None, description="The right answer.")


class Answer(BaseModel, extra="allow"):
    """An answer with its evidence, steps and cost: `Prediction.to_dict()`."""

    id: str = Field(description="Its id in /runs/{id}.")
    question: str
    answer: str = Field(description="Empty if the program abstains.")
    verdict: str
    supported: Literal["chained", "quoted"] | None
    evidence: list[EvidenceLink]
    cited: list[str]
    passages: list[Passage]
    steps: list[dict[str, Any]]
    failures: list[str]
    calls: int
    tokens: int


# --- Access, limits and error responses


class Problem(BaseModel):
    """An error (RFC 9457): what was found, what was expected, what to do."""

    title: str
    status: int
    detail: str
    found: str = ""
    expected: str = ""
    remedy: str = ""


def problem(
    status: int, detail: str, headers: Mapping[str, str] | None = None, **more: str
) -> JSONResponse:
    """Return an error response as problem details (RFC 9457), with secrets redacted.

    Texts are truncated, because they may repeat the request.
    """
    body: dict[str, Any] = {"title": HTTPStatus(status).phrase, "status": status}
    for name, text in {"detail": detail, **more}.items():
        body[name] = replace_invalid(defuse_markup(withheld(text[:10_000])))[:1_000]
    return JSONResponse(body, status, headers, media_type="application/problem+json")


_STATUSES: dict[type[Exception], int] = {
    Busy: 429, TimeoutError: 504, InputError: 400, InUse: 503, GaDspyError: 502,
    dspy.LMError: 502, ExtractiveError: 502,
}  # fmt: skip
"""Status by error class, the first match counts; a transient error gets 503, not 500 or 502."""


def problem_of(error: Any) -> JSONResponse:
    """Return the response for an error; for an unexpected error, it has no details."""
    if isinstance(error, Refusal):
        return problem(error.status_code, str(error.detail), error.headers)
    if isinstance(error, RequestValidationError):
        first = error.errors()[0]
        detail = f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
        return problem(422, detail, expected="a request that fits the schema in /openapi.json")
    status = next((code for kind, code in _STATUSES.items() if isinstance(error, kind)), 500)
    if status in (500, 502) and is_transient(error):
        status = 503
    if status == 500:
        logging.getLogger("ga_dspy").error("an unexpected error", exc_info=error)
        return problem(500, "an unexpected error; the server's log has it")
    parts = {name: str(getattr(error, name, "")) for name in ("found", "expected", "remedy")}
    headers = {"Retry-After": "5"} if status in (429, 503) else None
    return problem(status, str(error) or "no answer before the deadline", headers, **parts)


_LOCALHOST = re.compile(r"(localhost|127\.0\.0\.1|\[?::1\]?)(:\d+)?")
_PUBLIC_PATHS = ("/", "/graph", "/healthz", "/readyz", "/openapi.json")
"""Paths that need no key, because they reveal no question and no document."""
_MAX_ADDRESSES = 10_000
_GRACE = 5.0  # seconds after the deadline, in which a question that timed out gets its 504
_OTHER_REQUESTS = 64
"""Maximum number of concurrent requests in addition to questions and searches."""


class Guard:
    """ASGI middleware that checks access and limits before a request reaches the app.

    Every request ends a few seconds after the deadline. An error that the app does not handle
    becomes a response, for which the server would only close the connection.

    Requests are counted by their valid key, else by address. So a client that guesses keys uses up
    the requests of its address, never those of a key.

    Args:
        app: The app.
        limits: The limits.
        keys: The API keys; without any, no key is needed. A key in plain text may ask and read the
            metrics.
        is_open: Whether any host name is accepted without a key. If not, a server without keys
            accepts only localhost, which prevents DNS rebinding by a web page.
    """

    def __init__(
        self, app: ASGIApp, limits: Limits, keys: Collection[Key | bytes] = (),
        is_open: bool = False,
    ) -> None:  # fmt: skip
        self.app, self.limits, self.keys, self.is_open = app, limits, as_keys(keys), is_open
        self._minute, self._by_key, self._by_address = 0, Counter[str](), Counter[str]()
        self._in_progress = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Refuse a request, or pass it to the app."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        left, has_started = self._max_body(scope), False

        async def send_part(message: Message) -> None:
            nonlocal has_started
            has_started = True
            await send(message)

        async def receive_part() -> Message:
            nonlocal left
            message = await receive()
            left -= len(message.get("body", b""))
            if left < 0:
                raise HTTPException(413, self._too_long(scope))
            return message

        if refused := self._refusal(scope, Request(scope).headers):
            await refused(scope, receive, send)
            return
        self._in_progress += 1
        try:
            async with asyncio.timeout(self.limits.deadline + _GRACE):
                await self.app(scope, receive_part, send_part)
        except Exception as error:
            if not has_started:
                await problem_of(error)(scope, receive, send)
            elif not isinstance(error, TimeoutError):  # after a timeout, the server disconnects
                raise
        finally:
            self._in_progress -= 1

    def _refusal(self, scope: Scope, headers: Mapping[str, str]) -> JSONResponse | None:
        limits, path = self.limits, _path(scope)
        if not (self.keys or self.is_open or _LOCALHOST.fullmatch(headers.get("host", ""))):
            return problem(403, "the host is not this machine, and the server has no API key")
        caller = find_key(self.keys, _sent_key(headers))
        if path != "/healthz":
            if seconds := self._retry_after(caller, (scope.get("client") or ("",))[0]):
                later = {"Retry-After": str(seconds)}
                return problem(429, f"more than {limits.per_minute} requests a minute", later)
            # Questions and searches have their own limits.
            if self._in_progress >= 2 * limits.max_concurrent + _OTHER_REQUESTS:
                return problem_of(Busy(self._in_progress, "requests"))
        if self.keys and not caller and path not in _PUBLIC_PATHS:
            expected = "the key in the header X-API-Key, or in Authorization as a bearer token"
            scheme = {"WWW-Authenticate": "Bearer"}
            return problem(401, "the API key is missing or unknown", scheme, expected=expected)
        if int(headers.get("content-length") or 0) > self._max_body(scope):
            return problem(413, self._too_long(scope))
        scope.setdefault("state", {})["caller"] = caller or ANYONE
        return None

    def _max_body(self, scope: Scope) -> int:
        is_upload = scope.get("method") == "POST" and _path(scope) == "/documents"
        return self.limits.upload if is_upload else self.limits.body

    def _too_long(self, scope: Scope) -> str:
        return f"a request of more than {self._max_body(scope):,} bytes"

    def _retry_after(self, key: Key | None, address: str) -> int:
        """Count a request; return the seconds to wait if there were too many, else 0."""
        minute, second = divmod(int(time.monotonic()), 60)
        if minute != self._minute:
            self._minute, self._by_key, self._by_address = minute, Counter(), Counter()
        counts, name = self._by_address, _network(address)
        if key:
            counts, name = self._by_key, key.sha256
        counts[name] += 1
        if len(self._by_address) > _MAX_ADDRESSES:
            del self._by_address[next(iter(self._by_address))]
        return 60 - second if 0 < self.limits.per_minute < counts[name] else 0


def _path(scope: Scope) -> str:
    """Return the path within the app, which may be mounted in another app."""
    return str(scope["path"]).removeprefix(scope.get("root_path", ""))


def _sent_key(headers: Mapping[str, str]) -> bytes:
    scheme, _, bearer = headers.get("authorization", "").partition(" ")
    return headers.get("x-api-key", bearer if scheme.lower() == "bearer" else "").encode("latin-1")


def _network(address: str) -> str:
    """Return the network that an address is counted as; an IPv6 client owns a whole /64.

    >>> _network("2001:db8:1:2:aaaa::1"), _network("10.0.0.1")
    ('2001:db8:1:2::/64', '10.0.0.1')
    """
    try:
        parsed = ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(parsed, IPv4Address):
        return address
    return str(parsed.ipv4_mapped or ip_network(f"{parsed}/64", strict=False))


# --- The app


Asker = Annotated[Key, may("ask")]


def make_app(
    service: Service, *, keys: Collection[Key | bytes] = (), is_open: bool = False
) -> FastAPI:
    """Return the service as an ASGI app.

    Args:
        service: The service.
        keys: The API keys; without any, no key is needed. A key in plain text may ask and read the
            metrics.
        is_open: Whether any host name is accepted without a key (`Guard`).

    Raises:
        InputError: The program does not support the conditions or labels of a key.
    """
    callers = as_keys(keys) or (ANYONE,)
    for caller in callers:
        service.program_for(caller)
    form = {"model": Problem, "content": {"application/problem+json": {}}}
    app = FastAPI(
        title="ga_dspy", version=ga_dspy.__version__, docs_url=None, redoc_url=None,
        separate_input_output_schemas=False,
        responses=dict.fromkeys((400, 401, 403, 404, 413, 422, 429, 500, 502, 503, 504), form),
        dependencies=[Security(HTTPBearer(auto_error=False))] if keys else [],
    )  # fmt: skip
    app.add_middleware(Guard, limits=service.limits, keys=keys, is_open=is_open)
    for kind in (Refusal, RequestValidationError, OSError, *_STATUSES):
        app.add_exception_handler(kind, lambda _, error: problem_of(error))
    _add_routes(app, service, callers[0])
    _add_chat(app, service)
    add_documents(app, service)
    return app


def _add_routes(app: FastAPI, service: Service, anybody: Key) -> None:
    script = Path(__file__).with_name("page.js").read_text("utf-8")
    start_page = live_page(script, has_graph=service.has_graph)

    @app.post("/ask", response_model=Answer, responses=_STREAM)
    async def ask(asked: Question, request: Request, caller: Asker) -> Response:
        """Answer a question; with `Accept: text/event-stream`, stream the steps.

        The stream has the events `search`, `passages`, `step` and `answering` as they happen, then
        `answer` with the record that a plain request returns, or `error` with a problem.
        """
        asking = service.ask(asked.question, asked.where, caller=caller)
        if "text/event-stream" in request.headers.get("accept", ""):
            events = asking.events()
            parts = (f"event: {e.kind}\ndata: {json.dumps(vars(e))}\n\n" async for e in events)
            return _stream(parts, "event: error\n")
        return JSONResponse(await _until_gone(request, asking))

    @app.post("/search")
    async def search(query: Query, caller: Asker) -> list[Passage]:
        """Return passages for a query, best first."""
        return await service.search(query.query, query.k, query.where, caller)

    @app.get("/about")
    async def about(caller: Asker) -> About:
        """Return the corpus that the caller can ask about, example questions, and the LMs."""
        return await in_thread(service.about, caller)

    if service.has_graph:

        @app.get("/graph.json", response_class=JSONResponse)
        async def graph(caller: Asker) -> Response:
            """Return the graph of the documents: entities, relations, communities, quotes."""
            return Response(await service.graph(caller), media_type="application/json")

        @app.get("/graph", include_in_schema=False)
        async def graph_page() -> Response:
            return _page(live_page(asset("graph.js")))  # asks for /graph.json

    def find_record(id: str, caller: Key) -> bytes:
        record = service.records.get((caller.scope, id))
        if record is None:
            raise HTTPException(404, "there is no such answer, or it is no longer kept")
        return record

    @app.get("/runs/{id}", response_model=Answer)
    async def run(id: str, caller: Asker) -> Response:
        """Return one of the last answers to callers who see the same documents."""
        return Response(find_record(id, caller), media_type="application/json")

    @app.get("/runs/{id}/page", response_class=HTMLResponse)
    async def run_page(id: str, caller: Asker) -> Response:
        """Return an earlier answer as a page that works offline, like `ga-dspy view`."""
        found = json.loads(find_record(id, caller))
        return _page(answer_page(found["question"], found))

    @app.post("/runs/{id}/feedback", status_code=204)
    async def feedback(id: str, given: Feedback, caller: Asker) -> None:
        """Store a person's feedback in the record of an answer, and on its trace in MLflow."""
        find_record(id, caller)
        service.rate((caller.scope, id), **given.model_dump())

    @app.get("/", include_in_schema=False)
    async def page() -> Response:
        return _page(start_page)

    @app.get("/healthz")
    async def healthz() -> dict[str, str]:
        """Return whether the process is alive."""
        return {"status": "alive"}

    @app.get("/readyz")
    async def readyz() -> dict[str, str]:
        """Return whether a search is possible; the LM is not called."""
        await service.search("ready", 1, caller=anybody)
        return {"status": "ready"}

    @app.get(
        "/metrics", response_class=Response, responses={200: {"content": {"text/plain": {}}}},
        dependencies=[may("metrics")],
    )  # fmt: skip
    async def metrics() -> Response:
        """Return the metrics for Prometheus."""
        return Response(generate_latest(service.registry), media_type=CONTENT_TYPE_LATEST)


def _page(html: str) -> Response:
    policy = {"Content-Security-Policy": "frame-ancestors 'none'"}
    return Response(html, headers=policy, media_type="text/html")


async def _until_gone(request: Request, asking: Asking) -> dict[str, Any]:
    """Return the record of a question; cancel the question if the client disconnects."""

    async def disconnect() -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass

    gone = asyncio.create_task(disconnect())
    try:
        await asyncio.wait({asking.task, gone}, return_when=asyncio.FIRST_COMPLETED)
        if not asking.task.done():
            raise HTTPException(408, "the client disconnected")
        return as_json(asking.task.result())
    finally:
        asking.task.cancel()
        gone.cancel()


def _stream(parts: AsyncIterator[str], error_mark: str = "") -> Response:
    """Return a stream of events; after an error, it ends with the mark and the problem."""

    async def parts_and_error() -> AsyncIterator[str]:
        try:
            async for part in parts:
                yield part
        except Exception as error:  # noqa: BLE001 - the status was sent already
            yield f"{error_mark}data: {bytes(problem_of(error).body).decode()}\n\n"

    return StreamingResponse(parts_and_error(), media_type="text/event-stream")


# --- OpenAI's chat API: the text of the answer includes its sources


class ChatMessage(BaseModel, extra="allow"):
    """A message: a text, or a list of parts, of which only those with a text are read."""

    role: str
    content: str | Annotated[list[dict[str, Any]], Field(max_length=1_000)] | None = None

    @property
    def text(self) -> str:
        """The text of all parts."""
        if isinstance(self.content, str):
            return self.content.strip()
        return "\n".join(str(part.get("text") or "") for part in self.content or ()).strip()


class Chat(BaseModel, extra="allow"):
    """A conversation; the user's last message is the question.

    Other parameters of OpenAI's API, such as a temperature, are accepted and have no effect.
    """

    model: str = Field(MODEL, max_length=200)
    messages: list[ChatMessage] = Field(min_length=1, max_length=1_000)
    stream: bool = False


def _add_chat(app: FastAPI, service: Service) -> None:
    @app.post("/v1/chat/completions", response_model=ChatCompletion, responses=_STREAM)
    async def chat(asked: Chat, request: Request, caller: Asker) -> Response:
        """Answer the last question of a conversation, as OpenAI's API does.

        The response also has `evidence`, and `run`, the id for /runs/{id}. In a stream, the steps
        are sent as `reasoning_content`, which front ends show as thoughts.
        """
        *turns, last = read_turns(asked.messages)
        asking = service.ask(last.question, turns=turns, caller=caller)
        if asked.stream:
            return _stream(_chunks(asked, asking))
        record = await _until_gone(request, asking)
        message = {"role": "assistant", "content": text_of(asking.task.result())}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        return JSONResponse({**_head(asked, asking), "choices": [choice], **_extras(record)})

    @app.get("/v1/models", dependencies=[may("ask")])
    async def models() -> dict[str, Any]:
        """List the only model; `lms` names the LM of each step."""
        only = {"id": MODEL, "object": "model", "created": 0, "owned_by": MODEL}
        return {"object": "list", "data": [{**only, "lms": service.lms}]}


def read_turns(messages: list[ChatMessage]) -> list[Turn]:
    """Return the turns of a conversation; the last one is the question, without an answer.

    Raises:
        InputError: The user's last message has no text.
    """
    turns = list[Turn]()
    for message in messages:
        if message.role == "user":
            turns.append(Turn(message.text, ""))
        elif message.role == "assistant" and turns:
            turns[-1] = Turn(turns[-1].question, message.text)
    if not turns or not turns[-1].question:
        raise InputError("the user's last message has no text", expected="a question")
    return turns


def text_of(prediction: dspy.Prediction) -> str:
    """Return an answer with its numbered sources, as Markdown without images, links and HTML."""
    return defuse_markup(observation(prediction))


def _head(asked: Chat, asking: Asking) -> dict[str, Any]:
    kind = "chat.completion.chunk" if asked.stream else "chat.completion"
    return {"id": f"chatcmpl-{asking.id}", "object": kind, "created": int(time.time()),
            "model": asked.model}  # fmt: skip


def _extras(record: dict[str, Any]) -> dict[str, Any]:
    steps = record["usage"].values()
    sent = sum(step["prompt_tokens"] for step in steps)
    received = sum(step["completion_tokens"] for step in steps)
    usage = {"prompt_tokens": sent, "completion_tokens": received, "total_tokens": sent + received}
    return {"evidence": record["evidence"], "run": record["id"], "usage": usage}


async def _chunks(asked: Chat, asking: Asking) -> AsyncIterator[str]:
    """Yield the events of a question as chunks of a completion."""

    def chunk(delta: dict[str, str], finish: str | None = None, **more: Any) -> str:
        choice = {"index": 0, "delta": delta, "finish_reason": finish}
        return f"data: {json.dumps({**_head(asked, asking), 'choices': [choice], **more})}\n\n"

    async for event in asking.events():
        if event.kind != "answer":
            yield chunk({"role": "assistant", "reasoning_content": f"{event.message}\n"})
            continue
        yield chunk({"role": "assistant", "content": text_of(asking.task.result())})
        yield chunk({}, "stop", **_extras(dict(event.data)))
    yield "data: [DONE]\n\n"
