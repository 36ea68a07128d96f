"""Searching, changing and comparing indexes."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ga_dspy.errors import InputError
from ga_dspy.eval.arena import select_methods
from ga_dspy.graphrag.records import Rules, Sources
from ga_dspy.passage import Passage
from ga_dspy.retrieval import Index
from ga_dspy.retrieval.postings import KINDS
from ga_dspy.retrieval.rank import POOL

RIVERS = (
    Passage(id="nile", title="Nile", text="The Nile flows past Aswan to the Mediterranean Sea."),
    Passage(id="aswan", title="Aswan", text="Aswan is a city with a granite quarry."),
    Passage(id="rhine", title="Rhine", text="The Rhine flows past Basel to the North Sea."),
    Passage(id="basel", title="Basel", text="Basel is a city with a carnival."),
    Passage(id="oslo", title="Oslo", text="Oslo has an opera house of white marble."),
)


def make(passages: Sequence[Any] = RIVERS, kind: str = "linked", **more: Any) -> Index:
    return Index.from_passages(passages, kind=kind, encoder="hash-64", **more)


def ids(index: Index, query: str, k: int = 5) -> list[str]:
    return [passage.id for passage in index(query, k)]


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_finds_the_passage_that_shares_the_words(kind: str) -> None:
    assert ids(make(kind=kind), "opera house of marble", 1) == ["oslo"]


def test_links_lead_to_a_passage_that_shares_no_word_with_the_question() -> None:
    query = "Which quarry is at the place that the Nile flows past?"
    assert ids(make(), query, 2) == ["nile", "aswan"]
    far = "What lies where the Rhine flows past?"
    assert "basel" not in ids(make(kind="sparse"), far)
    assert ids(make(), far, 2) == ["rhine", "basel"]


def test_a_title_named_in_the_question_adds_a_fifth_to_the_score() -> None:
    passages = [
        Passage(id="same words", title="Stone Harbour", text="a place of granite"),
        Passage(id="named", title="Harbour Stone", text="a place of granite"),
    ]
    first, second = make(passages, "hybrid").search("Who built Harbour Stone?", 2)
    assert (first.passage.id, second.passage.id) == ("named", "same words")
    assert first.score - second.score == pytest.approx(0.2)


def test_links_are_followed_from_a_passage_that_only_its_name_connects() -> None:
    passages = [
        Passage(id="one word", text="An opera in three acts, first sung there in spring."),
        Passage(id="many words", text="A marble opera house with a copper roof."),
        Passage(id="led to", title="Skien", text="A town of granite quarries."),
        Passage(
            id="named",
            text="Quist was known for his love of long walks by day and by night, and he came from "
            "Skien, which he left on foot with two old friends in search of work.",
        ),
    ]
    query = "Which marble opera house with a copper roof did Quist open?"
    assert ids(make(passages), query) == ["many words", "named", "led to", "one word"]


def test_among_linked_passages_the_one_with_the_missing_words_comes_first() -> None:
    passages = [
        Passage(id="same word", title="Aswan", text="granite city"),
        Passage(id="missing word", title="Edfu", text="temple city"),
        Passage(id="best", title="Nile", text="It flows past granite to Aswan and Edfu."),
        Passage(id="unlinked", title="Oslo", text="temple city"),
    ]
    query = "Nile granite temple"
    assert ids(make(passages), query) == ["best", "missing word", "same word", "unlinked"]


def test_among_distant_linked_passages_the_closer_one_comes_first() -> None:
    passages = [
        Passage(id="farther", title="Edfu", text="temple city"),
        Passage(id="closer", title="Aswan", text="that city"),
        Passage(id="best", title="Nile", text="It flows past Aswan and Edfu."),
        *(Passage(id=str(i), text="what is that which is by this") for i in range(POOL)),
    ]
    query = "What is that which is by the Nile?"
    assert ids(make(passages), query, 3) == ["best", "closer", "farther"]


def test_accents_and_case_do_not_hide_a_name() -> None:
    passages = [*RIVERS, Passage(id="ball", title="Aschenbrödel", text="A ballet by Strauß.")]
    assert ids(make(passages), "aschenbrodel", 1) == ["ball"]


def test_equal_scores_come_in_corpus_order() -> None:
    passages = [Passage(id=str(i), text="the same words here") for i in range(30)]
    passages.append(Passage(id="other", text="nothing shared"))
    for kind in KINDS:
        assert ids(make(passages, kind), "same words", 4) == ["0", "1", "2", "3"]


def test_scores_are_descending_and_passages_unique() -> None:
    for kind in KINDS:
        hits = make(kind=kind).search("city on the river past the sea", 5)
        scores = [hit.score for hit in hits]
        assert scores == sorted(scores, reverse=True)
        assert len({hit.passage.id for hit in hits}) == len(hits)


def test_a_sparse_search_without_shared_words_finds_nothing() -> None:
    assert ids(make(kind="sparse"), "zzz") == []


def test_a_corpus_of_stopwords_can_be_searched() -> None:
    assert len(make([Passage(id="1", text="the of and")])("the", 3)) == 1


def test_identical_passages_are_merged_and_one_id_for_two_texts_is_an_error() -> None:
    assert len(make([*RIVERS, RIVERS[0]])) == len(RIVERS)
    with pytest.raises(InputError, match=r"'nile'"):
        make([*RIVERS, Passage(id="nile", text="Another text.")])


@pytest.mark.parametrize("place", [0, 40, 4000])
def test_an_id_conflict_shows_where_the_two_texts_differ(place: int) -> None:
    same = ("The bridge was rebuilt often. " * 200)[:place]
    one, other = (Passage(id="7", text=f"{same}{end}") for end in ("in 1932.", "by Ellet."))
    with pytest.raises(InputError, match=r"'7' .*in 1932\..*by Ellet\.") as error:
        make([one, other])
    assert len(str(error.value)) < 300
    with pytest.raises(InputError, match=r"in 1932\..*by Ellet\."):
        make([one]).add([other])


@pytest.mark.parametrize(
    "oslo",
    [
        "Oslo | An opera house of marble.",
        {"title": "Oslo", "text": "An opera house of marble."},
        {"page_content": "An opera house of marble.", "metadata": {"title": "Oslo"}},
        Passage(id="x", title="Oslo", text="An opera house of marble."),
    ],
)
def test_a_corpus_may_contain_any_item_that_a_retriever_may_return(
    oslo: Any, tmp_path: Path
) -> None:
    index = Index.build([*RIVERS[:2], oslo], tmp_path / "i", encoder="hash-64")
    assert index("marble opera", 1)[0].title == "Oslo"
    grown = make(RIVERS[:2])
    assert grown.add([oslo]) == 1
    assert grown.add(iter([oslo])) == 0
    assert grown("marble opera", 1)[0].title == "Oslo"


@pytest.mark.parametrize("item", [None, "", {"title": "Oslo"}, {"text": " "}, 7])
def test_a_corpus_item_without_text_is_refused_by_position(item: Any) -> None:
    with pytest.raises(InputError, match="passage 2"):
        make(["Oslo has an opera house.", item])


@pytest.mark.parametrize("corpus", ["one text", {"text": "one"}, 7, None])
def test_a_corpus_that_is_not_a_collection_is_refused(corpus: Any) -> None:
    with pytest.raises(InputError, match="the corpus is"):
        make(corpus)


def test_no_passages_and_passages_without_text_are_errors() -> None:
    with pytest.raises(InputError, match="the corpus holds no passages"):
        make([])
    with pytest.raises(InputError, match="'void'"):
        make([Passage(id="void", text=" ")])


def test_an_unknown_kind_is_named() -> None:
    with pytest.raises(InputError, match=r"the kind of index is 'magic'"):
        make(kind="magic")


def test_one_index_can_be_searched_in_every_kind_it_has_data_for() -> None:
    index = make()
    for kind in KINDS:
        assert ids(index.as_kind(kind), "opera") == ids(make(kind=kind), "opera")
    with pytest.raises(InputError, match=r"holds no .*kind='linked'"):
        make(kind="sparse").as_kind("linked")


def test_get_returns_a_passage_and_names_an_unknown_id() -> None:
    assert make().get("oslo") == RIVERS[4]
    with pytest.raises(InputError, match=r"has no passage with id 'bergen'"):
        make().get("bergen")


def test_an_added_passage_is_found_and_linked_at_once() -> None:
    index = make(RIVERS[1:])
    assert index.add([RIVERS[0], RIVERS[1]]) == 1
    assert ids(index, "Which quarry is at the place that the Nile flows past?", 2) == [
        "nile",
        "aswan",
    ]


def test_a_deleted_passage_and_its_links_are_gone_at_once() -> None:
    index = make()
    assert index.delete(["basel"]) == 1
    assert "basel" not in ids(index, "Basel carnival city", 5)
    assert len(index) == 4
    with pytest.raises(InputError, match=r"has no passage with id 'basel'"):
        index.delete(["oslo", "basel"])
    assert index.get("oslo")


def test_the_last_passage_cannot_be_deleted() -> None:
    index = make()
    with pytest.raises(InputError, match="would leave no passages"):
        index.delete([passage.id for passage in RIVERS])
    assert len(index) == len(RIVERS)


def test_adding_a_changed_text_requires_deleting_the_old_one() -> None:
    index = make()
    changed = Passage(id="oslo", title="Oslo", text="Oslo has a new museum of fjords.")
    with pytest.raises(InputError, match="two passages have the id"):
        index.add([changed])
    other = changed.model_copy(update={"metadata": {"lang": "no"}})
    with pytest.raises(InputError, match=r'fjords\. \{"lang": "no"\}'):
        Index.from_passages([changed, other], kind="sparse")
    index.delete(["oslo"])
    index.add([changed])
    assert ids(index, "museum of fjords", 1) == ["oslo"]


@settings(max_examples=12)
@given(
    first=st.sets(st.integers(0, 4), min_size=1),
    then=st.sets(st.integers(0, 4)),
    kind=st.sampled_from(KINDS),
)
def test_a_changed_index_gives_the_same_results_as_a_new_one(
    first: set[int], then: set[int], kind: str
) -> None:
    index = make([RIVERS[i] for i in sorted(first)], kind)
    index.add([RIVERS[i] for i in sorted(then)])
    gone = sorted(first)[0] if len(first | then) > 1 else None
    if gone is not None:
        index.delete([RIVERS[gone].id])
    order = [i for i in [*sorted(first), *sorted(then - first)] if i != gone]
    fresh = make([RIVERS[i] for i in order], kind)
    for query in ("the Nile flows past a city", "Basel", "marble opera quarry"):
        assert index.search(query, 5) == fresh.search(query, 5)


def test_changes_encode_only_new_passages() -> None:
    encoder = Counting()
    index = Index.from_passages(RIVERS[:3], encoder=encoder)
    index.add(RIVERS[3:])
    index.delete(["nile"])
    assert encoder.texts == 5


def test_searches_from_many_threads_agree_while_the_index_changes() -> None:
    index = make()
    query = "Which quarry is at the place that the Nile flows past?"
    expected = ids(index, query, 2)
    extra = [Passage(id=f"x{i}", text=f"unrelated filler {i}") for i in range(3)]
    with ThreadPoolExecutor(8) as pool:
        searches = [pool.submit(ids, index, query, 2) for _ in range(60)]
        for passage in extra:
            index.add([passage])
            searches += [pool.submit(ids, index, query, 2) for _ in range(20)]
    assert all(search.result() == expected for search in searches)


def found(index: Index, query: str) -> list[str]:
    return [passage.id for passage in index(query, 5)]


# --- Pickles


@pytest.mark.parametrize("kind", KINDS)
def test_an_index_in_memory_is_pickled_with_its_vectors(kind: str) -> None:
    index = make(kind=kind)
    index.delete(["oslo"])
    copied = pickle.loads(pickle.dumps(index))
    assert copied.manifest == index.manifest
    query = "Which quarry is at the place that the Nile flows past?"
    assert copied.search(query, 5) == index.search(query, 5)
    assert copied.add([RIVERS[4]]) == 1


def test_a_view_of_an_index_keeps_its_other_kinds_when_pickled() -> None:
    copied = pickle.loads(pickle.dumps(make().as_kind("sparse")))
    assert copied.kind == "sparse"
    assert ids(copied.as_kind("linked"), "opera") == ids(make(), "opera")


def test_no_passage_is_encoded_again_for_a_pickle() -> None:
    copied = pickle.loads(pickle.dumps(Index.from_passages(RIVERS, encoder=Counting())))
    assert copied.encoder.texts == len(RIVERS)
    assert ids(copied, "opera house", 1) == ["oslo"]


def test_a_stored_index_is_pickled_as_its_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    index = Index.build(RIVERS, "here", encoder="hash-64")
    data = pickle.dumps(index)
    assert len(data) < 1000
    assert b"opera" not in data
    monkeypatch.chdir("/")
    assert pickle.loads(data).search("opera", 2) == index.search("opera", 2)


# --- Encoders of one's own


def test_vectors_that_are_not_normalised_are_refused() -> None:
    with pytest.raises(InputError, match="length 3"):
        Index.from_passages(RIVERS, encoder=Counting(scale=3.0))


def test_progress_is_reported_per_stage_from_zero_to_the_total() -> None:
    seen: list[tuple[str, int, int]] = []
    make(progress=lambda stage, done, total: seen.append((stage, done, total)))
    assert seen[0] == ("encoding", 0, 5)
    assert ("encoding", 5, 5) in seen
    assert seen[-1] == ("linking", 5, 5)


class Counting:
    """The hash encoder, counting what it encodes."""

    name, fingerprint, dimension = "counting", "counting-64", 64

    def __init__(self, scale: float = 1.0) -> None:
        from ga_dspy.retrieval.encoders import HashEncoder

        self.texts, self.scale, self._hash = 0, scale, HashEncoder(64)

    def encode(self, texts: Sequence[str]) -> Any:
        self.texts += len(texts)
        return self._hash.encode(texts) * self.scale

    def encode_query(self, text: str) -> Any:
        return self._hash.encode_query(text)


# --- Sync

NAMES = ("Nile", "Aswan", "Rhine", "Basel", "Oslo", "Skien")
versions = st.dictionaries(st.sampled_from(NAMES), st.integers(0, 2), min_size=1)


def written(state: dict[str, int]) -> list[Passage]:
    texts = ("{0} lies near Basel and has a granite quarry.", "{0} is a city by the Rhine, {0}.",
             "An opera house stands in {0}, which the Nile flows past.")  # fmt: skip
    return [Passage(id=n.lower(), title=n, text=texts[v].format(n)) for n, v in state.items()]


@settings(max_examples=25)
@given(versions, versions)
def test_a_synced_index_finds_what_one_built_from_scratch_finds(
    before: dict[str, int], after: dict[str, int]
) -> None:
    index, scratch = make(written(before)), make(written(after))
    changes = index.sync(written(after))
    assert {p.id: p for p in index} == {p.id: p for p in scratch}
    assert set(changes.added) == {n.lower() for n in after.keys() - before.keys()}
    assert set(changes.removed) == {n.lower() for n in before.keys() - after.keys()}
    both = {n: before[n] == after[n] for n in before.keys() & after.keys()}
    assert set(changes.changed) == {n.lower() for n, same in both.items() if not same}
    assert set(changes.unchanged) == {n.lower() for n, same in both.items() if same}
    for query in ("granite quarry near Basel", "Which city has an opera house on the Nile?"):
        found, expected = ({h.passage.id: h.score for h in i.search(query, 9)}
                           for i in (index, scratch))  # fmt: skip
        assert found == pytest.approx(expected)


def test_a_text_that_moved_to_another_id_is_not_encoded_again() -> None:
    encoded: list[str] = []

    def encode(texts: list[str]) -> list[list[float]]:
        encoded.extend(texts)
        return [[len(text), 1.0] for text in texts]

    index = Index.from_passages(RIVERS, kind="dense", encoder=encode)
    encoded.clear()
    renamed = [p.model_copy(update={"id": f"new/{p.id}"}) for p in RIVERS]
    changes = index.sync([*renamed, Passage(id="lund", text="Lund is new.")])
    assert encoded == ["Lund is new."]
    assert (len(changes.added), len(changes.removed)) == (6, 5)


def test_upsert_replaces_the_passage_with_the_same_id(tmp_path: Path) -> None:
    index = Index.build(RIVERS, tmp_path / "i", encoder="hash-64")
    new = [Passage(id="oslo", title="Oslo", text="Oslo has a ski jump."), RIVERS[0]]
    changes = index.upsert([*new, Passage(id="lund", text="Lund has a cathedral.")])
    assert changes == (("lund",), ("oslo",), (), ("nile",))
    assert index.manifest.generation == 1
    assert ids(Index.open(tmp_path / "i"), "ski jump", 1) == ["oslo"]
    assert index.upsert(new).unchanged == ("oslo", "nile")
    assert index.manifest.generation == 1


def test_syncing_to_an_empty_corpus_is_an_error_and_changes_nothing() -> None:
    index = make()
    with pytest.raises(InputError, match="would leave no passages"):
        index.sync([])
    assert len(index) == 5


@pytest.mark.parametrize("given", ["12", b"12", {"12": 1}, [1, 2], 12])
@pytest.mark.parametrize("name", ["ids", "require", "artifacts", "labels"])
def test_a_string_is_refused_where_a_collection_is_expected(name: str, given: Any) -> None:
    passages = [Passage(id=id, text=f"Bridge {id}.") for id in ("1", "2", "12")]
    index = Index.from_passages(passages, kind="sparse")
    take: dict[str, Callable[[Any], Any]] = {
        "ids": index.delete,
        "require": lambda names: Index.from_passages(passages, kind="sparse", require=names),
        "artifacts": lambda names: select_methods("all", artifacts=names),
        "labels": lambda names: Sources.of({}, {"1": names}, Rules()),
    }
    with pytest.raises(InputError, match=f"{name} is"):
        take[name](given)
    assert [passage.id for passage in index] == ["1", "2", "12"]
