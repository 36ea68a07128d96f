"""Names found by spelling, and the links they make."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ga_dspy.demo import corpus
from ga_dspy.passage import Passage
from ga_dspy.retrieval import Index, rank
from ga_dspy.retrieval.engine import MOST_TARGETS, LocalEngine
from ga_dspy.retrieval.postings import among, mentioned_in, name_key
from ga_dspy.retrieval.rank import walk
from ga_dspy.text import aliases, longest_matches, name_words, proper_names


def passage(title: str, text: str) -> Passage:
    return Passage(id=title, title=title, text=text)


def engine(*passages: Passage) -> LocalEngine:
    return Index.from_passages(passages, encoder="hash-16").engine


def linked(store: LocalEngine) -> set[tuple[int, int]]:
    links = store.links(np.arange(store.size), np.zeros(store.size))
    return set(zip(links.source.tolist(), links.target.tolist(), strict=True))


@pytest.mark.parametrize(
    ("title", "text", "alias"),
    [
        ("Mercury (planet)", "", "mercury"),
        ("Springfield, Ohio", "", "springfield"),
        ("The Beatles", "", "beatles"),
        ("Bob", "Robert Nesta Marley (6 February 1945) was a singer.", "robert nesta marley"),
        ("Björk", "", "bjork"),
    ],
)
def test_the_bare_title_and_the_first_subject_are_aliases_of_a_passage(
    title: str, text: str, alias: str
) -> None:
    assert alias in aliases(title, text)


@pytest.mark.parametrize("title", ["It", "The", "May", "A", ""])
def test_common_words_are_not_aliases(title: str) -> None:
    assert aliases(title, "it was a film.") == frozenset()


def test_the_longest_matching_name_wins() -> None:
    store = engine(passage("New York", ""), passage("New York Times", ""))
    assert store.rows_named("He wrote for the New York Times.").tolist() == [1]
    assert store.rows_named("He wrote for the New York Times in New York.").tolist() == [0, 1]


def test_a_lower_case_word_is_not_a_name_in_a_capitalised_text() -> None:
    store = engine(passage("Rush", ""))
    assert store.rows_named("In a rush, Neil left").tolist() == []
    assert store.rows_named("Neil left Rush").tolist() == [0]


def test_a_query_without_capitals_still_matches_titles() -> None:
    store = engine(passage("Neil Peart", ""))
    assert store.rows_named("who taught neil peart in 1994").tolist() == [0]


def test_a_name_shared_by_very_many_passages_matches_none() -> None:
    many = [passage(f"Smith ({i})", "") for i in range(MOST_TARGETS + 1)]
    assert engine(*many).rows_named("Smith").tolist() == []
    assert len(engine(*many[1:]).rows_named("Smith")) == MOST_TARGETS


def known_names(text: str, known: set[str]) -> Iterator[str]:
    """The known names in one text, read word by word."""
    there = name_words(text)
    folded = [word.folded for word in there]
    relaxed = not any(word.proper and not word.folded[0].isdigit() for word in there)
    starts = (i for i, word in enumerate(there) if relaxed or word.proper)
    for start, end in longest_matches(
        starts, len(there), lambda start, end: " ".join(folded[start:end]) in known
    ):
        yield " ".join(folded[start:end])


@given(
    st.lists(
        st.sampled_from(["new", "york", "New", "York", "Times", "of", "the", "1904"]), max_size=12
    ),
    st.sets(st.sampled_from(["new york", "york", "new york times", "times of york", "of", "1904"])),
)
def test_batch_name_lookup_equals_single_lookups(words: list[str], known: set[str]) -> None:
    keys = np.array(sorted(map(name_key, known)), dtype=np.uint64)
    texts = [" ".join(words), "Times of York", " ".join(words[::-1])]
    sizes, found = mentioned_in(texts, among(keys))
    by_text = np.split(found, np.cumsum(sizes)[:-1])
    expected = [{name_key(name) for name in known_names(text, known)} for text in texts]
    assert [set(keys.tolist()) for keys in by_text] == expected


def test_spans_are_runs_of_capitalised_words_with_small_words_inside() -> None:
    text = "When the University of Vienna, Austria hired J. R. Ward-Smith & Co, she left."
    assert proper_names(text) == {"university of vienna", "austria", "j r ward smith co"}


def test_a_mention_links_both_ways_and_a_rare_span_links_the_passages_that_share_it() -> None:
    store = engine(
        passage("Nile", "It flows past Aswan."),
        passage("Aswan", "A city."),
        passage("Reef", "Surveyed by Halvard Quist."),
        passage("Fjord", "Painted by Halvard Quist."),
        passage("Alone", "No names."),
    )
    assert linked(store) == {(0, 1), (1, 0), (2, 3), (3, 2)}


def test_a_span_in_too_many_passages_creates_no_links() -> None:
    store = engine(*(passage(f"Town {i}", "It belongs to Greater Vexin.") for i in range(40)))
    assert linked(store) == set()


def test_a_shared_name_splits_its_weight_and_no_passage_links_to_itself() -> None:
    store = engine(
        passage("Mercury (planet)", "Mercury is near the Sun."),
        passage("Mercury (metal)", "A liquid."),
        passage("Probe", "It flew to Mercury."),
    )
    links = store.links(np.arange(3), np.zeros(3))
    weights: Counter[tuple[int, int]] = Counter()
    for source, target, weight in zip(*(column.tolist() for column in links[:3]), strict=True):
        weights[source, target] += weight
    # The span "mercury" stands in all three.
    named = {(0, 1): 1, (1, 0): 1, (2, 0): 0.5, (2, 1): 0.5, (0, 2): 0.5, (1, 2): 0.5}
    assert weights == pytest.approx({pair: weight + 0.1 for pair, weight in named.items()})
    assert links.total.tolist() == pytest.approx([1.7, 1.7, 1.2])


def test_weak_links_are_dropped_but_count_in_the_total() -> None:
    cities = [passage(f"City {i}", "It lies in Ruritania.") for i in range(50)]
    store = engine(passage("Ruritania", "A land."), *cities)
    row = np.array([0])
    whole, cut = store.links(row, np.zeros(1)), store.links(row, np.full(1, 0.05))
    assert len(whole.target) == 50
    assert len(cut.target) == 0
    assert cut.total == whole.total == [50.0]


@given(start=st.lists(st.floats(0.01, 1), min_size=4, max_size=4), damping=st.floats(0.1, 0.9))
def test_random_walks_on_a_connected_corpus_preserve_probability_mass(
    start: list[float], damping: float
) -> None:
    texts = ["Beta Two.", "Gamma Three.", "Delta Four and Alpha One.", "Alpha One."]
    titles = ["Alpha One", "Beta Two", "Gamma Three", "Delta Four"]
    rows, share = np.arange(4), np.array(start) / sum(start)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(rank, "DAMPING", damping)
        _, mass = walk(engine(*map(passage, titles, texts)), rows, share, rows)
    assert mass.sum() == pytest.approx(1.0)
    assert (mass > 0).all()


def test_a_small_store_is_walked_entirely_and_a_large_one_only_near_the_query(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    passages = list(corpus())
    store, start = engine(*passages), np.array([3, 40])
    mass, every = np.array([0.4, 0.6]), np.arange(len(passages))
    whole, expected = walk(store, start, mass, start)
    assert len(whole.asked) == len(passages)
    monkeypatch.setattr(rank, "SMALL", len(passages) - 1)
    assert len(walk(store, start, mass, start)[0].asked) < len(passages)
    for name, value in {"MIN_START_MASS": 0.0, "MIN_MASS": 0.0, "ROUNDS": len(passages)}.items():
        monkeypatch.setattr(rank, name, value)
    _, found = walk(store, start, mass, every)
    assert found == pytest.approx(expected)
    assert (found > 0).sum() > 2


def test_k_may_exceed_the_number_of_passages_scored_by_links(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    names = "Alder Birch Cedar Damson Elder Fir Gorse Hazel Ivy Juniper Kumquat Larch".split()
    passages = [
        Passage(id=name, title=name, text=f"It grows beside {names[i - 1]}.")
        for i, name in enumerate(names)
    ]
    index = Index.from_passages(passages, encoder="hash-1024")
    whole = index.search("Alder", 12)
    monkeypatch.setattr(rank, "POOL", 1)
    monkeypatch.setattr(rank, "REACHED", 1)
    assert index.search("Alder", 1)[0].passage == whole[0].passage
