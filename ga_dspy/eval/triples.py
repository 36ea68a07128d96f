"""Triples against 2Wiki's gold evidences: by its official rule, and by one for open relations."""

from __future__ import annotations

import string
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial
from statistics import harmonic_mean
from typing import NamedTuple

from ga_dspy.graph.names import normalise, split_qualifier

Triple = tuple[str, str, str]
Aliases = Mapping[str, Collection[str]]
_Same = Callable[[str, str], bool]

_DROP_PUNCTUATION = str.maketrans("", "", string.punctuation)


class TripleScore(NamedTuple):
    """Shares from 0 to 1 of the predicted triples that are gold, and of the gold ones found."""

    precision: float
    recall: float
    f1: float


def triple_score(
    predicted: Iterable[Triple],
    gold: Iterable[Triple],
    *,
    relation: bool = False,
    aliases: Aliases | None = None,
) -> TripleScore | None:
    """How many predicted triples are gold ones, each gold one found at most once.

    Triples that are spelled the same count once. Where one could stand for several gold ones,
    the pairing with the most pairs counts, so that saying one thing in many ways gains nothing.

    Args:
        predicted: (head, relation, tail), relations in any words.
        gold: (head, relation, tail); 2Wiki's `evidences`.
        relation: With True, the rule of `update_evi` in 2wikimultihop_evaluate.py: head,
            relation and tail equal in lower case and without ASCII punctuation (articles stay,
            unlike in answers). With False, our rule for relations in words of one's own: the
            same two ends, in either direction ("father of" turns "father" around); names are
            compared by `same_name`.
        aliases: Other names of a name. By the official rule they hold for the gold ends, as in
            2wikimultihop_evaluate_v1.1.py (which lets several predicted triples find one gold
            one; here one does); by ours for both sides.

    Returns:
        Zeros where nothing was predicted; None where there are no gold triples.

    >>> triple_score([("Ann Lee", "daughter of", "Bo Lee")], [("Bo Lee", "child", "Ann Lee")])
    TripleScore(precision=1.0, recall=1.0, f1=1.0)
    """
    spell = _official_spelling if relation else normalise
    said, wanted = _distinct(predicted, spell), _distinct(gold, spell)
    if not wanted:
        return None
    known = {spell(name): tuple(others) for name, others in (aliases or {}).items()}
    matches = partial(_officially if relation else _by_ends, known=known)
    pairs = [
        (i, j)
        for i, one in enumerate(said)
        for j, other in enumerate(wanted)
        if matches(one, other)
    ]
    found = _most_pairs(pairs)
    precision, recall = found / len(said) if said else 0.0, found / len(wanted)
    return TripleScore(precision, recall, float(harmonic_mean((precision, recall))))


def same_name(one: str, other: str) -> bool:
    """Whether two names are spelled the same, as the graph compares them.

    Case, accents, punctuation, a leading article and a qualifier in parentheses on one side do
    not count; two different qualifiers do. The words of a name with a number may stand in any
    order, because dates do.

    >>> same_name("Prism (album)", "prism"), same_name("Prism (album)", "Prism (band)")
    (True, False)
    >>> same_name("3 May 1901", "May 3, 1901")
    True
    """
    mine, yours = _spelling(one), _spelling(other)
    return (
        mine == yours
        or _spelling(split_qualifier(one).base) == yours
        or _spelling(split_qualifier(other).base) == mine
    )


def _spelling(name: str) -> str:
    plain = normalise(name)
    dated = any(character.isdigit() for character in plain)
    return " ".join(sorted(plain.split())) if dated else plain


def _official_spelling(part: str) -> str:
    return " ".join(part.lower().translate(_DROP_PUNCTUATION).split())


def _distinct(triples: Iterable[Triple], spell: Callable[[str], str]) -> list[Triple]:
    return list({tuple(map(spell, triple)): triple for triple in triples}.values())


def _officially(said: Triple, gold: Triple, known: Aliases) -> bool:
    head, label, tail = map(_official_spelling, gold)
    accepted = [{name, *map(_official_spelling, known.get(name, ()))} for name in (head, tail)]
    return (
        _official_spelling(said[0]) in accepted[0]
        and _official_spelling(said[1]) == label
        and _official_spelling(said[2]) in accepted[1]
    )


def _by_ends(said: Triple, gold: Triple, known: Aliases) -> bool:
    same = partial(_same_thing, known=known)
    (head, _, tail), (gold_head, _, gold_tail) = said, gold
    straight = same(head, gold_head) and same(tail, gold_tail)
    return straight or (same(head, gold_tail) and same(tail, gold_head))


def _same_thing(one: str, other: str, known: Aliases) -> bool:
    return (
        same_name(one, other)
        or any(same_name(alias, other) for alias in known.get(normalise(one), ()))
        or any(same_name(one, alias) for alias in known.get(normalise(other), ()))
    )


def _most_pairs(pairs: Collection[tuple[int, int]]) -> int:
    """The size of the largest choice of pairs in which no number of either side comes twice."""
    import networkx

    graph = networkx.Graph([(("said", i), ("gold", j)) for i, j in pairs])
    left = {("said", i) for i, _ in pairs}
    return len(networkx.bipartite.hopcroft_karp_matching(graph, left)) // 2
