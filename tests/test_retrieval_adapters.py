"""Anything that retrieves becomes a retriever."""

from __future__ import annotations

import asyncio
import copy
import functools
import logging
import pickle
import re
import threading
import tracemalloc
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import cloudpickle
import dspy
import numpy as np
import pytest

from ga_dspy.errors import InputError
from ga_dspy.passage import Passage
from ga_dspy.retrieval import Index, as_retriever


def returning(result: Any) -> Callable[[str], Any]:
    return lambda query: result


def test_a_string_is_split_at_the_bar_into_title_and_text() -> None:
    titled, plain = as_retriever(returning(["Nile | A river. | Long.", "Only text."]))("river", 5)
    assert (titled.title, titled.text) == ("Nile", "A river. | Long.")
    assert (plain.title, plain.text) == ("", "Only text.")


def test_a_bar_far_into_the_text_does_not_end_a_title() -> None:
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
        ({"title": "Nile", "text": "A river."}, np.float32(0.9)),
        dspy.Prediction(long_text="Nile | A river.", score=0.9),
        Passage(id="x", title="Nile", text="A river."),
    ],
)
def test_every_supported_result_type_gives_the_same_passages(item: Any) -> None:
    (passage,) = as_retriever(returning([item]))("river", 5)
    assert (passage.title, passage.text) == ("Nile", "A river.")


def test_a_dspy_prediction_gives_its_passages() -> None:
    search = as_retriever(returning(dspy.Prediction(passages=["Nile | A river."], indices=[7])))
    assert search("river", 5)[0].title == "Nile"


def test_dspys_retrieve_module_is_called_with_k() -> None:
    asked: list[int] = []

    def engine(query: str, k: int) -> list[Any]:
        asked.append(k)
        return [dspy.Prediction(long_text=f"Nile | River {i}.") for i in range(k)]

    with dspy.context(rm=engine):
        passages = as_retriever(dspy.Retrieve(k=3))("river", 2)
    assert (asked, len(passages)) == ([2], 2)


def test_dspys_embeddings_retriever_keeps_its_own_k() -> None:
    def embedder(texts: list[str]) -> Any:
        return np.array([[len(text), text.count("e") + 1] for text in texts], dtype=np.float32)

    search = as_retriever(dspy.Embeddings(["Nile | A river.", "Everest"], embedder, k=1))
    assert len(search("river", 5)) == 1


def test_a_langchain_retriever_is_invoked_with_the_query_only() -> None:
    class LangChainLike:
        def invoke(self, query: str, config: Any = None, **kwargs: Any) -> list[Any]:
            return [SimpleNamespace(page_content=query, metadata={}, id=f"d{i}") for i in range(4)]

    passages = as_retriever(LangChainLike())("river", 3)
    assert [passage.id for passage in passages] == ["d0", "d1", "d2"]


@pytest.mark.parametrize("name", ["k", "top_k", "n", "limit"])
def test_k_is_passed_to_a_parameter_with_a_known_name(name: str) -> None:
    scope: dict[str, Any] = {}
    exec(f"def search(query, {name}=99): return [str({name})]", scope)
    assert as_retriever(scope["search"])("river", 4)[0].text == "4"


def test_k_is_passed_to_a_required_second_parameter_of_any_name() -> None:
    assert as_retriever(lambda query, amount: [f"{amount} asked"])("q", 4)[0].text == "4 asked"


def test_results_are_cut_to_k_and_fewer_are_accepted() -> None:
    search = as_retriever(returning([f"text {i}" for i in range(6)]))
    assert len(search("q", 2)) == 2
    assert len(search("q", 9)) == 6
    assert as_retriever(returning([]))("q", 5) == []


def test_a_generated_id_depends_only_on_the_content() -> None:
    one = as_retriever(returning(["Nile | A river."]))("a", 1)[0]
    other = as_retriever(returning([{"title": "Nile", "text": "A river."}]))("b", 1)[0]
    assert one.id == other.id


def test_duplicate_results_count_once() -> None:
    assert len(as_retriever(returning(["same", "same", "else"]))("q", 3)) == 2


def test_two_texts_under_one_id_in_one_result_become_two_passages() -> None:
    chunks = [{"id": "doc", "text": text} for text in ("First.", "Second.", "First.")]
    search = as_retriever(returning(chunks))
    first, second = search("q", 5)
    assert (first.id, first.text, second.text) == ("doc", "First.", "Second.")
    assert re.fullmatch(r"doc#[0-9a-f]{8}", second.id)
    assert search("again", 5) == [first, second]


def test_one_id_under_two_titles_is_two_passages() -> None:
    pair = [{"id": "1", "title": title, "text": "A river."} for title in ("Nile", "Rhine")]
    assert len({passage.id for passage in as_retriever(returning(pair))("q", 5)}) == 2


def test_one_id_may_have_another_text_in_the_next_search() -> None:
    search = as_retriever(lambda query: [{"id": "0", "text": query}])
    for text in ("first", "second", "first"):
        (passage,) = search(text, 1)
        assert (passage.id, passage.text) == ("0", text)


def test_an_adapter_does_not_hold_on_to_results() -> None:
    search = as_retriever(lambda query: [{"id": query, "text": query * 1000}])
    search("warm", 1)
    tracemalloc.start()
    for number in range(300):
        search(f"query {number}", 1)
    kept, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert kept < 300_000


@pytest.mark.parametrize("result", ["one string", 3, {"hits": []}, Passage(id="1", text="x")])
def test_a_result_that_is_not_a_collection_is_an_error_that_shows_it(result: Any) -> None:
    with pytest.raises(InputError, match=type(result).__name__):
        as_retriever(returning(result))("q", 1)


@pytest.mark.parametrize(
    "result", [None, [], (), {"passages": None}, dspy.Prediction(passages=[]), iter(())]
)
def test_an_empty_result_is_not_an_error(result: Any) -> None:
    assert as_retriever(returning(result))("q", 5) == []


EMPTY = [
    None,
    "",
    {"title": "no text"},
    {"text": " "},
    {"text": None},
    Passage(id="1", text=" "),
    SimpleNamespace(page_content="", metadata={}),
    ({"text": ""}, 0.3),
]


@pytest.mark.parametrize("item", EMPTY)
def test_an_item_without_text_is_skipped_among_valid_ones(item: Any) -> None:
    found = as_retriever(returning([item, "fine", item, "good"]))("q", 5)
    assert [passage.text for passage in found] == ["fine", "good"]


@pytest.mark.parametrize("item", EMPTY)
def test_a_result_with_only_textless_items_is_an_error(item: Any) -> None:
    with pytest.raises(InputError, match="result 1"):
        as_retriever(returning([item, item]))("q", 5)


@pytest.mark.parametrize("item", [5, b"bytes", object(), ["nested"]])
def test_an_invalid_item_is_named_with_its_position(item: Any) -> None:
    with pytest.raises(InputError, match="result 2"):
        as_retriever(returning(["fine", item]))("q", 5)


# --- Asynchronous retrievers


async def rivers(query: str, k: int = 3) -> list[str]:
    await asyncio.sleep(0)
    return [f"{query} {number}" for number in range(k)]


class Asynchronous:
    """Each of the ways in which an object may be awaited."""

    class Invoked:
        async def ainvoke(self, query: str) -> list[str]:
            return await rivers(query)

    class Called:
        async def acall(self, query: str) -> list[str]:
            return await rivers(query)

    class Retrieved:
        async def aretrieve(self, query: str) -> list[str]:
            return await rivers(query)

    class Callable:
        async def __call__(self, query: str) -> list[str]:
            return await rivers(query)

    class Module(dspy.Module):
        async def aforward(self, query: str, k: int) -> Any:
            return dspy.Prediction(passages=await rivers(query, k))


WAYS: list[Any] = [
    rivers,
    functools.partial(rivers, k=3),
    lambda query: rivers(query),
    Asynchronous.Invoked(),
    Asynchronous.Called(),
    Asynchronous.Retrieved(),
    Asynchronous.Callable(),
    Asynchronous.Module(),
]


@pytest.mark.parametrize("source", WAYS)
def test_an_asynchronous_retriever_works_with_and_without_a_loop(source: Any) -> None:
    search = as_retriever(source)

    async def inside() -> list[Passage]:
        return search("q", 2)

    expected = ["q 0", "q 1"]
    assert [passage.text for passage in search("q", 2)] == expected
    assert [passage.text for passage in asyncio.run(search.acall("q", 2))] == expected
    assert [passage.text for passage in asyncio.run(inside())] == expected


def test_a_retriever_with_sync_and_async_methods_uses_the_matching_one() -> None:
    class Both(dspy.Module):
        def forward(self, query: str) -> list[str]:
            return ["called"]

        async def aforward(self, query: str) -> list[str]:
            return ["awaited"]

    search = as_retriever(Both())
    assert search("q", 1)[0].text == "called"
    assert asyncio.run(search.acall("q", 1))[0].text == "awaited"


def test_an_async_client_always_runs_in_the_same_event_loop() -> None:
    loops = set()

    async def search(query: str) -> list[str]:
        loops.add(asyncio.get_running_loop())
        return [query]

    with ThreadPoolExecutor(3) as pool:
        list(pool.map(as_retriever(search), ["a", "b", "c"], [1, 1, 1]))
    assert len(loops) == 1


def test_a_nested_asynchronous_search_does_not_deadlock() -> None:
    async def outer(query: str) -> list[Passage]:
        return as_retriever(rivers)(query, 1)

    assert as_retriever(outer)("q", 1)[0].text == "q 0"


def test_an_asynchronous_search_sees_the_settings_of_its_caller() -> None:
    async def search(query: str) -> list[str]:
        return [str(dspy.settings.rm)]

    with dspy.context(rm="mine"):
        assert as_retriever(search)("q", 1)[0].text == "mine"


def test_an_error_in_an_asynchronous_retriever_is_raised_by_the_call() -> None:
    async def down(query: str) -> list[str]:
        raise ConnectionError("store is down")

    with pytest.raises(ConnectionError, match="store is down"):
        as_retriever(down)("q", 1)
    with pytest.raises(ConnectionError, match="store is down"):
        asyncio.run(as_retriever(down).acall("q", 1))


def test_a_search_in_a_thread_does_not_block_the_event_loop() -> None:
    inside = threading.Event()

    def slow(query: str) -> list[str]:
        assert inside.wait(5)
        return [query]

    async def both() -> list[Passage]:
        searching = asyncio.create_task(as_retriever(slow).acall("q", 1))
        await asyncio.sleep(0.01)
        inside.set()
        return await searching

    assert asyncio.run(both())[0].text == "q"


# --- Other shapes of retrievers


def test_a_llamaindex_retrievers_nodes_become_passages() -> None:
    class Node:
        node_id, metadata = "n1", {"title": "Nile"}

        def get_content(self) -> str:
            return "A river."

    class LlamaIndexLike:
        def retrieve(self, str_or_query_bundle: str) -> list[Any]:
            return [SimpleNamespace(node=Node(), score=0.7)]

    (passage,) = as_retriever(LlamaIndexLike())("river", 5)
    assert passage == Passage(id="n1", title="Nile", text="A river.")


@pytest.mark.parametrize("signature", ["*, query, k=9", "*, k, query", "*, filters=None, query, k"])
def test_the_query_may_be_a_keyword_only_parameter(signature: str) -> None:
    scope: dict[str, Any] = {}
    exec(f"def search({signature}): return [f'{{query}} {{k}}']", scope)
    assert as_retriever(scope["search"])("river", 4)[0].text == "river 4"


def test_a_module_is_called_directly_without_dspy_warnings(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Search(dspy.Module):
        def __init__(self) -> None:
            super().__init__()
            self.retrieve = dspy.Retrieve(k=3)

        def forward(self, query: str, k: int = 3) -> Any:
            assert dspy.settings.caller_modules[-1] is self
            return dspy.Prediction(passages=[f"{query} {number}" for number in range(k)])

    monkeypatch.setattr(logging.getLogger("dspy"), "propagate", True)
    assert len(as_retriever(Search())("river", 4)) == 4
    assert "forward" not in caplog.text


def test_an_adapted_retriever_can_be_pickled() -> None:
    copied = pickle.loads(pickle.dumps(as_retriever(rivers)))
    assert copied("q", 1)[0].text == "q 0"
    fruits = ["apple"]
    copied = pickle.loads(cloudpickle.dumps(as_retriever(lambda query: fruits)))
    assert copied("q", 1)[0].text == "apple"


@pytest.mark.parametrize("found", [None, 3, "index/", {"a": 1}, Passage])
def test_an_object_that_is_not_a_retriever_is_refused_at_once(found: Any) -> None:
    with pytest.raises(InputError, match="expected"):
        as_retriever(found)


@pytest.mark.parametrize(("query", "k"), [("", 5), ("  ", 5), ("q", 0), ("q", -1)])
def test_a_blank_query_or_a_k_below_one_is_an_input_error(query: str, k: int) -> None:
    with pytest.raises(InputError):
        as_retriever(returning(["x"]))(query, k)


def test_an_index_is_used_as_it_is_and_shared_by_copies() -> None:
    index = Index.from_passages([Passage(id="1", text="river")], kind="sparse")
    assert as_retriever(index) is index
    assert copy.deepcopy(index) is index
    adapted = as_retriever(returning(["x"]))
    assert as_retriever(adapted) is adapted
    assert copy.deepcopy(adapted) is adapted


def test_lone_surrogates_are_replaced() -> None:
    assert as_retriever(returning(["caf\ud800 x"]))("q", 1)[0].text == "caf? x"
