"""Premises that a passage denies in so many words: "never married", "had no children"."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from ga_dspy.lm.evidence import Doc
from ga_dspy.lm.question import Question
from ga_dspy.lm.relations import statements
from ga_dspy.lm.text import normalize, sentences

_NO = r"\b(?:never|no|not|without|neither)\b"
_PREMISES = (
    (
        re.compile(r"\b(?:wife|husband|spouse|marri(?:ed|age)|wed)\b", re.IGNORECASE),
        re.compile(rf"\b(?:never|not) (?:been )?(?:marr(?:y|ied)|wed)|{_NO} spouse", re.IGNORECASE),
    ),
    (
        re.compile(r"\b(?:son|daughter|child|children)\b", re.IGNORECASE),
        re.compile(rf"(?:{_NO}[ \w]{{0,12}} children|childless)\b", re.IGNORECASE),
    ),
    (
        re.compile(r"\b(?:awards?|prizes?|medals?|won|wins?)\b", re.IGNORECASE),
        re.compile(r"\bnever (?:won|received|been awarded|awarded)\b", re.IGNORECASE),
    ),
    (
        re.compile(r"\b(?:built|completed|released|published|opened)\b", re.IGNORECASE),
        re.compile(r"\bnever (?:built|completed|released|published|opened)\b", re.IGNORECASE),
    ),
)


class Refutation(NamedTuple):
    """The sentence that denies what a question takes for granted, and its passage."""

    sentence: str
    label: int


def refuted(question: Question, docs: Sequence[Doc]) -> Refutation | None:
    """Find a denial in a passage about a name of the question; only the plainest forms count."""
    asked = f" {normalize(question.text)} "
    for premise, denial in _PREMISES:
        if not premise.search(question.text):
            continue
        for doc in docs:
            subject = normalize(statements(doc.title, doc.text).subject)
            if not subject or f" {subject} " not in asked:
                continue
            for sentence in sentences(doc.text):
                if denial.search(sentence):
                    return Refutation(sentence, doc.label)
    return None
