"""How rare a word is: a small background table of rounded inverse document frequencies."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable, Mapping
from functools import lru_cache
from importlib import resources
from typing import NamedTuple

from ga_dspy.lm.text import parse


class Idf(NamedTuple):
    """Rarity by stem, natural logarithm of documents over documents with the word.

    A stem that the table lacks is as rare as the rarest.
    """

    table: Mapping[str, float]
    unknown: float

    def __call__(self, stem: str) -> float:
        """The rarity of one stem; 0 for the empty stem of stopwords and marks."""
        return self.table.get(stem, self.unknown) if stem else 0.0


def count(texts: Iterable[str], *, at_least: int = 4) -> Idf:
    """Make the table from texts, one decimal, without stems in fewer than `at_least` of them."""
    total, df = 0, Counter[str]()
    for text in texts:
        total += 1
        df.update({s for s in parse(text).stems if s})
    kept = {s: round(math.log(total / n), 1) for s, n in sorted(df.items()) if n >= at_least}
    return Idf(kept, round(math.log(max(total, 1)), 1))


def dumps(idf: Idf) -> str:
    """The table as JSON text, stems grouped by rarity so that it stays small."""
    groups: dict[str, list[str]] = {}
    for stem, value in idf.table.items():
        groups.setdefault(str(value), []).append(stem)
    listed = {value: " ".join(groups[value]) for value in sorted(groups, key=float)}
    return json.dumps({"unknown": idf.unknown, "stems": listed}, ensure_ascii=False, indent=0)


def loads(text: str) -> Idf:
    """The table that `dumps` wrote."""
    data = json.loads(text)
    table = {s: float(value) for value, stems in data["stems"].items() for s in stems.split()}
    return Idf(table, float(data["unknown"]))


@lru_cache(maxsize=1)
def shipped() -> Idf:
    """The table in the package."""
    return loads((resources.files("ga_dspy") / "lm" / "weights" / "idf.json").read_text("utf-8"))
