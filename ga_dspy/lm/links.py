"""How the passages of one question hang together: what each covers, which names which."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ga_dspy.lm.idf import Idf
from ga_dspy.lm.lexicon import RELATED
from ga_dspy.lm.question import Question
from ga_dspy.lm.static import PageStatics
from ga_dspy.lm.text import keywords, normalize, stem

NAMES = (
    "rank", "passages", "title_asked", "title_overlap", "coverage", "focus_coverage",
    "relation_coverage", "names_asked", "named_by", "named_by_asked", "names_an_asked",
    "pair_coverage", "hop", "coverage_rank",
)  # fmt: skip
"""Names of the features of a passage, in the order of their columns."""


_KIN = 0.7


class Asked(NamedTuple):
    """A question's words with their weights, and which of them stand for relations.

    `relation` are keywords outside the question's names: what is asked about the names; `related`
    adds words that tell the same relations.
    """

    weights: dict[str, float]
    focus: dict[str, float]
    relation: dict[str, float]
    related: dict[str, float]
    norm: str
    names: tuple[str, ...]


def weigh(question: Question, idf: Idf) -> Asked:
    """Weigh the words of a question by rarity, nearness to the wh-word, and role."""
    in_names = {s for name in question.names for s in keywords(name)}
    weights = {s: idf(s) for s in question.keywords}
    focus = {s: w * question.focus[s] for s, w in weights.items()}
    relation = {s: w for s, w in focus.items() if s not in in_names}
    related = dict(relation)
    for word, own in zip(question.parsed.lower, question.parsed.stems, strict=True):
        for other in RELATED.get(word, ()) if own in relation else ():
            kin = stem(other)
            related[kin] = max(related.get(kin, 0.0), _KIN * relation[own])
    names = tuple(n for n in (normalize(name) for name in question.names) if n)
    return Asked(weights, focus, relation, related, f" {normalize(question.text)} ", names)


def share(stems: frozenset[str] | set[str], weights: dict[str, float]) -> float:
    """The share of the total weight that the stems cover; 0 where there is nothing to cover."""
    total = sum(weights.values())
    return sum(w for s, w in weights.items() if s in stems) / total if total else 0.0


class Links(NamedTuple):
    """Features of each passage, and which passage a normalised title names.

    `rows[i]` has the columns of `NAMES`; `titles` maps a title's forms to passage numbers;
    `residual[i]` weighs the related words that the other asked passages leave open.
    """

    rows: list[list[float]]
    titles: dict[str, int]
    asked_titles: list[bool]
    residual: list[dict[str, float]]


def link(pages: Sequence[PageStatics], asked: Asked) -> Links:
    """Describe every passage against the question and against the other passages."""
    titles = {form: i for i, p in reversed(list(enumerate(pages))) for form in p.alias}
    stems = [frozenset(s for s in p.page.parsed.stems if s) for p in pages]
    names = [_named(p, i, titles) for i, p in enumerate(pages)]
    is_asked = [any(f" {form} " in asked.norm for form in p.alias) for p in pages]
    coverage = [share(s, asked.weights) for s in stems]
    by_coverage = sorted(range(len(pages)), key=lambda i: (-coverage[i], i))
    hops = _hops(names, is_asked)
    rows = []
    for i, p in enumerate(pages):
        linked = names[i] | {j for j, other in enumerate(names) if i in other}
        rows.append(
            [
                float(i),
                float(len(pages)),
                float(is_asked[i]),
                share(frozenset(keywords(p.page.title)), asked.weights),
                coverage[i],
                share(stems[i], asked.focus),
                share(stems[i], asked.relation),
                float(sum(n in p.norms for n in asked.names)),
                float(sum(i in other for other in names)),
                float(any(is_asked[j] and i in names[j] for j in range(len(pages)))),
                float(any(is_asked[j] for j in names[i])),
                max((share(stems[i] | stems[j], asked.weights) for j in linked), default=0.0),
                float(hops[i]),
                float(by_coverage.index(i)),
            ]
        )
    residual = [_residual(i, stems, is_asked, asked) for i in range(len(pages))]
    return Links(rows, titles, is_asked, residual)


def _residual(
    own: int, stems: Sequence[frozenset[str]], is_asked: Sequence[bool], asked: Asked
) -> dict[str, float]:
    """The related words that no other passage with an asked title tells (the first, if none)."""
    told = [i for i, hit in enumerate(is_asked) if hit and i != own] or [0] * (own > 0)
    known = frozenset[str]().union(*(stems[i] for i in told))
    return {s: w for s, w in asked.related.items() if s not in known}


def _named(statics: PageStatics, own: int, titles: dict[str, int]) -> set[int]:
    """The other passages whose titles stand among this one's candidates."""
    found = {titles[norm] for norm in statics.norms if norm in titles}
    return found - {own}


def _hops(names: Sequence[set[int]], is_asked: Sequence[bool]) -> list[int]:
    """Links from the nearest passage whose title is asked about, at most 3."""
    hops = [0 if asked else 3 for asked in is_asked]
    for step in (1, 2):
        for i, linked in enumerate(names):
            for j in linked:
                hops[i] = min(hops[i], max(step, hops[j] + 1))
                hops[j] = min(hops[j], max(step, hops[i] + 1))
    return hops
