"""What has been read for one question: passages with labels that never change, queries tried."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from ga_dspy.mentions import fold, sentences, words
from ga_dspy.passage import Passage
from ga_dspy.signatures.prompt import EMPTY, render_passage, render_passages
from ga_dspy.tokens import TokenCounter


class Tried(NamedTuple):
    """A query, the labels of the passages it returned, how many were new, what the index gained."""

    query: str
    labels: tuple[int, ...]
    fresh: int
    gained: str = ""

    def __str__(self) -> str:
        """One line of a prompt."""
        if not self.fresh:
            return f"{self.query} => nothing new"
        numbers = ",".join(map(str, self.labels))
        return f"{self.query} => passages {numbers}" + (f"; {self.gained}" if self.gained else "")


class Reading:
    """Passages in first-seen order, each with a label from 1 that stays, and the queries tried."""

    def __init__(self) -> None:
        self.passages: dict[int, Passage] = {}
        self.tried: list[Tried] = []
        self._labels: dict[str, int] = {}
        self._texts: dict[str, str] = {}

    @property
    def labels(self) -> Mapping[str, int]:
        """The label of each passage id."""
        return self._labels

    def take(self, query: str, found: Iterable[Passage]) -> dict[int, Passage]:
        """Note what a query brought and give the passages among it that are new.

        A passage is known by its id, or by its content under another id.
        """
        labels: list[int] = []
        fresh: dict[int, Passage] = {}
        for passage in found:
            first_id = self._texts.setdefault(fold(passage.content), passage.id)
            if first_id not in self._labels:
                label = len(self.passages) + 1
                self._labels[first_id] = label
                self.passages[label] = fresh[label] = passage
            labels.append(self._labels[first_id])
        self.tried.append(Tried(query, tuple(dict.fromkeys(labels)), len(fresh)))
        return fresh

    def note_gain(self, gained: str) -> None:
        """Note what the index gained by the last query that brought something."""
        for i in reversed(range(len(self.tried))):
            if self.tried[i].fresh:
                self.tried[i] = self.tried[i]._replace(gained=gained)
                return

    def was_tried(self, query: str) -> bool:
        """Whether the same words, in whichever case and punctuation, were searched before."""
        sought = [word.folded for word in words(query)]
        return any(sought == [word.folded for word in words(t.query)] for t in self.tried)

    def render_tried(self) -> str:
        """The queries as the judge reads them."""
        return "\n".join(f"{i}. {tried}" for i, tried in enumerate(self.tried, 1)) or EMPTY


class Shown(NamedTuple):
    """Passages as they stand in a prompt, and the labels that the budget left out."""

    text: str
    left_out: tuple[int, ...]


def fit(
    passages: Mapping[int, Passage],
    budget: int,
    count: TokenCounter,
    first: Sequence[int] = (),
) -> Shown:
    """Render passages within a token budget, in label order.

    The labels in `first` are served before the others. A passage that does not fit whole is cut
    at a sentence; one of which not even a sentence fits is left out.
    """
    chosen: dict[int, Passage] = {}
    left_out: list[int] = []
    room = budget
    for label in dict.fromkeys([*(n for n in first if n in passages), *passages]):
        fitted = _cut(label, passages[label], room, count)
        if fitted is None:
            left_out.append(label)
            continue
        chosen[label] = fitted
        room -= count(render_passage(label, fitted))
    return Shown(render_passages(sorted(chosen.items())), tuple(sorted(left_out)))


def _cut(label: int, passage: Passage, room: int, count: TokenCounter) -> Passage | None:
    if count(render_passage(label, passage)) <= room:
        return passage
    for _, end in reversed(sentences(passage.text)[:-1]):
        shorter = passage.model_copy(update={"text": passage.text[:end]})
        if count(render_passage(label, shorter)) <= room:
            return shorter
    return None
