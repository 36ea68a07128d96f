"""Names: whether a name means an entity, and which one, as judged only by its wording.

Placeholders ("unknown"), guesses ("possibly a singer") and empty reports ("none found") mean no
entity. Two names may mean the same entity, and a text may state that they do.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from functools import lru_cache, partial
from pathlib import Path
from typing import Final, NamedTuple

from rapidfuzz.distance import DamerauLevenshtein

from ga_dspy import lexicon
from ga_dspy.terms import NUMBER_WORDS, ORDINAL_WORDS, roman_value
from ga_dspy.text import ARTICLES, cached_short, normalise

TABLES: Final = json.loads(Path(__file__).with_name("identity.json").read_text("utf-8"))


def groups(table: str) -> dict[str, str]:
    """Invert a table that lists members by group: return the group of each member."""
    return {member: group for group, members in TABLES[table].items() for member in members}


# --- Qualifiers, spellings, acronyms, titles

_QUALIFIED: Final = re.compile(r"(?P<base>.*\S)\s*\((?P<qualifier>[^()]+)\)")
_ROMAN: Final = re.compile(r"(?:xl|l?x{0,3})(?:ix|iv|v?i{0,3})")
_BRITISH: Final = re.compile(r"(\w\w)our(s|ed|ing|ful|ite|ites)?\Z")
_SMALL_WORDS: Final = ARTICLES | {"and", "at", "by", "de", "for", "in", "of", "on"}

WORD_SIMILARITY: Final = 0.87
"""The minimum similarity of two spellings of one word: one typo in eight letters or more.

Similarity is one minus the Damerau-Levenshtein distance divided by the longer length. Measured on
HotpotQA, 2Wiki and MuSiQue: of 2,790 pairs of an article's title and a differently spelled name for
it, `near_duplicate` joins 84, and of 77,881 pairs of different titles in one question's context, 3.
An edit ratio over the whole name with a threshold (93 %) that joins as many of the former joins 409
of the latter.
"""

_AUXILIARY: Final = re.compile(r"\A(?:(?:is|was|are|were|be|been|has|have|had) (?=.))+")
_SAME_AS: Final = re.compile(
    r"(?:(?:is|was|are|exactly|the|one and) )*"
    r"(?:same(?: (?:person|place|thing|one|entity|man|woman|work|organi[sz]ation))? as|same|sameas|"
    r"identical(?: to| with)?|equivalent to|equals|equal to)"
)
TITLES: Final = frozenset(TABLES["titles"])
LEGAL: Final = frozenset(TABLES["legal"])
_LEGAL_AT_TIMES: Final = frozenset(TABLES["legal_at_times"])


class Title(NamedTuple):
    """A name and its qualifier: "Prism" and "album" in "Prism (album)"."""

    base: str
    qualifier: str


@cached_short(maxsize=16384, max_length=200)
def split_qualifier(name: str) -> Title:
    """Split a trailing qualifier from a name.

    >>> split_qualifier("Prism (album)")
    Title(base='Prism', qualifier='album')
    """
    match = _QUALIFIED.fullmatch(name.strip())
    return Title(match["base"], match["qualifier"].strip()) if match else Title(name, "")


_AFTER_NAME: Final = re.compile(r"(?P<base>[^,]*[^\s,])(?:,\s+(?P<after>.+)| (?P<jr>[JS]n?r\.?))")


@cached_short(maxsize=16384, max_length=200)
def split_title(title: str) -> Title:
    """Split a title from a qualifier in parentheses, after a comma, or "Jr.".

    >>> split_title("Cambridge, Massachusetts").base, split_title("Prism (album)").base
    ('Cambridge', 'Prism')
    """
    split = split_qualifier(title)
    if match := _AFTER_NAME.fullmatch(split.base):
        qualifier = match["after"] or match["jr"]
        return Title(match["base"], f"{qualifier} {split.qualifier}".strip())
    return split


@cached_short(maxsize=16384, max_length=200)
def identity(name: str) -> str:
    """Normalise a name, drop its qualifier and replace a well-known alias by the main name.

    An alias of up to three letters counts only in capitals: "us" is not a country.

    >>> identity("the U.S."), identity("us"), identity("Prism (album)")
    ('united states', 'us', 'prism')
    """
    base = split_qualifier(name).base
    plain = normalise(base)
    if len(plain) <= 3 and not "".join(base.split()[-1:]).isupper():
        return plain
    return lexicon.FULL_NAMES.get(plain, plain)


def is_acronym(short: str, name: str) -> bool:
    """Return whether `short`, in capitals, consists of the initials of `name`.

    >>> is_acronym("W.H.O.", "World Health Organization"), is_acronym("BoE", "Bank of England")
    (True, True)
    """
    return acronym_letters(short) in initials(normalise(name))


def acronym_letters(short: str) -> str:
    """Return the letters of a possible acronym in lower case; "?" if it cannot be one."""
    letters = re.sub(r"[.\s]", "", short)
    is_acronym = 2 <= len(letters) <= 8 and letters[0].isupper() and letters[-1].isupper()
    return letters.casefold() if is_acronym else "?"


def initials(plain: str) -> frozenset[str]:
    """Return the initials of a normalised name, with and without its small words."""
    every = [word[0] for word in plain.split()]
    main = [word[0] for word in plain.split() if word not in _SMALL_WORDS]
    return frozenset(("".join(every), "".join(main))) if len(main) > 1 else frozenset()


def near_duplicate(one: str, other: str) -> bool:
    """Return whether two normalised names differ by one typo, a space, or an initial.

    All words but one must be equal, and that one must not be a number in any notation: "Henry VII"
    is not "Henry VIII", nor is "North Korea" "South Korea". A name with one more word is another
    name. An ending is not a typo: the Romanian language is not Romania. `WORD_SIMILARITY` has the
    measurement.

    >>> near_duplicate("abdulatif al sayegh", "abdullatif al sayegh")
    True
    >>> near_duplicate("john f kennedy", "john fitzgerald kennedy")
    True
    >>> near_duplicate("john adams", "john quincy adams")
    False
    """
    if one.replace(" ", "") == other.replace(" ", ""):
        return True
    ours, theirs = words_in_digits(one), words_in_digits(other)
    if len(ours) != len(theirs):
        return False
    unequal = [(a, b) for a, b in zip(ours, theirs, strict=True) if a != b]
    if len(unequal) != 1:
        return not unequal
    short, long = sorted(unequal[0], key=len)
    if any(c.isdigit() for c in short + long):
        return False
    if len(short) == 1:
        return len(ours) > 2 and long.startswith(short) and ours[-1] == theirs[-1]
    if long.startswith(short):
        return False
    return DamerauLevenshtein.normalized_similarity(short, long) >= WORD_SIMILARITY


@cached_short(maxsize=16384, max_length=200)
def words_in_digits(plain: str) -> tuple[str, ...]:
    """Return the words of a normalised name with numbers in digits and "colour" as "color".

    An ordinal differs from its cardinal.

    >>> words_in_digits("world war ii"), words_in_digits("second edition")
    (('world', 'war', '2'), ('2th', 'edition'))
    """
    return tuple(_in_digits(word) for word in plain.split())


@cached_short(maxsize=16384, max_length=200)
def _in_digits(word: str) -> str:
    if ordinal := re.fullmatch(r"(\d+)(?:st|nd|rd|th)", word):
        return f"{ordinal[1]}th"
    if len(word) > 1 and _ROMAN.fullmatch(word):
        return str(roman_value(word.upper()))
    if word in ORDINAL_WORDS:
        return f"{ORDINAL_WORDS[word]}th"
    return str(NUMBER_WORDS.get(word, "")) or _BRITISH.sub(r"\1or\2", word)


def states_identity(relation: str) -> bool:
    """Return whether a relation states that its two ends are the same entity.

    >>> states_identity("is the same as"), states_identity("same year as its rival")
    (True, False)
    """
    return _SAME_AS.fullmatch(normalise(relation)) is not None


def is_nickname(name: str) -> bool:
    """Return whether a name is a title or an epithet that many bear: "The King", "Duke of York".

    >>> is_nickname("The Boss"), is_nickname("Duke of York"), is_nickname("Prince Harry")
    (True, True, False)
    """
    words = name.casefold().split()
    if words[:1] == ["the"]:
        return True
    return bool(words) and words[0] in TITLES and (len(words) == 1 or words[1] in _SMALL_WORDS)


def without_legal_form(plain: str) -> str:
    """Remove the legal form at the end of a normalised name.

    >>> without_legal_form("limode co ltd"), without_legal_form("company")
    ('limode', 'company')
    """
    words = plain.split()
    while len(words) > 1 and words[-1] in LEGAL | _LEGAL_AT_TIMES:
        words.pop()
    return " ".join(words)


def plain_relation(relation: str) -> str:
    """Return the wording of a relation without its tense and person.

    >>> plain_relation("was born in"), plain_relation("is")
    ('born in', 'is')
    """
    return _AUXILIARY.sub("", normalise(relation))


@lru_cache(maxsize=65536)
def relation_key(relation: str) -> str:
    """Return the wording by which relations are compared: no tense, person or articles.

    >>> relation_key("was born in"), relation_key("is the capital of")
    ('born in', 'capital of')
    """
    return normalise(plain_relation(relation))


# --- Empty reports

_DENIALS: Final = frozenset(TABLES["denials"])
_REPORTS: Final = frozenset(TABLES["reports"])
_BLANK: Final = re.compile(r"[\s\-–—_.…·•*#()\[\]{}<>\"'“”‘’`,:;|/∅=+~]*")
_PASSAGE: Final = re.compile(r"\[\d{1,3}(?:[,\s-]+\d{1,3})*\]|\bpassages?\s#?\d{1,3}\b")
_ANSWERS: Final = frozenset(("no", "not", "nor", "without", "already", "zero"))
"""Negations that may be an answer by themselves."""
_MANY_WORDS: Final = 40


@cached_short(maxsize=4096, max_length=200)
def says_nothing(text: str) -> bool:
    """Return whether a text reports that there is nothing: "none", "No new relations found.".

    It does if it has no words, or if it contains a negation and all its words are typical of such
    reports, so it contains no name. A bare "no" is an answer.

    >>> [says_nothing(text) for text in ("(none)", "The passages add nothing new.", "No Doubt")]
    [True, True, False]
    """
    if _BLANK.fullmatch(text):
        return True
    if len(text) > 12 * _MANY_WORDS or "\\" in text:
        return False
    plain = re.sub(r"\bn\s?[./]\s?a\b\.?", "none", text.casefold().replace("’", "'"))
    plain = _PASSAGE.sub("passage", plain)
    words = re.findall(r"[^\W_]+(?:'t)?", plain)
    denials = [word for word in words if word in _DENIALS or word.endswith("n't")]
    typical = len(denials) + sum(word in _REPORTS for word in words)
    is_report = typical > len(denials) or not _ANSWERS.issuperset(denials)
    return bool(denials) and typical == len(words) <= _MANY_WORDS and is_report


# --- Unknown values, placeholders, guesses

_UNKNOWN: Final = r"un(?:known|named|stated|specified|identified|disclosed|determined)"
_UNSTATED: Final = re.compile(
    rf"(?i:n\s?/?\s?a|none|null|nil|nothing|nobody|no[ -]one|tb[da]|undefined|{_UNKNOWN}|"
    r"unbekannt|inconnue?|desconocid[oa]|sconosciut[oa]|onbekend|"
    r"(?:(?:is|was|are|were) )?not (?:yet )?(?:mentioned|specified|stated|known|given|provided|"
    r"found|clear|named|identified|listed|available|applicable|determined|disclosed)"
    r"(?: (?:in|by|here)\b.*)?|no (?:information|mention|answer|data|name)(?: .*)?)"
    rf"|[Uu]n(?:known|named|specified|identified) [a-z]+(?: [a-z]+)?|[a-z]+ {_UNKNOWN}"
)
_GENERIC: Final = re.compile(
    r"(?i:some(?:one|body|thing|where)|"
    r"(?:entity|person|name|node|place|thing|relation|head|tail|attribute)(?: ?[\dA-Ex]| name)?|"
    r"answer)"
    r"|(?:[Ss]ome|[Aa]nother|[Aa] certain) [a-z]+(?: [a-z]+)?"
    r"|he|she|it|they|him|her|them|this|that|these|those|who|what|which|where|when|others?|various"
)
_ROLE: Final = re.compile(
    r"(?:[Tt]he|[Tt]his|[Tt]hat|[Hh]is|[Hh]er|[Tt]heir|[Ii]ts) "
    rf"(?:(?:same|said|first|second|other) )?(?:{'|'.join(TABLES['roles'])})"
)
_HEDGE: Final = (
    r"(?:un)?likely|possibly|presumably|probably|perhaps|maybe|supposedly|potentially|apparently|"
    r"conceivably|seemingly|unconfirmed|unclear|uncertain|speculated|it is possible|"
    r"(?:may|might|could) (?:also |well |not )?(?:be|have|refer|mean)|(?:seems?|appears?) to"
)
_HEDGED: Final = re.compile(rf"\b(?:{_HEDGE})\b|\A(?i:{_HEDGE}) (?=[a-z0-9])|\(\?\)")


def is_unstated(text: str) -> bool:
    """Return whether a text says that a value is unknown: "unknown", "N/A", "not mentioned", "?".

    >>> [is_unstated(text) for text in ("Not mentioned in [1]", "person", "Unknown Pleasures")]
    [True, False, False]
    """
    plain = " ".join(text.strip("[]<>{}()\"'. ").split())
    if not any(char.isalnum() for char in plain):
        return not plain.strip("?-–—_…. ")
    return _UNSTATED.fullmatch(plain) is not None


def is_placeholder(name: str) -> bool:
    """Return whether a name is a placeholder: "unknown", "[Entity 1]", "person", "the singer".

    A capitalised name that a work or a band may have is not one. A word such as "person" is a
    placeholder only as a name, not as a type.

    >>> [is_placeholder(name) for name in ("Not mentioned", "the band", "The Band", "The Who")]
    [True, True, False, False]
    """
    plain = " ".join(name.strip("[]<>{}()\"'. ").split())
    return is_unstated(name) or bool(_GENERIC.fullmatch(plain) or _ROLE.fullmatch(plain))


def is_hedged(text: str) -> bool:
    """Return whether a text is a guess: "likely a singer", "may be the same person".

    To exclude titles, the hedging word must be in lower case, or open the text before a lower-case
    word.

    >>> [is_hedged(text) for text in ("Possibly a singer", "may be", "May 4, 1984", "Maybe")]
    [True, True, False, False]
    """
    return _HEDGED.search(text) is not None


# --- Stated aliases

_PRONOUNS: Final = frozenset(("He", "She", "It", "They", "This", "These"))
_WORD: Final = r"(?:(?:[A-Z]\.)+|(?:Dr|St|Mrs?|Jr|Sr)\.|[A-ZÀ-ÖØ-Þ][\w'’-]*)"
_JOINT: Final = r"(?:of|the|and|de|da|di|von|van|der|la|le|al|bin|ibn|&)"
_NAME: Final = rf"{_WORD}(?:[ -](?:{_JOINT} ){{0,2}}(?:{_WORD}|\d+))*"
_MANNER: Final = r"(?:\w+ly|also|better|best|more|sometimes|otherwise)"
_KNOWN_AS: Final = re.compile(
    rf"(?P<name>{_NAME})(?:\s*\([^()]*\))?[\s,(]+(?:is |was )?(?:{_MANNER} )*"
    rf"(?:known (?:{_MANNER} )?as|a\.?k\.?a\.?|nicknamed)[\s\"“'‘]+(?:the )?(?P<alias>{_NAME})"
    rf"(?:[\"”'’]? or [\"“'‘]?(?P<other>{_NAME}))?"
)
_NEE: Final = re.compile(rf"(?P<name>{_NAME})[\s,(\"“]+n[ée]e[\s\"”]+(?P<alias>{_NAME})")
_LONG_NAME: Final = rf"{_WORD}(?:[ -](?:(?:{_JOINT}|for|in|on|to) ){{0,2}}{_WORD})+"
_IN_PARENTHESES: Final = re.compile(
    rf"(?P<name>{_LONG_NAME})\s*\(\s*(?P<alias>[A-Z][A-Za-z.]{{1,9}})\)"
)
_CUT_BEFORE: Final = re.compile(
    r"(?:[^\s(\"“'‘]|\S*\d\S*\s|[:,]\s|"
    r"\b(?:of|von|van|de|du|da|di|dos|das|den|der|ter|la|le|al|bin|ibn|and|&)\s|"
    r"[A-ZÀ-ÖØ-Þ][\w'’.-]*\s(?:(?:to|with|in|for|on|at|by|from|the|a|an|und|y|et)\s){1,2})\Z"
)
"""If this precedes a name, the name is the end of a longer one, or in apposition."""
_LOOSE: Final = re.compile(r"\b(?:from|in|at|to|with|on|near|for)\s(?:the\s)?\Z")
"""If this precedes a name, the text after its comma may be about something else."""
_ENDS: Final = re.compile(r"[\"”'’]|\s?[,.;)(](?!\w)|\s?\Z|\s(?:or|is|was|are|were)\s|\n")


@cached_short(maxsize=512, max_length=8000)
def stated_aliases(text: str) -> tuple[tuple[str, str], ...]:
    """Return the pairs (name, alias) that a text states.

    It reads variants of "known as", "née" (a lone maiden name follows the first name), and acronyms
    in parentheses. It ignores a name that may be the end of a longer one or is in apposition
    ("William, Prince of Orange, known as"), and an alias that continues ("known as The Rules for
    Starting Over").

    >>> stated_aliases("Robert Dale Hayes (born 1950), better known as Bob Hayes, founded the "
    ...                "Northern Arts Guild (NAG).")
    (('Robert Dale Hayes', 'Bob Hayes'), ('Northern Arts Guild', 'NAG'))
    """
    found = list[tuple[str, str]]()
    for match in filter(partial(_begins, text), _KNOWN_AS.finditer(text)):
        for group in ("alias", "other"):
            if _ends(text, match.end(group)):
                found.append((match["name"], match[group]))
    for match in filter(partial(_begins, text), _NEE.finditer(text)):
        if _ends(text, match.end("alias")):
            first = "" if " " in match["alias"] else f"{match['name'].split()[0]} "
            found.append((match["name"], first + match["alias"]))
    for match in _IN_PARENTHESES.finditer(text):
        name = match["name"].removesuffix("'s").removesuffix("’s")
        if long := _spelled_out(name, match["alias"]):
            found.append((long, match["alias"]))
    return tuple(pair for pair in dict.fromkeys(found) if _is_pair(*pair))


def _is_pair(name: str, alias: str) -> bool:
    is_name = name not in _PRONOUNS and not re.fullmatch(_MANNER, name, re.IGNORECASE)
    is_alias = " and " not in alias and alias[-1] not in "-'’"
    return is_name and is_alias and normalise(name) != normalise(alias)


def _spelled_out(name: str, short: str) -> str:
    """Return the longest end of a name that a short form abbreviates, or an empty string."""
    words = name.split()
    for i, word in enumerate(words):
        if word[0].isupper() and _abbreviates(short.replace(".", ""), words[i:]):
            return " ".join(words[i:])
    return ""


def _abbreviates(short: str, words: Sequence[str]) -> bool:
    """Return whether a short form in capitals consists of the beginnings of words.

    >>> _abbreviates("ISKCON", "International Society for Krishna Consciousness".split())
    True
    """
    if is_acronym(short, " ".join(words)):
        return True
    pattern = "".join(
        f"(?:{re.escape(word[:1])}{_beginning(word[1:4])})" + "?" * word.islower() for word in words
    )
    long_enough = len(short) > 2 and len([w for w in words if not w.islower()]) > 1
    return long_enough and short.isupper() and bool(re.fullmatch(pattern, short, re.IGNORECASE))


def _beginning(rest: str) -> str:
    """Return a pattern for zero or more of the letters after an initial."""
    return f"(?:{re.escape(rest[0])}{_beginning(rest[1:])})?" if rest else ""


def _begins(text: str, match: re.Match[str]) -> bool:
    """Return whether a name is complete on its left."""
    start, end = match.span("name")
    before, between = text[max(0, start - 60) : start], text[end : match.start("alias")]
    is_apart = between.lstrip().startswith(",") or ")," in between
    return not (_CUT_BEFORE.search(before) or (is_apart and _LOOSE.search(before)))


def _ends(text: str, end: int) -> bool:
    """Return whether an alias, if there is one, is complete on its right."""
    return end >= 0 and _ENDS.match(text, end) is not None
