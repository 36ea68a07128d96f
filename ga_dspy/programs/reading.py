"""The passages of one question and their labels, the queries tried, and what fits a prompt."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from ga_dspy.passage import Passage
from ga_dspy.retrieval.protocol import content_hash
from ga_dspy.signatures import prompt
from ga_dspy.text import TokenCounter, cached_short, fold, sentences, words

Labelled = Mapping[int, Passage]
"""Passages by the numbers under which an LM reads and cites them."""


class Tried(NamedTuple):
    """A query, what it returned, and what was added to the index.

    Attributes:
        query: What was searched.
        labels: Of the passages it returned.
        fresh: Of those among them that were new.
        made: Whether the program made the query, not the LM.
        gained: What was added to the index, in words.
    """

    query: str
    labels: tuple[int, ...]
    fresh: tuple[int, ...]
    made: bool = False
    gained: str = ""


class Reading:
    """Passages in first-seen order, each with a permanent label from 1, and the queries tried.

    Attributes:
        passages: The passages by label.
        labels: The label of each passage id.
        tried: The queries, in order.
    """

    def __init__(self) -> None:
        self.passages, self.tried = dict[int, Passage](), list[Tried]()
        self.labels, self._by_content = dict[str, int](), dict[str, int]()

    def add(
        self, query: str, found: Iterable[Passage], *, made: bool = False
    ) -> dict[int, Passage]:
        """Record what a query returned; return the passages that are new.

        Passages are compared by content, not by id. If an id has other content already, as in a
        store whose documents change, the hash of the content is appended to it.
        """
        labels: list[int] = []
        fresh: dict[int, Passage] = {}
        for passage in found:
            content = _folded(passage.content)
            label = self._by_content.setdefault(content, len(self.passages) + 1)
            if label not in self.passages:
                id = passage.id
                if id in self.labels:
                    id = f"{id}#{content_hash(passage.title, passage.text)[:8]}"
                    passage = passage.model_copy(update={"id": id})
                self.labels[id] = label
                self.passages[label] = fresh[label] = passage
            labels.append(label)
        self.tried.append(Tried(query, tuple(dict.fromkeys(labels)), tuple(fresh), made))
        return fresh

    def note_gain(self, gained: str) -> None:
        """Record what the last query added to the index."""
        self.tried[-1] = self.tried[-1]._replace(gained=gained)

    def was_tried(self, query: str) -> bool:
        """Whether the same words, ignoring case and punctuation, were searched before."""
        sought = [word.folded for word in words(query)]
        return any(sought == [word.folded for word in words(t.query)] for t in self.tried)

    def render_tried(self, below: Collection[int] = ()) -> str:
        """Return the queries and what they returned, as the judge reads them.

        Args:
            below: Labels of the passages in the prompt; the others are listed with their titles.
        """
        lines = []
        for number, tried in enumerate(self.tried, 1):
            titles = []
            for n in tried.fresh:
                title = "" if n in below else f" {prompt.title_of(self.passages[n])}"
                titles.append(f"[{n}]{title}")
            brought = ", ".join(titles) or "nothing new"
            mark = "(made from the graph) " if tried.made else ""
            gained = f"; {tried.gained}" if tried.gained and tried.fresh else ""
            lines.append(f"{number}. {' '.join(tried.query.split())} => {mark}{brought}{gained}")
        return "\n".join(lines) or prompt.EMPTY


_folded = cached_short(maxsize=256, max_length=4000)(fold)


class PromptPassages(NamedTuple):
    """Passages as rendered in a prompt, and the labels of those without room."""

    text: str
    left_out: tuple[int, ...]


def fit_passages(
    passages: Labelled,
    budget: int,
    count: TokenCounter,
    first: Sequence[int] = (),
    titled: Labelled | None = None,
) -> PromptPassages:
    """Render passages within a token budget, in label order.

    A passage that does not fit is cut after a sentence, or after a word if no sentence fits; a
    passage without any room is left out.

    Args:
        passages: The passages to render.
        budget: The most tokens.
        count: Counts the tokens of a text.
        first: Labels that get room before the others.
        titled: Passages of which the title is enough; they count as left out.
    """
    names = "; ".join(f"[{n}] {prompt.title_of(p)}" for n, p in (titled or {}).items())
    tail = f"\n\nRead as well, by title: {names}" if names else ""
    chosen: dict[int, Passage] = {}
    room = budget - count(tail)
    for label in dict.fromkeys([*(n for n in first if n in passages), *passages]):
        whole = passages[label]
        cost = room + 1 if len(whole.text) > room * _LONGEST_TOKEN else _cost(label, whole, count)
        shown = whole if cost <= room else _cut(label, whole, room, count)
        if shown is not None and room >= _FEWEST:
            chosen[label] = shown
            room -= cost if shown is whole else _cost(label, shown, count)
    left_out = [label for label in passages if label not in chosen]
    text = prompt.render_passages(sorted(chosen.items())) + tail
    return PromptPassages(text, tuple(sorted((*left_out, *(titled or ())))))


def _cost(label: int, passage: Passage, count: TokenCounter) -> int:
    """Tokens of a passage in a prompt, with the blank line before the next."""
    return count(f"{prompt.render_passage(label, passage)}\n\n")


def shorten(
    inputs: Mapping[str, Any], budget: int, now: int, count: TokenCounter
) -> dict[str, Any]:
    """Return the inputs of a prompt cut to a token budget, keeping what is nearest to the question.

    Short texts stay whole. Of the others, passages are cut last, and at least a fifth of each
    stays.

    Args:
        inputs: The inputs by name; the passages are called `passages`.
        budget: About how many tokens the prompt may have.
        now: How many it has now.
        count: Counts the tokens of a text.
    """
    costs = {name: count(value) for name, value in inputs.items() if isinstance(value, str)}
    wanted = {word.folded for name in costs if costs[name] < _SHORT for word in words(inputs[name])}
    over, shortened = now - budget, dict(inputs)
    for name in sorted(costs, key=lambda name: (name == "passages", -costs[name])):
        if over > 0 and costs[name] >= _SHORT:
            room = max(costs[name] - over, costs[name] // 5)
            shortened[name] = _nearest(inputs[name], room, wanted, count)
            over -= costs[name] - count(shortened[name])
    return shortened


def _nearest(text: str, room: int, wanted: set[str], count: TokenCounter) -> str:
    """The blocks of a text, or its lines, with the most `wanted` words, in order."""
    separator = "\n\n" if "\n\n" in text else "\n"
    parts = text.split(separator)
    near = [len(wanted & {word.folded for word in words(part)}) for part in parts]
    kept = set[int]()
    for place in sorted(range(len(parts)), key=lambda place: -near[place]):
        if (cost := count(parts[place])) <= room or not kept:
            parts[place] = parts[place][: max(room, 0) * len(parts[place]) // max(cost, room, 1)]
            kept.add(place)
            room -= cost
    return separator.join(parts[place] for place in sorted(kept))


_SHORT = 60
"""Texts of fewer tokens, such as the question, are never cut."""
_LONGEST_TOKEN = 20
"""Characters per token at most, so that text beyond cannot fit."""
_FEWEST = 20
"""The fewest tokens of a passage that are worth showing."""


def _cut(label: int, passage: Passage, room: int, count: TokenCounter) -> Passage | None:
    """The longest part of a passage that fits, in sentences or words, or None.

    A binary search, since counting tokens is slow.
    """
    if room < _FEWEST:
        return None
    text = passage.text[: room * _LONGEST_TOKEN]

    def cost(end: int) -> int:
        return _cost(label, passage.model_copy(update={"text": text[:end]}), count)

    ends = [end for _, end in sentences(text)][:-1]
    fitting = bisect_right(ends, room, key=cost)
    end = ends[fitting - 1] if fitting else 0
    if not end:
        spaces = [i for i, char in enumerate(text) if char.isspace()] or range(1, len(text))
        fitting = bisect_right(spaces, room, key=cost)
        end = spaces[fitting - 1] if fitting else 0
    return passage.model_copy(update={"text": text[:end]}) if text[:end].strip() else None
