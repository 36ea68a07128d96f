"""How many true lines grounding keeps, and how many false ones it refuses."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from typing import NamedTuple

from pydantic import BaseModel

from ga_dspy.errors import InputError
from ga_dspy.graph import parse
from ga_dspy.grounding import ground
from ga_dspy.passage import Passage

UNCHECKED = "relation"
"""Faults that begin so are of the wording or direction of a relation: grounding checks its ends."""


class Checked(NamedTuple):
    """A labelled relation line, and what grounding made of it.

    Attributes:
        line: "head -> relation -> tail".
        holds: Whether its passages state it.
        kind: How a true line is worded, or what is wrong with a false one.
        kept: Whether it was kept.
        reason: Why not.
    """

    line: str
    holds: bool
    kind: str
    kept: bool
    reason: str = ""

    @property
    def is_right(self) -> bool:
        """Whether it was kept and holds, or neither."""
        return self.holds == self.kept


class Rate(NamedTuple):
    """Of the lines of one kind, how many were wrongly dropped (true ones) or kept (false ones)."""

    kind: str
    holds: bool
    wrong: int
    lines: int

    @property
    def share(self) -> float:
        """The wrong ones in %."""
        return 100 * self.wrong / self.lines if self.lines else 0.0


class _Text(BaseModel):
    title: str = ""
    text: str


class _Row(BaseModel):
    line: str
    holds: bool
    passages: list[_Text]
    wording: str | None = None
    fault: str | None = None


def check_lines(path: Path) -> list[Checked]:
    """Ground each line of a JSONL file: `line`, `passages`, `holds`, and `wording` or `fault`.

    Raises:
        InputError: The file is missing or empty, or a row has not these fields.
    """
    try:
        # Not splitlines: U+2028 and its like occur inside JSON strings.
        lines = path.read_text("utf-8").split("\n")
        rows = [_Row.model_validate_json(line) for line in lines if line.strip()]
    except (OSError, ValueError) as error:
        raise InputError(
            f"{path}: {' '.join(str(error).split())[:200]}",
            expected="a JSON object a line with line, holds, passages, and wording or fault",
            remedy="pass a file of labelled lines",
        ) from None
    if not rows:
        raise InputError(f"{path} is empty", expected="labelled lines", remedy="pass another file")
    return [_check(row) for row in rows]


def _check(row: _Row) -> Checked:
    passages = {
        label: Passage(id=str(label), title=each.title, text=each.text)
        for label, each in enumerate(row.passages, start=1)
    }
    cited = "".join(f"[{label}]" for label in passages)
    grounding = ground(parse(f"Relations:\n1. {row.line} {cited}"), passages)
    kind = (row.wording if row.holds else row.fault) or "other"
    reason = "; ".join(dropped.reason for dropped in grounding.dropped)
    return Checked(row.line, row.holds, kind, bool(grounding.update.relations), reason)


def rates(checked: Iterable[Checked]) -> list[Rate]:
    """One rate a kind; then one of all false lines but those whose fault is never checked."""
    lines = sorted(checked, key=lambda line: (not line.holds, line.kind))
    found = []
    for (holds, kind), group in groupby(lines, attrgetter("holds", "kind")):
        same = list(group)
        found.append(Rate(kind, holds, sum(not line.is_right for line in same), len(same)))
    false = [rate for rate in found if not rate.holds and not rate.kind.startswith(UNCHECKED)]
    wrong, count = sum(rate.wrong for rate in false), sum(rate.lines for rate in false)
    return [*found, Rate(f"all but {UNCHECKED}s", False, wrong, count)] if false else found


if __name__ == "__main__":  # python tests/labelled_lines.py FILE
    for rate in rates(check_lines(Path(sys.argv[1]))):
        what = f"{'true, dropped' if rate.holds else 'false, accepted'}: {rate.kind}"
        print(f"{what:40}{rate.wrong:4} of {rate.lines:4}{rate.share:7.1f} %")
