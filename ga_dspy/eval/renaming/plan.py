"""What will be replaced by what: words everywhere, and common words inside certain phrases."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from ga_dspy.eval.renaming.invent import Alphabet, Shape
from ga_dspy.eval.renaming.lexicon import Lexicon
from ga_dspy.eval.renaming.names import Name
from ga_dspy.eval.renaming.text import tokens
from ga_dspy.eval.renaming.vocabulary import invent_acronyms, invent_words
from ga_dspy.eval.renaming.words import (
    CALENDAR,
    FUNCTION,
    HONORIFICS,
    KEPT,
    NUMBERS,
    ORGANISATION_NOUNS,
    PLACE_NOUNS,
    STAYING,
    SURNAMES,
)

_NEVER = FUNCTION | NUMBERS | CALENDAR
_NOUNS = PLACE_NOUNS | ORGANISATION_NOUNS
_PLACE_STRUCTURE = _NOUNS | {f"{noun}s" for noun in _NOUNS} | KEPT | HONORIFICS
_NAME_VOTES = 3  # a name tells a word's shape more surely than its surroundings do
_STATES = (("united", "states"), ("united", "kingdom"))


class Phrase(NamedTuple):
    """A name with common words in it.

    `targets` are the places of the words to replace where the whole phrase stands; `alone` the
    words that stand for the name by themselves in a row that has it (a surname like Young);
    `small` the places that the name itself writes in lower case ("Le Droit à la vie").
    """

    words: tuple[str, ...]
    targets: frozenset[int]
    alone: frozenset[str] = frozenset()
    small: frozenset[int] = frozenset()


class Plan(NamedTuple):
    """All decisions about one file.

    Attributes:
        alphabet: The seed's letters, for initials.
        new: Invented words by old word, folded.
        acronyms: Invented acronyms by old one.
        everywhere: Words replaced wherever they are capitalised.
        caseless: Those of them that are replaced in questions and answers in lower case too.
        phrases: Phrases by their first two words, the longest first.
        single: Phrases of one word, which name something in rows with it as a title or answer.
        shapes: What each invented word was shaped like.
    """

    alphabet: Alphabet
    new: Mapping[str, str]
    acronyms: Mapping[str, str]
    everywhere: frozenset[str]
    caseless: frozenset[str]
    phrases: Mapping[tuple[str, ...], tuple[Phrase, ...]]
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
    everywhere = frozenset(w for w in lexicon.every if w not in kept and lexicon.proper(w))
    acronyms = lexicon.acronyms - {word.upper() for word in kept}
    phrases = _phrases(names, everywhere | {name.casefold() for name in acronyms}, kept)
    inside = {phrase.words[place] for phrase in phrases for place in phrase.targets}
    shapes = _shapes(names, lexicon, everywhere | inside)
    alphabet = Alphabet(seed)
    taken = set(lexicon.every)
    new = invent_words(shapes, alphabet, taken)
    return Plan(
        alphabet,
        new,
        invent_acronyms(acronyms, new, alphabet, taken),
        everywhere,
        frozenset(word for word in everywhere if lexicon.never_lower(word)),
        _by_first_words(phrases),
        {phrase.words[0]: phrase for phrase in phrases if len(phrase.words) == 1},
        shapes,
    )


def _phrases(
    names: Sequence[Name], everywhere: frozenset[str], kept: frozenset[str]
) -> list[Phrase]:
    chosen: dict[tuple[str, ...], Phrase] = {}
    for words in _STATES:
        chosen[words] = Phrase(words, frozenset({0} if words[0] not in kept else ()))
    for name in sorted(names, key=lambda name: (len(name.key), name.key)):
        small = frozenset(place for place, t in enumerate(tokens(name.text)) if not t.capitalised)
        for phrase in _phrases_of(name, everywhere, chosen):
            targets = frozenset(p for p in phrase.targets if phrase.words[p] not in kept)
            if targets:
                left = phrase._replace(targets=targets, alone=phrase.alone - kept)
                if len(phrase.words) == len(name.key):
                    left = left._replace(small=small)
                chosen.setdefault(phrase.words, left)
    return [phrase for phrase in chosen.values() if phrase.targets]


def _phrases_of(
    name: Name, everywhere: frozenset[str], shorter: Mapping[tuple[str, ...], Phrase]
) -> Iterator[Phrase]:
    words = name.key
    content = [place for place, word in enumerate(words) if _can_change(word)]
    known = frozenset(place for place in content if words[place] in everywhere)
    if name.kind == "person" and "of" not in words:
        yield from _person(name, content)
    elif known and (name.kind != "work" or not _some_strange(words, content, known)):
        # The rest of the name is structure; but a foreign name may write a known word small.
        if any(not token.capitalised for p, token in enumerate(tokens(name.text)) if p in known):
            yield Phrase(words, known)
    else:
        inner = _inherited(words, shorter)
        own = set(_targets(name, content, bool(known or inner)))
        if own - known - inner:
            yield _trimmed(words, sorted(own | known | inner))


def _targets(name: Name, content: Sequence[int], partly: bool) -> Sequence[int]:
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


def _person(name: Name, content: Sequence[int]) -> Iterator[Phrase]:
    """The full name; a surname that is a common word; a given name like "Yun-ho"."""
    words = name.key
    last = content[-1] if content else -1
    targets = [
        place
        for place in content
        if words[place] not in STAYING or (place > 0 and words[place] in SURNAMES)
    ]
    if len(words) > 1 and targets:
        alone = {w for p, w in enumerate(words) if p in targets and len(w) > 2}
        alone -= STAYING - {words[last]}
        yield Phrase(words, frozenset(targets), frozenset(alone))
    elif targets and name.titled:
        yield Phrase(words, frozenset(targets), frozenset(words))
    there = tokens(name.text)
    for place in targets:
        if place and there[place].gap == "-" and place - 1 in targets:
            yield Phrase(words[place - 1 : place + 1], frozenset({0, 1}))


def _trimmed(words: tuple[str, ...], targets: Sequence[int]) -> Phrase:
    """Without a leading article, where more than one word is left."""
    start = 1 if words[0] in ("the", "a", "an") and len(words) > 2 else 0
    alone = words if len(words) == 1 else ()
    return Phrase(words[start:], frozenset(place - start for place in targets), frozenset(alone))


def _some_strange(words: Sequence[str], content: Iterable[int], known: Container[int]) -> bool:
    """Whether a work's title has more than known words and what places are called by."""
    return any(p not in known and words[p] not in _PLACE_STRUCTURE for p in content)


def _inherited(words: tuple[str, ...], shorter: Mapping[tuple[str, ...], Phrase]) -> frozenset[int]:
    """Places that shorter phrases within a name replace."""
    return frozenset(
        start + place
        for start in range(len(words))
        for end in range(start + 2, len(words) + (start > 0))
        if words[start:end] in shorter
        for place in shorter[words[start:end]].targets
    )


def _can_change(word: str) -> bool:
    return len(word) > 1 and word not in _NEVER and not any(c.isdigit() for c in word)


def _by_first_words(phrases: Iterable[Phrase]) -> dict[tuple[str, ...], tuple[Phrase, ...]]:
    by_first: dict[tuple[str, ...], list[Phrase]] = {}
    for phrase in sorted(phrases, key=lambda phrase: (-len(phrase.words), phrase.words)):
        if len(phrase.words) > 1:
            by_first.setdefault(phrase.words[:2], []).append(phrase)
    return {first: tuple(found) for first, found in by_first.items()}


def _shapes(names: Iterable[Name], lexicon: Lexicon, words: Iterable[str]) -> dict[str, Shape]:
    votes: dict[str, Counter[Shape]] = {word: Counter() for word in words}
    for name in names:
        there = [word for word in name.key if word in votes]
        for place, word in enumerate(there):
            person: Shape = "given" if place == 0 and len(there) > 1 else "surname"
            votes[word][person if name.kind == "person" else name.kind] += _NAME_VOTES
    for word, shapes in votes.items():
        for kind, count in lexicon.hints.get(word, Counter()).items():
            shapes["surname" if kind == "person" else kind] += count
    return {word: _most_voted(shapes) for word, shapes in votes.items()}


def _most_voted(votes: Counter[Shape]) -> Shape:
    return min(votes, key=lambda shape: (-votes[shape], shape)) if votes else "other"
