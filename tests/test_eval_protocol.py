"""Protocols: a run is resumed only if nothing that can change an answer has changed."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

import dspy
import pytest

from ga_dspy import Index, Passage
from ga_dspy.eval import Protocol, ProtocolMismatch, protocol_of, run
from ga_dspy.programs import GraphAnchor, MultiHopProgram, VanillaRAG
from ga_dspy.testing import scripted_lm

TOWN = Passage(
    id="1", title="Red Lodge", text="Red Lodge lies in Montana.", metadata={"tenant": "a"}
)
OTHER = Passage(id="2", title="Elk", text="Elk lies in Idaho.", metadata={"tenant": "b"})
REPLY = {"verdict": "answered", "links": "[1]", "answer": "Montana"}


def rows(question: str = "Where is Red Lodge?") -> list[dspy.Example]:
    return [dspy.Example(id="q", question=question, answer="Montana").with_inputs("question")]


def index(*passages: Passage, **settings: Any) -> Index:
    given = passages or (TOWN, OTHER)
    return Index.from_passages(given, **{"kind": "sparse", **settings})


def vectors(texts: list[str]) -> list[list[float]]:
    return [[1.0, float(len(text))] for text in texts]


def other_vectors(texts: list[str]) -> list[list[float]]:
    return [[float(len(text)), 1.0] for text in texts]


class Own(VanillaRAG):
    def forward(self, question: str, config: Any = None) -> Any:
        return super().forward(question, config)


def edited() -> type[VanillaRAG]:
    class Own(VanillaRAG):
        def forward(self, question: str, config: Any = None) -> Any:
            return super().forward(f"{question} Briefly.", config)

    Own.__qualname__, Own.__module__ = "Own", __name__
    return Own


def searching(found: str) -> Callable[[str], list[str]]:
    return lambda query: [found]


DAY = date(2020, 1, 1)


def matching(pattern: str, since: date) -> Callable[[str], list[str]]:
    known = re.compile(pattern)
    return lambda query: [f"{since}"] if known.search(query) else []


def reranked(by: float) -> Callable[[str, list[str]], list[float]]:
    return lambda query, texts: [by * len(text) for text in texts]


def plain(**settings: Any) -> MultiHopProgram:
    return VanillaRAG(index(), **settings)


def changed(change: Callable[[Any], Any], base: Callable[[], MultiHopProgram] = plain) -> Any:
    def make() -> MultiHopProgram:
        program = base()
        change(program)
        return program

    return make


def given(retriever: Callable[[], Any]) -> Callable[[], MultiHopProgram]:
    return lambda: VanillaRAG(retriever())


def instructed(program: Any) -> None:
    program.answer.signature = program.answer.signature.with_instructions("Answer.")


def described(program: Any) -> None:
    program.answer.signature = program.answer.signature.with_updated_fields(
        "answer", desc="one word"
    )


def shown(program: Any) -> None:
    program.answer.demos = [dspy.Example(question="Where?", answer="Here").with_inputs("question")]


DENSE = {"kind": "dense"}
PROGRAMS: dict[str, tuple[Callable[[], Any], Callable[[], Any]]] = {
    "index content": (plain, given(lambda: index(TOWN))),
    "index text": (plain, given(lambda: index(TOWN, OTHER.model_copy(update={"text": "Elk."})))),
    "index metadata": (
        plain, given(lambda: index(TOWN, Passage(**{**dict(OTHER), "metadata": {"tenant": "a"}})))
    ),
    "scope": (lambda: plain().only({"tenant": "a"}), lambda: plain().only({"tenant": "b"})),
    "no scope": (plain, lambda: plain().only({"tenant": "a"})),
    "k": (plain, lambda: plain(k=3)),
    "a setting": (plain, lambda: plain(abstain="quoted")),
    "count": (plain, lambda: plain(count=len)),
    "demos": (plain, changed(shown)),
    "instructions": (plain, changed(instructed)),
    "a field": (plain, changed(described)),
    "predictor config": (plain, changed(lambda p: p.answer.config.update(temperature=1.0))),
    "predictor LM": (plain, changed(lambda p: setattr(p.answer, "lm", scripted_lm([REPLY])))),
    "predictor module": (
        plain, changed(lambda p: setattr(p, "answer", dspy.ChainOfThought(p.answer.signature)))
    ),
    "an attribute": (plain, changed(lambda p: setattr(p, "prefix", "x"))),
    "program": (plain, lambda: GraphAnchor(index())),
    "subclass source": (lambda: Own(index()), lambda: edited()(index())),
    "which lambda": (given(lambda: lambda q: ["a"]), given(lambda: lambda q: ["b"])),
    "closure": (given(lambda: searching("a")), given(lambda: searching("b"))),
    "pattern": (given(lambda: matching("a", DAY)), given(lambda: matching("b", DAY))),
    "date": (given(lambda: matching("a", DAY)), given(lambda: matching("a", date.max))),
    "reranker": (
        given(lambda: index(reranker=reranked(1.0))), given(lambda: index(reranker=reranked(-1.0)))
    ),
    "encoder": (
        given(lambda: index(**DENSE, encoder=vectors)),
        given(lambda: index(**DENSE, encoder=other_vectors)),
    ),
    "kind": (plain, given(lambda: index(kind="linked"))),
}  # fmt: skip


def made(program: MultiHopProgram, **changes: Any) -> Protocol:
    asked: dict[str, Any] = {
        "examples": rows(), "name": "x", "dataset": "qa", "source": "x", "lm": scripted_lm([REPLY]),
    }  # fmt: skip
    return protocol_of(program, **{**asked, **changes})


@pytest.mark.parametrize("what", PROGRAMS)
def test_a_change_of_the_program_changes_the_protocol(what: str) -> None:
    before, after = PROGRAMS[what]
    assert made(before()).hash == made(before()).hash
    assert made(before()).hash != made(after()).hash
    assert made(before()).differences(made(after()))


def lm_with(**settings: Any) -> Callable[[], dict[str, Any]]:
    return lambda: {"lm": dspy.LM("openai/m", **{"temperature": 0.0, **settings})}


ASKED: dict[str, tuple[Callable[[], Any], Callable[[], Any]]] = {
    "LM name": (lm_with(), lambda: {"lm": dspy.LM("openai/n", temperature=0.0)}),
    "temperature": (lm_with(), lm_with(temperature=1.0)),
    "max_tokens": (lm_with(max_tokens=100), lm_with(max_tokens=200)),
    "extra_body": (lm_with(), lm_with(extra_body={"thinking": True})),
    "address": (lm_with(api_base="http://a/v1"), lm_with(api_base="http://b/v1")),
    "question": (dict, lambda: {"examples": rows("Where?")}),
    "score": (dict, lambda: {"score": "squad"}),
    "judge": (dict, lambda: {"judge": dspy.LM("openai/j")}),
    "judge's settings": (
        lambda: {"judge": dspy.LM("openai/j")}, lambda: {"judge": dspy.LM("openai/j", top_p=0.5)}
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", ASKED)
def test_questions_and_lms_change_the_protocol(what: str) -> None:
    before, after = ASKED[what]
    assert made(plain(), **before()).hash == made(plain(), **before()).hash
    assert made(plain(), **before()).hash != made(plain(), **after()).hash


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (None, dspy.JSONAdapter()),
        (dspy.ChatAdapter(), dspy.ChatAdapter(use_json_adapter_fallback=False)),
    ],
)
def test_an_adapter_and_its_settings_change_the_protocol(one: Any, other: Any) -> None:
    found = []
    for adapter in (one, one, other):
        with dspy.context(adapter=adapter):
            found.append(made(plain()).hash)
    assert found[0] == found[1] != found[2]


def test_an_api_key_neither_changes_nor_enters_the_protocol() -> None:
    one, other = (made(plain(), **lm_with(api_key=key)()) for key in ("sk-one", "sk-two"))
    assert one == other and "sk-" not in one.model_dump_json()


def test_an_equal_program_built_again_resumes_without_a_call(tmp_path: Path) -> None:
    for replies in ([REPLY], []):
        program, lm = plain(), scripted_lm(replies)
        with dspy.context(lm=lm):
            report = run(program, rows(), out=tmp_path, protocol=made(program, lm=lm))
        assert report.f1 == 100.0


def test_earlier_calls_do_not_change_the_protocol() -> None:
    program, lm = plain(), scripted_lm([REPLY])
    before = made(program, lm=lm)
    with dspy.context(lm=lm):
        program(question="Where is Red Lodge?")
        assert made(program, lm=lm) == before


def test_a_run_is_not_resumed_for_another_tenant(tmp_path: Path) -> None:
    first, second = plain().only({"tenant": "a"}), plain().only({"tenant": "b"})
    lm = scripted_lm([REPLY])
    with dspy.context(lm=lm):
        run(first, rows(), out=tmp_path, protocol=made(first, lm=lm))
        with pytest.raises(ProtocolMismatch, match=r"digests\.retriever was .*, is .*"):
            run(second, rows(), out=tmp_path, protocol=made(second, lm=lm))


def test_a_run_that_depends_on_an_incomparable_object_is_not_resumed(tmp_path: Path) -> None:
    lock, lm = threading.Lock(), scripted_lm([REPLY])

    def search(query: str) -> list[str]:
        with lock:
            return ["Red Lodge | Red Lodge lies in Montana."]

    program = VanillaRAG(search)
    with dspy.context(lm=lm):
        run(program, rows(), out=tmp_path, protocol=made(program, lm=lm))
        with pytest.raises(
            ProtocolMismatch, match=r"holds an object of _thread\.lock.*fingerprint"
        ):
            run(program, rows(), out=tmp_path, protocol=made(program, lm=lm))


class Client:
    """A retriever with an attribute that cannot be compared, and with a fingerprint."""

    def __init__(self, fingerprint: str) -> None:
        self.fingerprint, self.lock = fingerprint, threading.Lock()

    def __call__(self, query: str) -> list[str]:
        return ["Red Lodge | Red Lodge lies in Montana."]


def test_a_fingerprint_makes_an_object_comparable() -> None:
    one, again, other = (made(VanillaRAG(Client(mark))) for mark in ("1", "1", "2"))
    assert one.hash == again.hash != other.hash
    assert not one.differences(again)
