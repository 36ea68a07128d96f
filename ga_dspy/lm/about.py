"""Who a passage is about: its subject, the other names it has there, and the types of names."""

from __future__ import annotations

import re

from ga_dspy.lm.candidates import bare_title
from ga_dspy.lm.grammar import ADVERBS, DETERMINERS, PREPOSITIONS, RELATIVES, is_verb
from ga_dspy.lm.lexicon import COUNTRIES, NATIONALITIES, US_STATES, noun_type
from ga_dspy.lm.mention import Mention, mentions
from ga_dspy.lm.text import Parsed, parse

_TYPE_ENDS = RELATIVES | PREPOSITIONS | ADVERBS | frozenset(
    "best currently set starring featuring , . ; : ( ) – —".split()
)  # fmt: skip
_KINDS = ("person", "group", "work", "place")
_IS = frozenset("is was are were".split())
_ARTICLES = frozenset("a an the".split())
_ORDINAL = re.compile(r"(?:first|second|third|last|only|one|\w+th|\d+(?:st|nd|rd|th))")
_UNFIT = frozenset(';[]|\\"')
_OPENING = 60
_LONGEST_TYPE = 8


class About:
    """A passage with what is known of its subject and its names while it is read.

    Attributes:
        parsed: The text, parsed.
        mentions: What it mentions, in order.
        subject: The title without its qualifier; the first name where there is no title.
        types: The type of each name that the text gives one, in its words.
        seen: Names of several words met so far, for the surnames that follow.
    """

    def __init__(self, title: str, text: str) -> None:
        self.parsed: Parsed = parse(text)
        self.low = self.parsed.lower
        self.mentions = mentions(self.parsed)
        first = next((m.text for m in self.mentions if m.kind in ("name", "quote")), "")
        self.subject = bare_title(title) or first
        self.types: dict[str, str] = {}
        self.seen: list[str] = []
        self._read_type()
        self.aliases = self._aliases()

    @property
    def person(self) -> bool:
        """Whether the passage is about a person."""
        words = self.types.get(self.subject, "").lower().split()
        if any(noun_type(word) == "person" for word in words[-3:]):
            return True
        return not words and ("born" in self.low[:12] or bool({"he", "she"} & set(self.low)))

    def _read_type(self) -> None:
        """The noun phrase of "X is a …"."""
        for i in range(min(len(self.low) - 2, _OPENING)):
            if self.low[i] in _IS and self.low[i + 1] in _ARTICLES:
                self.describe(self.subject, self.noun_phrase(i + 2))
                return

    def _aliases(self) -> frozenset[str]:
        """Other ways in which the passage writes its subject's name."""
        names = {self.subject, self.subject.split(",")[0]}
        first = self.mentions[0] if self.mentions else None
        if first and first.start <= 2 and first.kind in ("name", "quote"):
            names.add(first.text)
        if self.person:
            names |= {name.split()[at] for name in names if name.split() for at in (0, -1)}
        return frozenset(name for name in names if len(name) > 1 and not name.isdigit())

    def noun_phrase(self, start: int) -> str:
        """The words from a token on that read like one noun phrase, at most eight."""
        i, limit = start, min(len(self.low), start + _LONGEST_TYPE)
        while i < limit and self.low[i] not in _TYPE_ENDS:
            ahead = self.low[i + 1 : i + 4]
            goes_on = any(map(noun_type, ahead)) and ahead[0] not in DETERMINERS
            if self.low[i] == "and" and not goes_on:
                break
            if is_verb(self.low[i]) and ahead and ahead[0] in PREPOSITIONS | DETERMINERS | {"and"}:
                break
            i += 1
        while i > start and self.low[i - 1] in ("and", "or"):
            i -= 1
        return self.parsed.slice(start, i) if i > start else ""

    def describe(self, name: str, kind: str) -> None:
        """Note the type of a name, if it has none yet."""
        if kind.lower() in NATIONALITIES or _ORDINAL.fullmatch(kind):
            return
        if kind and not set(kind) & _UNFIT:
            self.types.setdefault(name, kind)

    def name(self, mention: Mention) -> str:
        """The name a mention stands for: the subject's, or a longer one that was seen before."""
        if mention.text in self.aliases:
            return self.subject
        if " " in mention.text and self.subject.endswith(" " + mention.text):
            return self.subject
        if mention.kind == "name" and " " not in mention.text:
            longer = [n for n in self.seen if n.split()[-1] == mention.text]
            return longer[-1] if longer else mention.text
        return mention.text

    def describe_mention(self, mention: Mention) -> None:
        """The type of a name from the words before it ("American director …") or after it."""
        name = self.name(mention)
        if mention.kind != "name" or name in self.types:
            return
        before = self._before(mention)
        if before and noun_type(before[-1]) in _KINDS:
            self.describe(name, " ".join(before))
        elif self.low[mention.end : mention.end + 1] == (",",) and (
            set(self.low[mention.end + 1 : mention.end + 2]) & _ARTICLES
        ):
            kind = self.noun_phrase(mention.end + 2)
            if kind and noun_type(kind.split()[-1]):
                self.describe(name, kind)
        if name.split(", ")[-1].lower() in US_STATES | COUNTRIES:
            self.describe(name, "place")

    def _before(self, mention: Mention) -> list[str]:
        """Up to three words before a name that read like its type."""
        i = mention.start
        while i > 0 and mention.start - i < 3 and self._describes(i - 1):
            i -= 1
        return self.parsed.slice(i, mention.start).split() if i < mention.start else []

    def _describes(self, i: int) -> bool:
        word, low = self.parsed.tokens[i].text, self.low[i]
        if low in NATIONALITIES:
            return True
        plural = low.endswith("s") and not low.endswith("ss")
        plain = word.islower() and word.isalpha() and not plural and not is_verb(low)
        return plain and noun_type(low) in _KINDS
