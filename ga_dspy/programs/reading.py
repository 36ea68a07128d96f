"""The passages and queries of one question, and the passages that fit in a prompt."""

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


class SearchRecord(NamedTuple):
    """A query that was searched, and its result.

    Attributes:
        query: The query.
        labels: Labels of the passages it returned.
        fresh: Labels of those that were new.
        made: Whether the program made the query, not the LM.
        gained: What the result added to the index, in words.
    """

    query: str
    labels: tuple[int, ...]
    fresh: tuple[int, ...]
    made: bool = False
    gained: str = ""


class Reading:
    """The passages of a question, labelled from 1 in the order found, and the queries tried.

    Attributes:
        passages: The passages by label.
        labels: The label of each passage id.
        tried: The queries, in order.
    """

    def __init__(self) -> None:
        self.passages, self.tried = dict[int, Passage](), list[SearchRecord]()
        self.labels, self._by_content = dict[str, int](), dict[str, int]()

    def add(
        self, query: str, found: Iterable[Passage], *, made: bool = False
    ) -> dict[int, Passage]:
        """Record what a query returned; return the passages that are new.

        Passages are compared by content, not by id. If the id of a new passage is taken, as in a
        store whose documents change, the hash of its content is appended to the id.
        """
        labels: list[int] = []
        fresh: dict[int, Passage] = {}
        for passage in found:
            content = _folded(passage.content)
            label = self._by_content.setdefault(content, len(self.passages) + 1)
            if label not in self.passages:
                if passage.id in self.labels:
                    digest = content_hash(passage.title, passage.text)[:8]
                    passage = passage.model_copy(update={"id": f"{passage.id}#{digest}"})
                self.labels[passage.id] = label
                self.passages[label] = fresh[label] = passage
            labels.append(label)
        self.tried.append(SearchRecord(query, tuple(dict.fromkeys(labels)), tuple(fresh), made))
        return fresh

    def note_gain(self, gained: str) -> None:
        """Record what the last query added to the index."""
        self.tried[-1] = self.tried[-1]._replace(gained=gained)

    def was_tried(self, query: str) -> bool:
        """Return whether the same words, ignoring case and punctuation, were searched before."""
        return any(_folded_words(query) == _folded_words(tried.query) for tried in self.tried)

    def render_tried(self, below: Collection[int] = ()) -> str:
        """Return the queries and what they returned, as the judge reads them.

        Args:
            below: Labels of the passages in the prompt; the others are listed with their titles.
        """
        lines = []
        for number, tried in enumerate(self.tried, 1):
            titles = []
            for label in tried.fresh:
                title = "" if label in below else f" {prompt.title_of(self.passages[label])}"
                titles.append(f"[{label}]{title}")
            result = ", ".join(titles) or "nothing new"
            mark = "(made from the graph) " if tried.made else ""
            gained = f"; {tried.gained}" if tried.gained and tried.fresh else ""
            lines.append(f"{number}. {' '.join(tried.query.split())} => {mark}{result}{gained}")
        return "\n".join(lines) or prompt.EMPTY


_folded = cached_short(maxsize=256, max_length=4000)(fold)


def _folded_words(text: str) -> list[str]:
    return [word.folded for word in words(text)]


# --- Fitting passages and inputs into a prompt.


class PromptPassages(NamedTuple):
    """Passages rendered for a prompt, and the labels of those that did not fit."""

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

    A passage that does not fit is cut after a sentence, or after a word if no sentence fits; if
    not even a word fits, it is left out.

    Args:
        passages: The passages to render.
        budget: The maximum number of tokens.
        count: Counts the tokens of a text.
        first: Labels of passages that get room before the others.
        titled: Passages of which only the titles are shown; they count as left out.
    """
    titled = titled or {}
    titles = "; ".join(f"[{label}] {prompt.title_of(p)}" for label, p in titled.items())
    tail = f"\n\nRead as well, by title: {titles}" if titles else ""
    chosen: dict[int, Passage] = {}
    room = budget - count(tail)
    preferred = [label for label in first if label in passages]
    for label in dict.fromkeys([*preferred, *passages]):
        if room < _FEWEST:
            break
        whole = passages[label]
        is_longer = len(whole.text) > room * _LONGEST_TOKEN
        cost = room + 1 if is_longer else _cost(label, whole, count)
        shown = whole if cost <= room else _cut(label, whole, room, count)
        if shown is not None:
            chosen[label] = shown
            room -= cost if shown is whole else _cost(label, shown, count)
    left_out = [label for label in passages if label not in chosen]
    text = prompt.render_passages(sorted(chosen.items())) + tail
    return PromptPassages(text, tuple(sorted((*left_out, *titled))))


def _cost(label: int, passage: Passage, count: TokenCounter) -> int:
    """Return the tokens of a passage in a prompt, with the blank line after it."""
    return count(f"{prompt.render_passage(label, passage)}\n\n")


def shorten(
    inputs: Mapping[str, Any], budget: int, now: int, count: TokenCounter
) -> dict[str, Any]:
    """Return the inputs of a prompt cut to a token budget, keeping the parts nearest the question.

    Short texts, such as the question, stay whole. Of the others, passages are cut last, and at
    least a fifth of each stays.

    Args:
        inputs: The inputs by name; the passages are called `passages`.
        budget: The approximate number of tokens that the prompt may have.
        now: The number that it has now.
        count: Counts the tokens of a text.
    """
    costs = {name: count(value) for name, value in inputs.items() if isinstance(value, str)}
    short = [inputs[name] for name, cost in costs.items() if cost < _SHORT]
    wanted = {word for text in short for word in _folded_words(text)}
    over, shortened = now - budget, dict(inputs)
    for name in sorted(costs, key=lambda name: (name == "passages", -costs[name])):
        if over > 0 and costs[name] >= _SHORT:
            room = max(costs[name] - over, costs[name] // 5)
            shortened[name] = _nearest(inputs[name], room, wanted, count)
            over -= costs[name] - count(shortened[name])
    return shortened


def _nearest(text: str, room: int, wanted: set[str], count: TokenCounter) -> str:
    """Return the blocks of a text, or its lines, with the most `wanted` words, in order."""
    separator = "\n\n" if "\n\n" in text else "\n"
    parts = text.split(separator)
    scores = [len(wanted.intersection(_folded_words(part))) for part in parts]
    kept = set[int]()
    for n in sorted(range(len(parts)), key=lambda n: -scores[n]):
        if (cost := count(parts[n])) <= room or not kept:
            parts[n] = parts[n][: max(room, 0) * len(parts[n]) // max(cost, room, 1)]
            kept.add(n)
            room -= cost
    return separator.join(parts[n] for n in sorted(kept))


_SHORT = 60
"""Texts of fewer tokens are never cut."""
_LONGEST_TOKEN = 20
"""The maximum characters per token: text beyond the budget times this cannot fit."""
_FEWEST = 20
"""A passage is left out rather than cut to fewer tokens."""


def _cut(label: int, passage: Passage, room: int, count: TokenCounter) -> Passage | None:
    """Return the longest start of a passage that fits, in sentences or else words; None if none.

    It is found by binary search, since counting tokens is slow.
    """
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
