"""BM25 over title and text: stemmed words, the title counted three times."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ga_dspy.errors import MissingExtra
from ga_dspy.retrieval.names import plain

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from ga_dspy.passage import Passage

K1 = 1.2
B = 0.75
TITLE_WEIGHT = 3

_WORD = r"(?u)\b(?:\w\w+|\d)\b"
"""Words of two letters and more, and single digits: Apollo 8 is not Apollo 9."""


class SparseScores:
    """BM25 scores of every row for a query (bm25s, Lucene's variant; k1 1.2, b 0.75)."""

    def __init__(self, model: Any, rows: int) -> None:
        self._model = model
        self._rows = rows
        # A linked search needs the words of its query twice.
        self._known = lru_cache(maxsize=64)(self._known_words)

    @classmethod
    def build(cls, passages: Iterable[Passage]) -> SparseScores:
        """Index passages; row i is the i-th passage."""
        texts = [f"{f'{p.title} ' * TITLE_WEIGHT}{p.text}" for p in passages]
        model = _bm25s().BM25(k1=K1, b=B)
        tokens = _tokens(texts)
        # bm25s cannot index a corpus of nothing but stopwords; no query holds the empty word.
        model.index(tokens if any(tokens) else [[""] for _ in texts], show_progress=False)
        return cls(model, len(texts))

    def scores(self, query: str) -> NDArray[np.float32]:
        """Return the score of each row, shape (rows,); 0 where no word is shared."""
        import numpy as np

        known = self._known(query)
        if not known:
            return np.zeros(self._rows, dtype=np.float32)
        return np.asarray(self._model.get_scores(list(known)), dtype=np.float32)

    def word_scores(self, query: str) -> NDArray[np.float32]:
        """Return the score of each row for each distinct word, shape (words, rows).

        Words that stand nowhere in the corpus are left out.
        """
        import numpy as np

        words = dict.fromkeys(self._known(query))
        scores = [np.asarray(self._model.get_scores([word])) for word in words]
        return np.stack(scores) if scores else np.zeros((0, self._rows), dtype=np.float32)

    def _known_words(self, query: str) -> tuple[str, ...]:
        (tokens,) = _tokens([query])
        return tuple(token for token in tokens if token in self._model.vocab_dict)

    def save(self, folder: Path) -> None:
        """Write the index into a new folder."""
        self._model.save(str(folder), show_progress=False)

    @classmethod
    def load(cls, folder: Path, rows: int) -> SparseScores:
        """Open a saved index, its postings memory-mapped."""
        return cls(_bm25s().BM25.load(str(folder), mmap=True, show_progress=False), rows)


def _tokens(texts: list[str]) -> list[list[str]]:
    # A Stemmer object is not thread-safe and cheap to make: one for each call.
    import Stemmer

    tokens: list[list[str]] = _bm25s().tokenize(
        [plain(text) for text in texts],
        token_pattern=_WORD,
        stopwords="en",
        stemmer=Stemmer.Stemmer("english"),
        return_ids=False,
        show_progress=False,
    )
    return tokens


def _bm25s() -> Any:
    try:
        import bm25s
        import Stemmer  # noqa: F401 - fail here, with the remedy, and not at the first query
    except ImportError as error:
        raise MissingExtra("bm25s or PyStemmer", "retrieval") from error
    return bm25s
