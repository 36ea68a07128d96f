"""Near duplicates among many names: found in no more time than there are names, and all of them."""

from __future__ import annotations

import string
import time
from itertools import combinations

from hypothesis import example, given, settings
from hypothesis import strategies as st

from ga_dspy.graph import Entity, GraphUpdate, KnowledgeGraph, normalise
from ga_dspy.graph.names import identity, near_duplicate, words

WORDS = st.sampled_from(
    "john jon j fitzgerald abdulatif abdullatif kennedy kenedy ii 2 second edition antidisestablish"
    "mentarianism antidisestablishmentarianisms electroencephalograph electroencefalograph".split()
)
SLIPS = st.text(string.ascii_lowercase, min_size=6, max_size=11)


def things(names: list[str]) -> list[frozenset[str]]:
    """The names that the graph takes for one another."""
    graph = KnowledgeGraph().merge(
        GraphUpdate(entities=tuple(Entity(name=name) for name in dict.fromkeys(names)))
    )
    return [frozenset(map(identity, (e.name, *e.aliases))) for e in graph.entities]


def joined(names: list[str]) -> set[frozenset[str]]:
    """The same by comparing all pairs; words alone must begin alike."""
    keys = sorted({identity(name) for name in names})
    block = {key: {key} for key in keys}
    for one, other in combinations(keys, 2):
        alone = " " not in one and " " not in other
        # "ii" and "second" are both a 2, and begin alike.
        apart = words(one)[0][0] != words(other)[0][0]
        if near_duplicate(one, other) and not (alone and apart):
            both = block[one] | block[other]
            for key in both:
                block[key] = both
    return {frozenset(keys) for keys in block.values()}


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.lists(WORDS, min_size=1, max_size=3).map(" ".join), min_size=2, max_size=30),
    st.lists(st.tuples(SLIPS, st.integers(0, 10), st.sampled_from("abe")), max_size=20),
)
@example(
    ["john f kennedy", "john fitzgerald kennedy"] + [f"john {c}x kennedy" for c in "abcdefghijklm"],
    [],
)
def test_near_duplicates_are_those_of_all_pairs(
    names: list[str], slips: list[tuple[str, int, str]]
) -> None:
    mutated = [
        text for word, at, letter in slips
        for text in (f"Mount {word}", f"Mount {word[:at]}{letter}{word[at:]}")
    ]  # fmt: skip
    every = [name for name in (*names, *mutated) if normalise(name)]
    assert set(things(every)) == joined(every)


def test_twenty_thousand_names_of_one_word_are_compared_in_seconds() -> None:
    letters = "abcdefghijklmnopqrst"
    names = [
        "K" + "".join(letters[i // 20**place % 20] for place in range(4)) + "osterton"
        for i in range(20_000)
    ]
    from ga_dspy.graph.resolve import _alike

    start = time.perf_counter()
    pairs = sum(1 for _ in _alike({normalise(name) for name in names}))
    assert pairs < 2_000_000
    assert time.perf_counter() - start < 20
