"""The words of a file, and which of them are proper: the file's own lower case tells."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from ga_dspy.eval.renaming.fields import Role, Row, texts
from ga_dspy.eval.renaming.text import QUOTES, Token, is_foreign, runs, tokens
from ga_dspy.eval.renaming.words import FUNCTION, GENERIC_ACRONYMS, STAYING, Kind

_MOSTLY = 8  # capitals for one lower case, from which a word counts as proper
_IN_PLACES = frozenset("in at near from".split())
_NAMED: tuple[Role, ...] = ("title", "answer")


@dataclass
class Lexicon:
    """Counts over all texts of a file; words are folded.

    Attributes:
        every: All words, in whatever field.
        lower: How often a context has the word in lower case.
        inner: How often it has it capitalised where no sentence begins.
        named: Capitalised words of titles, answers and evidences.
        acronyms: Acronyms, as capitals without dots.
        hints: Kinds that the surroundings of a word suggest.
    """

    every: set[str] = field(default_factory=set)
    lower: Counter[str] = field(default_factory=Counter)
    inner: Counter[str] = field(default_factory=Counter)
    named: set[str] = field(default_factory=set)
    acronyms: set[str] = field(default_factory=set)
    hints: dict[str, Counter[Kind]] = field(default_factory=dict)

    def proper(self, word: str) -> bool:
        """Whether a word is a name's wherever it is capitalised."""
        if word in STAYING or len(word) < 2 or any(c.isdigit() for c in word):
            return False
        if is_foreign(word):
            return True
        inner = self.inner[word] or (word in self.named)
        return bool(inner) and self.lower[word] * _MOSTLY <= inner

    def never_lower(self, word: str) -> bool:
        """Whether no context has the word in lower case."""
        return not self.lower[word]


def read_lexicon(rows: Iterable[Row]) -> Lexicon:
    """Count the words of all rows."""
    lexicon = Lexicon()
    for row in rows:
        for role, text in texts(row):
            there = tokens(text)
            lexicon.every.update(token.folded for token in there)
            _count(lexicon, role, there)
            if role == "text":
                _hint(lexicon, there)
    lexicon.acronyms = {name for name in lexicon.acronyms if not _is_shouted(name, lexicon)}
    return lexicon


def _count(lexicon: Lexicon, role: Role, there: Sequence[Token]) -> None:
    if role == "text" and sum(token.text.isupper() for token in there) * 2 > len(there) > 3:
        return  # a line in capitals tells nothing
    for place, token in enumerate(there):
        if token.acronym:
            lexicon.acronyms |= {token.acronym} - GENERIC_ACRONYMS
        elif role in _NAMED and token.capitalised:
            lexicon.named.add(token.folded)
        elif role == "text" and not token.capitalised and not token.gap.endswith("-"):
            lexicon.lower[token.folded] += 1
        elif role == "text" and token.capitalised and _own_capital(there, place):
            lexicon.inner[token.folded] += 1


def _own_capital(there: Sequence[Token], place: int) -> bool:
    """Whether the capital is the word's own, wherever a sentence begins.

    So it is within a sentence, behind an initial ("J. Smith"), before another capital or "'s",
    and where a single word is quoted.
    """
    token, after = there[place], there[place + 1] if place + 1 < len(there) else None
    initial = place > 0 and len(there[place - 1].text) == 1 and token.gap == ". "
    owner = after is not None and after.folded == "s" and after.gap in ("'", "’")
    quoted = after is not None and token.gap[-1:] in QUOTES and after.gap[:1] in QUOTES
    followed = after is not None and after.gap == " " and after.text[0].isupper()
    leads = followed and not token.folded.endswith(("ly", "ing", "ed"))
    return token.inner or initial or owner or quoted or leads or is_foreign(token.text)


def _is_shouted(acronym: str, lexicon: Lexicon) -> bool:
    """Whether the capitals are a common or known word in capitals ("THE", "TITANIC")."""
    word = acronym.casefold()
    if word in FUNCTION:
        return acronym != "US"
    return len(acronym) > 2 and (lexicon.inner[word] > 0 or lexicon.lower[word] > 0)


def _hint(lexicon: Lexicon, there: Sequence[Token]) -> None:
    for run in runs(there):
        words = [token.folded for token in run]
        if len(run) == 1 and run[0].gap == " ":
            before = there[there.index(run[0]) - 1].folded
            if before in _IN_PLACES:
                _vote(lexicon, words[0], "place")
        elif 2 <= len(run) <= 3 and not any(word in STAYING for word in words):
            for word in words:
                _vote(lexicon, word, "person")


def _vote(lexicon: Lexicon, word: str, kind: Kind) -> None:
    lexicon.hints.setdefault(word, Counter())[kind] += 1
