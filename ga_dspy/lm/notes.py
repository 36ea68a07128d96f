"""Running notes: the sentences that bear on a question, each with its passage's number.

A line reads `- sentence [n]`. The first line of a passage tells its title, so that notes can be
read back as what they are: shortened passages.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from ga_dspy.lm import ranker as ranking
from ga_dspy.lm.evidence import Answer, Doc
from ga_dspy.lm.links import Asked, share, weigh
from ga_dspy.lm.question import Question
from ga_dspy.lm.relations import statements
from ga_dspy.lm.text import normalize, parse, sentences

MOST_NOTES = 12
_PER_PASSAGE = 3
_LIKELY = 8
_FIRST, _LATER = 0.2, 0.02
_LONGEST_TITLE = 12
_EMPTY = "(empty)"
_BULLET = re.compile(r"^\s*(?:[-*•]|\d+[.)])\s+")
_LABELS = re.compile(r"\s*\[(\d+)[^\]\n]*\]\s*\.?\s*$")


class _Sentence(NamedTuple):
    worth: float
    passage: int
    at: int
    text: str


def notes(question: Question, docs: Sequence[Doc], ranked: Sequence[Answer]) -> str:
    """The best sentences of passages, in their order: at most `MOST_NOTES`, three a passage.

    A sentence counts by the question's words that it and its title hold, by the likeliest answer
    in it, and for being the first of its passage.
    """
    found = _weighed(question, docs, ranked)
    taken: Counter[int] = Counter()
    kept: list[_Sentence] = []
    for sentence in sorted(found, key=lambda s: (-s.worth, s.passage, s.at)):
        if taken[sentence.passage] < _PER_PASSAGE and len(kept) < MOST_NOTES:
            taken[sentence.passage] += 1
            kept.append(sentence)
    told: dict[int, list[str]] = {}
    for _, passage, _, text in sorted(kept, key=lambda s: (s.passage, s.at)):
        told.setdefault(passage, []).append(text)
    return "\n".join(line for n, texts in told.items() for line in _lines(docs[n], texts))


def _weighed(question: Question, docs: Sequence[Doc], ranked: Sequence[Answer]) -> list[_Sentence]:
    asked = weigh(question, ranking.shipped().idf)
    likely = [(f" {normalize(answer.text)} ", answer.score) for answer in ranked[:_LIKELY]]
    return [
        _Sentence(_worth(sentence, doc.title, asked, likely) + early, n, at, sentence)
        for n, doc in enumerate(docs)
        for at, sentence in enumerate(sentences(doc.text))
        for early in [_FIRST * (at == 0) - _LATER * at]
    ]


def _worth(sentence: str, title: str, asked: Asked, likely: list[tuple[str, float]]) -> float:
    stems = set(parse(sentence).stems)
    words = share(stems | set(parse(title).stems), asked.weights) + share(stems, asked.related)
    said = f" {normalize(sentence)} "
    return words + max((score for answer, score in likely if answer in said), default=0.0)


def _lines(doc: Doc, texts: Sequence[str]) -> list[str]:
    """The lines of one passage; the first tells the title, should it not be plain from it."""
    first = in_full(texts[0], doc)
    if doc.title and _title(first) != doc.title:
        first = f"{doc.title}: {texts[0]}"
    return [f"- {line} [{doc.label}]" for line in (first, *(in_full(t, doc) for t in texts[1:]))]


def in_full(sentence: str, doc: Doc) -> str:
    """A sentence of a passage, with the passage's title before it where it names no subject.

    >>> in_full("It is a city.", Doc(3, "Red Lodge", "It is a city."))
    'Red Lodge: It is a city.'
    """
    subject = statements(doc.title, doc.text).subject
    if not subject or subject in sentence:
        return sentence
    return f"{doc.title or subject}: {sentence}"


def read_notes(text: str) -> tuple[Doc, ...]:
    r"""Notes as the shortened passages they were taken from, by their numbers.

    A line without a number belongs to the one before it; without any number, all is one passage.

    >>> read_notes("- Red Lodge: It is a city. [3]\n- It has a mine. [3]")
    (Doc(label=3, title='Red Lodge', text='It is a city. It has a mine.'),)
    """
    said: dict[int, list[str]] = {}
    label = 1
    for raw in text.splitlines():
        line = _BULLET.sub("", raw).strip().removeprefix(_EMPTY)
        found = _LABELS.search(line)
        label = int(found[1]) if found else label
        if sentence := line[: found.start()] if found else line:
            said.setdefault(label, []).append(sentence)
    return tuple(_doc(label, lines) for label, lines in sorted(said.items()))


def _doc(label: int, lines: Sequence[str]) -> Doc:
    title = _title(lines[0])
    return Doc(label, title, " ".join(line.removeprefix(f"{title}: ") for line in lines))


def _title(line: str) -> str:
    """What stands before a colon, the longest part that comes again behind it or else the first.

    Without a colon it is the name that a line begins with.
    """
    cuts = [m.start() for m in re.finditer(": ", line)]
    heads = [line[:cut] for cut in cuts if len(line[:cut].split()) <= _LONGEST_TITLE]
    heads = [head for head in heads if head and not head[0].islower()]
    again = [h for h in heads if normalize(h.partition(" (")[0]) in normalize(line[len(h) + 1 :])]
    if heads:
        return max(again, key=len, default=heads[0])
    subject = statements("", line).subject
    return subject if line.startswith(subject) else ""
