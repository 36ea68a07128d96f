"""Which things of a graph a question is about: by name, by alias, by spelling, by meaning."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

from ga_dspy.graph.names import identity, normalise, split_qualifier, words
from ga_dspy.graphrag.corpus_graph import CorpusGraph
from ga_dspy.graphrag.expansion import Wiring
from ga_dspy.graphrag.lexicon import COMMON, Lexicon, keys

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

How = Literal["exact", "alias", "spelling", "vector"]

LONGEST: Final = 10
"""Names of more words are not looked for in a question."""

SPELLING: Final = 88.0
"""How alike, of 100, a name must be spelled; numbers in it must be equal in any notation."""

_MOST_ALIKE: Final = 3
_SURENESS: Final[Mapping[How, float]] = {"exact": 1.0, "alias": 0.9, "spelling": 0.7}
_LOWER_CASE, _VALUE = 0.6, 0.5
_TOKEN: Final = re.compile(r"[^\s/–—(),;:!?\"“”«»\[\]]+")
_CONNECTORS: Final = frozenset("of the in de la le van von du der and for".split())
_ARTICLES: Final = frozenset(("a", "an", "the"))


class Link(NamedTuple):
    """A mention and a thing that it may mean; namesakes are several links of one mention.

    Attributes:
        mention: The words of the question, or the name that was given.
        node: The thing, a node of the caller's own graph.
        name: The name that it is shown under.
        how: "exact" by its name, "alias" by another name of it, "spelling" by a name spelled
            almost so, "vector" by its profile.
        score: How sure the link is, from 0 to 1; comparable between links.
    """

    mention: str
    node: int
    name: str
    how: How
    score: float


class Linked(NamedTuple):
    """Links, surest first, and the names that no thing goes by."""

    links: tuple[Link, ...]
    unlinked: tuple[str, ...]


class Token(NamedTuple):
    """A word of a question with its place; `proper` where it may be a name by itself."""

    start: int
    end: int
    plain: str
    proper: bool


class Linker:
    """Looks for the names of one graph in questions.

    >>> from ga_dspy.graph import GraphUpdate, Relation
    >>> said = GraphUpdate(relations=(Relation(head="Oslo", relation="in", tail="Norway"),))
    >>> graph = CorpusGraph.of({"p": said})
    >>> linker = Linker(graph, Lexicon.of(graph), Wiring(graph))
    >>> [(link.mention, link.how) for link in linker.link("Where is Oslo?").links]
    [('Oslo', 'exact')]
    """

    def __init__(self, graph: CorpusGraph, lexicon: Lexicon, wiring: Wiring) -> None:
        self.graph, self.lexicon, self.wiring = graph, lexicon, wiring

    def link(self, question: str, mentions: Sequence[str] = ()) -> Linked:
        """Find the things that a question names.

        Of overlapping names the longest counts. A name of one word counts where the question
        writes it with a capital or a digit, or has no capitals at all; dates and numbers count
        where they stand in the question. A surname alone names a person where just one has it.

        Args:
            question: The question.
            mentions: Names that were found in it otherwise; each counts whatever its case.
        """
        tokens = _tokens(question)
        given = list(dict.fromkeys(mention.strip() for mention in mentions if mention.strip()))
        taken = {i for mention in given for i in _place_of(mention, tokens)}
        spans = list(self._spans(question, tokens, taken))
        covered = taken | {i for first, last in spans for i in range(first, last)}
        left = [_text(question, tokens, run) for run in _runs(tokens, covered)]
        links: list[Link] = []
        unlinked = []
        for mention in given:
            found = self._links(mention, mention, question) or self._alike(mention, question)
            links += found
            unlinked += [] if found else [mention]
        for span in spans:
            text = _text(question, tokens, span)
            sure = any(token.proper for token in tokens[slice(*span)])
            links += self._links(text, text, question, 1.0 if sure else _LOWER_CASE)
        for text in left:
            found = self._alike(text, question)
            links += found
            unlinked += [] if found else [text]
        return Linked(surest(links), tuple(dict.fromkeys(unlinked)))

    def _spans(
        self, question: str, tokens: Sequence[Token], taken: set[int]
    ) -> Iterator[tuple[int, int]]:
        """The longest names in a question as token ranges, left to right."""
        first = 0
        while first < len(tokens):
            lasts = range(min(first + LONGEST, len(tokens)), first, -1)
            last = next(
                (
                    last
                    for last in lasts
                    if taken.isdisjoint(range(first, last))
                    and self._counts(
                        _text(question, tokens, (first, last)),
                        tokens[first:last],
                        alone=first == 0 or not tokens[first - 1].proper,
                    )
                ),
                0,
            )
            if last:
                yield first, last
            first = max(last, first + 1)

    def _counts(self, text: str, tokens: Sequence[Token], *, alone: bool) -> bool:
        """Whether words of a question are a name there; a surname only behind no other name."""
        name = normalise(text)
        if tokens[0].plain in _ARTICLES and len(tokens) > 1:
            # "The Who" is a name; of "the Ohio" only what follows the article is looked up.
            return (
                len(tokens) == 2 and text.istitle() and name in COMMON and name in self.graph.names
            )
        known = name in self.graph.names or identity(text) in self.graph.names
        if not known and not (len(tokens) == 1 and alone and name in self.lexicon.surnames):
            return False
        if len(tokens) > 1:
            return any(token.plain not in COMMON for token in tokens)
        return tokens[0].proper

    def _links(self, mention: str, name: str, question: str, share: float = 1.0) -> list[Link]:
        """The things that go by a name, told apart by the rest of the question."""
        nodes = self.graph.find(name)
        if not nodes:
            person = self.lexicon.surnames.get(normalise(name))
            nodes = () if person is None else (person,)
        if len(nodes) > 1 and not all(self.wiring.values[node] for node in nodes):
            nodes = tuple(node for node in nodes if not self.wiring.values[node])
        shares = self._told_apart(nodes, mention, question)
        return [self._as_link(mention, node, name, share * part)
                for node, part in zip(nodes, shares, strict=True)]  # fmt: skip

    def _as_link(self, mention: str, node: int, name: str, share: float) -> Link:
        shown = self.lexicon.shown[node]
        own = {normalise(shown), normalise(split_qualifier(shown).base)}
        how: How = "exact" if normalise(name) in own else "alias"
        value = _VALUE if self.wiring.values[node] else 1.0
        return Link(mention, node, shown, how, round(_SURENESS[how] * value * share, 4))

    def _alike(self, mention: str, question: str) -> list[Link]:
        """The things whose names are spelled almost like a mention."""
        from rapidfuzz import fuzz, process

        wanted = normalise(mention)
        if len(wanted) < 5:
            return []
        found = process.extract(
            wanted,
            [*self.graph.names],
            scorer=fuzz.ratio,
            score_cutoff=SPELLING,
            limit=_MOST_ALIKE,
        )
        names = [name for name, _, _ in found if _numbers(name) == _numbers(wanted)]
        nodes = dict.fromkeys(node for name in names[:1] for node in self.graph.names[name])
        shares = self._told_apart(tuple(nodes), mention, question)
        return [
            Link(mention, node, self.lexicon.shown[node], "spelling",
                 round(_SURENESS["spelling"] * part, 4))
            for node, part in zip(nodes, shares, strict=True)
        ]  # fmt: skip

    def _told_apart(self, nodes: Sequence[int], mention: str, question: str) -> list[float]:
        """From 0.5 to 1 for each namesake: how much of the question its surroundings hold."""
        if len(nodes) < 2:
            return [1.0] * len(nodes)
        asked = set(keys(question)) - set(keys(mention))
        fits = [self._fit(node, asked) for node in nodes]
        best = max(fits)
        return [0.5 + 0.5 * fit / best if best else 1.0 for fit in fits]

    def _fit(self, node: int, asked: Collection[str]) -> float:
        """The rarity of the question's words in type, attributes, relations and neighbours."""
        import numpy as np

        itself = np.array([node], dtype=np.int64)
        nodes, edges = self.wiring.touching(itself)
        near = self.wiring.across(nodes, edges)
        wording = self.lexicon.wording_of[edges]
        told = 0.0
        for word in asked:
            there = _holds(self.lexicon.told.rows(word), itself)
            there = there or _holds(self.lexicon.relations.rows(word), wording)
            there = there or _holds(self.lexicon.names.rows(word), near)
            told += self.lexicon.rarity(word) if there else 0.0
        return told


def surest(links: Iterable[Link]) -> tuple[Link, ...]:
    """Each thing once, under its surest link; surest first, equal ones in the given order."""
    best: dict[int, Link] = {}
    for link in links:
        if link.node not in best or link.score > best[link.node].score:
            best[link.node] = link
    return tuple(sorted(best.values(), key=lambda link: -link.score))


def _holds(rows: NDArray[np.int32], sought: NDArray[np.integer]) -> bool:
    import numpy as np

    return bool(np.isin(sought, rows).any())


def _tokens(question: str) -> list[Token]:
    found = list(_TOKEN.finditer(question))
    plain = [normalise(match.group()) for match in found]
    capital = [any(c.isupper() or c.isdigit() for c in match.group()) for match in found]
    # People type queries without capitals, but for the first word.
    relaxed = not any(capital[1:]) and (not capital[:1] or plain[0] in COMMON or not capital[0])
    return [
        Token(*match.span(), word, word not in COMMON and (
            big or (relaxed and len(word) > 3)
        ))
        for match, word, big in zip(found, plain, capital, strict=True)
    ]  # fmt: skip


def _place_of(mention: str, tokens: Sequence[Token]) -> Iterable[int]:
    """Where a mention stands in the question, as token numbers; none where it does not."""
    sought = [token.plain for token in _tokens(mention)]
    for first in range(len(tokens) - len(sought) + 1):
        if sought and [token.plain for token in tokens[first : first + len(sought)]] == sought:
            return range(first, first + len(sought))
    return ()


def _runs(tokens: Sequence[Token], covered: Collection[int]) -> Iterator[tuple[int, int]]:
    """The runs of capitalised words that are not covered, small words inside them included."""
    capital = [token.proper and i not in covered for i, token in enumerate(tokens)]
    first = 0
    while first < len(tokens):
        last = first
        while last < len(tokens) and (capital[last] or _inside(tokens, capital, first, last)):
            last += 1
        if last > first and not all(t.plain.isdigit() for t in tokens[first:last]):
            yield first, last
        first = last + 1 if last == first else last


def _inside(tokens: Sequence[Token], capital: Sequence[bool], first: int, here: int) -> bool:
    small = tokens[here].plain in _CONNECTORS
    return small and here > first and here + 1 < len(tokens) and capital[here + 1]


def _text(question: str, tokens: Sequence[Token], span: tuple[int, int]) -> str:
    text = question[tokens[span[0]].start : tokens[span[1] - 1].end].rstrip(".")
    return re.sub(r"['’]s$", "", text)


def _numbers(plain: str) -> list[str]:
    return sorted(word for word in words(plain) if any(c.isdigit() for c in word))
