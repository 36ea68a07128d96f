"""The ledger: no finished call is paid twice, caps hold, and replays are identical."""

from __future__ import annotations

import asyncio
import copy
import json
import pickle
import sqlite3
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import dspy
import pytest
from dspy.lm15 import Message, Request
from dspy.utils.callback import BaseCallback
from dspy.utils.dummies import DummyLM

from ga_dspy.errors import InputError
from ga_dspy.lm.store import BudgetExceeded, CallStore, Caps, Gate, Spent
from ga_dspy.lm.wrapper import LMWrapper, wrap_for_gate, wrap_for_work
from ga_dspy.programs import VanillaRAG
from ga_dspy.testing import CutOff, scripted_lm


def echo(prompt: str) -> str:
    return f"said {len(prompt)}"


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[CallStore]:
    with opened(tmp_path / "ledger.sqlite") as ledger:
        yield ledger


def opened(path: Path) -> CallStore:
    return CallStore(path, "compilation")


def paying(lm: dspy.BaseLM, ledger: CallStore, caps: Caps | None = None) -> LMWrapper:
    return wrap_for_gate(lm, Gate(ledger, caps), "task")


def gate_of(lm: LMWrapper) -> Gate:
    assert lm.scope is not None
    return lm.scope.gate


def twice(path: Path, lm: dspy.BaseLM, use: Callable[[LMWrapper], Any]) -> tuple[Any, Any]:
    """The results of using an LM in a first run, and in a second one with the same ledger."""
    given = []
    for _ in range(2):
        with opened(path) as ledger:
            given.append((use(paying(lm, ledger)), ledger.spent._replace(replayed=0)))
    assert ledger.spent.replayed == ledger.spent.calls > 0
    assert given[0][1] == given[1][1]
    return given[0][0], given[1][0]


# --- Counting


def test_a_repeated_request_gets_two_replies_and_both_are_replayed(tmp_path: Path) -> None:
    given = []
    for script in (["one", "two"], []):
        lm = scripted_lm(script)
        with CallStore(tmp_path / "calls.sqlite", "run") as store:
            working = wrap_for_work(lm, store, "question 1")
            given.append([working("Where?"), working("Where?")])
    assert given == [[["one"], ["two"]]] * 2


def test_a_program_counts_the_same_calls_as_the_ledger(tmp_path: Path) -> None:
    program = VanillaRAG(lambda query, k: ["Red Lodge | A city in Montana."])
    reply = "[[ ## cited ## ]]\n1\n\n[[ ## answer ## ]]\nMontana"

    def ask(lm: LMWrapper) -> Any:
        with dspy.context(lm=lm):
            found = program(question="Where is Red Lodge?")
        assert found.calls == gate_of(lm).store.spent.calls == 1
        return {step: (u.calls, u.failed) for step, u in found.usage.items()}

    assert twice(tmp_path / "l.sqlite", scripted_lm(lambda prompt: reply), ask)[0] == {
        "answer": (1, 0)
    }


# --- Caps


def test_concurrent_threads_never_exceed_the_cap_of_calls(ledger: CallStore) -> None:
    lm = scripted_lm(echo)
    capped = paying(lm, ledger, Caps(calls=20))

    def ask(n: int) -> bool:
        try:
            capped(f"prompt {n}")
        except BudgetExceeded:
            return False
        return True

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(ask, range(60))) == 20
    assert len(lm.engine.prompts) == ledger.spent.calls == 20


def test_reaching_a_cap_is_not_caught_by_except_exception(ledger: CallStore) -> None:
    capped = paying(scripted_lm(echo), ledger, Caps(tokens=1))

    def swallowing() -> None:
        try:
            capped("a prompt of several tokens")
        except Exception:  # noqa: BLE001 - as optimizers do
            pytest.fail("swallowed")

    with pytest.raises(BudgetExceeded, match="the cap of tokens"):
        swallowing()


def test_a_failed_call_is_neither_stored_nor_counted(ledger: CallStore) -> None:
    lm = paying(scripted_lm([RuntimeError("no"), "yes"]), ledger, Caps(calls=1))
    with pytest.raises(dspy.LMError):
        lm("x")
    assert lm("x") == ["yes"] and ledger.spent.calls == 1


def test_an_interrupted_call_releases_its_reservation(ledger: CallStore) -> None:
    keys = iter([KeyboardInterrupt])

    def interrupted(prompt: str) -> str:
        for key in keys:
            raise key
        return "yes"

    lm = paying(scripted_lm(interrupted), ledger, Caps(calls=1))
    with pytest.raises(KeyboardInterrupt):
        lm("x")
    assert lm("x") == ["yes"] and gate_of(lm).down == ""


def test_a_closed_gate_blocks_calls_of_threads_that_an_optimizer_left_running(
    ledger: CallStore,
) -> None:
    lm = paying(scripted_lm(echo), ledger)
    copied = lm.copy(temperature=0.7)
    gate_of(lm).close("the recipe is over")
    for left_behind in (lm, copied, copy.deepcopy(lm)):
        with pytest.raises(BudgetExceeded, match="the recipe is over"):
            left_behind("x")


def test_money_is_counted_and_an_unknown_price_ends_a_cap_of_money(ledger: CallStore) -> None:
    priced = scripted_lm(echo).copy(model="ga-dspy/extractive")
    paying(priced, ledger, Caps(money=1.0))("x")
    assert ledger.spent.money == 0.0
    unpriced = paying(scripted_lm(echo), ledger, Caps(money=1.0))
    unpriced("y")
    with pytest.raises(BudgetExceeded, match="no known price"):
        unpriced("z")
    assert ledger.spent.money is None


@pytest.mark.parametrize("caps", [Caps(calls=0), Caps(tokens=-1), Caps(money=0.0)])
def test_a_cap_under_which_nothing_could_be_tried_is_refused(caps: Caps) -> None:
    with pytest.raises(InputError, match="too low to try anything"):
        caps.check_enough(Spent(1, 1, 1.0))


# --- Every kind of LM call goes through the ledger


def test_one_request_from_many_threads_is_paid_once(ledger: CallStore) -> None:
    lm = scripted_lm(echo)
    asked = paying(lm, ledger)
    with ThreadPoolExecutor(8) as pool:
        said = set(pool.map(lambda _: asked("the same")[0], range(40)))
    assert len(said) == len(lm.engine.prompts) == ledger.spent.calls == 1


def test_one_request_from_many_coroutines_is_paid_once(ledger: CallStore) -> None:
    lm = scripted_lm(echo)
    asked = paying(lm, ledger)

    async def ask() -> list[Any]:
        return await asyncio.gather(*(asked.acall("the same") for _ in range(20)), asked.acall("x"))

    said = asyncio.run(ask())
    assert said[:20] == [["said 10"]] * 20 and said[20] == ["said 3"]
    assert len(lm.engine.prompts) == ledger.spent.calls == 2


def test_another_rollout_temperature_or_number_of_completions_is_another_request(
    ledger: CallStore,
) -> None:
    lm = scripted_lm(echo)
    asked = paying(lm, ledger)
    for _ in range(2):
        asked("x")
        asked("x", rollout_id=1, temperature=1.0)
        asked.copy(rollout_id=2, temperature=1.0)("x")
        assert len(asked("x", n=3, temperature=1.0)) == 3
    assert ledger.spent.calls == 3 + 3 == len(lm.engine.prompts)


def test_a_rollout_id_of_none_is_the_request_without_one(ledger: CallStore) -> None:
    asked = paying(scripted_lm(echo), ledger)
    asked("x")
    asked.copy(rollout_id=None)("x", rollout_id=None)
    assert ledger.spent.calls == 1


def test_copies_of_an_lm_share_one_ledger_and_none_leaves_the_process(
    ledger: CallStore,
) -> None:
    lm = scripted_lm(echo)
    asked = paying(lm, ledger)
    program = dspy.Predict("question -> answer")
    program.set_lm(asked)
    inside = program.deepcopy().get_lm()
    for n, copied in enumerate([copy.copy(asked), copy.deepcopy(asked), asked.copy(), inside]):
        assert isinstance(copied, LMWrapper)
        copied(f"prompt {n}")
        copied("the same")
    assert ledger.spent.calls == 5 == len(lm.engine.prompts)
    with pytest.raises(TypeError, match="pickle"):
        pickle.dumps(asked)


def test_a_gate_closed_by_another_thread_stays_closed(
    ledger: CallStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = Gate(ledger, Caps(calls=3))
    reserve = ledger.reserve

    def closing(caps: Caps, asked: Spent) -> str:
        gate.close("the cap of 3 calls is reached")
        return reserve(caps, asked)

    monkeypatch.setattr(ledger, "reserve", closing)
    gate.admit(Spent(calls=1))
    with pytest.raises(BudgetExceeded, match="the cap of 3 calls"):
        gate.admit(Spent(calls=1))


def test_an_lm_in_a_nested_context_is_counted_and_the_outer_one_is_restored(
    ledger: CallStore,
) -> None:
    task, proposer = scripted_lm([{"answer": "outer"}] * 2), scripted_lm([{"answer": "inner"}])
    ask, gate = dspy.Predict("question -> answer"), Gate(ledger, Caps(calls=3))
    with dspy.context(lm=wrap_for_gate(task, gate, "task")):
        said = [ask(question="1").answer]
        with dspy.context(lm=wrap_for_gate(proposer, gate, "prompt")):
            said.append(ask(question="2").answer)
        said.append(ask(question="3").answer)
    assert said == ["outer", "inner", "outer"] and ledger.spent.calls == 3
    roles = ledger.rows("SELECT role, COUNT(*) FROM call GROUP BY role ORDER BY role")
    assert roles == [("prompt", 1), ("task", 2)]
    with pytest.raises(BudgetExceeded):
        wrap_for_gate(scripted_lm(echo), gate, "reflection")("x")


class Plugin(dspy.BaseLM):
    """An LM of the old interface, whose method returns responses of OpenAI's form."""

    def forward(self, prompt: Any = None, messages: Any = None, **kwargs: Any) -> Any:
        message = SimpleNamespace(content=f"plugin: {prompt or messages[-1]['content']}")
        usage = {"prompt_tokens": 4, "completion_tokens": 2, "total_tokens": 6}
        choice = SimpleNamespace(message=message, finish_reason="stop")
        return SimpleNamespace(choices=[choice], usage=usage, model=self.model)


@pytest.mark.parametrize(
    ("lm", "said"), [(Plugin("our/plugin"), "plugin: x"), (DummyLM([{"a": "b"}]), "[[ ## a ## ]]")]
)
def test_lms_of_other_classes_are_replayed_too(lm: Any, said: str, tmp_path: Path) -> None:
    first, second = twice(tmp_path / "l.sqlite", lm, lambda lm: lm("x"))
    assert first == second and first[0].startswith(said)


# --- A replayed call looks like a fresh one


class Heard(BaseCallback):
    """A callback that records LM calls."""

    def __init__(self) -> None:
        self.events: list[Any] = []

    def on_lm_start(self, call_id: str, instance: Any, inputs: dict[str, Any]) -> None:
        self.events.append(inputs["prompt"])

    def on_lm_end(self, call_id: str, outputs: Any, exception: BaseException | None = None) -> None:
        self.events.append(outputs)


def test_callbacks_trackers_and_histories_record_a_call_once(tmp_path: Path) -> None:
    lm = scripted_lm(echo)

    def use(paying: LMWrapper) -> Any:
        heard, module = Heard(), SimpleNamespace(history=[])
        with (
            dspy.track_usage() as usage,
            dspy.context(callbacks=[heard], caller_modules=[module]),
        ):
            paying("some prompt")
        (entry,) = module.history
        assert paying.history == [entry] and entry["response"].finish_reason == "stop"
        shown = {k: v for k, v in entry.items() if k not in ("timestamp", "uuid", "response")}
        return heard.events, usage.get_total_tokens(), shown

    first, second = twice(tmp_path / "l.sqlite", lm, use)
    assert first == second
    assert first[0] == ["some prompt", ["said 13"]]
    assert first[1]["ga-dspy/scripted"]["total_tokens"] > 0
    assert lm.history == [] and len(lm.engine.prompts) == 1


def test_callbacks_of_the_lm_itself_are_kept(ledger: CallStore) -> None:
    heard, lm = Heard(), scripted_lm(echo)
    lm.callbacks.append(heard)
    paying(lm, ledger).copy(temperature=0.2)("x")
    assert heard.events == ["x", ["said 3"]]


def test_cost_and_outputs_are_known_with_history_disabled(ledger: CallStore) -> None:
    lm = paying(scripted_lm(echo), ledger)
    with dspy.context(disable_history=True):
        assert lm("some prompt") == ["said 13"]
    assert lm.history == [] and ledger.spent.tokens > 0


def test_a_truncated_answer_is_still_truncated_when_replayed(tmp_path: Path) -> None:
    def use(paying: LMWrapper) -> Any:
        paying("x")
        return paying.history[0]["response"].finish_reason

    lm = scripted_lm([CutOff("half an ans")])
    assert twice(tmp_path / "l.sqlite", lm, use) == ("length", "length")


def test_an_explicit_request_is_answered_by_a_response(tmp_path: Path) -> None:
    request = Request(model="ga-dspy/scripted", messages=(Message.user("Hello"),))
    first, second = twice(tmp_path / "l.sqlite", scripted_lm(["hi"]), lambda lm: lm(request))
    assert first.text == second.text == "hi" and first.usage == second.usage


def test_a_streamed_answer_is_kept_and_replayed(tmp_path: Path) -> None:
    lm = scripted_lm([{"answer": "one two three four"}])

    def use(paying: LMWrapper) -> Any:
        async def stream() -> list[Any]:
            listener = dspy.streaming.StreamListener("answer")
            ask = dspy.streamify(dspy.Predict("question -> answer"), stream_listeners=[listener])
            with dspy.context(lm=paying):
                return [event async for event in ask(question="q")]

        return asyncio.run(stream())

    first, second = twice(tmp_path / "l.sqlite", lm, use)
    assert first[-1].answer == second[-1].answer == "one two three four"
    assert len(first) > 1


PINNED = "723156032e9427d7a70e494effe0e064971515a5ee52c331ebc1ad3617987f15"
RECORD = {
    "_dspy_format": "dspy-lm15-result-v1",
    "responses": [
        {
            "model": "m",
            "message": {"role": "assistant", "parts": [{"type": "text", "text": "kept"}]},
            "finish_reason": "length",
            "usage": {"input_tokens": 3, "output_tokens": 3, "total_tokens": 6},
        }
    ],
    "outputs": ["kept"],
    "usage": {"prompt_tokens": 3, "completion_tokens": 3, "total_tokens": 6},
    "cost": 0.25,
    "cost_details": {},
    "raw": None,
    "response_model": "m",
}


def test_a_ledger_of_an_earlier_version_is_replayed(tmp_path: Path) -> None:
    path = tmp_path / "ledger.sqlite"
    with sqlite3.connect(path) as db:
        db.execute("CREATE TABLE call (key TEXT PRIMARY KEY, role TEXT NOT NULL, "
                   "tokens INTEGER NOT NULL, money REAL, result TEXT NOT NULL)")  # fmt: skip
        db.execute("PRAGMA user_version = 1")
        db.execute("INSERT INTO call VALUES (?, 'task', 6, 0.25, ?)", (PINNED, json.dumps(RECORD)))
    db.close()
    lm = dspy.LM("openai/m", api_base="http://127.0.0.1:9/v1", api_key="k", temperature=0.3,
                 max_tokens=50, cache=False)  # fmt: skip
    with opened(path) as ledger:
        asked = paying(lm, ledger, Caps(money=1.0))
        assert asked(messages=[{"role": "user", "content": "hi é"}]) == ["kept"]
        assert ledger.spent == (1, 6, 0.25, 1)
        assert asked.history[0]["response"].finish_reason == "length"


# --- LMs behind an endpoint
class _Endpoint(BaseHTTPRequestHandler):
    """Replies with the number of the request."""

    served: ClassVar[dict[int, int]] = {}

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        port = self.server.server_port  # type: ignore[attr-defined]
        self.served[port] = self.served.get(port, 0) + 1
        message = {"role": "assistant", "content": f"server {port}, call {self.served[port]}"}
        body = {
            "id": "1",
            "object": "chat.completion",
            "model": "m",
            "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
            "usage": {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10},
        }
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.end_headers()
        self.wfile.write(json.dumps(body).encode())

    def log_message(self, *args: Any) -> None:
        """Log nothing."""


@pytest.fixture
def endpoints() -> Iterator[list[dspy.LM]]:
    """Two servers with the same model name."""
    servers = [ThreadingHTTPServer(("127.0.0.1", 0), _Endpoint) for _ in range(2)]
    for server in servers:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    yield [
        dspy.LM(
            "openai/m",
            api_base=f"http://127.0.0.1:{server.server_port}/v1",
            api_key="sk-verysecretverysecret",
            timeout=10,
            cache=False,
        )
        for server in servers
    ]
    for server in servers:
        server.shutdown()
        server.server_close()


def test_calls_are_stored_per_address_and_replayed_without_a_request(
    endpoints: list[dspy.LM], tmp_path: Path
) -> None:
    said = []
    for _ in range(2):
        with opened(tmp_path / "ledger.sqlite") as ledger:
            said.append([paying(lm, ledger)("hello") for lm in endpoints])
            assert (ledger.spent.calls, ledger.spent.tokens) == (2, 20)
    assert said[0] == said[1] and said[0][0] != said[0][1]
    assert all("call 1" in text for (text,) in said[0])
    kept = b"".join(path.read_bytes() for path in tmp_path.iterdir())
    assert b"call 1" in kept and b"verysecret" not in kept


def test_changing_the_timeout_or_retries_repeats_no_call(
    endpoints: list[dspy.LM], tmp_path: Path
) -> None:
    lm, path = endpoints[0], tmp_path / "ledger.sqlite"
    with opened(path) as ledger:
        first = paying(lm, ledger)("hello")
    with opened(path) as ledger:
        assert paying(lm.copy(timeout=3, num_retries=7), ledger)("hello") == first
        assert ledger.spent.replayed == 1


def test_a_call_answered_by_dspys_cache_counts_the_reported_tokens(
    endpoints: list[dspy.LM], tmp_path: Path
) -> None:
    cached = endpoints[0].copy(cache=True)
    before = dspy.cache
    try:
        dspy.configure_cache(enable_disk_cache=False, enable_memory_cache=True)
        for name in ("first", "second"):
            with opened(tmp_path / name) as ledger:
                paying(cached, ledger)("hello")
                assert ledger.spent.tokens == 10
    finally:
        dspy.cache = before


def test_a_wrapper_leaves_its_lm_unchanged_and_delegates_to_it(
    endpoints: list[dspy.LM], ledger: CallStore
) -> None:
    lm = endpoints[0]
    before = paying(lm, ledger)
    before.copy(temperature=0.9)("x")
    assert type(lm) is dspy.LM and before.lm is not lm and lm.history == []
    assert lm.kwargs.get("temperature") is None
    assert before.kwargs == lm.kwargs and before.provider is lm.provider
    assert before.supported_params == lm.supported_params > {"temperature"}
