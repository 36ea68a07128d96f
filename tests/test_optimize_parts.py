"""Demos, question sets, caps and estimates of a compilation."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import dspy
import pytest

from ga_dspy import GraphAnchor, Passage
from ga_dspy.errors import InputError
from ga_dspy.lm.scripted import scripted_lm
from ga_dspy.optimize import Caps, recipe
from ga_dspy.optimize.budget import Account, BudgetExceeded, Gate
from ga_dspy.optimize.demos import labelled, prompts, sanitise
from ga_dspy.optimize.estimate import PriceUnknown, check_prices, estimate
from ga_dspy.optimize.ledger import Ledger
from ga_dspy.optimize.ledgered import Books, ledgered
from ga_dspy.optimize.splits import SetsOverlap, check_sets, fingerprints, without_context
from ga_dspy.signatures import GraphProposal

PASSAGES = "[1] Red Lodge\nRed Lodge is the seat of Carbon County."
SEAT = "Relations:\n1. Red Lodge -> is the seat of -> Carbon County [1]"
ROW = dspy.Example(id="1", question="Where?", answer="Montana", type="bridge").with_inputs(
    "question"
)
READ = {
    "question": "Where?",
    "tried": "1. Where? => passages 1",
    "graph": "(empty)",
    "passages": PASSAGES,
    "feedback": "",
    "additions": SEAT,
    "reasoning": "r",
    "judgement": "sufficient",
    "candidate": "Montana",
    "next_query": "",
    "augmented": True,
}
ANSWER = {
    "question": "Where?",
    "graph": "(empty)",
    "passages": PASSAGES,
    "verdict": "answered",
    "cited": "1",
    "answer": "Montana",
    "augmented": True,
}


def search(query: str, k: int) -> list[Passage]:
    return [Passage(id="1", title="Red Lodge", text="Red Lodge is the seat of Carbon County.")]


def program_with(name: str, demo: dict[str, Any]) -> GraphAnchor:
    program = GraphAnchor(search)
    getattr(program, name).demos = [dspy.Example(**demo)]
    return program


@pytest.mark.parametrize(
    ("name", "demo", "reason"),
    [
        ("read", READ | {"feedback": "- entity Bob: not found"}, "feedback"),
        ("read", READ | {"additions": "Relations:\n1. Bob -> rules -> Mars [1]"}, "Bob"),
        ("read", READ | {"passages": "[2] Other\nNothing of it."}, "do not support"),
        ("read", READ | {"candidate": "Idaho"}, "wrong candidate"),
        ("read", READ | {"passages": PASSAGES + " <TRUNCATED FOR BREVITY>"}, "cut off"),
        ("answer", ANSWER | {"answer": "somewhere in Montana"}, "not the right one"),
        ("answer", ANSWER | {"verdict": "not in passages"}, "do not hold"),
        ("answer", {"question": "Where?", "augmented": True, "answer": "Montana"}, "lacks"),
    ],
)
def test_a_demo_that_would_teach_a_fault_is_taken_off(
    name: str, demo: dict[str, Any], reason: str
) -> None:
    clean = sanitise(program_with(name, demo), [ROW], 0.8)
    assert not getattr(clean.program, name).demos
    assert len(clean.dropped) == 1 and reason in clean.dropped[0]


@pytest.mark.parametrize(("name", "demo"), [("read", READ), ("answer", ANSWER)])
def test_a_sound_demo_is_kept_whether_its_graph_is_text_or_typed(
    name: str, demo: dict[str, Any]
) -> None:
    typed = {k: GraphProposal.model_validate(v) if k == "additions" else v for k, v in demo.items()}
    for given in (demo, typed):
        clean = sanitise(program_with(name, given), [ROW], 0.8)
        assert not clean.dropped and len(getattr(clean.program, name).demos) == 1


def test_a_demo_keeps_fields_of_its_predictor_alone() -> None:
    clean = sanitise(
        program_with("answer", ANSWER | {"gold_titles": ("X",), "id": "1"}), [ROW], 0.8
    )
    assert set(clean.program.answer.demos[0].keys()) == set(ANSWER)


def test_rows_become_demos_of_the_answer_step_alone_and_show_only_what_they_say() -> None:
    program = labelled(GraphAnchor(search), [ROW])
    assert program.read.demos == []
    assert dict(program.answer.demos[0]) == {"question": "Where?", "answer": "Montana"}
    assert not sanitise(program, [ROW], 0.8).dropped
    lm = scripted_lm([{"verdict": "answered", "cited": "1", "answer": "x"}])
    with dspy.context(lm=lm):
        program.answer(question="q", graph="g", passages="p")
    assert "Montana" in lm.engine.prompts[0] and "bridge" not in lm.engine.prompts[0]


def test_prompts_read_as_instruction_and_numbered_demos() -> None:
    shown = prompts(program_with("answer", ANSWER))
    assert shown["answer"].startswith("Answer the question from the passages")
    assert "--- demo 1 ---\nquestion: Where?" in shown["answer"]
    assert "demo" not in shown["read"].rpartition("where one")[2]


def row(name: str, text: str) -> dspy.Example:
    return dspy.Example(id=name, question=text, answer="x").with_inputs("question")


def test_sets_that_share_an_id_or_a_text_are_refused() -> None:
    a = row("1", "Who is the  Mayor?")
    check_sets({"train": [a], "validation": [row("2", "Who is she?")]})
    with pytest.raises(SetsOverlap, match="by id: '1'"):
        check_sets({"train": [a], "validation": [row("1", "Other?")]})
    with pytest.raises(SetsOverlap, match="in train and in test, by text"):
        check_sets(
            {"train": [a], "validation": [row("2", "b")], "test": [row("3", "who is mayor")]}
        )


def test_fingerprints_differ_with_the_questions() -> None:
    one, two = (fingerprints({"train": [row("1", t)]}, {"train": "t.json"}) for t in "ab")
    assert one["train"]["name"] == "t.json" and one["train"]["n"] == 1
    assert one["train"]["sha256"] != two["train"]["sha256"]


def echo(prompt: str) -> str:
    return f"said {len(prompt)}"


@pytest.fixture
def books(tmp_path: Path) -> Iterator[Books]:
    with Ledger(tmp_path / "ledger.sqlite") as ledger:
        yield Books(ledger)


def test_threads_together_never_make_more_calls_than_the_cap(books: Books) -> None:
    lm = scripted_lm(echo)
    account = Account()
    paying = ledgered(lm, "task", books, Gate(account, Caps(calls=20)))

    def ask(n: int) -> bool:
        try:
            paying(f"prompt {n}")
        except BudgetExceeded:
            return False
        return True

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(ask, range(60))) == 20
    assert len(lm.engine.prompts) == account.spent.calls == 20


def test_one_request_from_many_threads_is_paid_once(books: Books) -> None:
    lm, account = scripted_lm(echo), Account()
    paying = ledgered(lm, "task", books, Gate(account, Caps()))
    with ThreadPoolExecutor(8) as pool:
        said = set(pool.map(lambda _: paying("the same")[0], range(40)))
    assert len(said) == len(lm.engine.prompts) == account.spent.calls == 1


def test_another_rollout_temperature_or_number_of_completions_is_another_request(
    books: Books,
) -> None:
    lm, account = scripted_lm(echo), Account()
    paying = ledgered(lm, "task", books, Gate(account, Caps()))
    for _ in range(2):
        paying("x")
        paying("x", rollout_id=1, temperature=1.0)
        paying.copy(rollout_id=2, temperature=1.0)("x")
        assert len(paying("x", n=3, temperature=1.0)) == 3
    assert account.spent.calls == 3 + 3 == len(lm.engine.prompts)


def test_a_failed_call_is_neither_kept_nor_counted(books: Books) -> None:
    lm, account = scripted_lm([RuntimeError("no"), "yes"]), Account()
    paying = ledgered(lm, "task", books, Gate(account, Caps(calls=1)))
    with pytest.raises(dspy.LMError):
        paying("x")
    assert paying("x") == ["yes"] and account.spent.calls == 1


def test_a_stop_passes_through_code_that_catches_every_exception(books: Books) -> None:
    paying = ledgered(scripted_lm(echo), "task", books, Gate(Account(), Caps(tokens=1)))

    def swallowing() -> None:
        try:
            paying("a prompt of several tokens")
        except Exception:  # noqa: BLE001 - as optimizers do
            pytest.fail("swallowed")

    with pytest.raises(BudgetExceeded, match="the cap of tokens"):
        swallowing()


def test_tokens_reported_by_a_replayed_call_are_those_of_the_first(tmp_path: Path) -> None:
    seen = []
    for _ in range(2):
        with Ledger(tmp_path / "ledger.sqlite") as ledger:
            account = Account()
            lm = ledgered(scripted_lm(echo), "task", Books(ledger), Gate(account, Caps()))
            with dspy.track_usage() as usage, dspy.context(lm=lm):
                lm("some prompt")
            seen.append((account.spent.tokens, usage.get_total_tokens()))
    assert seen[0] == seen[1] and seen[0][0] > 0


class _Endpoint(BaseHTTPRequestHandler):
    """Says which request of this server it was."""

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
        """Nothing."""


@pytest.fixture
def endpoints() -> Iterator[list[dspy.LM]]:
    """Two servers with one model name."""
    servers = [ThreadingHTTPServer(("127.0.0.1", 0), _Endpoint) for _ in range(2)]
    for server in servers:
        threading.Thread(target=server.serve_forever, daemon=True).start()
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


def test_calls_to_an_endpoint_are_kept_by_address_and_replayed_without_a_request(
    endpoints: list[dspy.LM], tmp_path: Path
) -> None:
    said = []
    for _ in range(2):
        with Ledger(tmp_path / "ledger.sqlite") as ledger:
            account = Account()
            gate = Gate(account, Caps())
            said.append([ledgered(lm, "task", Books(ledger), gate)("hello") for lm in endpoints])
            assert (account.spent.calls, account.spent.tokens) == (2, 20)
    assert said[0] == said[1] and said[0][0] != said[0][1]
    assert all("call 1" in text for (text,) in said[0])
    written = b"".join(path.read_bytes() for path in tmp_path.iterdir())
    assert b"call 1" in written and b"verysecret" not in written


def test_an_lm_is_left_as_it_is(endpoints: list[dspy.LM], books: Books) -> None:
    lm = endpoints[0]
    paying = ledgered(lm, "task", books, Gate(Account(), Caps()))
    assert type(lm) is dspy.LM and isinstance(paying, dspy.LM) and paying is not lm


@pytest.mark.parametrize("caps", [Caps(calls=0), Caps(tokens=-1), Caps(money=0.0)])
def test_a_cap_must_be_above_zero(caps: Caps) -> None:
    with pytest.raises(InputError, match="more than 0"):
        caps.checked()


def test_an_estimate_grows_with_the_work_and_has_no_price_for_an_unknown_lm() -> None:
    lms = {"task": scripted_lm([])}
    sizes = {"train": 20, "validation": 10, "held out": 30}
    small, large = (
        estimate(GraphAnchor(search), recipe("bootstrap-rs", candidates=n), sizes, [ROW], lms)
        for n in (2, 8)
    )
    assert small.calls < large.calls and small.tokens < large.tokens
    assert small.money is None and "price unknown" in str(small)


def test_the_embedded_lm_costs_nothing() -> None:
    from ga_dspy import extractive_lm

    lms = {"task": extractive_lm()}
    sizes = {"train": 5, "validation": 5, "held out": 5}
    assert estimate(GraphAnchor(search), recipe("labeled"), sizes, [ROW], lms).money == 0.0
    check_prices(lms, Caps(money=1.0))


def test_a_cap_of_money_needs_a_known_price() -> None:
    with pytest.raises(PriceUnknown, match="ga-dspy/scripted has no known price"):
        check_prices({"task": scripted_lm([])}, Caps(money=1.0))


def test_a_recipe_is_chosen_by_what_there_is() -> None:
    assert recipe().name == "bootstrap-rs"
    assert recipe(reflection=True).name == "gepa"
    with pytest.raises(InputError, match="one of labeled, bootstrap"):
        recipe("magic")
    with pytest.raises(InputError, match="setting 'demoes' of recipe bootstrap"):
        recipe("bootstrap", demoes=3)


def test_what_an_optimizer_learns_from_holds_no_paragraphs() -> None:
    example = dspy.Example(
        question="q", answer="a", paragraphs=(("Bath", ("It lies on the Avon.",)),),
        supporting_facts=(("Bath", 0),),
    ).with_inputs("question")  # fmt: skip
    (bare,) = without_context([example])
    assert dict(bare) == {"question": "q", "answer": "a"}
    assert bare.inputs().keys() == ["question"]
    assert "paragraphs" in example
