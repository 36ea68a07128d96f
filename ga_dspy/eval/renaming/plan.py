"""What is replaced by what, and the replacing."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import combinations
from typing import NamedTuple

from ga_dspy.eval.datasets import Row
from ga_dspy.eval.renaming.names import (
    Lexicon,
    Name,
    Role,
    rewrite_texts,
    stands_small,
    texts,
    texts_of,
    without_qualifier,
)
from ga_dspy.eval.renaming.words import (
    FUNCTION,
    GENERIC_ACRONYMS,
    KEPT,
    NOUNS,
    STAYING,
    SURNAMES,
    UNCHANGING,
    VERBS,
    Inventor,
    Shape,
    Token,
    following,
    is_caseless,
    is_quoted_or_owner,
    key,
    match_case,
    nearest,
    tokens,
)

# --- What is replaced by what: words everywhere, and common words inside certain phrases.

_PLACE_STRUCTURE = NOUNS["place"] | NOUNS["organisation"] | KEPT
_SHORT = 4  # words that matter, up to which an answer is taken for a name


class Phrase(NamedTuple):
    """A name with common words in it.

    `targets` are the places of the words to replace where the whole phrase stands; `alone` the
    words that stand for the name by themselves in a row that has it (a surname like Young);
    `capitals` how many capitalised words show that the name is meant ("Le Droit à la vie" has 2).
    """

    words: tuple[str, ...]
    targets: frozenset[int]
    alone: frozenset[str] = frozenset()
    capitals: int = 1


class Plan(NamedTuple):
    """All decisions about one file.

    Attributes:
        inventor: Has the seed's letters, for initials.
        lexicon: The file's words.
        new: Invented words by old word, folded.
        acronyms: Invented acronyms by old one.
        everywhere: Words replaced wherever they are capitalised.
        phrases: Phrases by their first two words, the longest first.
        single: Phrases of one word, which name something in rows with it as a title or answer.
        shapes: What each invented word was shaped like.
    """

    inventor: Inventor
    lexicon: Lexicon
    new: Mapping[str, str]
    acronyms: Mapping[str, str]
    everywhere: frozenset[str]
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
    phrases = _phrases(names, everywhere | {name.casefold() for name in acronyms}, kept, lexicon)
    inside = {phrase.words[place] for phrase in phrases for place in phrase.targets}
    shapes = _shapes(names, everywhere | inside)
    by_first_words: dict[tuple[str, ...], list[Phrase]] = defaultdict(list)
    for phrase in sorted(phrases, key=lambda phrase: (-len(phrase.words), phrase.words)):
        if len(phrase.words) > 1:
            by_first_words[phrase.words[:2]].append(phrase)
    inventor = Inventor(seed, lexicon.every)
    new = inventor.words(shapes)
    return Plan(
        inventor,
        lexicon,
        new,
        inventor.acronyms(acronyms),
        everywhere,
        dict(by_first_words),
        {phrase.words[0]: phrase for phrase in phrases if len(phrase.words) == 1},
        shapes,
    )


def _phrases(
    names: Sequence[Name], everywhere: frozenset[str], kept: frozenset[str], lexicon: Lexicon
) -> list[Phrase]:
    united = frozenset({0} if "united" not in kept else ())
    states: list[tuple[str, ...]] = [("united", "states"), ("united", "kingdom")]
    chosen = {words: Phrase(words, united) for words in states}
    spelled = {name.key: name for name in names}
    for name in names:
        for one, other in ((" & ", " and "), (" and ", " & ")):
            also = name._replace(text=name.text.replace("&amp;", "&").replace(one, other))
            spelled.setdefault(also.key, also)
    for name in sorted(spelled.values(), key=lambda name: (len(name.key), name.key)):
        capitals = sum(token.capitalised for token in tokens(name.text))
        for words, targets, alone in _phrases_of(name, everywhere, chosen, lexicon):
            left = frozenset(place for place in targets if words[place] not in kept)
            phrase = Phrase(words, left, alone - kept, min(capitals, 2, len(words)))
            chosen.setdefault(words, phrase)
    for phrase in sorted(chosen.values(), key=lambda phrase: (-len(phrase.words), phrase.words)):
        _share_targets(phrase, chosen)
    return [phrase for phrase in chosen.values() if phrase.targets]


def _share_targets(phrase: Phrase, chosen: dict[tuple[str, ...], Phrase]) -> None:
    """What a name replaces, the shorter names within it replace, too."""
    size = len(phrase.words)
    for start, end in combinations(range(size + 1), 2):
        inside = chosen.get(phrase.words[start:end]) if 2 <= end - start < size else None
        if inside:
            shared = {place - start for place in phrase.targets if start <= place < end}
            chosen[inside.words] = inside._replace(targets=inside.targets | shared)


_Proposal = tuple[tuple[str, ...], Iterable[int], frozenset[str]]  # words, targets, alone


def _phrases_of(
    name: Name,
    everywhere: frozenset[str],
    shorter: Mapping[tuple[str, ...], Phrase],
    lexicon: Lexicon,
) -> Iterator[_Proposal]:
    words = name.key
    content = [
        place
        for place, word in enumerate(words)
        if len(word) > 1 and word not in UNCHANGING and not any(c.isdigit() for c in word)
    ]
    known = {place for place in content if words[place] in everywhere}
    if name.kind == "person" and "of" not in words:
        yield from _person(name, content, lexicon)
    elif known and (
        name.kind != "work"
        or all(place in known or words[place] in _PLACE_STRUCTURE for place in content)
    ):
        # The rest of the name is structure.
        yield words, known | _inner_targets(words, shorter), frozenset()
    else:
        inner = _inner_targets(words, shorter)
        own = set(_targets(name, content, lexicon, partly=bool(known or inner)))
        if own - known - inner:
            # Without a leading article, where more than one word is left.
            start = 1 if words[0] in ("the", "a", "an") and len(words) > 2 else 0
            end = len(words)
            if len(content) > 1 and words[content[-1] + 1 :] and own <= set(content[:-1]):
                end = content[-1] + 1  # "World War", whichever it was
            targets = {place - start for place in own | known | inner if place < end}
            yield words[start:end], targets, frozenset(words if len(words) == 1 else ())


def _person(name: Name, content: Sequence[int], lexicon: Lexicon) -> Iterator[_Proposal]:
    """The full name; a surname that is a common word; a given name like "Yun-ho"."""
    words = name.key
    targets = [
        place
        for place in content
        if not lexicon.stays(words[place]) or (place > 0 and words[place] in SURNAMES)
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


def _targets(
    name: Name, content: Sequence[int], lexicon: Lexicon, *, partly: bool
) -> Sequence[int]:
    """What to replace in a name of common words: all of a work, else what is not structure.

    An answer must not stay readable: of one that is all structure the head alone stays.

    Args:
        name: The name.
        content: Places of the words that could be replaced.
        lexicon: The file's words.
        partly: Whether some of it is replaced already.
    """
    words = name.key
    free = [place for place in content if not lexicon.stays(words[place])]
    structure = {word for word in words if lexicon.stays(word)} - STAYING | _PLACE_STRUCTURE
    unlike_place = [place for place in content if words[place] not in structure]
    if name.kind == "work":
        return unlike_place if partly else content if name.titled or name.answer or free else ()
    if partly or (len(content) < 2 and not name.titled and not name.answer):
        return ()
    if not free and name.titled and name.kind == "place":
        return unlike_place
    if not free and name.answer and len(content) <= _SHORT:
        modifiers = unlike_place or content
        return modifiers[: max(1, len(modifiers) - 1)]
    return free


def _shapes(names: Iterable[Name], words: Iterable[str]) -> dict[str, Shape]:
    votes: dict[str, Counter[Shape]] = {word: Counter() for word in words}
    for name in names:
        known = [word for word in name.key if word in votes]
        for place, word in enumerate(known):
            person: Shape = "given" if place == 0 and len(known) > 1 else "surname"
            votes[word][person if name.kind == "person" else name.kind] += 1
    return {
        word: min(shapes, key=lambda shape: (-shapes[shape], shape), default="other")
        for word, shapes in votes.items()
    }


# --- Applying a plan to one text.

_NARROW = re.compile(r"[\s,:;.'’\"“”–—/&!?()`-]{1,4}")
_WELL_KNOWN = 3  # capitals, from which a word is no slip of another
_INITIAL_GAP = re.compile(r"\. ?| ")
_NEEDS_DOT = frozenset("AIVX")


class RowNames(NamedTuple):
    """What a row's titles and contexts hold.

    `alone` are the common words that stand for a name in this row, `parts` those of its titles,
    `present` the phrases that it holds; a question may have those in lower case that its contexts
    have not (`common`). `capitalised` and `small` are its words with and without a capital.
    """

    alone: frozenset[str] = frozenset()
    parts: frozenset[str] = frozenset()
    present: frozenset[Phrase] = frozenset()
    common: frozenset[Phrase] = frozenset()
    capitalised: frozenset[str] = frozenset()
    small: frozenset[str] = frozenset()


class Scope(NamedTuple):
    """Where a text stands: its role, what its row names, and whether it has no capitals."""

    role: Role
    row: RowNames = RowNames()
    caseless: bool = False


def rename_row(row: Row, plan: Plan) -> dict[str, object]:
    """The row with all its texts renamed."""
    names = _names_of(row, plan)
    return rewrite_texts(row, lambda role, text: rename_text(text, plan, Scope(role, names)))


def _names_of(row: Row, plan: Plan) -> RowNames:
    found: set[Phrase] = set()
    parts: set[str] = set()
    contexts = texts_of(row, "title", "text")
    for role, text in texts(row):
        line, scope = tokens(text), Scope(role)
        at = {_phrase_at(line, start, plan, scope) for start in range(len(line))}
        whole = key(without_qualifier(text)) if role in ("title", "answer") else ()
        at |= {plan.single.get(whole[0])} if len(whole) == 1 else set()
        phrases = {phrase for phrase in at if phrase}
        if role == "title":
            parts |= {phrase.words[place] for phrase in phrases for place in phrase.targets}
        found |= phrases
    words = [token for text in contexts for token in tokens(text)]
    return RowNames(
        frozenset[str]().union(*(phrase.alone for phrase in found)),
        frozenset(word for word in parts if not plan.lexicon.stays(word)),
        frozenset(found),
        frozenset(p for p in found if any(stands_small(p.words, text) for text in contexts)),
        frozenset(token.folded for token in words if token.capitalised),
        frozenset(token.folded for token in words if not token.capitalised),
    )


def rename_text(text: str, plan: Plan, scope: Scope) -> str:
    """The text with every name in it replaced."""
    line = tokens(text)
    if scope.role in ("question", "answer"):
        scope = scope._replace(caseless=is_caseless(line))
        line = _respell(line, plan, scope)
    new: list[str | None] = []
    while len(new) < len(line):
        start = len(new)
        phrase = _phrase_at(line, start, plan, scope)
        for offset in range(len(phrase.words) if phrase else 1):
            target = phrase is not None and offset in phrase.targets
            new.append(_new_word(line, start + offset, plan, scope, target=target))
    _rename_initials(line, new, plan, scope)
    parts, end = list[str](), 0
    for token, word in zip(line, new, strict=True):
        parts += [text[end : token.start], token.text if word is None else word]
        end = token.end
    return "".join([*parts, text[end:]])


def _respell(line: Sequence[Token], plan: Plan, scope: Scope) -> tuple[Token, ...]:
    """The words of a question as its row spells them: what is misspelt follows what is meant."""
    row = scope.row
    unknown = [
        (token.capitalised or scope.caseless)
        and not token.acronym
        and token.folded not in row.capitalised | FUNCTION
        and plan.lexicon.inner[token.folded] < _WELL_KNOWN
        for token in line
    ]
    if not any(unknown):
        return tuple(line)
    known = [*sorted(row.capitalised), *sorted(row.small - row.capitalised)]
    meant = [token.folded for token in line]
    for place, word in enumerate(meant):
        if unknown[place] and word not in row.small | STAYING:
            meant[place] = nearest(word, known) or word
    return tuple(t._replace(folded=word) for t, word in zip(line, meant, strict=True))


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
    is_rows_own = phrase in scope.row.present and phrase not in scope.row.common
    capitals = sum(token.capitalised or token.gap == "-" for token in window)
    needed = 0 if scope.role == "question" else 1
    return capitals >= (needed if is_rows_own else phrase.capitals)


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
    if "." in token.text and token.acronym not in GENERIC_ACRONYMS:
        return "".join(map(plan.inventor.letter, token.text))  # the initials of a person
    if after is not None and after.folded == "t" and after.gap in ("'", "’"):
        return None  # the first half of "Don't"
    word = token.folded
    if not token.capitalised and _is_name_in_lower_case(word, plan, scope):
        if word.upper() in plan.acronyms:
            return plan.acronyms[word.upper()].lower()
        target = True
    if token.capitalised and (word in plan.everywhere or _names_alone(line, place, scope)):
        target = True
    return match_case(plan.new[word], token.text) if target else None


def _is_name_in_lower_case(word: str, plan: Plan, scope: Scope) -> bool:
    """Whether a question or answer without capitals means a name that its row's contexts have."""
    row = scope.row
    known = word in plan.everywhere or word.upper() in plan.acronyms
    return scope.caseless and known and word in row.capitalised - row.small - FUNCTION


def _names_alone(line: Sequence[Token], place: int, scope: Scope) -> bool:
    """Whether a common word stands for a name by itself here ("Young was born")."""
    token, after, row = line[place], following(line, place), scope.row
    word, is_title = token.folded, scope.role in ("title", "answer")
    if word not in row.alone | row.parts:
        return False
    if is_quoted_or_owner(line, place):
        return True
    if token.inner and word in row.small and word not in row.alone:
        return line[place - 1].capitalised or line[place - 1].folded == "and"
    if token.inner:
        return word not in row.small or scope.role != "text" or line[place - 1].folded != "the"
    if word not in row.small:
        return is_title or word in row.alone
    is_whole = after is None or after.gap.startswith((" (", ","))
    tells = after is not None and after.folded in VERBS and not is_title
    return word in row.alone and (is_whole or tells)


def _rename_initials(
    line: Sequence[Token], new: list[str | None], plan: Plan, scope: Scope
) -> None:
    for place in range(len(line) - 2, -1, -1):
        token, after = line[place], line[place + 1]
        is_letter = len(token.text) == 1 and token.text.isascii() and token.text.isalpha()
        is_initial = is_letter and (token.text.isupper() or scope.caseless)
        possessive = token.gap in ("'", "’")  # the S of "Hitler'S"
        if not is_initial or possessive or new[place] or not new[place + 1]:
            continue
        dot = after.gap.startswith(".")
        owned = any(
            phrase.words[-1] == after.folded and phrase.words[0][0] == token.folded
            for phrase in scope.row.present
        )
        leads = dot or owned or (place > 0 and new[place - 1] is not None)
        is_clear = dot or owned or token.text not in _NEEDS_DOT
        if leads and is_clear and _INITIAL_GAP.fullmatch(after.gap):
            new[place] = plan.inventor.letter(token.text)
