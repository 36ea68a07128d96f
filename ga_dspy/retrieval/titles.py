"""Which passages a text names: a table from title aliases to rows."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from ga_dspy.retrieval.names import aliases, mentioned, words

if TYPE_CHECKING:
    from ga_dspy.passage import Passage

MOST_TARGETS = 12
"""An alias of more passages than this names none of them."""


class TitleTable:
    """Title aliases and the rows each may mean."""

    def __init__(self, rows_of: Mapping[str, tuple[int, ...]]) -> None:
        self.rows_of = rows_of

    @classmethod
    def build(cls, passages: Iterable[Passage]) -> TitleTable:
        """Collect the aliases of every passage; row i is the i-th passage.

        Aliases with more than `MOST_TARGETS` targets are dropped.
        """
        found: dict[str, list[int]] = {}
        for row, passage in enumerate(passages):
            for alias in sorted(aliases(passage.title, passage.text)):
                found.setdefault(alias, []).append(row)
        return cls({a: tuple(r) for a, r in found.items() if len(r) <= MOST_TARGETS})

    def named_in(self, text: str) -> dict[str, tuple[int, ...]]:
        """Return the aliases that stand in a text, in order, with the rows each may mean."""
        return {alias: self.rows_of[alias] for alias in mentioned(words(text), self.rows_of)}

    def save(self, path: Path) -> None:
        """Write the table as JSON."""
        path.write_text(json.dumps(self.rows_of, ensure_ascii=False), encoding="utf-8")

    @classmethod
    def load(cls, path: Path) -> TitleTable:
        """Read a saved table."""
        saved = json.loads(path.read_text(encoding="utf-8"))
        return cls({alias: tuple(rows) for alias, rows in saved.items()})
