"""Wording: empty statements, placeholders, guesses, and aliases that a text states."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from ga_dspy.graph.identity import is_acronym
from ga_dspy.text import cached_short, normalise

_WORDS: Final = json.loads(Path(__file__).with_name("wording.json").read_text("utf-8"))

# --- Empty statements

_DENIALS: Final = frozenset(_WORDS["denials"])
_REPORTS: Final = frozenset(_WORDS["reports"])
_BLANK: Final = re.compile(r"[\s\-–—_.…·•*#()\[\]{}<>\"'“”‘’`,:;|/∅=+~]*")
_PASSAGE: Final = re.compile(r"\[\d{1,3}(?:[,\s-]+\d{1,3})*\]|\bpassages?\s#?\d{1,3}\b")
_NOT_APPLICABLE: Final = re.compile(r"\bn\s?[./]\s?a\b\.?")
_ANSWERS: Final = frozenset(("no", "not", "nor", "without", "already", "zero"))
"""Negations that are an answer by themselves."""
_MANY_WORDS: Final = 40


@cached_short(maxsize=4096, max_length=200)
def says_nothing(text: str) -> bool:
    """Return whether a text says that there is nothing: "none", "N/A", "No new relations found.".

    It does if it has no word, or if it contains a negation and all its words are those of a report
    on reading, so that no name is among them. A bare "no" is an answer.

    >>> [says_nothing(text) for text in ("(none)", "The passages add nothing new.", "No Doubt")]
    [True, True, False]
    """
    if _BLANK.fullmatch(text):
        return True
    if len(text) > 12 * _MANY_WORDS or "\\" in text:
        return False
    plain = _NOT_APPLICABLE.sub("none", text.casefold().replace("’", "'"))
    plain = _PASSAGE.sub("passage", plain)
    words = re.findall(r"[^\W_]+(?:'t)?", plain)
    denials = [word for word in words if word in _DENIALS or word.endswith("n't")]
    known = len(denials) + sum(word in _REPORTS for word in words)
    is_report = known > len(denials) or not _ANSWERS.issuperset(denials)
    return bool(denials) and known == len(words) <= _MANY_WORDS and is_report


# --- Unknown values, placeholders, guesses

_UNSTATED: Final = re.compile(
    r"(?i:unknown|n\s?/?\s?a|none|null|nil|nothing|nobody|no[ -]one|tb[da]|undefined|"
    r"un(?:named|stated|specified|identified|disclosed|determined)|"
    r"(?:(?:is|was|are|were) )?not (?:yet )?(?:mentioned|specified|stated|known|given|provided|"
    r"found|clear|named|identified|listed|available|applicable|determined|disclosed)"
    r"(?: (?:in|by|here)\b.*)?|"
    r"no (?:information|mention|answer|data|name)(?: .*)?)"
    r"|(?:[Uu]nknown|[Uu]nnamed|[Uu]nspecified|[Uu]nidentified) [a-z]+(?: [a-z]+)?"
    r"|[a-z]+ un(?:known|named|stated|specified|identified|disclosed|determined)"
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
    rf"(?:(?:same|said|first|second|other) )?(?:{'|'.join(_WORDS['roles'])})"
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


@cached_short(maxsize=4096, max_length=200)
def is_placeholder(name: str) -> bool:
    """Return whether a name is a placeholder: "unknown", "[Entity 1]", "person", "the singer".

    Capitalised names that a work or a band could have are accepted. A word like "person" is a
    placeholder only as a name, not as a type.

    >>> [is_placeholder(name) for name in ("Not mentioned", "the band", "The Band", "The Who")]
    [True, True, False, False]
    """
    plain = " ".join(name.strip("[]<>{}()\"'. ").split())
    return is_unstated(name) or bool(_GENERIC.fullmatch(plain) or _ROLE.fullmatch(plain))


def is_hedged(text: str) -> bool:
    """Return whether a wording is a guess: "likely a singer", "may be the same person".

    The words count in lower case, or at the start before lower case, so that titles do not match.

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
"""Before a name: then the name is the end of a longer one, or in apposition."""
_LOOSE: Final = re.compile(r"\b(?:from|in|at|to|with|on|near|for)\s(?:the\s)?\Z")
"""Before a name: then the text behind its comma may be about something else."""
_ENDS: Final = re.compile(r"[\"”'’]|\s?[,.;)(](?!\w)|\s?\Z|\s(?:or|is|was|are|were)\s|\n")
_REACH: Final = 60


@cached_short(maxsize=512, max_length=8000)
def stated_aliases(text: str) -> tuple[tuple[str, str], ...]:
    """Return the pairs (name, alias) that a text states.

    Reads the variants of "known as", "née" (a lone maiden name is put behind the first name), and
    an acronym in parentheses. A name that may be the end of a longer one or that is in apposition
    ("William, Prince of Orange, known as") is ignored, and so is an alias that continues ("known as
    The Rules for Starting Over").

    >>> stated_aliases("Robert Dale Hayes (born 1950), better known as Bob Hayes, founded the "
    ...                "Northern Arts Guild (NAG).")
    (('Robert Dale Hayes', 'Bob Hayes'), ('Northern Arts Guild', 'NAG'))
    """
    found = [
        (match["name"], match[group])
        for match in _KNOWN_AS.finditer(text)
        if _begins(text, match)
        for group in ("alias", "other")
        if match[group] and _ends(text, match.end(group))
    ]
    for match in _NEE.finditer(text):
        if _begins(text, match) and _ends(text, match.end("alias")):
            first = "" if " " in match["alias"] else f"{match['name'].split()[0]} "
            found.append((match["name"], first + match["alias"]))
    for match in _IN_PARENTHESES.finditer(text):
        name = match["name"].removesuffix("'s").removesuffix("’s")
        found += [(long, match["alias"]) for long in _spelled_out(name, match["alias"])]
    return tuple(
        (name, alias)
        for name, alias in dict.fromkeys(found)
        if name not in _PRONOUNS
        and not re.fullmatch(_MANNER, name, re.I)
        and " and " not in alias
        and alias[-1] not in "-'’"
        and normalise(name) != normalise(alias)
    )


def _spelled_out(name: str, short: str) -> list[str]:
    """Return the longest end of a name that a short form abbreviates, if any."""
    words = name.split()
    ends = [words[i:] for i in range(len(words)) if words[i][0].isupper()]
    fitting = (" ".join(end) for end in ends if _abbreviates(short.replace(".", ""), end))
    return list(fitting)[:1]


def _abbreviates(short: str, words: Sequence[str]) -> bool:
    """Return whether a short form in capitals consists of beginnings of words.

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
    """Return a pattern for zero or more of the letters behind an initial."""
    return f"(?:{re.escape(rest[0])}{_beginning(rest[1:])})?" if rest else ""


def _begins(text: str, match: re.Match[str]) -> bool:
    """Return whether a name is complete on its left."""
    start, end = match.span("name")
    before, between = text[max(0, start - _REACH) : start], text[end : match.start("alias")]
    is_apart = between.lstrip().startswith(",") or ")," in between
    return not (_CUT_BEFORE.search(before) or (is_apart and _LOOSE.search(before)))


def _ends(text: str, end: int) -> bool:
    """Return whether an alias is complete on its right."""
    return _ENDS.match(text, end) is not None
