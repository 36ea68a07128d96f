"""Anything that retrieves becomes a retriever."""

from __future__ import annotations

import copy
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import dspy
import pytest

from ga_dspy.errors import InputError
from ga_dspy.passage import Passage
from ga_dspy.retrieval import Index, as_retriever


def returning(result: Any) -> Callable[[str], Any]:
    return lambda query: result


def test_strings_are_split_at_the_bar_after_the_title() -> None:
    titled, plain = as_retriever(returning(["Nile | A river. | Long.", "Only text."]))("river", 5)
    assert (titled.title, titled.text) == ("Nile", "A river. | Long.")
    assert (plain.title, plain.text) == ("", "Only text.")


def test_a_bar_far_into_the_text_separates_no_title() -> None:
    text = f"{'long ' * 40}| more"
    (passage,) = as_retriever(returning([text]))("long", 5)
    assert passage.title == ""


@pytest.mark.parametrize(
    "item",
    [
        {"title": "Nile", "text": "A river."},
        {"long_text": "Nile | A river."},
        {"text": "Nile | A river.", "long_text": "Nile | A river.", "score": 3.2},
        {"page_content": "A river.", "metadata": {"title": "Nile"}},
        {"title": "Nile", "content": "A river."},
        {"title": "Nile", "passage": "A river."},
        SimpleNamespace(page_content="A river.", metadata={"title": "Nile"}, id=None),
        (SimpleNamespace(page_content="A river.", metadata={"title": "Nile"}), 0.9),
        Passage(id="x", title="Nile", text="A river."),
    ],
)
def test_every_known_shape_of_a_result_reads_the_same(item: Any) -> None:
    (passage,) = as_retriever(returning([item]))("river", 5)
    assert (passage.title, passage.text) == ("Nile", "A river.")


def test_a_dspy_prediction_gives_its_passages() -> None:
    search = as_retriever(returning(dspy.Prediction(passages=["Nile | A river."], indices=[7])))
    assert search("river", 5)[0].title == "Nile"


def test_dspys_own_retrieve_module_is_asked_for_k_passages() -> None:
    asked: list[int] = []

    def engine(query: str, k: int) -> list[Any]:
        asked.append(k)
        return [dspy.Prediction(long_text=f"Nile | River {i}.") for i in range(k)]

    with dspy.context(rm=engine):
        passages = as_retriever(dspy.Retrieve(k=3))("river", 2)
    assert (asked, len(passages)) == ([2], 2)


def test_dspys_embeddings_retriever_works_with_the_depth_it_was_given() -> None:
    import numpy as np

    def embedder(texts: list[str]) -> Any:
        return np.array([[len(text), text.count("e") + 1] for text in texts], dtype=np.float32)

    search = as_retriever(dspy.Embeddings(["Nile | A river.", "Everest"], embedder, k=1))
    assert len(search("river", 5)) == 1


def test_a_langchain_retriever_is_invoked_with_the_query_alone() -> None:
    class LangChainLike:
        def invoke(self, query: str, config: Any = None, **kwargs: Any) -> list[Any]:
            return [SimpleNamespace(page_content=query, metadata={}, id=f"d{i}") for i in range(4)]

    passages = as_retriever(LangChainLike())("river", 3)
    assert [passage.id for passage in passages] == ["d0", "d1", "d2"]


@pytest.mark.parametrize("name", ["k", "top_k", "n", "limit"])
def test_the_depth_reaches_the_parameter_that_stands_for_it(name: str) -> None:
    scope: dict[str, Any] = {}
    exec(f"def search(query, {name}=99): return [str({name})]", scope)
    assert as_retriever(scope["search"])("river", 4)[0].text == "4"


def test_a_required_second_parameter_of_any_name_takes_the_depth() -> None:
    assert as_retriever(lambda query, amount: [f"{amount} asked"])("q", 4)[0].text == "4 asked"


def test_more_than_k_are_cut_and_fewer_are_kept() -> None:
    search = as_retriever(returning([f"text {i}" for i in range(6)]))
    assert len(search("q", 2)) == 2
    assert len(search("q", 9)) == 6
    assert as_retriever(returning([]))("q", 5) == []


def test_a_missing_id_is_the_same_for_the_same_content_everywhere() -> None:
    one = as_retriever(returning(["Nile | A river."]))("a", 1)[0]
    other = as_retriever(returning([{"title": "Nile", "text": "A river."}]))("b", 1)[0]
    assert one.id == other.id


def test_the_same_passage_twice_counts_once() -> None:
    assert len(as_retriever(returning(["same", "same", "else"]))("q", 3)) == 2


def test_one_id_for_two_texts_is_an_error_even_across_calls() -> None:
    search = as_retriever(lambda query: [{"id": "0", "text": query}])
    search("first", 1)
    with pytest.raises(InputError, match=r"'0'.*second.*unique"):
        search("second", 1)


@pytest.mark.parametrize("result", [None, "one string", 3, {"hits": []}, Passage(id="1", text="x")])
def test_a_result_that_is_no_collection_of_passages_is_named(result: Any) -> None:
    with pytest.raises(InputError, match=type(result).__name__):
        as_retriever(returning(result))("q", 1)


@pytest.mark.parametrize("item", [None, 5, {"title": "no text"}, {"text": " "}, b"bytes"])
def test_an_item_without_text_is_named_with_its_place(item: Any) -> None:
    with pytest.raises(InputError, match="result 2"):
        as_retriever(returning(["fine", item]))("q", 5)


def test_a_coroutine_function_is_told_from_a_retriever() -> None:
    async def search(query: str) -> list[str]:
        return [query]

    with pytest.raises(InputError, match="coroutine"):
        as_retriever(search)("q", 1)


@pytest.mark.parametrize("found", [None, 3, "index/", {"a": 1}, Passage])
def test_what_cannot_retrieve_is_refused_at_once(found: Any) -> None:
    with pytest.raises(InputError, match="expected"):
        as_retriever(found)


@pytest.mark.parametrize(("query", "k"), [("", 5), ("  ", 5), ("q", 0), ("q", -1)])
def test_a_blank_query_or_no_depth_is_an_input_error(query: str, k: int) -> None:
    with pytest.raises(InputError):
        as_retriever(returning(["x"]))(query, k)


def test_an_index_is_a_retriever_already_and_copies_share_it() -> None:
    index = Index.from_passages([Passage(id="1", text="river")], kind="sparse")
    assert as_retriever(index) is index
    assert copy.deepcopy(index) is index
    adapted = as_retriever(returning(["x"]))
    assert as_retriever(adapted) is adapted
    assert copy.deepcopy(adapted) is adapted


def test_lone_surrogates_become_text_that_can_be_stored() -> None:
    assert as_retriever(returning(["caf\ud800 x"]))("q", 1)[0].text == "caf? x"
