"""The link graph of a corpus, made by spelling alone: no LM reads the passages.

Two passages are linked where one mentions a title alias of the other, and where both hold a
capitalised span that is rare in the corpus. Spans stay a passage-by-span matrix B: the walk from
passage to passage through them is B D^-1 B^T, never written out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ga_dspy.retrieval.names import mentioned, spans, words
from ga_dspy.retrieval.titles import TitleTable

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from ga_dspy.passage import Passage

FEWEST, MOST = 2, 30
"""A shared span links passages where it stands in at least `FEWEST` and at most `MOST`."""

SPAN_WEIGHT = 0.3
"""How much a step through shared spans weighs beside one through a title mention."""


@dataclass(frozen=True)
class LinkGraph:
    """Links between rows: `titles` (rows x rows, CSR, symmetric), `spans` (rows x spans, CSR)."""

    titles: Any
    spans: Any

    @classmethod
    def build(cls, passages: Sequence[Passage], table: TitleTable) -> LinkGraph:
        """Link the passages; row i is the i-th passage."""
        mentions: list[tuple[int, int, float]] = []
        found: list[frozenset[str]] = []
        for row, passage in enumerate(passages):
            mentions.extend(_mentions(row, passage, table))
            found.append(spans(passage.content))
        one_way = _matrix(mentions, (len(passages), len(passages)))
        return cls((one_way + one_way.T).tocsr(), _incidence(found))

    def walk(
        self, start: NDArray[np.float64], *, damping: float, steps: int
    ) -> NDArray[np.float64]:
        """Personalised PageRank: the mass of each row after `steps`, restarting at `start`.

        Args:
            start: Where walks start, shape (rows,), summing to 1.
            damping: The share of the mass that follows a link at each step.
            steps: Power iterations.
        """
        import numpy as np

        leaving = self._leaving
        each = np.divide(damping, leaving, where=leaving > 1e-6, out=np.zeros_like(leaving))
        mass = start
        for _ in range(steps):
            mass = (1 - damping) * start + self._step(mass * each)
        return mass

    def reached(self, rows: NDArray[np.int64]) -> Any:
        """Return what one step reaches from each row, shape (given, rows), CSR, without itself."""
        through = self.spans[rows].multiply(self._share[None, :]).tocsr() @ self._holders_of
        links = (self.titles[rows] + through).tocoo()
        others = links.col != rows[links.row]
        cells = (links.data[others], (links.row[others], links.col[others]))
        return type(self.titles)(cells, shape=links.shape)

    def _step(self, sent: NDArray[np.float64]) -> NDArray[np.float64]:
        through = self.spans @ (self._share * (self._holders_of @ sent))
        arrived: NDArray[np.float64] = self.titles @ sent + through - self._itself * sent
        return arrived

    @cached_property
    def _leaving(self) -> NDArray[np.float64]:
        """The weight of all links of each row."""
        import numpy as np

        return self._step(np.ones(self.titles.shape[0]))

    @cached_property
    def _itself(self) -> NDArray[np.float64]:
        """What spans would send from each row back to itself."""
        itself: NDArray[np.float64] = self.spans @ self._share
        return itself

    @cached_property
    def _holders_of(self) -> Any:
        return self.spans.T.tocsr()

    @cached_property
    def _share(self) -> NDArray[np.float64]:
        """What each span passes on to each of its holders."""
        import numpy as np

        holders = np.asarray(self.spans.sum(axis=0)).ravel()
        share: NDArray[np.float64] = np.zeros(len(holders))
        np.divide(SPAN_WEIGHT, holders, where=holders > 0, out=share)
        return share

    def save(self, folder: Path) -> None:
        """Write the two matrices into an existing folder."""
        from scipy import sparse

        sparse.save_npz(folder / "links-titles.npz", self.titles)
        sparse.save_npz(folder / "links-spans.npz", self.spans)

    @classmethod
    def load(cls, folder: Path) -> LinkGraph:
        """Open saved links."""
        from scipy import sparse

        return cls(
            sparse.load_npz(folder / "links-titles.npz"),
            sparse.load_npz(folder / "links-spans.npz"),
        )


def _mentions(row: int, passage: Passage, table: TitleTable) -> list[tuple[int, int, float]]:
    """The links of one passage to what it mentions; an ambiguous alias shares its weight."""
    links: list[tuple[int, int, float]] = []
    for alias in dict.fromkeys(mentioned(words(passage.text), table.rows_of)):
        targets = [target for target in table.rows_of[alias] if target != row]
        links.extend((row, target, 1 / len(targets)) for target in targets)
    return links


def _incidence(found: Sequence[frozenset[str]]) -> Any:
    counts = Counter(span for held in found for span in held)
    rare = sorted(span for span, count in counts.items() if FEWEST <= count <= MOST)
    column = {span: number for number, span in enumerate(rare)}
    cells = [
        (row, column[span], 1.0)
        for row, held in enumerate(found)
        for span in sorted(held)
        if span in column
    ]
    return _matrix(cells, (len(found), len(rare)))


def _matrix(cells: Sequence[tuple[int, int, float]], shape: tuple[int, int]) -> Any:
    import numpy as np
    from scipy import sparse

    rows, columns, values = zip(*cells, strict=True) if cells else ((), (), ())
    return sparse.csr_matrix(
        (np.asarray(values, dtype=np.float64), (np.asarray(rows, dtype=np.int32), columns)),
        shape=shape,
    )
