"""What wording gives away: names that name nothing, guesses, and aliases that a text states."""

from __future__ import annotations

import re
from typing import Final

from ga_dspy.graph.names import is_acronym, normalise

_NOTHING: Final = re.compile(
    r"(?i:unknown|n\s?/?\s?a|none|null|nil|nothing|nobody|no[ -]one|tb[da]|undefined|"
    r"un(?:named|stated|specified|identified|disclosed|determined)|some(?:one|body|thing|where)|"
    r"(?:(?:is|was|are|were) )?not (?:yet )?(?:mentioned|specified|stated|known|given|provided|"
    r"found|clear|named|identified|listed|available|applicable|determined|disclosed)"
    r"(?: (?:in|by|here)\b.*)?|"
    r"no (?:information|mention|answer|data|name)(?: .*)?|"
    r"(?:entity|person|name|node|place|relation|head|tail|attribute)(?: ?[\dA-Ex]| name)?|answer)"
    r"|(?:[Uu]nknown|[Uu]nnamed|[Uu]nspecified|[Uu]nidentified|[Ss]ome|[Aa]nother|[Aa] certain) "
    r"[a-z]+(?: [a-z]+)?"
    r"|he|she|it|they|him|her|them|this|that|these|those|who|what|which|where|when|others?|various"
)
_ROLES: Final = (
    "singer|artist|actor|actress|person|man|woman|director|author|writer|band|film|movie|song|album|"
    "book|company|city|country|place|team|player|question|answer|passage|text|document|entity|"
    "performer|composer|father|mother|wife|husband|spouse|founder|school|university"
)
_ROLE: Final = re.compile(
    r"(?:[Tt]he|[Tt]his|[Tt]hat|[Hh]is|[Hh]er|[Tt]heir|[Ii]ts) "
    rf"(?:(?:same|said|first|second|other) )?(?:{_ROLES})"
)
_HEDGE: Final = (
    r"(?:un)?likely|possibly|presumably|probably|perhaps|maybe|supposedly|potentially|apparently|"
    r"conceivably|seemingly|unconfirmed|unclear|uncertain|speculated|it is possible|"
    r"(?:may|might|could) (?:also |well |not )?(?:be|have|refer|mean)|(?:seems?|appears?) to"
)
_HEDGED: Final = re.compile(rf"\b(?:{_HEDGE})\b|\A(?i:{_HEDGE}) (?=[a-z0-9])|\(\?\)")

_PRONOUNS: Final = frozenset(("He", "She", "It", "They"))
_WORD: Final = r"(?:(?:[A-Z]\.)+|(?:Dr|St|Mrs?|Jr|Sr)\.|[A-ZÀ-ÖØ-Þ][\w'’-]*)"
_JOINT: Final = r"(?:of|the|and|de|da|di|von|van|der|la|le|al|bin|ibn|&)"
_NAME: Final = rf"{_WORD}(?:[ -](?:{_JOINT} ){{0,2}}(?:{_WORD}|\d+))*"
_MANNER: Final = r"(?:\w+ly|also|better|best|more|sometimes|otherwise)"
_KNOWN_AS: Final = re.compile(
    rf"(?P<name>{_NAME})(?:\s*\([^()]*\))?[\s,(]+(?:is |was )?(?:{_MANNER} )*"
    rf"(?:known (?:{_MANNER} )?as|a\.?k\.?a\.?|nicknamed)[\s\"“'‘]+(?P<alias>{_NAME})"
    rf"(?:[\"”'’]? or [\"“'‘]?(?P<other>{_NAME}))?"
)
_NEE: Final = re.compile(rf"(?P<name>{_NAME})[\s,(\"“]+n[ée]e[\s\"”]+(?P<alias>{_NAME})")
_IN_PARENTHESES: Final = re.compile(rf"(?P<name>{_NAME})\s*\(\s*(?P<alias>[A-Z][A-Za-z.]{{1,9}})\)")


def is_placeholder(name: str) -> bool:
    """Whether a name names nothing: "unknown", "N/A", "[Entity 1]", "the singer", "?".

    Names that start in capitals are spared where a work or a band could bear them.

    >>> [is_placeholder(name) for name in ("Not mentioned", "the band", "The Band", "The Who")]
    [True, True, False, False]
    """
    plain = " ".join(name.strip("[]<>{}()\"'. ").split())
    if not any(char.isalnum() for char in plain):
        return not plain.strip("?-–—_…. ")
    return bool(_NOTHING.fullmatch(plain) or _ROLE.fullmatch(plain))


def is_hedged(text: str) -> bool:
    """Whether a wording is a guess: "likely a singer", "may be the same person".

    The words count in lower case, or at the start before lower case; so titles are spared.

    >>> [is_hedged(text) for text in ("Possibly a singer", "may be", "May 4, 1984", "Maybe")]
    [True, True, False, False]
    """
    return _HEDGED.search(text) is not None


def stated_aliases(text: str) -> tuple[tuple[str, str], ...]:
    """Pairs of a name and another name for it, where a text states that: (name, alias).

    Reads "known as" in its variants, "née" (a lone maiden name is put behind the first name), and
    an acronym in parentheses. What stands behind a comma ("William, Prince of Orange, known as")
    is no name of its own, and is passed over.

    >>> stated_aliases("Robert Dale Hayes (born 1950), better known as Bob Hayes, founded the "
    ...                "Northern Arts Guild (NAG).")
    (('Robert Dale Hayes', 'Bob Hayes'), ('Northern Arts Guild', 'NAG'))
    """
    found = [
        (match["name"], alias)
        for match in _KNOWN_AS.finditer(text)
        if not text.endswith(", ", 0, match.start())
        for alias in (match["alias"], match["other"])
        if alias
    ]
    for match in _NEE.finditer(text):
        first = "" if " " in match["alias"] else f"{match['name'].split()[0]} "
        found.append((match["name"], first + match["alias"]))
    found += [
        (match["name"], match["alias"])
        for match in _IN_PARENTHESES.finditer(text)
        if is_acronym(match["alias"], match["name"])
    ]
    return tuple(
        (name, alias)
        for name, alias in dict.fromkeys(found)
        if name not in _PRONOUNS and normalise(name) != normalise(alias)
    )
