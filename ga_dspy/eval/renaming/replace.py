"""Applying a plan to one text."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from ga_dspy.eval.renaming.fields import Role, Row, rewritten, texts
from ga_dspy.eval.renaming.names import bare
from ga_dspy.eval.renaming.plan import Phrase, Plan
from ga_dspy.eval.renaming.text import QUOTES, Token, cased_like, key, tokens

_NAMING: tuple[Role, ...] = ("title", "answer")
_ANY_CASE: tuple[Role, ...] = ("question", "answer")
_NARROW = re.compile(r"[\s,:;.'’\"“”–—/&!?()`-]{1,4}")
_INITIAL_GAP = re.compile(r"\. ?| ")
_NEEDS_DOT = frozenset("AIVX")
_VERBS = frozenset(
    (
        "is was are were has had have did does also and would could later became began made "
        "moved went then who which wrote won died grew met left took founded"
    ).split()
)


class Scope(NamedTuple):
    """Where a text stands: its role, and what its row names.

    `alone` are the common words that stand for a name in this row, `present` the phrases that
    its contexts and titles hold; a question may have these in lower case.
    """

    role: Role
    alone: frozenset[str] = frozenset()
    present: frozenset[Phrase] = frozenset()


def rename_row(row: Row, plan: Plan) -> dict[str, object]:
    """The row with all its texts renamed."""
    present = _present(row, plan)
    alone = frozenset(word for phrase in present for word in phrase.alone)
    return rewritten(row, lambda role, text: rename_text(text, plan, Scope(role, alone, present)))


def _present(row: Row, plan: Plan) -> frozenset[Phrase]:
    found: set[Phrase] = set()
    for role, text in texts(row):
        there, scope = tokens(text), Scope(role)
        at = (_phrase_at(there, start, plan, scope) for start in range(len(there)))
        found.update(phrase for phrase in at if phrase)
        whole = key(bare(text)) if role in _NAMING else ()
        if len(whole) == 1 and whole[0] in plan.single:
            found.add(plan.single[whole[0]])
    return frozenset(found)


def rename_text(text: str, plan: Plan, scope: Scope) -> str:
    """The text with every name in it replaced."""
    there = tokens(text)
    new: list[str | None] = [None] * len(there)
    place = 0
    while place < len(there):
        phrase = _phrase_at(there, place, plan, scope)
        size = len(phrase.words) if phrase else 1
        for offset in range(size):
            token = there[place + offset]
            if (
                phrase
                and offset in phrase.targets
                and not _stays_whole(there, place + offset, plan)
            ):
                new[place + offset] = cased_like(plan.new[token.folded], token.text)
            else:
                new[place + offset] = _word(there, place + offset, plan, scope)
        place += size
    _rename_initials(there, new, plan)
    return _joined(text, there, new)


def _phrase_at(there: Sequence[Token], start: int, plan: Plan, scope: Scope) -> Phrase | None:
    first_two = tuple(token.folded for token in there[start : start + 2])
    for phrase in plan.phrases.get(first_two, ()):
        if len(phrase.words) <= len(there) - start and _stands(there, start, phrase, scope):
            return phrase
    return None


def _stands(there: Sequence[Token], start: int, phrase: Phrase, scope: Scope) -> bool:
    window = there[start : start + len(phrase.words)]
    if any(token.folded != word for token, word in zip(window, phrase.words, strict=True)):
        return False
    if not all(_NARROW.fullmatch(token.gap) for token in window[1:]):
        return False
    capital = {place for place, token in enumerate(window) if token.capitalised}
    if scope.role != "text" and phrase in scope.present:
        return scope.role == "question" or min(phrase.targets) in capital
    return bool(capital) and all(
        place in capital or place in phrase.small or window[place].gap.strip() == "-"
        for place in phrase.targets
    )


def _word(there: Sequence[Token], place: int, plan: Plan, scope: Scope) -> str | None:
    token = there[place]
    joined = place > 0 and token.gap == "-" and there[place - 1].capitalised
    any_case = scope.role in _ANY_CASE and not joined
    if token.acronym in plan.acronyms:
        return _dotted(plan.acronyms[token.acronym], token.text)
    if _is_negated(there, place):
        return None
    if token.folded in plan.everywhere and (
        token.capitalised or (any_case and token.folded in plan.caseless)
    ):
        return cased_like(plan.new[token.folded], token.text)
    if token.folded in scope.alone and _names_alone(there, place, scope.role):
        return cased_like(plan.new[token.folded], token.text)
    return None


def _stays_whole(there: Sequence[Token], place: int, plan: Plan) -> bool:
    """Whether a token is no target, whatever the phrase: an acronym, or half of "Don't"."""
    return there[place].acronym in plan.acronyms or _is_negated(there, place)


def _is_negated(there: Sequence[Token], place: int) -> bool:
    """Whether the word is the first half of "Don't"."""
    after = there[place + 1] if place + 1 < len(there) else None
    return after is not None and after.folded == "t" and after.gap in ("'", "’")


def _names_alone(there: Sequence[Token], place: int, role: Role) -> bool:
    token = there[place]
    if not token.capitalised or role in _NAMING:
        return token.capitalised
    after = there[place + 1] if place + 1 < len(there) else None
    if token.inner:
        return there[place - 1].folded != "the"
    if after is None:
        return True
    quoted = token.gap[-1:] in QUOTES and after.gap[:1] in QUOTES
    owner = after.gap in ("'", "’") and after.folded == "s"
    return quoted or owner or after.gap == " (" or after.folded in _VERBS


def _rename_initials(there: Sequence[Token], new: list[str | None], plan: Plan) -> None:
    for place in range(len(there) - 2, -1, -1):
        token, after = there[place], there[place + 1]
        is_initial = len(token.text) == 1 and token.text.isascii() and token.text.isupper()
        owned = token.gap in ("'", "’")  # the S of "Hitler'S"
        if not is_initial or owned or new[place] or not new[place + 1]:
            continue
        led = after.gap.startswith(".") or (place > 0 and new[place - 1] is not None)
        dotted = after.gap.startswith(".") or token.text not in _NEEDS_DOT
        if led and dotted and _INITIAL_GAP.fullmatch(after.gap):
            new[place] = plan.alphabet.letter(token.text)


def _dotted(new: str, old: str) -> str:
    if "." not in old:
        return new
    dotted = "".join(f"{letter}." for letter in new)
    return dotted if old.endswith(".") else dotted[:-1]


def _joined(text: str, there: Sequence[Token], new: Sequence[str | None]) -> str:
    parts: list[str] = []
    end = 0
    for token, word in zip(there, new, strict=True):
        if word is not None:
            parts += [text[end : token.start], word]
            end = token.end
    return "".join([*parts, text[end:]])
