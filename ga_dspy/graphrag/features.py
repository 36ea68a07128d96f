"""What speaks for a fact: cheap numbers about an edge and a question, for the coarse stage."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from ga_dspy.graph.kinds import kind_of
from ga_dspy.graphrag.expansion import Neighbourhood, Wiring
from ga_dspy.graphrag.lexicon import COMMON, Lexicon, keys
from ga_dspy.retrieval.names import plain

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

NAMES: Final = (
    "relation_words",
    "name_words",
    "told_words",
    "jaccard",
    "spelling",
    "rarest",
    "hops",
    "on_path",
    "numbers",
    "answer_type",
    "answer_noun",
    "rare_relation",
    "confidence",
    "plain_value",
    "degree",
    "link",
)
"""The columns of `describe`, in order."""

_PLACES: Final = frozenset(
    ("settlement", "country", "subdivision", "water", "mountain", "island", "planet", "school")
)
_ASKED: Final = (
    ("person", re.compile(r"\b(?:who|whom|whose)\b")),
    ("place", re.compile(r"\bwhere\b")),
    ("number", re.compile(r"\bhow (?:many|much|long|tall|high|old|far|large|big|deep|wide)\b")),
    ("date", re.compile(r"\bwhen\b|\b(?:what|which) (?:year|date|day|month|decade|century)\b")),
)
_ASKED_NOUN: Final = re.compile(r"\b(?:what|which|name)\s+((?:(?:is|was|are|were|the)\s+)*)(.+)")
_YEAR: Final = re.compile(r"\b\d{4}\b")
_NUMBER: Final = re.compile(r"\d+")


class Asked(NamedTuple):
    """A question as the coarse stage reads it.

    Attributes:
        text: The question, folded.
        words: Its telling words and how telling each is; the weights sum to 1.
        numbers: The numbers in it.
        wants: "person", "place", "date", "number", a kind of `ga_dspy.graph.kinds`, or "".
        nouns: The words after "which" or "what", as `keys` compares them.
    """

    text: str
    words: Mapping[str, float]
    numbers: frozenset[str]
    wants: str
    nouns: frozenset[str]

    @classmethod
    def of(cls, question: str, lexicon: Lexicon, named: Sequence[str] = ()) -> Asked:
        """Read a question.

        Args:
            question: The question.
            lexicon: The words of the graph, for how telling each word is.
            named: Mentions that are linked; their words have done their work.
        """
        done = {word for mention in named for word in keys(mention)}
        words = [word for word in dict.fromkeys(keys(question)) if word not in done]
        rarity = {word: lexicon.rarity(word) for word in words}
        total = sum(rarity.values()) or 1.0
        text = plain(question)
        noun = _noun(text)
        wants = next((kind for kind, pattern in _ASKED if pattern.search(text)), "")
        return cls(
            text,
            {word: value / total for word, value in rarity.items()},
            frozenset(_NUMBER.findall(text)),
            wants or kind_of(noun),
            frozenset(keys(noun)),
        )


class Fitting(NamedTuple):
    """How well the words of a question fit a graph.

    Attributes:
        relations: By row of `Lexicon.wordings`: the weight of the question's words in it.
        names: By node: the weight of the question's words in its names.
        told: By node: the weight of the question's words in its type and attributes.
        edges: By edge, from 0 to 1: the relation's and the better end's fit.
    """

    relations: NDArray[np.float32]
    names: NDArray[np.float32]
    told: NDArray[np.float32]
    edges: NDArray[np.float32]

    @classmethod
    def of(cls, asked: Asked, lexicon: Lexicon, wiring: Wiring) -> Fitting:
        """Compare a question with all of a graph by its words."""
        import numpy as np

        relations = lexicon.relations.weigh(asked.words)
        names, told = lexicon.names.weigh(asked.words), lexicon.told.weigh(asked.words)
        things = np.maximum(names, told)
        ends = np.maximum(things[wiring.heads], things[wiring.tails])
        edges = np.minimum(relations[lexicon.wording_of] + ends / 2, 1)
        return cls(relations, names, told, edges)


class Situation(NamedTuple):
    """All that the features of a set of edges depend on, besides the edges."""

    asked: Asked
    fitting: Fitting
    lexicon: Lexicon
    wiring: Wiring
    near: Neighbourhood
    on_path: Mapping[int, int]
    sureness: Mapping[int, float]


def describe(edges: NDArray[np.int64], at: Situation) -> NDArray[np.float64]:
    """The features of edges, shape (edges, features), columns as in `NAMES`.

    Args:
        edges: The edges.
        at: The question and the neighbourhood: `on_path` has the length of the shortest path
            that an edge lies on, `sureness` the score of the link to a node.
    """
    import numpy as np

    far, hops = _far_ends(edges, at)
    ends = (at.wiring.heads[edges], at.wiring.tails[edges])
    wording = at.lexicon.wording_of[edges]
    columns = (
        at.fitting.relations[wording],
        np.maximum(*(at.fitting.names[end] for end in ends)),
        at.fitting.told[far],
        _jaccard(wording, ends, at),
        _spelling(wording, at),
        _rarest(wording, ends, at),
        hops,
        [1 / at.on_path[edge] if edge in at.on_path else 0.0 for edge in edges.tolist()],
        _numbers(edges, at),
        [float(_fits(at.asked.wants, at.lexicon.shown[n], at.lexicon.types[n])) for n in far],
        [float(not at.asked.nouns.isdisjoint(keys(at.lexicon.types[n]))) for n in far],
        1 / np.log2(1 + at.lexicon.often[wording]),
        at.wiring.confidence[edges],
        at.wiring.values[far],
        np.log2(1 + at.wiring.degrees[far]),
        [max(at.sureness.get(int(end), 0.0) for end in pair) for pair in zip(*ends, strict=True)],
    )
    return np.column_stack([np.asarray(column, dtype=np.float64) for column in columns])


def _far_ends(
    edges: NDArray[np.int64], at: Situation
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The end of each edge that lies further from the start, and the hops to the nearer one."""
    import numpy as np

    heads, tails = at.wiring.heads[edges].tolist(), at.wiring.tails[edges].tolist()
    beyond = max(at.near.hops.values(), default=0) + 1
    steps = [[at.near.hops.get(node, beyond) for node in ends] for ends in (heads, tails)]
    far = np.where(np.greater(steps[0], steps[1]), heads, tails).astype(np.int64)
    return far, np.minimum(*np.asarray(steps, dtype=np.int64).reshape(2, -1))


def _jaccard(
    wording: NDArray[np.int32], ends: Sequence[NDArray[np.int32]], at: Situation
) -> NDArray[np.float64]:
    """Shared words over all words of question and fact."""
    count = dict.fromkeys(at.asked.words, 1.0)
    names = at.lexicon.names.weigh(count)
    shared = at.lexicon.relations.weigh(count)[wording] + sum(names[end] for end in ends)
    lengths = sum(at.lexicon.names.lengths[end] for end in ends)
    every = len(count) + at.lexicon.relations.lengths[wording] + lengths - shared
    ratio: NDArray[np.float64] = shared / every.clip(1)
    return ratio


def _spelling(wording: NDArray[np.int32], at: Situation) -> list[float]:
    """How nearly the relation is spelled in the question, from 0 to 1."""
    from rapidfuzz.fuzz import partial_ratio

    alike = {
        row: partial_ratio(plain(at.lexicon.wordings[row]), at.asked.text) / 100
        for row in set(wording.tolist())
    }
    return [alike[row] for row in wording.tolist()]


def _rarest(
    wording: NDArray[np.int32], ends: Sequence[NDArray[np.int32]], at: Situation
) -> NDArray[np.float32]:
    """The weight of the rarest word that fact and question share."""
    import numpy as np

    names = at.lexicon.names.strongest(at.asked.words)
    relations = at.lexicon.relations.strongest(at.asked.words)[wording]
    return np.maximum(relations, np.maximum(*(names[end] for end in ends)))


def _numbers(edges: NDArray[np.int64], at: Situation) -> list[float]:
    """The share of the question's numbers that stand in the fact, its time included."""
    asked, lexicon = at.asked.numbers, at.lexicon
    if not asked:
        return [0.0] * len(edges)
    facts = (
        f"{lexicon.shown[at.wiring.heads[j]]} {lexicon.wordings[lexicon.wording_of[j]]} "
        f"{lexicon.shown[at.wiring.tails[j]]} {lexicon.times[j] or ''}"
        for j in edges.tolist()
    )
    return [len(asked.intersection(_NUMBER.findall(fact))) / len(asked) for fact in facts]


def _fits(wants: str, name: str, type_: str) -> bool:
    """Whether a thing could be an answer of the kind that is asked for."""
    if wants == "date":
        return bool(_YEAR.search(name))
    if wants == "number":
        return bool(_NUMBER.search(name))
    kind = kind_of(type_)
    return kind in _PLACES if wants == "place" else bool(wants) and kind == wants


def _noun(text: str) -> str:
    """What stands after "which" or "what": up to four words, to the first that is no noun."""
    match = _ASKED_NOUN.search(text)
    if match is None:
        return ""
    words = re.findall(r"[^\W_]+", match[2])[:4]
    stop = next((i for i, word in enumerate(words) if word in COMMON), len(words))
    return " ".join(words[:stop])
