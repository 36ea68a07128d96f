"""Scores of one answer, by the rules of the official HotpotQA and SQuAD scripts.

Every score is a fraction from 0 to 1; reports turn means of them into percent.
"""

from __future__ import annotations

import re
import string
import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence

from ga_dspy.errors import InputError

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_DROP_PUNCTUATION = str.maketrans("", "", string.punctuation)
_CLOSED = frozenset({"yes", "no", "noanswer"})


def normalise(answer: str) -> str:
    """Lower-case, drop ASCII punctuation, drop a/an/the, squeeze spaces, in that order.

    The order is the official one and shows: punctuation goes first, so "A.N. Other" loses
    its initials as an article.

    >>> normalise("The  Beatles, (a band)!")
    'beatles band'
    >>> normalise("A.N. Other")
    'other'
    """
    return " ".join(_ARTICLES.sub(" ", answer.lower().translate(_DROP_PUNCTUATION)).split())


def exact_match(predicted: str, gold: str | Iterable[str]) -> float:
    """1.0 where the normalised prediction equals a normalised accepted answer, else 0.0.

    >>> exact_match("The United States.", ("USA", "united states"))
    1.0
    """
    guess = normalise(predicted)
    return float(any(guess == normalise(answer) for answer in _accepted(gold)))


def f1(predicted: str, gold: str | Iterable[str]) -> float:
    """Token F1 of HotpotQA's official script, the best over the accepted answers.

    A yes, no or noanswer on either side scores 1 or 0, never in between.

    >>> f1("yes it is", "yes")
    0.0
    >>> round(f1("the city of Billings", ["Red Lodge", "Billings, Montana"]), 2)
    0.4
    """
    return max(_token_f1(normalise(predicted), normalise(answer)) for answer in _accepted(gold))


def contained(predicted: str, gold: str | Iterable[str]) -> float:
    """1.0 where a normalised accepted answer is a substring of the normalised prediction.

    This is the "Acc" (cover match) of the literature, which compares characters, not words:
    "no" is contained in "northern". An accepted answer of which nothing is left after
    normalisation is contained in nothing.

    >>> contained("It was in Billings, Montana.", "Billings")
    1.0
    """
    text = normalise(predicted)
    answers = [normalise(answer) for answer in _accepted(gold)]
    return float(any(answer and answer in text for answer in answers))


def support_recall(retrieved: Iterable[str], gold: Iterable[str]) -> float | None:
    """Share of the gold supporting titles among the titles of the retrieved passages.

    Titles are compared as written, up to Unicode composition and spaces.

    Returns:
        A fraction from 0 to 1; None where the question names no gold titles (Bamboogle).

    >>> support_recall(["Red Lodge", "Montana"], ["Red Lodge", "Billings"])
    0.5
    """
    wanted = {_title(title) for title in gold}
    if not wanted:
        return None
    return len(wanted & {_title(title) for title in retrieved}) / len(wanted)


def _accepted(gold: str | Iterable[str]) -> Sequence[str]:
    answers = (gold,) if isinstance(gold, str) else tuple(gold)
    if not answers:
        raise InputError(
            "there is no accepted answer to score against",
            expected="at least one",
            remedy="leave the question out, or give it an answer",
        )
    return answers


def _token_f1(guess: str, answer: str) -> float:
    if guess != answer and (guess in _CLOSED or answer in _CLOSED):
        return 0.0
    guessed, expected = guess.split(), answer.split()
    common = sum((Counter(guessed) & Counter(expected)).values())
    if common == 0:
        return 0.0
    precision, recall = common / len(guessed), common / len(expected)
    return 2 * precision * recall / (precision + recall)


def _title(title: str) -> str:
    return " ".join(unicodedata.normalize("NFC", title).split())
