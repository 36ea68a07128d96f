"""Mentions: where a text mentions a phrase, and whether it supports the phrase.

A phrase is searched for verbatim, then in other wordings, each a list of terms. A name may be
shorter than in the passage, abbreviated or inflected, but none of its words may be replaced: that
would be another name.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property, lru_cache
from itertools import chain, dropwhile, groupby, islice, pairwise
from os.path import commonprefix
from typing import Final, NamedTuple

from rapidfuzz.distance import OSA

from ga_dspy import lexicon
from ga_dspy.terms import (
    APART,
    ARTICLES,
    BORDER,
    CONNECTORS,
    FUNCTION_WORDS,
    NEAR,
    STOPWORDS,
    UNSPACED,
    WALL,
    Key,
    Term,
    cached_short,
    fold,
    other_forms,
    sentences,
    terms,
)

MAX_MENTIONS = 20


class Mention(NamedTuple):
    """The span of a phrase in a text: characters `start` to `end` (exclusive)."""

    start: int
    end: int


Span = tuple[int, int]
"""A range of terms, with an exclusive end."""

_NEUTRAL: Final = frozenset("international national royal annual memorial".split())
"""Words inside an organisation's or event's name that the phrase may lack."""

_LINKS: Final = ARTICLES | {"in", "at", "of", "on", "for"}
_UNTIL: Final = frozenset(("to", "until", "till", "through", "and"))
_OF: Final = frozenset(
    "university senate government parliament president king queen emperor army navy".split()
)
"""Words before a name with "of", or after it without: "Oxford University"."""

BEFORE_OR_AFTER: Final = frozenset(("lake", "river", "county", "mount"))
"""Words before or after a name: "Lake Orda", "Orda Lake"."""

_HONORIFICS: Final = frozenset("mr mrs ms miss sir dr dame lord lady".split())
_OPENS, _CLOSES = (' "', " “", " (", " '", " ‘", " ["), ('"', "”", ")", "'", "’", "]")
_MIDDLE, _ASIDE, _COORDINATE = 2, 3, 7
"""How many terms a match may skip at most: middle names, an aside, a coordinated part."""

_NEGATION: Final = frozenset("not never neither nor without cannot no".split())
_REFUSAL: Final = re.compile(r"(?:refus|declin|reject|den[iy]|fail)\w*")
_TURN: Final = frozenset("but although though while whereas however except".split())
_NEGATION_REACH: Final = 6


class _Sought(NamedTuple):
    """A term to find: any of `keys`, after a gap no wider than `gap`; optional if `may_lack`."""

    keys: frozenset[Key]
    text: str
    gap: int
    may_lack: bool = False

    @property
    def is_name(self) -> bool:
        return self.text[:1].isalpha() and not self.text[0].islower()

    @property
    def is_value(self) -> bool:
        return any(isinstance(key, tuple) for key in self.keys)


class _Wording(NamedTuple):
    """One wording of a phrase.

    Attributes:
        phrase: The phrase.
        sought: The terms to find, in order.
        whole: Whether the match must not be followed by another part of a name: "Lockheed"
            without its legal form is not in "Lockheed Martin".
        skips: How many times the match may skip terms.
    """

    phrase: _Phrase
    sought: tuple[_Sought, ...]
    whole: bool = False
    skips: int = 2


class _Phrase:
    """A phrase and those of its wordings that do not depend on a text."""

    def __init__(self, phrase: str) -> None:
        found = terms(phrase)
        while len(found) > 1 and found[0].keys[0] in ARTICLES:
            found = found[1:]
        self.terms, self.phrase = found, phrase
        self.strict = _Wording(self, _seek(found, exact=True), skips=0)

    @cached_property
    def is_personal(self) -> bool:
        """Return whether its words could be a person's name."""
        return 2 <= len(self.terms) <= 5 and _is_personal(self.terms)

    @cached_property
    def others(self) -> list[_Wording]:
        """Return the other wordings, the most likely first."""
        found = [self.terms, *self._shorter()]
        wordings = [_Wording(self, _seek(each), len(each) < len(self.terms)) for each in found]
        wordings += chain.from_iterable(map(self._with_other_names, found))
        if self.is_personal:
            first, *middle, surname = self.terms
            short = [[_initials([first, *middle]), surname]]
            if middle:
                short.append([first, _initials(middle), surname])
            wordings += [_Wording(self, _seek(each, exact=True), skips=0) for each in short]
        return wordings

    def _shorter(self) -> Iterator[list[Term]]:
        """Yield the terms without an honorific, legal form or weekday, or in another order."""
        first, last = fold(self.terms[0].text).strip("."), fold(self.terms[-1].text)
        if len(self.terms) > 2 and first in _HONORIFICS:
            yield self.terms[1:]
        if len(self.terms) > 1 and last in lexicon.COMPANY_FORMS:
            yield self.terms[:-1]
        if len(self.terms) > 1 and first in lexicon.COMPANY_FORMS:
            yield self.terms[1:]
        if first.endswith("day") and [t.gap for t in self.terms[1:] if not t.is_word] == [APART]:
            yield self.terms[1:]  # "Monday, 3 May 1901"
        opening = self.terms[0]._replace(gap=NEAR)
        if len(self.terms) == 2 and not {first, last}.isdisjoint(BEFORE_OR_AFTER):
            yield [self.terms[1], opening]
        if len(self.terms) == 2 and last in _OF:
            yield [self.terms[1], *terms("of"), opening]
        if len(self.terms) > 2 and first in _OF and fold(self.terms[1].text) == "of":
            yield [*self.terms[2:], opening]
        small = lexicon.BEFORE_NUMBERS | ARTICLES
        numbers = list(dropwhile(lambda term: fold(term.text) in small, self.terms))
        is_value = all(not term.is_word or fold(term.text) in _UNTIL for term in numbers)
        if 0 < len(numbers) < len(self.terms) and is_value:
            yield numbers

    def _with_other_names(self, found: list[Term]) -> Iterator[_Wording]:
        """Yield wordings with another well-known name of a country, war or prize."""
        plain = [_letters(term.text) for term in found]
        for i, term in enumerate(found):
            if i and term.gap == APART and term.text.isupper() and plain[i] in lexicon.STATES:
                state = _terms_of(lexicon.STATES[plain[i]], term)
                yield _Wording(self, _seek([*found[:i], *state, *found[i + 1 :]]))
            for j in range(i + 1, min(i + 5, len(found)) + 1):
                if j - i == 1 and len(plain[i]) < 4 and not term.text.isupper():
                    continue
                names = lexicon.OTHER_NAMES.get(" ".join(plain[i:j]), lexicon.OtherNames())
                is_alone = not any(each.proper for each in (*found[:i], *found[j:]))
                for name in (*names.nouns, *(names.adjectives if is_alone else ())):
                    replaced = [*found[:i], *_terms_of(name, term), *found[j:]]
                    yield _Wording(self, _seek(replaced), name in names.adjectives)


def _is_personal(found: Sequence[Term]) -> bool:
    """Return whether terms could be a person's name; initials count as part of one."""
    named = [term for term in found if "." not in term.text]
    is_upper = all(term.text.isupper() for term in named)
    for term in named:
        is_acronym = len(term.text) > 2 and term.text.isupper() and not is_upper
        is_name = term.is_word and term.proper and term.text.isalpha() and not is_acronym
        if not is_name or fold(term.text) in lexicon.IMPERSONAL:
            return False
    return all(term.gap == NEAR for term in found[1:])


def _letters(text: str) -> str:
    return "".join(c for c in fold(text) if c.isalnum())


def _terms_of(name: str, replaced: Term) -> list[Term]:
    """Return the terms of a well-known name, in capitals if it is short, with the gap of a term."""
    first, *rest = terms(name.upper() if len(name) < 4 else name.title())
    return [first._replace(gap=replaced.gap), *rest]


def _initials(given: Sequence[Term]) -> Term:
    letters = "".join(_letters(t.text) if "." in t.text else t.text[0].lower() for t in given)
    return given[0]._replace(text=letters.upper(), keys=(f"{letters}.",))


def _seek(found: Sequence[Term], *, exact: bool = False) -> tuple[_Sought, ...]:
    """Return what to find for each term; `exact` excludes its other forms."""
    many = len(found) > 2
    sought = []
    for i, term in enumerate(found):
        own = term.keys[0]
        keys: set[Key] = {own}
        if not term.text.isascii() and isinstance(own, str):
            keys.update(term.keys)
        if not isinstance(own, str):
            keys |= {key for key in term.keys if isinstance(key[0], int) and all(key)}
        if own == ("n", 1.0, "") and term.text == "one":
            keys |= {"a", "an"}
        if isinstance(own, str) and not exact:
            numbers = many or not term.proper or own.removesuffix("s") in lexicon.HEADS
            keys |= other_forms(own, numbers=numbers)
            keys |= lexicon.NICKNAMES.get(own, frozenset()) if len(found) > 1 else set()
        gap = max(term.gap, APART if many or not term.is_word else term.gap)
        is_until = own in _UNTIL and 0 < i < len(found) - 1 and not found[i - 1].is_word
        small = i > 0 and (own in ARTICLES or term.text == "s" or is_until)
        sought.append(_Sought(frozenset(keys), term.text, gap, small))
    return tuple(sought)


@cached_short(maxsize=4096, max_length=200)
def _phrase(phrase: str) -> _Phrase:
    return _Phrase(phrase)


class _Text:
    """The terms of a text, indexed by key."""

    def __init__(self, text: str) -> None:
        self.text, self.terms = text, terms(text)
        self.size = len(self.terms)
        self.where: dict[Key, list[int]] = defaultdict(list)
        self.whole: dict[int, tuple[str, int]] = {}
        for i, term in enumerate(self.terms):
            for key in term.keys:
                self.where[key].append(i)
        starts = [i for i, term in enumerate(self.terms) if not (term.joint and self._is_camel(i))]
        for start, end in pairwise([*starts, self.size]):
            if end - start > 1:
                word = fold(text[self.terms[start].start : self.terms[end - 1].end])
                self.whole[start] = word, end
                self.where[word].append(start)

    def _is_camel(self, i: int) -> bool:
        return self.terms[i - 1].text[-1].islower() and self.terms[i].text[0].isupper()

    @cached_property
    def has_case(self) -> bool:
        return self.text != self.text.upper() and self.text != self.text.lower()

    @cached_property
    def _similar(self) -> dict[str, list[str]]:
        """Return the words of the text by their first three letters."""
        found: dict[str, list[str]] = defaultdict(list)
        for key in self.where:
            if isinstance(key, str):
                found[key[:3]].append(key)
        return found

    @cached_property
    def sentence(self) -> list[int]:
        """Return the sentence number of each term."""
        starts = [start for start, _ in sentences(self.text)]
        return [bisect_right(starts, term.start) for term in self.terms]

    @cached_property
    def inflects(self) -> bool:
        """Return whether its language seems to inflect names, as Finnish or Polish does."""
        english = sum(len(self.where.get(word, ())) for word in ("the", "of", "and", "is", "was"))
        return not english and not self.text.isascii() and self.has_case

    def places(self, keys: Iterable[Key]) -> set[int]:
        """Return the positions of any of these keys."""
        return {i for key in keys for i in self.where.get(key, ())}

    def is_cut(self, i: int, *, many: bool) -> bool:
        """Return whether a name may begin or end before a term, even without a space."""
        if i in (0, self.size) or not self.terms[i].joint:
            return True
        one, other = self.terms[i - 1], self.terms[i]
        if UNSPACED.match(one.text) or UNSPACED.match(other.text):
            return True
        if one.is_word and other.is_word:
            glued = many or (one.text[0].islower() and len(one.text) > 1)
            return not self._is_camel(i) or (glued and len(other.text) > 2)
        if other.is_word:
            return other.text[0].isupper() and other.text[1:2].islower() and len(other.text) > 2
        return not one.is_word or (len(one.text) > 2 and len(other.text) > 2)

    # --- Matching one wording

    def find(self, wording: _Wording) -> list[Span]:
        """Return at most `MAX_MENTIONS` matches of a wording, without overlap."""
        sought, spans, free = wording.sought, list[Span](), 0
        many = len(sought) > 1
        for start in self._starts(sought[0], lenient=wording.skips > 0 and many):
            if start < free or not self.is_cut(start, many=many):
                continue
            end = self._end(wording, 0, start, wording.skips)
            if end and self._fits(wording, start, end):
                spans.append((start, end))
                free = end
        return spans[:MAX_MENTIONS]

    def _starts(self, first: _Sought, *, lenient: bool) -> list[int]:
        if lenient and "." in first.text:
            letter = fold(first.text[0])
            return [i for i, t in enumerate(self.terms) if t.proper and fold(t.text[0]) == letter]
        return sorted(self.places(first.keys))

    def _end(self, wording: _Wording, k: int, at: int, skips: int, *, free: bool = False) -> int:
        """Return the end of a match of the terms from the k-th on, at term `at`; 0 if none."""
        if k == len(wording.sought):
            return at if self.is_cut(at, many=k > 1) else 0
        if at == self.size:
            return 0
        each = wording.sought[k]
        if k == 0 or free or self.terms[at].gap <= each.gap:
            for after in self._steps(each, at, lenient=skips > 0 or free):
                if end := self._end(wording, k + 1, after, skips):
                    return end
        if k and each.may_lack and (end := self._end(wording, k + 1, at, skips)):
            return end
        for after, is_free in self._skipped(wording, k, at) if k and skips else ():
            if end := self._end(wording, k, after, skips - 1, free=is_free):
                return end
        return 0

    def _steps(self, each: _Sought, at: int, *, lenient: bool) -> Iterator[int]:
        """Yield the ends of the matches of one term that begin at term `at`."""
        term = self.terms[at]
        if any(key in each.keys for key in term.keys):
            yield at + 1
        if at in self.whole and self.whole[at][0] in each.keys:
            yield self.whole[at][1]
        if lenient and "." in each.text:
            letters = _letters(each.text)
            names = self.terms[at : at + len(letters)]
            if "".join(fold(t.text[0]) for t in names if t.proper and t.is_word) == letters:
                yield at + len(letters)

    def _skipped(self, wording: _Wording, k: int, at: int) -> Iterator[tuple[int, bool]]:
        """Yield the ends of what a match may skip at term `at`, and whether it is an aside."""
        term, (before, each) = self.terms[at], wording.sought[k - 1 : k + 1]
        if term.gap < BORDER:
            yield from ((i, False) for i in self._after_small_words(wording, k, at))
        yield from ((i, True) for i in self._after_aside(at) if each.is_name)
        if term.gap == NEAR and each.is_name:
            ends = [*self._after_middle_names(at, wording.phrase)] if before.is_name else []
            ends += self._after_coordinate(at, wording.phrase)
            yield from ((i, False) for i in ends)

    def _after_small_words(self, wording: _Wording, k: int, at: int) -> Iterator[int]:
        """Skip articles and possessives; "in" between names; "to" between numbers."""
        word, named, sought = fold(self.terms[at].text), wording.phrase.terms, wording.sought
        if word in ARTICLES or self.terms[at].text == "s":
            yield at + 1
        has_comma = k < len(named) and named[k].gap == APART
        if word in _LINKS and (len(sought) > 2 or has_comma):
            yield at + 1
            if at + 1 < self.size and fold(self.terms[at + 1].text) in ARTICLES:
                yield at + 2
        if word in _UNTIL and sought[k].is_value and sought[k - 1].is_value:
            yield at + 1

    def _after_aside(self, at: int) -> Iterator[int]:
        """Skip quotes, brackets, and a maiden name after "née"."""
        following = range(at + 1, min(at + 1 + _ASIDE, self.size))
        if self.text.endswith(_OPENS, 0, self.terms[at].start):
            closed = (i for i in following if self.text.startswith(_CLOSES, self.terms[i - 1].end))
            yield from islice(closed, 1)
        maiden = (i for i in range(at, min(at + 5, self.size)) if self._says(i, "nee", "born"))
        yield from (i + 1 for i in islice(maiden, 1))

    def _after_middle_names(self, at: int, phrase: _Phrase) -> Iterator[int]:
        """Skip middle names, initials, a rank ("Queen dowager Ann"), "International"."""
        for i in range(at, min(at + _MIDDLE, self.size - 1)):
            term = self.terms[i]
            word = fold(term.text)
            if term.gap != NEAR or not term.is_word or word in lexicon.TELLING | FUNCTION_WORDS:
                return
            is_initial = "." in term.text or (len(term.text) == 1 and term.proper)
            if not (phrase.is_personal or is_initial or word in _NEUTRAL):
                return
            if self.terms[i + 1].proper:
                yield i + 1

    def _after_coordinate(self, at: int, phrase: _Phrase) -> Iterator[int]:
        """Skip a coordinated part, to after "and": "Award for Play and Song"; "Ann and Bob Fox"."""
        if phrase.is_personal and self._says(at, "and") and at + 2 < self.size:
            yield at + 2
        if len(phrase.terms) > 2:
            for i in range(at + 1, min(at + _COORDINATE, self.size - 1)):
                if self.terms[i].gap >= BORDER:
                    return
                if self._says(i, "and", "or"):
                    yield i + 1

    def _says(self, i: int, *words: str) -> bool:
        return fold(self.terms[i].text) in words

    def _fits(self, wording: _Wording, start: int, end: int) -> bool:
        """Return whether a match is not part of a longer name, and is capitalised like a name."""
        first = self.terms[start]
        word = fold(first.text)
        if start and first.gap == NEAR and not first.joint:
            before = self.terms[start - 1]
            front, between = fold(before.text), self.text[before.end : first.start]
            is_front = front in lexicon.FRONT and (front, word) != ("great", "britain")
            is_front |= (front, word) == ("northern", "ireland")
            is_name = before.proper and first.proper and first.is_word
            if is_front and is_name and between in (" ", "-", ". "):
                return False
            if front in lexicon.PREFIXES and between == "-":
                return False
        is_adjective = end == start + 1 and word in lexicon.ADJECTIVES
        sought = fold(wording.sought[0].text)
        if wording.whole or (is_adjective and sought not in lexicon.ADJECTIVES):
            following = self.terms[end : end + 1]
            between = self.text[first.end : following[0].start] if following else ""
            has_article = start > 0 and self._says(start - 1, "a", "an")
            if not has_article and between == " " and following[0].proper and following[0].is_word:
                return False
        words = [each for each in wording.sought if not each.may_lack]
        return len(words) > 1 or self._has_capital(words[0].text, start, end)

    def _has_capital(self, name: str, start: int, end: int) -> bool:
        matched = self.text[self.terms[start].start : self.terms[end - 1].end]
        if not name[0].isupper() or not self.has_case:
            return True
        if matched[0].islower():
            return fold(name) in lexicon.ROLE_VERBS
        if name.isupper() and 1 < len(name) < 9:
            return matched.upper() == matched
        is_opening = start == 0 or self.terms[start].gap == WALL
        is_followed = any(t.gap < WALL and not t.proper for t in self.terms[end : end + 1])
        return not (is_opening and is_followed and fold(name) in STOPWORDS)

    def spans(self, phrase: _Phrase) -> list[Span]:
        """Return the mentions of a phrase verbatim, else in the first wording that matches."""
        found = self.find(phrase.strict)
        if found or not phrase.terms:
            return found
        for wording in chain(phrase.others, self.derived(phrase)):
            if found := self.find(wording):
                return found
        return self.described(phrase)

    # --- Wordings that depend on the text

    def derived(self, phrase: _Phrase) -> Iterator[_Wording]:
        """Yield wordings in the text's own words: spelled-out acronyms, compounds, typos."""
        sought = _seek(phrase.terms)
        yield from self._acronyms(phrase)
        yield from self._spaced(phrase, sought)
        missing = [each for each in sought if not self.places(each.keys)]
        if len(missing) == 1 or (missing and self.inflects):
            changed = {each: self._inflected(each) or self._slips(each) for each in missing}
            if all(changed.values()):
                near = (e._replace(keys=frozenset(changed.get(e, e.keys))) for e in sought)
                yield _Wording(phrase, tuple(near))

    def _slips(self, each: _Sought) -> list[str]:
        """Return the words of the text that differ from a long word by one typo."""
        word = fold(each.text)
        return [o for o in self._similar[word[:3]] if word.isalpha() and is_slip(word, o)]

    def _inflected(self, each: _Sought) -> list[str]:
        """Return the words of the text with the stem of a word, in an inflected language."""
        word = fold(each.text)
        script = "Ѐ" <= word[:1] <= "ԯ" or "Ͱ" <= word[:1] <= "Ͽ"
        if len(word) < 4 or not (script or self.inflects):
            return []
        stem = word[: max(3, len(word) - (1 if len(word) < 6 else 2))]
        longest = len(word) + (2 if script else 4)
        return [o for o in self._similar[word[:3]] if o.startswith(stem) and len(o) <= longest]

    def _spaced(self, phrase: _Phrase, sought: tuple[_Sought, ...]) -> Iterator[_Wording]:
        """Yield wordings with two words written as one, or one word written as two."""
        for k, each in enumerate(sought):
            if k and not each.may_lack:
                pair = fold(sought[k - 1].text + each.text)
                if pair in self.where:
                    one = sought[k - 1]._replace(keys=frozenset((pair,)))
                    yield _Wording(phrase, (*sought[: k - 1], one, *sought[k + 1 :]))
            word = fold(each.text)
            if len(word) > 5 and word not in self.where:
                for cut in range(2, len(word) - 1):
                    if word[:cut] in self.where and word[cut:] in self.where:
                        one = each._replace(keys=frozenset((word[:cut],)))
                        other = each._replace(keys=frozenset((word[cut:],)), gap=NEAR)
                        yield _Wording(phrase, (*sought[:k], one, other, *sought[k + 1 :]))

    def _acronyms(self, phrase: _Phrase) -> Iterator[_Wording]:
        """Yield wordings with an acronym spelled out, or with the acronym of the words."""
        found = phrase.terms
        for i, term in enumerate(found):
            is_acronym = 3 <= len(term.text) <= 8 and term.text.isupper()
            if is_acronym and (spelled := self._spelled(_letters(term.text))):
                words = [each._replace(gap=NEAR) for each in self.terms[slice(*spelled)]]
                yield _Wording(phrase, _seek([*found[:i], *words, *found[i + 1 :]]))
        small = CONNECTORS | ARTICLES | lexicon.COMPANY_FORMS
        main = [t for t in phrase.terms if fold(t.text) not in small]
        letters = "".join(fold(t.text[0]) for t in main)
        is_name = len(main) > 2 and all(t.proper and t.is_word for t in main)
        if is_name and letters in self.where and not self._spelled(letters):
            yield _Wording(phrase, (_Sought(frozenset((letters,)), letters.upper(), NEAR),))

    def _spelled(self, letters: str) -> Span | None:
        """Return the first run of capitalised words with these initials."""
        for start in (i for i, term in enumerate(self.terms) if term.text[0].isupper()):
            k = 0
            for at in range(start, self.size):
                term = self.terms[at]
                initial = term.text[0]
                if at > start and term.gap != NEAR:
                    break
                if initial.isupper() and fold(initial) == letters[k] and len(term.text) > 1:
                    k += 1
                elif fold(term.text) not in CONNECTORS:
                    break
                if k == len(letters):
                    return start, at + 1
        return None

    def described(self, phrase: _Phrase) -> list[Span]:
        """Find the content words of a description close together, in any order.

        The last word of a person's name suffices if the text has the full name elsewhere: "Lyons'
        death" mentions the death of Joseph Lyons.
        """
        content = self._content(phrase)
        common = sum(each.text[0].islower() and len(each.text) > 2 for each in content)
        if len(phrase.terms) == 1 and common and len(phrase.phrase) > 5:
            return [(i, i + 1) for i in sorted(self.places(self.akin(content[0])))[:1]]
        if len(content) < 2 or not common or any(t.gap >= BORDER for t in phrase.terms[1:]):
            return []
        is_compound = len(content) == len(phrase.terms) == 2
        hits = []
        for k, each in enumerate(content):
            forms = self.akin(each) if each.text[0].islower() else each.keys
            hits += [(i, k) for i in self.places(forms)]
        reach = len(content) + (4 if common == len(content) else 3 if len(content) > 3 else 2)
        window: dict[int, int] = {}
        at = {i for i, _ in hits}
        for i, k in sorted(hits):
            window[k] = i
            first = min(window.values())
            is_near = i - first < reach and self.sentence[first] == self.sentence[i]
            if len(window) < len(content) or not is_near:
                continue
            is_plain = all(j in at or self.terms[j].is_word for j in range(first, i))
            if is_plain and (not is_compound or self._is_possessive(first, i)):
                return [(first, i + 1)]
        return []

    def _is_possessive(self, first: int, last: int) -> bool:
        """Return whether two terms are joined only by "of" or a possessive."""
        between = {fold(term.text) for term in self.terms[first + 1 : last]}
        return not between.isdisjoint(("of", "s")) and between <= {"of", "s", *ARTICLES}

    def _content(self, phrase: _Phrase) -> list[_Sought]:
        """Return the content words; only the surname of a person whom the text names in full."""
        content: list[_Sought] = []
        for is_name, run in groupby(phrase.terms, lambda t: t.proper and t.is_word):
            name = list(run)
            is_known = is_name and 1 < len(name) < 4 and _is_personal(name)
            if is_known and self.find(_Wording(phrase, _seek(name, exact=True), skips=0)):
                name = name[-1:]
            needed = (each for each in _seek(name) if not each.may_lack)
            content += [e for e in needed if fold(e.text) not in FUNCTION_WORDS | CONNECTORS]
        return content

    @cached_property
    def in_names(self) -> set[int]:
        """Return the terms of the title and the capitalised terms inside sentences.

        "Never" and "No" do not negate in a name: "Never Let Me Go", "No Country for Old Men".
        """
        title, newline, _ = self.text.partition("\n")
        named = _phrase(title.partition(" (")[0])
        spans = self.find(named.strict) if newline and len(named.terms) > 1 else []
        pairs = enumerate(pairwise(self.sentence), 1)
        inside = {i for i, (a, b) in pairs if a == b and self.terms[i].text.istitle()}
        return inside.union(*(range(*span) for span in spans))

    def is_denied(self, i: int) -> bool:
        """Return whether a negation precedes a term by a few words, in the same clause."""
        for j in range(i - 1, max(-1, i - 1 - _NEGATION_REACH), -1):
            if j in self.in_names and self.has_case:
                continue
            word = fold(self.terms[j].text)
            if self.sentence[j] != self.sentence[i] or word in _TURN:
                return False
            if word in _NEGATION or _REFUSAL.fullmatch(word):
                return (word, fold(self.terms[j + 1].text)) != ("not", "only")
            if word == "t" and self.terms[j - 1].text.endswith("n"):
                return True
        return False

    def gives_role(self, role: str, about: str) -> bool:
        """Return whether the text implies a role of `about`, or of anybody if empty."""
        verbs = lexicon.ROLE_VERBS.get(role, frozenset())
        if verbs and about:
            return any(self._verb_of(*span) in verbs for span in self.spans(_phrase(about)))
        return any(not self.is_denied(i) for i in self.places(verbs))

    def _verb_of(self, start: int, end: int) -> str:
        """Return the role verb of a name: the last before it, else the first after it."""
        numbers, own = self.sentence, self.sentence[start]
        before, after = range(start - 1, -1, -1), range(end, min(end + 8, self.size))
        for i in (i for i in (*before, *after) if numbers[i] == own):
            word = fold(self.terms[i].text)
            if word in lexicon.VERBS:
                return "" if self.is_denied(i) else word
        return ""

    def akin(self, each: _Sought) -> set[Key]:
        """Return the keys of a term and all their forms in the text."""
        words = (key for key in each.keys if isinstance(key, str))
        forms = (o for word in words for o in self._similar[word[:3]] if _same_word(o, word))
        return {*each.keys, *forms}


SLIP_LENGTH: Final = 8
SLIP_SIMILARITY: Final = 0.87


def is_slip(one: str, other: str) -> bool:
    """Return whether two words differ by one typo inside; one has `SLIP_LENGTH` letters or more.

    A different first or last letter makes another word: "Bangalore", "Mangalore"; "Princes",
    "Princess". A substituted letter needs a longer word than an added or missing one.

    >>> is_slip("ouagadougou", "ouagadugou"), is_slip("bangalore", "mangalore")
    (True, False)
    """
    if max(len(one), len(other)) < SLIP_LENGTH or one[0] != other[0] or one[-1] != other[-1]:
        return False
    if one.startswith(other) or other.startswith(one):
        return False
    if len(one) == len(other) and len(one) <= SLIP_LENGTH and sorted(one) != sorted(other):
        return False
    return OSA.normalized_similarity(one, other) >= SLIP_SIMILARITY


_ENDING: Final = re.compile(
    r"(?:s|es|e|ed|d|ing|ings|er|ers|or|ors|r|rs|ion|ions|ation|ations|al|ly|y|ies|ied|ier|en|n|"
    r"ic|ical|ist|ists|ism|ian|ians|ship|like|ive|able|ity|ance|ence|ment|ments)?"
)


def _same_word(one: str, other: str) -> bool:
    """Return whether two folded words are forms of one word: "director" and "directed"."""
    if one == other:
        return True
    shared = commonprefix([one, other])
    if len(shared) < (4 if shared in (one, other) else 5):
        return False
    tails = one[len(shared) :], other[len(shared) :]
    undoubled = [tail.removeprefix(shared[-1:]) for tail in tails]
    return all(map(_ENDING.fullmatch, tails)) or all(map(_ENDING.fullmatch, undoubled))


_LONG: Final = 20_000
"""Only a few longer texts are cached at a time, to bound memory."""
_cached_text, _cached_long_text = lru_cache(maxsize=256)(_Text), lru_cache(maxsize=4)(_Text)


def _read(text: str) -> _Text:
    return _cached_text(text) if len(text) <= _LONG else _cached_long_text(text)


def mentions(phrase: str, text: str) -> tuple[Mention, ...]:
    """Return every mention of a phrase in a text, in the first wording that matches.

    1. The same words in the same order, whatever their case, accents and punctuation, and without
       a leading article.
    2. The same meaning in another wording. Numbers and dates are compared by value ("1.2 million",
       "1,200,000"; a date contains its year); names may be shortened ("William Gladstone" for
       "William Ewart Gladstone"), abbreviated, inflected, or contain one typo; an adjective
       mentions its country; a description ("her father's church") matches if all its content words
       are close together ("the church of her father").

    A mention does not cross the end of a sentence, a line or a bracket, and is not part of a longer
    name ("Mexico" in "New Mexico"). A name of one word must be capitalised.

    >>> mentions("the red lodge", "Red Lodge is a city.")
    (Mention(start=0, end=9),)
    >>> mentions("Billings", "Red Lodge is a city.")
    ()
    """
    sought = _phrase(phrase)
    if not sought.terms or not text:
        return ()
    read = _read(text)
    spans = read.spans(sought)
    return tuple(Mention(read.terms[a].start, read.terms[b - 1].end) for a, b in spans)


def supports_phrase(phrase: str, text: str, about: str = "") -> bool:
    """Return whether a text has all names, numbers and dates of a phrase, and most of its words.

    A word that the text only negates ("was not a singer") does not count. A role counts if the
    text states it in other words: "starring X" makes X an actor.

    Args:
        phrase: The claim.
        text: The text that should support it.
        about: The subject of the claim; the text must give a role in other words to this name.

    >>> supports_phrase("sang in church", "After singing in church as a child, she left.")
    True
    >>> supports_phrase("singer", "She was not a singer.")
    False
    >>> supports_phrase("actress", "It stars Ann Fox.", about="Ann Fox")
    True
    """
    sought = _phrase(phrase)
    if not sought.terms or not text:
        return False
    read = _read(text)
    needed = (each for each in _seek(sought.terms) if not each.may_lack)
    content = [e for e in needed if fold(e.text) not in FUNCTION_WORDS or e.text.isupper()]
    if not content:
        return bool(mentions(phrase, text))
    denies = any(fold(each.text) in _NEGATION for each in content)
    supported = 0
    for k, each in enumerate(content):
        word = fold(each.text)
        by_form = (each.text[0].islower() or k == 0) and not (about and word in lexicon.ROLE_VERBS)
        positions = read.places(read.akin(each) if by_form else each.keys)
        is_stated = any(denies or not read.is_denied(i) for i in positions)
        if not is_stated:
            by_name = each.is_name and not positions and bool(mentions(each.text, text))
            is_stated = by_name or read.gives_role(word, about)
        is_opening = k == 0 and each.text[0].isupper() and word not in lexicon.ADJECTIVES
        is_required = each.is_name or each.is_value or word in _NEGATION
        if is_required and not is_stated and not is_opening and word != "one":
            return False
        supported += is_stated
    return 2 * supported > len(content)
