"""Gaps of a graph: questions of which it knows nothing that they name."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any, Final

from pydantic import ValidationError

from ga_dspy.errors import InputError
from ga_dspy.graph.records import Value
from ga_dspy.graphrag.access import Access

GAPS: Final = "gaps.jsonl"


class Gap(Value):
    """A question that the graph could not be entered with.

    Nothing in it comes from the graph or the corpus: it tells what was asked, not what is known.

    Attributes:
        question: The question as it was asked.
        mentions: The names in it that no thing of the graph goes by.
        labels: The labels of the caller, who may have named something that others may not see.
    """

    question: str
    mentions: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()


class GapLog:
    """Gaps in `gaps.jsonl` of a folder, each once; safe to use from several threads.

    Each gap is written as one line in one piece, so that several processes may share a file;
    each of them leaves out what stood there when it first wrote.

    Args:
        folder: Where to write; made with the first gap.
    """

    def __init__(self, folder: Path | str) -> None:
        self.path = Path(folder) / GAPS
        self._known: set[Gap] | None = None
        self._lock = threading.Lock()

    def __deepcopy__(self, memo: dict[int, Any]) -> GapLog:
        """Return itself: copies of a program write to one log."""
        return self

    def note(self, question: str, mentions: tuple[str, ...], access: Access) -> None:
        """Write a gap down, unless the same one was."""
        gap = Gap(question=question, mentions=mentions, labels=tuple(sorted(access.labels)))
        with self._lock:
            known = set(read_gaps(self.path)) if self._known is None else self._known
            self._known = known
            if gap not in known:
                self._append(gap)
                known.add(gap)

    def _append(self, gap: Gap) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        line = json.dumps(gap.model_dump(mode="json"), ensure_ascii=False)
        with self.path.open("a", encoding="utf-8") as file:
            file.write(f"{line}\n")


def read_gaps(path: Path) -> tuple[Gap, ...]:
    """The gaps in a file, or in `gaps.jsonl` of a folder; none where there is no such file.

    Raises:
        InputError: A line is no gap.
    """
    file = path / GAPS if path.is_dir() else path
    if not file.exists():
        return ()
    gaps = []
    for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1):
        try:
            gaps.append(Gap.model_validate_json(line))
        except ValidationError as error:
            raise InputError(
                f"line {number} of {file} is no gap",
                expected="lines that a program with gaps=… wrote",
                remedy="take the line out, or name another folder",
            ) from error
    return tuple(gaps)
