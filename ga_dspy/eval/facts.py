"""Supporting facts: which sentences a quote is from, and HotpotQA's scores of them.

A fact is the title of a paragraph and the number of a sentence in it, from 0.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from statistics import harmonic_mean
from typing import NamedTuple

from ga_dspy.eval.rows import Fact
from ga_dspy.eval.scores import Overlap, title_key
from ga_dspy.mentions import words

NO_SENTENCE = -1
"""The sentence number of a quote that is from no sentence; no gold fact has it."""

_BETWEEN_PIECES = " … "


class SupportScore(NamedTuple):
    """Predicted facts against gold ones."""

    em: float
    f1: float
    precision: float
    recall: float


class JointScore(NamedTuple):
    """Answer and supporting facts together: right only where both are."""

    em: float
    f1: float
    precision: float
    recall: float


def support_score(predicted: Iterable[Fact], gold: Iterable[Fact]) -> SupportScore | None:
    """The scores of `update_sp` in hotpot_evaluate_v1.py: two sets of facts, titles as written.

    2wikimultihop_evaluate.py does the same on lower-cased titles; facts from `facts_of` have
    the titles of the question's context, so that both give one score.

    Returns:
        Fractions from 0 to 1, zeros where nothing was predicted; None where the question names
        no supporting facts (MuSiQue, Bamboogle), with which the script never meets.

    >>> support_score({("Red Lodge", 0), ("Montana", 3)}, {("Red Lodge", 0)})
    SupportScore(em=0.0, f1=0.6666666666666666, precision=0.5, recall=1.0)
    """
    said, wanted = set(predicted), set(gold)
    if not wanted:
        return None
    right = len(said & wanted)
    precision, recall = right / len(said) if said else 0.0, right / len(wanted)
    f1 = float(harmonic_mean((precision, recall)))
    return SupportScore(float(said == wanted), f1, precision, recall)


def joint_score(answer: Overlap, answer_em: float, support: SupportScore) -> JointScore:
    """The joint scores of hotpot_evaluate_v1.py: precisions, recalls and EMs multiplied.

    F1 is the harmonic mean of the two products, not the product of the two F1s.

    Args:
        answer: Of `ga_dspy.eval.scores.answer_overlap`.
        answer_em: Of `ga_dspy.eval.scores.exact_match`.
        support: Of `support_score`.
    """
    precision, recall = answer.precision * support.precision, answer.recall * support.recall
    f1 = float(harmonic_mean((precision, recall)))
    return JointScore(answer_em * support.em, f1, precision, recall)


def facts_of(
    evidence: Iterable[tuple[str, str]], paragraphs: Mapping[str, Sequence[str]]
) -> set[Fact]:
    """The facts that quotes are from, with titles as `paragraphs` has them.

    Every sentence that a quote overlaps is a fact. Quote and paragraph are compared word by
    word: case, accents, punctuation and spaces do not count. A quote joined by " … " is several
    pieces. A piece that stands in several places is taken to be where another piece of the quote
    is, else in the first. A piece that is in the title alone adds no fact to those of the others.

    Args:
        evidence: Title of the passage and the words quoted from it, such as `EvidenceLink` has.
        paragraphs: The sentences of each paragraph of the question's context, by title.

    Returns:
        A set that holds (title, `NO_SENTENCE`), a wrong fact, for each title of which something
        was quoted that is in no sentence, or that the context does not have.

    >>> town = {"Red Lodge": ("It is a city.", "It lies in Montana.")}
    >>> facts_of([("Red Lodge", "lies in  Montana"), ("Billings", "A city.")], town) == {
    ...     ("Red Lodge", 1), ("Billings", NO_SENTENCE)
    ... }
    True
    """
    known = {title_key(title): title for title in paragraphs}
    facts: set[Fact] = set()
    for title, quote in evidence:
        name = known.get(title_key(title))
        if name is None:
            facts.add((title, NO_SENTENCE))
        else:
            facts |= {(name, number) for number in _quoted(quote, name, paragraphs[name])}
    return facts


def _quoted(quote: str, title: str, sentences: Sequence[str]) -> set[int]:
    """Numbers of the sentences a quote is from, and `NO_SENTENCE` where a piece is from none."""
    text = _Numbered.of(title, sentences)
    pieces = [_folded(piece) for piece in quote.split(_BETWEEN_PIECES)]
    places = [text.places(piece) for piece in pieces if piece]
    quoted: set[int] = set()
    for found in sorted(places, key=len):
        stated = [place - {NO_SENTENCE} for place in found if place != {NO_SENTENCE}]
        beside = [place for place in stated if place & quoted]
        if not found:
            quoted.add(NO_SENTENCE)
        elif stated:
            quoted |= (beside or stated)[0]
    return quoted or {NO_SENTENCE}


class _Numbered(NamedTuple):
    """The words of a paragraph, title first, each with the number of its sentence."""

    words: tuple[str, ...]
    numbers: tuple[int, ...]

    @classmethod
    def of(cls, title: str, sentences: Sequence[str]) -> _Numbered:
        pairs = [
            (word, number)
            for number, sentence in enumerate((title, *sentences), start=NO_SENTENCE)
            for word in _folded(sentence)
        ]
        return cls(tuple(word for word, _ in pairs), tuple(number for _, number in pairs))

    def places(self, piece: tuple[str, ...]) -> list[set[int]]:
        """The sentences of each run of words that equals the piece, in order."""
        size = len(piece)
        return [
            set(self.numbers[start : start + size])
            for start in range(len(self.words) - size + 1)
            if self.words[start : start + size] == piece
        ]


def _folded(text: str) -> tuple[str, ...]:
    # An accent written as a character of its own would cut the word it is in.
    return tuple(word.folded for word in words(unicodedata.normalize("NFC", text)))
