"""Scores of one answer and of what was retrieved, by the official HotpotQA and SQuAD scripts.

Every score is a fraction from 0 to 1; reports turn means of them into percent.
"""

from __future__ import annotations

import re
import string
import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from ga_dspy.errors import InputError

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_DROP_PUNCTUATION = str.maketrans("", "", string.punctuation)
_CLOSED = frozenset({"yes", "no", "noanswer"})


class Overlap(NamedTuple):
    """How far the tokens of an answer and of an accepted one agree."""

    f1: float
    precision: float
    recall: float


_NO_OVERLAP = Overlap(0.0, 0.0, 0.0)


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
    return answer_overlap(predicted, gold).f1


def answer_overlap(predicted: str, gold: str | Iterable[str]) -> Overlap:
    """F1, precision and recall of `f1_score` in hotpot_evaluate_v1.py.

    A yes, no or noanswer on one side only is three zeros. Of several accepted answers the one
    with the best F1 counts, all three numbers from that one (2wikimultihop_evaluate_v1.1.py
    takes each maximum by itself, so its three may be from three answers).

    >>> answer_overlap("Billings in Montana", ["Billings, Montana", "Billings"])
    Overlap(f1=0.8, precision=0.6666666666666666, recall=1.0)
    """
    guess = normalise(predicted)
    return max(_closed_overlap(guess, normalise(answer)) for answer in _accepted(gold))


def f1_squad(predicted: str, gold: str | Iterable[str]) -> float:
    """Token F1 of SQuAD's evaluate-v1.1.py, the best over the accepted answers.

    As `f1`, but yes, no and noanswer are words like others. Where nothing is left of both sides
    after normalisation the score is 0, as in v1.1 and in HippoRAG's scorer; only
    evaluate-v2.0.py, which has unanswerable questions, scores 1 there.

    >>> round(f1_squad("yes it is", "yes"), 2)
    0.5
    """
    guess = normalise(predicted)
    return max(_overlap(guess, normalise(answer)).f1 for answer in _accepted(gold))


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


def title_key(title: str) -> str:
    """The form in which two titles are equal: as written, up to Unicode composition and spaces.

    >>> title_key(" Red  Lodge")
    'Red Lodge'
    """
    return " ".join(unicodedata.normalize("NFC", title).split())


def support_recall(retrieved: Iterable[str], gold: Iterable[str]) -> float | None:
    """Share of the gold supporting titles among the titles of the retrieved passages.

    Titles are compared by `title_key`.

    Returns:
        A fraction from 0 to 1; None where the question names no gold titles (Bamboogle).

    >>> support_recall(["Red Lodge", "Montana"], ["Red Lodge", "Billings"])
    0.5
    """
    wanted = {title_key(title) for title in gold}
    if not wanted:
        return None
    return len(wanted & {title_key(title) for title in retrieved}) / len(wanted)


def support_precision(retrieved: Iterable[str], gold: Iterable[str]) -> float | None:
    """Share of the titles of the retrieved passages, each counted once, that are gold.

    Returns:
        A fraction from 0 to 1, 0.0 where nothing was retrieved; None where the question names no
        gold titles (Bamboogle).

    >>> support_precision(["Red Lodge", "Montana", "Montana"], ["Red Lodge", "Billings"])
    0.5
    """
    wanted = {title_key(title) for title in gold}
    if not wanted:
        return None
    found = {title_key(title) for title in retrieved}
    return len(wanted & found) / len(found) if found else 0.0


def answer_in(passage_text: str, gold: str | Iterable[str]) -> bool | None:
    """Whether an accepted answer stands in a passage: the paper's hit (its Figure 3).

    It has to stand there as a run of whole normalised words, so "no" is not in "northern".

    Returns:
        None where every accepted answer is yes, no or noanswer, or empty once normalised: such
        an answer stands in a passage by chance, and not finding it is no miss.

    >>> answer_in("Billings, Montana, is a city.", ["Montana"])
    True
    >>> answer_in("Billings, Montana, is a city.", ["yes"]) is None
    True
    """
    telling = {normalise(answer) for answer in _accepted(gold)} - _CLOSED - {""}
    if not telling:
        return None
    text = f" {normalise(passage_text)} "
    return any(f" {answer} " in text for answer in telling)


def _accepted(gold: str | Iterable[str]) -> Sequence[str]:
    answers = (gold,) if isinstance(gold, str) else tuple(gold)
    if not answers:
        raise InputError(
            "there is no accepted answer to score against",
            expected="at least one",
            remedy="leave the question out, or give it an answer",
        )
    return answers


def _closed_overlap(guess: str, answer: str) -> Overlap:
    if guess != answer and (guess in _CLOSED or answer in _CLOSED):
        return _NO_OVERLAP
    return _overlap(guess, answer)


def _overlap(guess: str, answer: str) -> Overlap:
    guessed, expected = guess.split(), answer.split()
    common = sum((Counter(guessed) & Counter(expected)).values())
    if common == 0:
        return _NO_OVERLAP
    precision, recall = common / len(guessed), common / len(expected)
    return Overlap(2 * precision * recall / (precision + recall), precision, recall)
