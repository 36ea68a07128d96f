"""A walk along one sentence: from mention to mention, by the words in between."""

from __future__ import annotations

from typing import NamedTuple

from ga_dspy.lm.about import About
from ga_dspy.lm.grammar import (
    BE,
    DETERMINERS,
    PREPOSITIONS,
    PRONOUNS,
    RELATIVES,
    is_predicate,
    is_verb,
    relation_phrase,
)
from ga_dspy.lm.lexicon import noun_type
from ga_dspy.lm.mention import Mention

_LIST = frozenset([(",",), ("and",), (",", "and"), ("&",), ("or",), ("as", "well", "as")])
_OBJECT_PREPOSITIONS = frozenset("for with from against to".split())
_OWNERS = frozenset("his her its their".split())
_LONGEST_RELATION = 6


class Triple(NamedTuple):
    """A relation with the sentence (counted from 0) that states it, and when, if it says so.

    `kind` is the kind of the tail: name, date, year, quote or quantity.
    """

    head: str
    relation: str
    tail: str
    kind: str
    sentence: int
    time: str = ""


class Clause:
    """A walk along one sentence: who it speaks of, by which verb, and what was reached."""

    def __init__(
        self,
        about: About,
        number: int,
        start: int,
        found: list[Mention],
        triples: dict[tuple[str, str], Triple],
    ) -> None:
        self.about, self.number, self.low = about, number, about.low
        self.triples = triples
        self.verb: list[str] = []
        self.last: Triple | None = None
        self.previous: Mention | None = None
        self.when = ""
        self.owned = False
        self.head, self.at = self._opening(start, found)

    def _opening(self, start: int, found: list[Mention]) -> tuple[str, int]:
        """The subject of the sentence and the token after it; "" where none is seen."""
        i, about = start, self.about
        while i < start + 2 and self.low[i : i + 1] in (("the",), ('"',), ("“",), ("a",), ("an",)):
            i += 1
        names = [m for m in found[:2] if m.kind in ("name", "quote")]
        if names and names[0].start <= i:
            first = names[0]
            role = self.low[first.end : names[1].start] if len(names) > 1 else ()
            if 0 < len(role) <= 2 and noun_type(role[-1]) == "person":
                first = names[1]
            self.previous = first
            return about.name(first), first.end
        word = self.low[i] if i < len(self.low) else ""
        kind = about.types.get(about.subject, "").lower().split()
        self.owned = word in _OWNERS
        if word in PRONOUNS or (word and word in kind) or (i > start and noun_type(word)):
            return about.subject, i + 1
        if self.number == 0:
            verbs = [j for j in range(start, min(start + 40, len(self.low))) if self.low[j] in BE]
            return (about.subject, verbs[0]) if verbs else ("", start)
        return "", start

    def step(self, mention: Mention) -> None:
        """Take the next mention: relate it to what came before, by the words in between."""
        if mention.start < self.at:
            return
        gap = self._gap(mention)
        owned, self.owned = self.owned, False
        if owned:
            self._owned(mention, gap)
        elif not self.head:
            self._late_subject(mention, gap)
        elif gap[:1] in (("'s",), ("’s",), ("'",), ("’",)):
            self._possessive(mention, gap)
        else:
            self._relate(mention, self._relative(gap))
        self.previous, self.at = mention, mention.end

    def _gap(self, mention: Mention) -> tuple[str, ...]:
        """The words since the last mention, bracketed ones left out."""
        kept, depth = [], 0
        for word in self.low[self.at : mention.start]:
            depth += (word == "(") - (word == ")")
            if depth <= 0 and word not in ('"', "“", "”", ")"):
                kept.append(word)
        return tuple(kept)

    def _late_subject(self, mention: Mention, gap: tuple[str, ...]) -> None:
        """The subject follows an opening phrase: "In 1999, he married …"."""
        if mention.kind in ("date", "year") and set(gap) <= PREPOSITIONS | DETERMINERS:
            self.when = mention.text
        pronoun = next((i for i, w in enumerate(gap) if w in PRONOUNS), None)
        if pronoun is not None:
            self.head = self.about.subject
            self._relate(mention, gap[pronoun + 1 :])
        elif self.when and "," in gap and mention.kind == "name":
            self.head = self.about.name(mention)

    def _possessive(self, mention: Mention, gap: tuple[str, ...]) -> None:
        noun = [w for w in gap[1:] if w[-1].isalnum()]
        if self.previous and 0 < len(noun) <= 3 and noun_type(noun[-1]):
            self._note(self.about.name(self.previous), " ".join(noun), mention)
        else:
            self._relate(mention, gap)

    def _owned(self, mention: Mention, gap: tuple[str, ...]) -> None:
        """What is hers in "Her first album X was …"; the sentence goes on about X."""
        words = [word for word in gap if word[-1].isalnum()]
        verbs = [word for word in words if is_verb(word)]
        named = 0 < len(words) <= 4 and any(noun_type(word) for word in words)
        if named and (not verbs or verbs == words[-1:]):
            self._note(self.head, " ".join(words), mention)
            if mention.kind in ("name", "quote") and not verbs:
                self.head = self.about.name(mention)
        else:
            self._relate(mention, gap)

    def _relative(self, gap: tuple[str, ...]) -> tuple[str, ...]:
        """From ", who directed" on, the sentence speaks of the name before it."""
        before = (
            self.previous if self.previous and self.previous.kind in ("name", "quote") else None
        )
        for i, word in enumerate(gap[:2]):
            if word in ("who", "which", "whose"):
                if before:
                    self.head, self.verb = self.about.name(before), []
                return gap[i + 1 :]
        if before and gap[:1] == (",",) and gap[1:2] and gap[1] in ("a", "an", "the"):
            self._appositive(before, gap)
        return gap

    def _appositive(self, before: Mention, gap: tuple[str, ...]) -> None:
        if gap[-1] in PREPOSITIONS or any(map(is_verb, gap)):
            self.head, self.verb = self.about.name(before), ["is"]

    def _relate(self, mention: Mention, gap: tuple[str, ...]) -> None:
        if gap[:1] == ("-",):
            return
        if self.last is not None and gap in _LIST:
            if (mention.kind == self.last.kind) or {mention.kind, self.last.kind} == {
                "name",
                "quote",
            }:
                self._note(self.last.head, self.last.relation, mention, self.last.time)
            return
        clean = self._last_part(gap)
        if any(is_predicate(clean, i) for i in range(len(clean))):
            self.verb = list(clean)
            self._note(self.head, relation_phrase(clean), mention)
        elif clean and clean[-1] in PREPOSITIONS | DETERMINERS and len(clean) <= 6:
            self._prepositional(mention, [w for w in clean if w not in ("and", "or")])

    def _last_part(self, gap: tuple[str, ...]) -> tuple[str, ...]:
        """The words after the last comma or colon, unless they are too few to mean anything."""
        parts: list[list[str]] = [[]]
        for word in gap:
            if word[-1].isalnum():
                parts[-1].append(word)
            elif parts[-1]:
                parts.append([])
        parts = [part for part in parts if part]
        if len(parts) > 1 and len(parts[-1]) <= 2 and set(parts[-1]) <= PREPOSITIONS | {"and"}:
            return (*parts[-2], *parts[-1])
        return tuple(parts[-1]) if parts else ()

    def _prepositional(self, mention: Mention, gap: list[str]) -> None:
        """A further "in", "on" or "of" after the verb's first object."""
        while gap and gap[-1] in DETERMINERS:
            gap = gap[:-1]
        if not gap or not self.verb or gap[-1] not in PREPOSITIONS:
            return
        verb = next((w for w in reversed(self.verb) if is_verb(w)), "")
        if verb in BE:
            if len(gap) > 1 and gap[0] not in PREPOSITIONS:
                self._note(self.head, " ".join([verb, *gap]), mention)
            elif gap == ["in"] and self.previous and self.previous.kind == mention.kind == "name":
                self._note(self.about.name(self.previous), "in", mention)
        elif self.last and self.last.relation.split()[-1] in PREPOSITIONS and len(gap) <= 4:
            if gap[0] in PREPOSITIONS:
                self._note(self.head, " ".join([verb, *gap]), mention)
        elif self.last and mention.kind in ("date", "year"):
            self._dated(mention)
        elif self.last and gap[0] in _OBJECT_PREPOSITIONS and len(gap) == 1:
            words = [verb, *self.last.tail.split(), *gap]
            if len(words) <= _LONGEST_RELATION and self.last.kind == "name":
                self._note(self.head, " ".join(words), mention)

    def _dated(self, mention: Mention) -> None:
        if self.last is not None and not self.last.time:
            self.last = self.last._replace(time=mention.text)
            self.triples[self.last.head, self.last.tail] = self.last

    def _note(self, head: str, relation: str, mention: Mention, time: str = "") -> None:
        if not relation or self._only_qualifies(relation, mention):
            return
        tail = self.about.name(mention)
        found = Triple(head, relation, tail, mention.kind, self.number, time or self.when)
        if head == tail:
            return
        if (head, tail) not in self.triples:
            self.last = found
        self.triples.setdefault((head, tail), found)
        self.about.describe_mention(mention)

    def _only_qualifies(self, relation: str, mention: Mention) -> bool:
        """Whether the name stands before a noun: "was a Supreme Court case", "is 7 km"."""
        after = self.low[mention.end] if mention.end < len(self.low) else ""
        noun_follows = after[:1].isalpha() and not is_verb(after) and after not in (
            PREPOSITIONS | RELATIVES | DETERMINERS | {"and", "or", "but", "while", "also"}
        )  # fmt: skip
        if after in ("'s", "’s"):
            return relation in BE or relation.endswith(" as")
        return relation in BE and noun_follows and mention.kind != "quantity"
