"""Conditions on metadata: what a search may find, and nothing else."""

from __future__ import annotations

import asyncio
import datetime as dt
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ga_dspy import GraphAnchor, VanillaRAG, demo
from ga_dspy.cli.choices import choose_where
from ga_dspy.errors import InputError
from ga_dspy.passage import Passage
from ga_dspy.retrieval import Index
from ga_dspy.testing import scripted_lm

ANSWER = "[[ ## cited ## ]]\n1\n\n[[ ## answer ## ]]\nNils Haug"
CORPUS = [
    Passage(id="1", title="Halden Bridge", text="Nils Haug designed the Halden Bridge.",
            metadata={"lang": "en", "date": "2019-03-01", "labels": ["staff"]}),
    Passage(id="2", title="Haldenbrücke", text="Nils Haug entwarf die Halden Bridge.",
            metadata={"lang": "de", "date": "2021-07-09", "pages": 3}),
    Passage(id="3", title="Nils Haug", text="Nils Haug was born near the Halden Bridge.",
            metadata={"lang": "en", "date": "2022-01-01", "labels": ["staff", "board"]}),
    Passage(id="4", title="Tin", text="Tin is a metal."),
]  # fmt: skip


@pytest.fixture(scope="module")
def index() -> Index:
    return Index.from_passages(CORPUS, encoder="hash-64")


@pytest.mark.parametrize(
    ("where", "ids"),
    [
        ({"lang": "en"}, "13"),
        ({"lang": ["de", "fr"]}, "2"),
        ({"lang": "en", "date": {">=": "2020"}}, "3"),
        ({"date": {">": "2019-03-01", "<": "2022"}}, "2"),
        ({"pages": {"<=": 3}}, "2"),
        ({"pages": {"<=": "3"}}, "2"),
        ({"pages": {"=": 3, "!=": 4}}, "2"),
        ({"pages": {"!=": [3, 4]}}, "134"),
        ({"date": {"<": dt.date(2020, 1, 1)}}, "1"),
        ({"lang": {"!=": "en"}}, "24"),
        ({"labels": "board"}, "3"),
        ({"labels": {"within": ["staff"]}}, "124"),
        ({"labels": {"within": []}}, "24"),
    ],
)
def test_conditions_select_the_matching_passages(
    index: Index, where: dict[str, Any], ids: str
) -> None:
    assert "".join(p.id for p in index.only(where)) == ids


@pytest.mark.parametrize("kind", ["sparse", "dense", "hybrid", "linked"])
def test_a_restricted_search_equals_a_search_of_an_index_with_only_those_passages(
    index: Index, kind: str
) -> None:
    where = {"labels": {"within": ["staff"]}, "lang": {"!=": "de"}}
    alone = Index.from_passages([CORPUS[0], CORPUS[3]], encoder="hash-64")
    query = "Who designed the Halden Bridge in tin?"
    found = index.as_kind(kind).search(query, 4, where=where)
    expected = alone.as_kind(kind).search(query, 4)
    assert [hit.passage for hit in found] == [hit.passage for hit in expected]
    assert [h.score for h in found] == pytest.approx([h.score for h in expected], abs=1e-5)


@settings(max_examples=20)
@given(st.sets(st.integers(0, 9), max_size=9), st.integers(1, 6))
def test_only_passages_that_meet_the_condition_are_found(groups: set[int], k: int) -> None:
    found = DEMO.search("Which moon did the lander touch?", k, where={"group": sorted(groups)})
    assert {hit.passage.metadata["group"] for hit in found} <= groups
    assert len(found) <= k and bool(found) == bool(groups)


DEMO = Index.from_passages(
    [p.model_copy(update={"metadata": {"group": n % 10}}) for n, p in enumerate(demo.corpus())],
    encoder="hash-64",
)


def test_a_condition_that_no_passage_meets_finds_nothing(index: Index) -> None:
    assert index.search("bridge", where={"lang": "fi"}) == []


def test_views_combine_and_a_condition_applies_to_one_question(index: Index) -> None:
    english = index.only({"lang": "en"})
    assert {p.id for p in english("Halden Bridge")} == {"1", "3"}
    assert {p.id for p in english.only({"date": {">=": "2020"}})("Halden Bridge")} == {"3"}
    program = VanillaRAG(index)
    program.set_lm(scripted_lm(lambda prompt: ANSWER))
    asked = {"question": "Who designed the bridge?", "where": {"lang": "de"}}
    assert [p.id for p in program(**asked).passages] == ["2"]
    assert [p.id for p in asyncio.run(program.acall(**asked)).passages] == ["2"]
    assert {"1", "2", "3"} <= {p.id for p in program(question=asked["question"]).passages}


def test_the_next_restricted_search_sees_changes() -> None:
    index = Index.from_passages(CORPUS, encoder="hash-64")
    assert len(index("Halden Bridge", where={"lang": "de"})) == 1
    index.delete(["2"])
    assert index("Halden Bridge", where={"lang": "de"}) == []


def test_a_retriever_without_support_for_conditions_is_not_called() -> None:
    program = GraphAnchor(lambda query, k: pytest.fail("it was asked"))
    with pytest.raises(InputError, match="conditions on metadata for"):
        program(question="Who?", where={"lang": "en"})


@pytest.mark.parametrize(
    "where",
    [
        {"a": None},
        {"a": {"~": 1}},
        {"a": {">=": [1]}},
        {"a": {"within": "x"}},
        {"a": {}},
        {},
        ["a"],
        "a",
        5,
    ],
)
def test_a_malformed_condition_is_refused(index: Index, where: Any) -> None:
    with pytest.raises(InputError, match=r"the condition on|where is"):
        index.search("bridge", where=where)


def test_the_command_line_takes_conditions(tmp_path: Path, command: Callable[..., Any]) -> None:
    Index.build(CORPUS, tmp_path / "ix", encoder="hash-64")
    search = ("index", "search", "Halden Bridge", "--index", "ix", "--json")
    done = command(*search, "--where", "lang=en", "--where", "date>=2020", cwd=tmp_path)
    assert '"id": "3"' in done.stdout and '"id": "1"' not in done.stdout, done.stderr
    done = command(*search, "--where", "pages=3", cwd=tmp_path)
    assert '"id": "2"' in done.stdout, done.stderr
    done = command(*search, "--where", "pages>=many", cwd=tmp_path)
    assert done.returncode == 2 and "Expected a number" in done.stderr
    ask = ("ask", "Who designed the Halden Bridge?", "--index", "ix", "--where", "lang=de")
    assert "Haldenbrücke" in command(*ask, cwd=tmp_path).stdout
    assert command(*search, "--where", "lang", cwd=tmp_path).returncode == 2


# --- Types


TYPED = Index.from_passages(
    [
        Passage(id="a", text="A red bridge.", metadata={"year": 2019, "draft": True, "page": "iv"}),
        Passage(id="b", text="A blue bridge.", metadata={"year": 2021, "draft": False, "page": 3}),
        Passage(id="c", text="A bridge.", metadata={"year": 2020.5, "on": dt.date(2020, 5, 1)}),
    ],
    encoder="hash-16",
)


@pytest.mark.parametrize(
    ("wanted", "ids"),
    [
        (["year>=2020"], "bc"),
        (["year!=2021"], "ac"),
        (["draft=true"], "a"),
        (["draft!=true"], "bc"),
        (["year=2021", "year!=2020"], "b"),
        (["year=2021", "year=2019"], ""),
        (["year!=2021", "year!=2019"], "c"),
        (["on>=2020-01-01"], "c"),
        (["page=3"], "b"),
        (["page=iv"], "a"),
        (["page>=3"], "ab"),
        (["year=1999"], ""),
    ],
)
def test_values_on_the_command_line_are_converted_to_the_fields_type(
    wanted: list[str], ids: str
) -> None:
    found: Index = TYPED
    for where in choose_where(wanted):
        found = found.only(where)
    assert "".join(passage.id for passage in found) == ids
    assert {p.id for p in found("bridge")} == set(ids)


@pytest.mark.parametrize(
    ("where", "message"),
    [
        ({"year": {">=": "soon"}}, "'soon' compares with a text; expected a number"),
        ({"year": True}, "compares with true or false; expected a number"),
        ({"draft": 1}, "1 compares with a number; expected true or false"),
        ({"on": {">": 2020}}, "2020 compares with a number; expected a text"),
        ({"year": [2019, "x"]}, "'x' compares with a text"),
        ({"yaer": 2019}, "'yaer', which no passage has; expected .*: draft, on, page, year"),
        ({"yaer": {"!=": 2019}}, "'yaer', which no passage has"),
        ({"lables": {"within": ["staff"]}}, "'lables', which no passage has"),
    ],
)
def test_a_condition_of_the_wrong_type_is_an_error_that_names_the_types(
    where: Any, message: str
) -> None:
    with pytest.raises(InputError, match=message):
        TYPED.search("bridge", where=where)


def test_an_error_in_an_access_scope_reveals_nothing_of_other_passages() -> None:
    ours = Passage(id="a", text="A bridge.", metadata={"tenant": "a", "lang": "en"})
    theirs = Passage(id="b", text="A bridge.", metadata={"tenant": "b", "salary": 3})
    index = Index.from_passages([ours, theirs], encoder="hash-16")
    with pytest.raises(InputError, match="'salary', which no passage has") as caught:
        index.only({"tenant": "a"}).search("bridge", where={"salary": 3})
    assert "lang" in str(caught.value.expected) and "salary" not in str(caught.value.expected)
    nobody = index.only({"tenant": "c"})
    assert not nobody.search("bridge", where={"salary": "x"}) and not list(nobody)


def test_an_unknown_field_suggests_only_fields_of_passages_that_meet_the_known_one() -> None:
    ours = Passage(id="a", text="A bridge.", metadata={"tenant": "a", "lang": "en"})
    theirs = Passage(id="b", text="A bridge.", metadata={"tenant": "b", "salary": 3})
    index = Index.from_passages([ours, theirs], encoder="hash-16")
    for where in ({"tenant": "a", "langue": "en"}, {"langue": "en", "tenant": "a"}):
        with pytest.raises(InputError, match="'langue', which no passage has") as caught:
            index.only(where).search("bridge")
        assert "lang" in str(caught.value.expected) and "salary" not in str(caught.value.expected)


@pytest.mark.parametrize(
    "where",
    [
        {f"field {n}": n for n in range(500)},
        {"year": list(range(20_000))},
        {"year": "x" * 1001},
        {"year": float("nan")},
    ],
)
def test_the_size_of_a_condition_is_limited(where: Any) -> None:
    with pytest.raises(InputError, match=r"at most 100 with 10,000|the condition on"):
        TYPED.search("bridge", where=where)


# --- What conditions cost


def seconds(index: Index, wheres: list[Any]) -> float:
    """The time of a search under conditions, on average."""
    began = time.perf_counter()
    for where in wheres:
        index.search("Which bridge?", where=where)
    return (time.perf_counter() - began) / len(wheres)


@pytest.fixture(scope="module")
def tenants() -> Index:
    passages = [
        Passage(id=str(n), text=f"Bridge {n}.", metadata={"tenant": n % 1000, "n": n})
        for n in range(20_000)
    ]
    return Index.from_passages(passages, kind="sparse")


def test_a_thousand_tenants_in_turn_cost_about_as_much_as_one(tenants: Index) -> None:
    seconds(tenants, [{"tenant": 1}])
    one = seconds(tenants, [{"tenant": 1}] * 100)
    assert seconds(tenants, [{"tenant": n} for n in range(1000)]) < 30 * one


def test_many_values_cost_little_more_than_one(tenants: Index) -> None:
    seconds(tenants, [{"n": 1, "tenant": 1}])
    one = seconds(tenants, [{"n": n} for n in range(100, 120)])
    many = [{"n": [*range(n, n + 9000)], "tenant": {"!=": [*range(900)]}} for n in range(5)]
    assert seconds(tenants, many) < 100 * one
