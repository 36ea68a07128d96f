"""Chains: from what a question names, relation by relation, to what it asks for.

A nested question names where a chain begins and describes the rest of it ("the city where the
composer of X lived"). A walk takes, at each relation, the words of the question that state it or
say what it leads to. What it has left over is still open; where it ends is the answer, or what
has to be read next.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

from extractive_lm.facts import statements
from extractive_lm.features import fits
from extractive_lm.prompt import Doc
from extractive_lm.question import Question, analyse
from extractive_lm.spans import read_page
from extractive_lm.text import keywords, normalize, stem
from extractive_lm.words import RELATED, noun_type

_MOST_HOPS, _WIDTH = 4, 40
_OF_A_KIND, _LEAST, _FITS = 0.5, 0.3, 0.5
_END, _BETWEEN, _TRUSTED = 3.5, 1.0, 0.6
_TAILS = {"in": "place", "at": "place", "near": "place", "by": "person"}


class Walk(NamedTuple):
    """A walk from a name of the question.

    Attributes:
        path: The normalised names on the way.
        name: Its end, as it is written.
        taken: The question's words that it states: 1, or less where only the kind is alike.
        fit: How well its end is of the kind that is asked for, up to 1.
        share: How much of the question it states, up to 1.
    """

    path: tuple[str, ...]
    name: str
    taken: Mapping[str, float]
    fit: float = 0.0
    share: float = 0.0


@lru_cache(maxsize=64)
def walks(question: str, docs: tuple[Doc, ...]) -> Mapping[str, Walk]:
    """The best walk to every name that at most four relations of the passages lead to.

    Each relation after the first has to state something of the question that none before it did.
    """
    asked, land = analyse(question), _Land(docs)
    named = (name for name in (*land.links, *land.same) if len(name) > 2 and asked.holds(name))
    starts = sorted({land.same.get(name, name) for name in named} & land.links.keys())
    sought = _Sought(asked, starts, land)
    found = {name: Walk((name,), name, {}) for name in starts}
    front = dict(found)
    for _ in range(_MOST_HOPS):
        ahead: dict[str, Walk] = {}
        for walk in leading(front, _WIDTH):
            for name, stated in land.links[walk.path[-1]].items():
                if name in walk.path or name in starts or walk.path[-1][0].isdigit():
                    continue
                step = sought.step(walk, name, stated)
                known = ahead.get(name) or found.get(name)
                if step and (not known or step.share > known.share):
                    ahead[name] = step
        found |= ahead
        front = ahead
    return {name: walk for name, walk in found.items() if len(walk.path) > 1}


def leading(walked: Mapping[str, Walk], most: int = 5) -> list[Walk]:
    """The walks that state most of the question, the best first."""
    return sorted(walked.values(), key=lambda walk: (-walk.share, walk.path))[:most]


def shifts(walked: Mapping[str, Walk]) -> dict[str, float]:
    """What walks say for and against candidate answers, in the scores of the ranker.

    For where they end, the more the more of the question they state; against what lies on the way
    of the best one, where that states most of it.
    """
    every = leading(walked, len(walked))
    ends = [walk for walk in every if walk.fit >= _FITS and len(walk.path) > 2]
    found = {walk.path[-1]: _END * walk.share**3 for walk in ends}
    if ends and ends[0].share >= _TRUSTED:
        for name in ends[0].path[1:-1]:
            found[name] = found.get(name, 0.0) - _BETWEEN
    return found


class _Land:
    """What passages relate.

    Attributes:
        links: For each name the names related to it, with the words that state how.
        same: The names of subjects by other names that they go by.
        names: Names as they are written.
        kinds: What the names are: "person", "place", ...
        words: The words of names and of what passages say that they are.
    """

    def __init__(self, docs: Sequence[Doc]) -> None:
        self.links: dict[str, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
        self.same: dict[str, str] = {}
        self.names: dict[str, str] = {}
        self.kinds: dict[str, str] = {}
        self.words: dict[str, set[str]] = defaultdict(set)
        for doc in docs:
            page, about = read_page(doc.title, doc.text), statements(doc.title, doc.text)
            self.kinds |= {n: k for n, k in zip(page.norms, page.types, strict=True) if k}
            self.kinds |= {form: page.subject_type for form in page.aliases if page.subject_type}
            self.same |= dict.fromkeys(page.aliases[1:], "".join(page.aliases[:1]))
            for name, kind in about.types.items():
                self.words[normalize(name)].update(keywords(kind))
            for head, relation, tail, of, *_ in about.triples:
                if of == "name" and (ends_in := _TAILS.get(relation.split()[-1])):
                    self.kinds.setdefault(normalize(tail), ends_in)
                if relation.endswith("known as"):
                    self.same[normalize(tail)] = normalize(head)
        for doc in docs:
            for head, relation, tail, of, *_ in statements(doc.title, doc.text).triples:
                if of == "quantity":
                    continue
                one, other = self._called(head), self._called(tail)
                for end, far in ((one, other), (other, one)) if one != other else ():
                    self.links[end][far].update(keywords(relation))

    def _called(self, name: str) -> str:
        norm = normalize(name)
        norm = self.same.get(norm, norm)
        self.names.setdefault(norm, name)
        self.words[norm].update(keywords(name))
        return norm


class _Sought:
    """The words of a question that relations may state, by the words that state them."""

    def __init__(self, question: Question, starts: Collection[str], land: _Land) -> None:
        self.target, self.wants, self.land = question.noun_stem, question.wants, land
        named = {word for name in starts for word in keywords(name)}
        self.by_form: dict[str, set[str]] = defaultdict(set)
        self.nouns: dict[str, str] = {}
        for token, word in zip(question.parsed.lower, question.parsed.stems, strict=True):
            if word and word not in named and word != self.target:
                for form in (token, *RELATED.get(token, ())):
                    self.by_form[stem(form)].add(word)
                self.nouns[word] = noun_type(token)

    def step(self, walk: Walk, name: str, stated: Collection[str]) -> Walk | None:
        """The walk with one more relation; None where that states nothing new."""
        taken, kind = dict(walk.taken), self.land.kinds.get(name, "")
        own = self.land.words[name]
        for form in own.union(stated):
            taken |= dict.fromkeys(self.by_form.get(form, ()), 1.0)
        alike = [word for word, of in self.nouns.items() if of == kind and word not in walk.taken]
        if kind and alike and taken.keys().isdisjoint(alike):
            # The kind that is described last is the one nearest to the name.
            taken[alike[-1]] = _OF_A_KIND
        fit = fits(self.wants, kind)
        if self.target:
            fit = 1.0 if self.target in own else fit / 2
        gain = sum(taken.values()) - sum(walk.taken.values())
        if gain < _LEAST and fit < _LEAST and len(walk.path) > 1:
            return None
        share = (sum(taken.values()) + fit) / (len(self.nouns) + 1)
        return Walk((*walk.path, name), self.land.names[name], taken, fit, share)
