"""The words of a graph: in which names, descriptions and relations each of them stands."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ga_dspy.errors import MissingExtra
from ga_dspy.graph import normalise, split_qualifier
from ga_dspy.graph.kinds import kind_of
from ga_dspy.graphrag.corpus_graph import CorpusGraph
from ga_dspy.retrieval.names import plain

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

KEY_LENGTH: Final = 6
"""Stems are cut here, so that "director" meets "directed"."""

COMMON: Final = frozenset(
    (
        "a about after all also although an and another any are as at be because been before being "
        "both but by can could did do does during each either ever for from had has have he her "
        "him his how however i if in into is it its itself many may me more most much my name no "
        "nor not of on one only or other our out over same she should so some such than that the "
        "their them then there these they this those through to too under until up us very was we "
        "were what when where whether which while who whom whose why will with within would yes you"
    ).split()
)
"""Words that say nothing of what a question asks for."""

_FORMS: Final = (
    "become became|begin began begun|bear born birth birthplace birthday|break broke broken|"
    "bring brought|build built|buy bought|catch caught|choose chose chosen|draw drew drawn|"
    "drive drove driven|die death dead deathplace|fall fell fallen|fight fought|fly flew flown|"
    "give gave given|grow grew grown|hold held|keep kept|know knew known|lead led|leave left|"
    "lose lost|make made|marry marriage|meet met|pay paid|ride rode ridden|rise rose risen|"
    "run ran|sell sold|send sent|shoot shot|sing sang sung song|speak spoke spoken|spend spent|"
    "stand stood|steal stole stolen|strike struck|swim swam swum|take took taken|teach taught|"
    "tell told|think thought|wear wore worn|win won|write wrote written"
)
_IRREGULAR: Final = {form: one.split()[0] for one in _FORMS.split("|") for form in one.split()}
"""Forms that no stemmer brings together, by the verb that they are compared as."""

_WORD: Final = re.compile(r"[^\W_]+")


def keys(text: str) -> tuple[str, ...]:
    """The telling words of a text as they are compared: folded, stemmed, cut.

    >>> keys("Who directed the films of 1984?"), keys("director"), keys("wrote")
    (('direct', 'film', '1984'), ('direct',), ('write',))
    """
    return tuple(key(word) for word in _WORD.findall(plain(text)) if word not in COMMON)


@lru_cache(maxsize=262144)
def key(word: str) -> str:
    """How one folded word is compared; words with a digit whole."""
    if any(c.isdigit() for c in word):
        return word
    return str(_stemmer().stemWord(_IRREGULAR.get(word, word)))[:KEY_LENGTH]


@lru_cache(maxsize=1)
def _stemmer() -> Any:
    try:
        import Stemmer
    except ImportError as error:
        raise MissingExtra("PyStemmer", "graph") from error
    return Stemmer.Stemmer("english")


class Postings:
    """In which rows of a list of texts each word stands, and how many words a row has."""

    def __init__(self, texts: Iterable[str]) -> None:
        import numpy as np

        found: dict[str, list[int]] = defaultdict(list)
        lengths = []
        for row, text in enumerate(texts):
            words = dict.fromkeys(keys(text))
            lengths.append(len(words))
            for word in words:
                found[word].append(row)
        self.lengths = np.asarray(lengths, dtype=np.int32)
        self._rows = {word: np.asarray(rows, dtype=np.int32) for word, rows in found.items()}

    def rows(self, word: str) -> NDArray[np.int32]:
        """The rows that hold a word, ascending."""
        import numpy as np

        return self._rows.get(word, np.zeros(0, dtype=np.int32))

    def weigh(self, words: Mapping[str, float]) -> NDArray[np.float32]:
        """The weights of the words that each row holds, summed, shape (rows,)."""
        import numpy as np

        total = np.zeros(len(self.lengths), dtype=np.float32)
        for word, weight in words.items():
            total[self.rows(word)] += weight
        return total

    def strongest(self, words: Mapping[str, float]) -> NDArray[np.float32]:
        """The greatest weight of a word that each row holds, shape (rows,)."""
        import numpy as np

        most = np.zeros(len(self.lengths), dtype=np.float32)
        for word in sorted(words, key=words.__getitem__):
            most[self.rows(word)] = words[word]
        return most


class Lexicon(NamedTuple):
    """The texts of a graph and the words in them.

    Attributes:
        shown: The name of each node.
        types: The type of each node.
        wordings: Each distinct relation, once.
        wording_of: The row of `wordings` for each edge, shape (edges,).
        often: How many edges have each wording, shape (wordings,).
        times: The time that each edge states, if any.
        names: Words of names and aliases, by node.
        told: Words of types and attributes, by node.
        relations: Words of relations, by row of `wordings`.
        surnames: The last name of each person who alone has it, normalised, and the node.
    """

    shown: Sequence[str]
    types: Sequence[str]
    wordings: Sequence[str]
    wording_of: NDArray[np.int32]
    often: NDArray[np.int64]
    times: Sequence[str | None]
    names: Postings
    told: Postings
    relations: Postings
    surnames: Mapping[str, int]

    @classmethod
    def of(cls, graph: CorpusGraph) -> Lexicon:
        """Read the words of a graph; about a second for 50,000 nodes."""
        import numpy as np

        nodes, edges = graph.tables.nodes, graph.tables.edges
        shown, types = nodes["name"].to_pylist(), nodes["type"].to_pylist()
        other, said = nodes["aliases"].to_pylist(), nodes["attributes"].to_pylist()
        row_of: dict[str, int] = {}
        said_so = edges["relation"].to_pylist()
        wording_of = np.array([row_of.setdefault(r, len(row_of)) for r in said_so], dtype=np.int32)
        return cls(
            shown,
            types,
            tuple(row_of),
            wording_of,
            np.bincount(wording_of, minlength=len(row_of)),
            edges["time"].to_pylist(),
            Postings(" ".join(each) for each in _joined(shown, other)),
            Postings(" ".join(each) for each in _joined(types, said)),
            Postings(row_of),
            _surnames(shown, types),
        )

    def rarity(self, word: str) -> float:
        """How telling a word is: the logarithm of texts per text that holds it."""
        import math

        parts = (self.names, self.told, self.relations)
        texts = sum(len(part.lengths) for part in parts)
        return math.log1p(texts / (1 + sum(len(part.rows(word)) for part in parts)))


def _joined(firsts: Iterable[str], rests: Iterable[Sequence[str]]) -> Iterable[tuple[str, ...]]:
    return ((first, *rest) for first, rest in zip(firsts, rests, strict=True))


def _surnames(shown: Sequence[str], types: Sequence[str]) -> dict[str, int]:
    bearers: dict[str, list[int]] = defaultdict(list)
    for node, (name, type_) in enumerate(zip(shown, types, strict=True)):
        parts = normalise(split_qualifier(name).base).split()
        if len(parts) > 1 and kind_of(type_) == "person":
            bearers[parts[-1]].append(node)
    return {name: nodes[0] for name, nodes in bearers.items() if len(nodes) == 1}
