"""What is replaced by what, and the replacing."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from ga_dspy.eval.renaming.names import (
    Lexicon,
    Name,
    Role,
    Row,
    rewrite_texts,
    texts,
    without_qualifier,
)
from ga_dspy.eval.renaming.words import (
    CALENDAR,
    FUNCTION,
    HONORIFICS,
    KEPT,
    NOUNS,
    NUMBERS,
    STAYING,
    SURNAMES,
    Inventor,
    Shape,
    Token,
    following,
    is_quoted_or_owner,
    key,
    match_case,
    tokens,
)

# --- What is replaced by what: words everywhere, and common words inside certain phrases.

_UNCHANGING = FUNCTION | NUMBERS | CALENDAR
_PLACE_STRUCTURE = NOUNS["place"] | NOUNS["organisation"] | KEPT | HONORIFICS
_NAME_VOTES = 3  # a name shows a word's shape more surely than its surroundings do


class Phrase(NamedTuple):
    """A name with common words in it.

    `targets` are the places of the words to replace where the whole phrase stands; `alone` the
    words that stand for the name by themselves in a row that has it (a surname like Young);
    `small` the places that the name itself has in lower case ("Le Droit à la vie").
    """

    words: tuple[str, ...]
    targets: frozenset[int]
    alone: frozenset[str] = frozenset()
    small: frozenset[int] = frozenset()


class Plan(NamedTuple):
    """All decisions about one file.

    Attributes:
        inventor: Has the seed's letters, for initials.
        new: Invented words by old word, folded.
        acronyms: Invented acronyms by old one.
        everywhere: Words replaced wherever they are capitalised.
        caseless: Those of them that are replaced in questions and answers in lower case too.
        phrases: Phrases by their first two words, the longest first.
        single: Phrases of one word, which name something in rows with it as a title or answer.
        shapes: What each invented word was shaped like.
    """

    inventor: Inventor
    new: Mapping[str, str]
    acronyms: Mapping[str, str]
    everywhere: frozenset[str]
    caseless: frozenset[str]
    phrases: Mapping[tuple[str, ...], Sequence[Phrase]]
    single: Mapping[str, Phrase]
    shapes: Mapping[str, Shape]


def make_plan(
    names: Sequence[Name], lexicon: Lexicon, seed: int, kept: frozenset[str] = frozenset()
) -> Plan:
    """Decide what to replace.

    Args:
        names: The file's names.
        lexicon: The file's words.
        seed: Decides the invented words.
        kept: Folded words to leave alone.
    """
    everywhere = frozenset(w for w in lexicon.every if w not in kept and lexicon.is_proper(w))
    acronyms = lexicon.acronyms - {word.upper() for word in kept}
    phrases = _phrases(names, everywhere | {name.casefold() for name in acronyms}, kept)
    inside = {phrase.words[place] for phrase in phrases for place in phrase.targets}
    shapes = _shapes(names, lexicon, everywhere | inside)
    by_first_words: dict[tuple[str, ...], list[Phrase]] = defaultdict(list)
    for phrase in sorted(phrases, key=lambda phrase: (-len(phrase.words), phrase.words)):
        if len(phrase.words) > 1:
            by_first_words[phrase.words[:2]].append(phrase)
    inventor = Inventor(seed, lexicon.every)
    new = inventor.words(shapes)
    return Plan(
        inventor,
        new,
        inventor.acronyms(acronyms, new),
        everywhere,
        frozenset(word for word in everywhere if not lexicon.lower[word]),
        dict(by_first_words),
        {phrase.words[0]: phrase for phrase in phrases if len(phrase.words) == 1},
        shapes,
    )


def _phrases(
    names: Sequence[Name], everywhere: frozenset[str], kept: frozenset[str]
) -> list[Phrase]:
    chosen: dict[tuple[str, ...], Phrase] = {}
    for state in ("states", "kingdom"):
        united = ("united", state)
        chosen[united] = Phrase(united, frozenset({0} if "united" not in kept else ()))
    for name in sorted(names, key=lambda name: (len(name.key), name.key)):
        small = frozenset(place for place, t in enumerate(tokens(name.text)) if not t.capitalised)
        for words, targets, alone in _phrases_of(name, everywhere, chosen):
            left = frozenset(place for place in targets if words[place] not in kept)
            if left:
                whole = len(words) == len(name.key)
                phrase = Phrase(words, left, alone - kept, small if whole else frozenset())
                chosen.setdefault(words, phrase)
    return [phrase for phrase in chosen.values() if phrase.targets]


_Proposal = tuple[tuple[str, ...], Iterable[int], frozenset[str]]  # words, targets, alone


def _phrases_of(
    name: Name, everywhere: frozenset[str], shorter: Mapping[tuple[str, ...], Phrase]
) -> Iterator[_Proposal]:
    words = name.key
    content = [
        place
        for place, word in enumerate(words)
        if len(word) > 1 and word not in _UNCHANGING and not any(c.isdigit() for c in word)
    ]
    known = {place for place in content if words[place] in everywhere}
    if name.kind == "person" and "of" not in words:
        yield from _person(name, content)
    elif known and (
        name.kind != "work"
        or all(place in known or words[place] in _PLACE_STRUCTURE for place in content)
    ):
        # The rest of the name is structure; but a foreign name may have a known word small.
        line = tokens(name.text)
        if any(not line[place].capitalised for place in known):
            yield words, known, frozenset()
    else:
        inner = _inner_targets(words, shorter)
        own = set(_targets(name, content, partly=bool(known or inner)))
        if own - known - inner:
            # Without a leading article, where more than one word is left.
            start = 1 if words[0] in ("the", "a", "an") and len(words) > 2 else 0
            targets = {place - start for place in own | known | inner}
            yield words[start:], targets, frozenset(words if len(words) == 1 else ())


def _person(name: Name, content: Sequence[int]) -> Iterator[_Proposal]:
    """The full name; a surname that is a common word; a given name like "Yun-ho"."""
    words = name.key
    targets = [
        place
        for place in content
        if words[place] not in STAYING or (place > 0 and words[place] in SURNAMES)
    ]
    if len(words) > 1 and targets:
        alone = {words[place] for place in targets if len(words[place]) > 2}
        yield words, targets, frozenset(alone - (STAYING - {words[content[-1]]}))
    elif targets and name.titled:
        yield words, targets, frozenset(words)
    line = tokens(name.text)
    for place in targets:
        if place and line[place].gap == "-" and place - 1 in targets:
            yield words[place - 1 : place + 1], (0, 1), frozenset()


def _inner_targets(words: tuple[str, ...], shorter: Mapping[tuple[str, ...], Phrase]) -> set[int]:
    """Places that shorter phrases within a name replace."""
    return {
        start + place
        for start in range(len(words))
        for end in range(start + 2, len(words) + (start > 0))
        if words[start:end] in shorter
        for place in shorter[words[start:end]].targets
    }


def _targets(name: Name, content: Sequence[int], *, partly: bool) -> Sequence[int]:
    """What to replace in a name of common words: all of a work, else what is not structure.

    Args:
        name: The name.
        content: Places of the words that could be replaced.
        partly: Whether some of it is replaced already.
    """
    words = name.key
    free = [place for place in content if words[place] not in STAYING]
    unlike_place = [place for place in content if words[place] not in _PLACE_STRUCTURE]
    if name.kind == "work":
        return unlike_place if partly else content if name.titled or free else ()
    if partly or (len(content) < 2 and not name.titled):
        return ()
    return unlike_place if not free and name.titled and name.kind == "place" else free


def _shapes(names: Iterable[Name], lexicon: Lexicon, words: Iterable[str]) -> dict[str, Shape]:
    votes: dict[str, Counter[Shape]] = {word: Counter() for word in words}
    for name in names:
        known = [word for word in name.key if word in votes]
        for place, word in enumerate(known):
            person: Shape = "given" if place == 0 and len(known) > 1 else "surname"
            votes[word][person if name.kind == "person" else name.kind] += _NAME_VOTES
    for word, shapes in votes.items():
        for kind, count in lexicon.hints.get(word, Counter()).items():
            shapes["surname" if kind == "person" else kind] += count
    return {
        word: min(shapes, key=lambda shape: (-shapes[shape], shape), default="other")
        for word, shapes in votes.items()
    }


# --- Applying a plan to one text.

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
    found: set[Phrase] = set()
    for role, text in texts(row):
        line, scope = tokens(text), Scope(role)
        at = (_phrase_at(line, start, plan, scope) for start in range(len(line)))
        found.update(phrase for phrase in at if phrase)
        whole = key(without_qualifier(text)) if role in ("title", "answer") else ()
        if len(whole) == 1 and whole[0] in plan.single:
            found.add(plan.single[whole[0]])
    present = frozenset(found)
    alone = frozenset(word for phrase in present for word in phrase.alone)
    return rewrite_texts(
        row, lambda role, text: rename_text(text, plan, Scope(role, alone, present))
    )


def rename_text(text: str, plan: Plan, scope: Scope) -> str:
    """The text with every name in it replaced."""
    line = tokens(text)
    new: list[str | None] = []
    while len(new) < len(line):
        start = len(new)
        phrase = _phrase_at(line, start, plan, scope)
        for offset in range(len(phrase.words) if phrase else 1):
            target = phrase is not None and offset in phrase.targets
            new.append(_new_word(line, start + offset, plan, scope, target=target))
    _rename_initials(line, new, plan)
    parts: list[str] = []
    end = 0
    for token, word in zip(line, new, strict=True):
        parts += [text[end : token.start], text[token.start : token.end] if word is None else word]
        end = token.end
    return "".join([*parts, text[end:]])


def _phrase_at(line: Sequence[Token], start: int, plan: Plan, scope: Scope) -> Phrase | None:
    """The longest phrase of the plan that stands at a place, capitalised as a name is."""
    first_two = tuple(token.folded for token in line[start : start + 2])
    for phrase in plan.phrases.get(first_two, ()):
        window = line[start : start + len(phrase.words)]
        if (
            tuple(token.folded for token in window) == phrase.words
            and all(_NARROW.fullmatch(token.gap) for token in window[1:])
            and _is_spelled_as_name(window, phrase, scope)
        ):
            return phrase
    return None


def _is_spelled_as_name(window: Sequence[Token], phrase: Phrase, scope: Scope) -> bool:
    capital = {place for place, token in enumerate(window) if token.capitalised}
    if scope.role != "text" and phrase in scope.present:
        return scope.role == "question" or min(phrase.targets) in capital
    return bool(capital) and all(
        place in capital or place in phrase.small or window[place].gap.strip() == "-"
        for place in phrase.targets
    )


def _new_word(
    line: Sequence[Token], place: int, plan: Plan, scope: Scope, *, target: bool
) -> str | None:
    """What replaces a word, which may be a target of its phrase; None where it stays."""
    token, after = line[place], following(line, place)
    if token.acronym in plan.acronyms:
        new = plan.acronyms[token.acronym]
        if "." in token.text:
            new = ".".join(new) + ("." if token.text.endswith(".") else "")
        return new
    if after is not None and after.folded == "t" and after.gap in ("'", "’"):
        return None  # the first half of "Don't"
    joined = place > 0 and token.gap == "-" and line[place - 1].capitalised
    any_case = scope.role in ("question", "answer") and not joined
    is_name = token.folded in plan.everywhere and (
        token.capitalised or (any_case and token.folded in plan.caseless)
    )
    is_alone = token.folded in scope.alone and _names_alone(line, place, scope.role)
    return match_case(plan.new[token.folded], token.text) if target or is_name or is_alone else None


def _names_alone(line: Sequence[Token], place: int, role: Role) -> bool:
    """Whether a common word stands for a name by itself here ("Young was born")."""
    token, after = line[place], following(line, place)
    if not token.capitalised or role in ("title", "answer"):
        return token.capitalised
    if token.inner:
        return line[place - 1].folded != "the"
    if after is None or is_quoted_or_owner(line, place):
        return True
    return after.gap == " (" or after.folded in _VERBS


def _rename_initials(line: Sequence[Token], new: list[str | None], plan: Plan) -> None:
    for place in range(len(line) - 2, -1, -1):
        token, after = line[place], line[place + 1]
        is_initial = len(token.text) == 1 and token.text.isascii() and token.text.isupper()
        owned = token.gap in ("'", "’")  # the S of "Hitler'S"
        if not is_initial or owned or new[place] or not new[place + 1]:
            continue
        dot = after.gap.startswith(".")
        leads = dot or (place > 0 and new[place - 1] is not None)
        is_clear = dot or token.text not in _NEEDS_DOT
        if leads and is_clear and _INITIAL_GAP.fullmatch(after.gap):
            new[place] = plan.inventor.letter(token.text)
