"""What a copy must hold: derivable answers stay derivable, old names do not show."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from ga_dspy.eval.files import DatasetName
from ga_dspy.eval.renaming.fields import (
    Role,
    Row,
    accepted,
    gold_titles,
    identity,
    paragraphs,
    texts,
)
from ga_dspy.eval.renaming.text import Token, key, tokens
from ga_dspy.eval.renaming.words import CALENDAR, FUNCTION, NUMBERS
from ga_dspy.eval.scores import normalise

_CLOSED = frozenset(("yes", "no"))
_READ: tuple[Role, ...] = ("question", "text")


def derivable(row: Row, dataset: DatasetName) -> tuple[bool, ...]:
    """For each accepted answer: is it yes or no, or do the paragraphs to read hold it?

    To read are the gold paragraphs where the context has all of them, else all paragraphs.
    Answers and paragraphs are normalised as the official scores do, and whole words count.
    """
    context = paragraphs(row, dataset)
    gold = [part for part in context if part.gold]
    complete = gold_titles(row, dataset) <= {part.title for part in gold}
    read = [f" {normalise(part.content)} " for part in (gold if gold and complete else context)]
    return tuple(_is_held(normalise(answer), read) for answer in accepted(row))


def _is_held(answer: str, read: Iterable[str]) -> bool:
    return answer in _CLOSED or bool(answer and any(f" {answer} " in text for text in read))


def lost_answers(
    rows: Sequence[Row], copies: Sequence[Row], dataset: DatasetName
) -> dict[str, tuple[str, ...]]:
    """By row id, the accepted answers that were derivable and are not in the copy."""
    lost: dict[str, tuple[str, ...]] = {}
    for position, (row, copy) in enumerate(zip(rows, copies, strict=True), start=1):
        before, after = derivable(row, dataset), derivable(copy, dataset)
        answers = accepted(row)
        gone = tuple(a for a, was, is_ in zip(answers, before, after, strict=True) if was > is_)
        if gone:
            lost[identity(row, position)] = gone
    return lost


def share_derivable(rows: Sequence[Row], dataset: DatasetName) -> float:
    """The share of rows with at least one derivable answer, from 0 to 1."""
    return sum(any(derivable(row, dataset)) for row in rows) / len(rows)


def unchanged_answers(rows: Sequence[Row], copies: Sequence[Row]) -> dict[str, int]:
    """How many gold answers stay as they are, by reason."""
    reasons: Counter[str] = Counter()
    for row, copy in zip(rows, copies, strict=True):
        before, after = accepted(row)[:1], accepted(copy)[:1]
        if before and before == after:
            reasons[_reason(before[0])] += 1
    return dict(sorted(reasons.items()))


def _reason(answer: str) -> str:
    words = key(answer)
    if normalise(answer) in _CLOSED:
        return "yes/no"
    if any(c.isdigit() for c in answer) or any(word in NUMBERS | CALENDAR for word in words):
        return "date or number"
    return "common words"


def rows_with_leaks(
    copies: Iterable[Row], names: Iterable[tuple[str, ...]], surnames: frozenset[str]
) -> tuple[int, ...]:
    """Positions (from 0) of rows whose question or context still holds a renamed name.

    Args:
        copies: The renamed rows.
        names: Folded words of the names of several words that were renamed.
        surnames: Folded surnames that were renamed wherever they are capitalised.
    """
    by_first: dict[str, set[tuple[str, ...]]] = {}
    for name in names:
        by_first.setdefault(name[0], set()).add(name)
    return tuple(
        position
        for position, row in enumerate(copies)
        if any(
            _shows(tokens(text), by_first, surnames) for role, text in texts(row) if role in _READ
        )
    )


def _shows(
    there: Sequence[Token], by_first: dict[str, set[tuple[str, ...]]], surnames: frozenset[str]
) -> bool:
    folded = tuple(token.folded for token in there)
    for place, token in enumerate(there):
        if not token.capitalised:
            continue
        if token.folded in surnames:
            return True
        for name in by_first.get(token.folded, ()):
            window = there[place : place + len(name)]
            if folded[place : place + len(name)] == name and all(
                word.capitalised or word.folded in FUNCTION for word in window
            ):
                return True
    return False
