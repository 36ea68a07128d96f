"""Scores as fractions from 0 to 1, by the official script if there is one."""

from __future__ import annotations

import re
import string
import unicodedata
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import lru_cache
from statistics import harmonic_mean
from typing import NamedTuple

from ga_dspy.errors import InputError, require
from ga_dspy.eval.datasets import Fact
from ga_dspy.graph import Entity, KnowledgeGraph, Relation
from ga_dspy.graph.identity import identity, plain_relation, split_qualifier
from ga_dspy.passage import Passage
from ga_dspy.programs import EvidenceLink
from ga_dspy.text import fold, places, stands_in, words
from ga_dspy.text import normalise as normalise_name

# --- One answer against the accepted ones, by the official HotpotQA and SQuAD scripts.

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_DROP_PUNCTUATION = str.maketrans("", "", string.punctuation)
_CLOSED = frozenset({"yes", "no", "noanswer"})


class Overlap(NamedTuple):
    """What was found compared with what was wanted, such as tokens: fractions from 0 to 1."""

    f1: float
    precision: float
    recall: float


def normalise(answer: str) -> str:
    """Lower-case, remove ASCII punctuation, remove a/an/the, and collapse spaces, in that order.

    The order is the official one and matters: punctuation is removed first, so "A.N. Other" loses
    its initials as an article.

    >>> normalise("The  Beatles, (a band)!")
    'beatles band'
    >>> normalise("A.N. Other")
    'other'
    """
    return " ".join(_ARTICLES.sub(" ", answer.lower().translate(_DROP_PUNCTUATION)).split())


def exact_match(predicted: str, gold: str | Iterable[str]) -> float:
    """Return 1.0 if the normalised prediction equals a normalised accepted answer, else 0.0.

    >>> exact_match("The United States.", ("USA", "united states"))
    1.0
    """
    return float(normalise(predicted) in _accepted(gold))


def f1(predicted: str, gold: str | Iterable[str]) -> float:
    """Return the token F1 of HotpotQA's official script, the best over the accepted answers.

    A yes, no or noanswer on either side scores 1 or 0, never in between.

    >>> f1("yes it is", "yes")
    0.0
    >>> round(f1("the city of Billings", ["Red Lodge", "Billings, Montana"]), 2)
    0.4
    """
    return answer_overlap(predicted, gold).f1


def answer_overlap(predicted: str, gold: str | Iterable[str]) -> Overlap:
    """Return F1, precision and recall as `f1_score` in hotpot_evaluate_v1.py does.

    If only one side is yes, no or noanswer, all three are 0. All three numbers are those of the
    accepted answer with the best F1 (2wikimultihop_evaluate_v1.1.py takes each maximum by itself,
    so its numbers can be from three answers).

    >>> answer_overlap("Billings in Montana", ["Billings, Montana", "Billings"])
    Overlap(f1=0.8, precision=0.6666666666666666, recall=1.0)
    """
    guess = normalise(predicted)
    return max(
        Overlap(0.0, 0.0, 0.0)
        if guess != answer and (guess in _CLOSED or answer in _CLOSED)
        else _overlap(guess, answer)
        for answer in _accepted(gold)
    )


def f1_squad(predicted: str, gold: str | Iterable[str]) -> float:
    """Return the token F1 of SQuAD's evaluate-v1.1.py, the best over the accepted answers.

    Unlike in `f1`, yes, no and noanswer are ordinary words. If both sides are empty after
    normalisation, the score is 0, as in v1.1 and in HippoRAG's scorer; only evaluate-v2.0.py, which
    has unanswerable questions, scores 1.

    >>> round(f1_squad("yes it is", "yes"), 2)
    0.5
    """
    guess = normalise(predicted)
    return max(_overlap(guess, answer).f1 for answer in _accepted(gold))


def contained(predicted: str, gold: str | Iterable[str]) -> float:
    """Return 1.0 if a normalised accepted answer is a substring of the normalised prediction.

    This is the "Acc" (cover match) of the literature, which compares characters, not words: "no"
    is contained in "northern". An accepted answer that is empty after normalisation does not count.

    >>> contained("It was in Billings, Montana.", "Billings")
    1.0
    """
    text = normalise(predicted)
    return float(any(answer and answer in text for answer in _accepted(gold)))


def _accepted(gold: str | Iterable[str]) -> list[str]:
    """Return the accepted answers, normalised."""
    answers = [normalise(answer) for answer in ((gold,) if isinstance(gold, str) else gold)]
    if not answers:
        raise InputError(
            "there is no accepted answer to score against",
            expected="at least one",
            remedy="leave the question out, or give it an answer",
        )
    return answers


def _overlap(guess: str, answer: str) -> Overlap:
    guessed, expected = guess.split(), answer.split()
    common = (Counter(guessed) & Counter(expected)).total()
    if common == 0:
        return Overlap(0.0, 0.0, 0.0)
    precision, recall = common / len(guessed), common / len(expected)
    return Overlap(2 * precision * recall / (precision + recall), precision, recall)


# --- Retrieval


def support_recall(retrieved: Iterable[str], gold: Iterable[str]) -> float | None:
    """Return the share of the gold titles that are among the retrieved titles.

    Titles are compared as written, except for Unicode composition and spaces.

    Returns:
        A fraction from 0 to 1; None without gold titles (Bamboogle).

    >>> support_recall(["Red Lodge", "Montana"], ["Red Lodge", "Billings"])
    0.5
    """
    wanted, found = set(map(_title_key, gold)), set(map(_title_key, retrieved))
    return len(wanted & found) / len(wanted) if wanted else None


def support_precision(retrieved: Iterable[str], gold: Iterable[str]) -> float | None:
    """Return the share of the distinct retrieved titles that are gold.

    Returns:
        A fraction from 0 to 1, 0.0 if nothing was retrieved; None without gold titles (Bamboogle).

    >>> support_precision(["Red Lodge", "Montana", "Montana"], ["Red Lodge", "Billings"])
    0.5
    """
    wanted, found = set(map(_title_key, gold)), set(map(_title_key, retrieved))
    return len(wanted & found) / max(1, len(found)) if wanted else None


def answer_in(passage_text: str, gold: str | Iterable[str]) -> bool | None:
    """Return whether an accepted answer occurs in a passage: the paper's hit (its Figure 3).

    It must occur as whole normalised words, so "no" is not in "northern".

    Returns:
        None if every accepted answer is yes, no or noanswer, or empty after normalisation: such an
        answer occurs in a passage by chance only.

    >>> answer_in("Billings, Montana, is a city.", ["Montana"])
    True
    >>> answer_in("Billings, Montana, is a city.", ["yes"]) is None
    True
    """
    searchable = set(_accepted(gold)) - _CLOSED - {""}
    text = normalise(passage_text)
    return any(stands_in(answer, text) for answer in searchable) if searchable else None


def _title_key(title: str) -> str:
    return " ".join(unicodedata.normalize("NFC", title).split())


# --- Supporting facts: the sentences that a quote is from, scored by HotpotQA's rules.
#
# A fact is the title of a paragraph and the number of a sentence in it, from 0.

NO_SENTENCE = -1
"""The sentence number of a quote that is in no sentence; no gold fact has it."""

_BETWEEN_PIECES = " … "


class SupportScore(NamedTuple):
    """Predicted facts compared with gold ones, or answer and facts jointly."""

    em: float
    f1: float
    precision: float
    recall: float


def support_score(predicted: Iterable[Fact], gold: Iterable[Fact]) -> SupportScore | None:
    """Compare two sets of facts, with titles as written, as `update_sp` in hotpot_evaluate_v1.py.

    2wikimultihop_evaluate.py does the same with lower-cased titles; facts from `facts_of` have the
    titles of the question's context, so both give the same score.

    Returns:
        Fractions from 0 to 1, zeros if nothing was predicted; None without gold facts (MuSiQue,
        Bamboogle), a case that the script does not have.

    >>> support_score({("Red Lodge", 0), ("Montana", 3)}, {("Red Lodge", 0)})
    SupportScore(em=0.0, f1=0.6666666666666666, precision=0.5, recall=1.0)
    """
    ours, wanted = set(predicted), set(gold)
    if not wanted:
        return None
    return SupportScore(float(ours == wanted), *_shares(len(ours & wanted), ours, wanted))


def _shares(right: int, predicted: Collection[object], gold: Collection[object]) -> Overlap:
    precision, recall = right / max(1, len(predicted)), right / len(gold)
    return Overlap(float(harmonic_mean((precision, recall))), precision, recall)


def joint_score(answer: Overlap, answer_em: float, support: SupportScore) -> SupportScore:
    """Return the joint scores of hotpot_evaluate_v1.py: precisions, recalls and EMs multiplied.

    F1 is the harmonic mean of the two products, not the product of the two F1s.

    Args:
        answer: From `answer_overlap`.
        answer_em: From `exact_match`.
        support: From `support_score`.
    """
    precision, recall = answer.precision * support.precision, answer.recall * support.recall
    f1 = float(harmonic_mean((precision, recall)))
    return SupportScore(answer_em * support.em, f1, precision, recall)


def facts_of(
    evidence: Iterable[tuple[str, str]], paragraphs: Mapping[str, Sequence[str]]
) -> set[Fact]:
    """Return the sentences that quotes are from, with titles as in `paragraphs`.

    Every sentence that a quote overlaps is a fact. Words are compared without case, accents,
    punctuation and spaces. A quote with " … " consists of several pieces. A piece that occurs in
    several places counts where another piece of the quote occurs, else in the first place. A piece
    that occurs only in the title adds no fact to those of the others.

    Args:
        evidence: Titles of passages with the words quoted from them, as in `EvidenceLink`.
        paragraphs: The sentences of each paragraph of the question's context, by title.

    Returns:
        The facts, with (title, `NO_SENTENCE`), which is wrong, for each title with a quote that is
        in no sentence, or that is not in the context.

    >>> town = {"Red Lodge": ("It is a city.", "It lies in Montana.")}
    >>> facts_of([("Red Lodge", "lies in  Montana"), ("Billings", "A city.")], town) == {
    ...     ("Red Lodge", 1), ("Billings", NO_SENTENCE)
    ... }
    True
    """
    known = {_title_key(title): title for title in paragraphs}
    facts: set[Fact] = set()
    for title, quote in evidence:
        name = known.get(_title_key(title))
        if name is None:
            facts.add((title, NO_SENTENCE))
        else:
            facts |= {(name, number) for number in _sentences_of(quote, name, paragraphs[name])}
    return facts


def _sentences_of(quote: str, title: str, sentences: Sequence[str]) -> set[int]:
    """Return the sentences that a quote is from, with `NO_SENTENCE` if a piece is from none."""
    numbered = [
        (word, number)
        for number, sentence in enumerate((title, *sentences), start=NO_SENTENCE)
        for word in _folded_words(sentence)
    ]
    text = [word for word, _ in numbered]
    pieces = filter(None, map(_folded_words, quote.split(_BETWEEN_PIECES)))
    found = [
        [
            {number for _, number in numbered[start : start + len(piece)]}
            for start in places(piece, text)
        ]
        for piece in pieces
    ]
    numbers: set[int] = set()
    for candidates in sorted(found, key=len):
        stated = [place - {NO_SENTENCE} for place in candidates if place != {NO_SENTENCE}]
        if not candidates:
            numbers.add(NO_SENTENCE)
        elif stated:
            numbers |= next((place for place in stated if place & numbers), stated[0])
    return numbers or {NO_SENTENCE}


def _folded_words(text: str) -> list[str]:
    # An accent written as a character of its own would cut the word it is in.
    return [word.folded for word in words(unicodedata.normalize("NFC", text))]


# --- Triples against 2Wiki's gold evidences, regardless of the wording of the relation.

Triple = tuple[str, str, str]


def triple_score(predicted: Iterable[Triple], gold: Iterable[Triple]) -> Overlap | None:
    """Score predicted triples against gold ones, each of which can be found only once.

    Two triples match if they have the same two ends by `same_name`, in either direction ("father
    of" reverses "father"). Duplicates count once. The maximum matching between predicted and gold
    triples counts, so stating a relation in many ways gains nothing.

    Args:
        predicted: (head, relation, tail), with relations in any wording.
        gold: (head, relation, tail); 2Wiki's `evidences`.

    Returns:
        Zeros if nothing was predicted; None without gold triples.

    >>> triple_score([("Ann Lee", "daughter of", "Bo Lee")], [("Bo Lee", "child", "Ann Lee")])
    Overlap(f1=1.0, precision=1.0, recall=1.0)
    """
    import networkx

    ours, wanted = (
        list({tuple(map(normalise_name, triple)): triple for triple in triples}.values())
        for triples in (predicted, gold)
    )
    if not wanted:
        return None
    pairs = [
        (("ours", i), ("gold", j))
        for i, one in enumerate(ours)
        for j, other in enumerate(wanted)
        if _have_same_ends(one, other)
    ]
    matching = networkx.bipartite.hopcroft_karp_matching(
        networkx.Graph(pairs), {one for one, _ in pairs}
    )
    return _shares(len(matching) // 2, ours, wanted)


def same_name(one: str, other: str) -> bool:
    """Return whether two names are spelled the same, as the graph compares them.

    Case, accents, punctuation, a leading article and a qualifier in parentheses on one side do not
    count; two different qualifiers do. The words of a name with a number may be in any order,
    because those of a date may.

    >>> same_name("Prism (album)", "prism"), same_name("Prism (album)", "Prism (band)")
    (True, False)
    >>> same_name("3 May 1901", "May 3, 1901")
    True
    """
    mine, yours = _spelling(one), _spelling(other)
    return (
        mine == yours
        or _spelling(split_qualifier(one).base) == yours
        or _spelling(split_qualifier(other).base) == mine
    )


def _have_same_ends(one: Triple, other: Triple) -> bool:
    (head, _, tail), (gold_head, _, gold_tail) = one, other
    straight = same_name(head, gold_head) and same_name(tail, gold_tail)
    return straight or (same_name(head, gold_tail) and same_name(tail, gold_head))


def _spelling(name: str) -> str:
    plain = normalise_name(name)
    dated = any(character.isdigit() for character in plain)
    return " ".join(sorted(plain.split())) if dated else plain


# --- Faithfulness: whether the edges that an answer cites exist, and are stated where it says.


def count_faithful(
    evidence: Iterable[EvidenceLink], graph: KnowledgeGraph, passages: Mapping[str, Passage]
) -> tuple[int, int]:
    """Count the links that cite an edge (have a triple), and those whose edge is faithful.

    An edge is faithful if the graph has that relation between these ends, in any tense, with
    evidence from the passage that the link names, and every piece of the quote occurs in that
    passage. An attribute of an entity may be cited instead of a relation.

    Args:
        evidence: The links of an answer; a quote without a triple cites no edge.
        graph: The graph of the answer.
        passages: The passages that were read or quoted, by id.
    """
    cited = [link for link in evidence if link.head]
    faithful = 0
    for link in cited:
        sources = {e.passage for item in _stating(link, graph) for e in item.evidence}
        quoted = _is_quoted_from(link.quote, passages.get(link.passage_id))
        faithful += link.passage_id in sources and quoted
    return len(cited), faithful


def _stating(link: EvidenceLink, graph: KnowledgeGraph) -> Iterable[Entity | Relation]:
    """Return the relations or entities of the graph that state the link's triple."""
    if link.relation == "described as":
        return (
            entity
            for entity in graph.find_all(link.head)
            if identity(link.tail) in map(identity, (entity.type, *entity.attributes))
        )
    return (
        relation
        for relation in graph.relations
        if identity(relation.head) == identity(link.head)
        and identity(relation.tail) == identity(link.tail)
        and plain_relation(relation.relation) == plain_relation(link.relation)
    )


def _is_quoted_from(quote: str, passage: Passage | None) -> bool:
    if passage is None or not quote:
        return False
    text, *pieces = (
        " ".join(fold(part).split()) for part in (passage.content, *quote.split(_BETWEEN_PIECES))
    )
    return all(piece in text for piece in pieces)


# --- The judgement "sufficient" as a classifier.


class StepVerdict(NamedTuple):
    """A judged step: whether it was judged sufficient, and whether it was.

    `sufficed` is True if passages of all gold titles had been read by the end of the step; None
    without gold titles.
    """

    judged: bool
    sufficed: bool | None


class Sufficiency(NamedTuple):
    """The judgements of all steps of all questions.

    A positive is a step judged sufficient. Ratios are fractions from 0 to 1, None without a
    denominator.

    Attributes:
        questions: Number of questions counted.
        precision: Share of the steps judged sufficient that were sufficient.
        recall: Share of the sufficient steps that were judged sufficient.
        f1: Harmonic mean of the two.
        accuracy: Share of the steps that were judged correctly.
        stopped_early: Share of the questions that ended on "sufficient" without all gold passages.
        searched_long: Share of the questions that continued after all gold passages were read.
    """

    questions: int
    precision: float | None
    recall: float | None
    f1: float | None
    accuracy: float | None
    stopped_early: float | None
    searched_long: float | None


def sufficiency(questions: Iterable[Sequence[StepVerdict]]) -> Sufficiency:
    """Evaluate the judged steps of questions.

    Args:
        questions: The judged steps of each question, in order; of a failed one, maybe none.

    >>> one = [StepVerdict(judged=False, sufficed=False), StepVerdict(judged=True, sufficed=True)]
    >>> sufficiency([one]).accuracy
    1.0
    """
    known = [steps for steps in questions if steps and all(s.sufficed is not None for s in steps)]
    every = [step for steps in known for step in steps]
    judged = sum(step.judged for step in every)
    true = sum(bool(step.sufficed) for step in every)
    both = sum(step.judged and bool(step.sufficed) for step in every)
    early = sum(steps[-1].judged and not steps[-1].sufficed for steps in known)
    long = sum(any(step.sufficed for step in steps[:-1]) for steps in known)
    return Sufficiency(
        questions=len(known),
        precision=_ratio(both, judged),
        recall=_ratio(both, true),
        f1=_ratio(2 * both, judged + true),
        accuracy=_ratio(sum(step.judged == step.sufficed for step in every), len(every)),
        stopped_early=_ratio(early, len(known)),
        searched_long=_ratio(long, len(known)),
    )


def _ratio(part: int, whole: int) -> float | None:
    return part / whole if whole else None


# --- Confidence intervals and tests

_RESAMPLES = 9_999
_SEED = 20_240_601


class Paired(NamedTuple):
    """Two runs compared over their shared questions.

    `difference` is the mean of the first minus that of the second, in percent points. `p_value` is
    two-sided: how often randomly swapping the two scores of each question gives a difference at
    least as large.
    """

    n: int
    difference: float
    p_value: float

    @property
    def better(self) -> bool:
        """Whether the first is significantly better, at the 5 % level."""
        return self.difference > 0 and self.p_value < 0.05


def bootstrap_interval(values: Sequence[float]) -> tuple[float, float]:
    """Return the 95 % percentile bootstrap interval of the mean, from 9,999 seeded resamples.

    A single value says nothing about the mean: its interval is the whole scale.

    Raises:
        InputError: There are no values.

    >>> bootstrap_interval([0.5, 0.5, 0.5])
    (0.5, 0.5)
    """
    if not values:
        raise InputError(
            "no scores for an interval",
            expected="at least one score",
            remedy="leave the interval out if nothing was scored",
        )
    return _interval(tuple(values)) if len(values) > 1 else (0.0, 1.0)


@lru_cache(maxsize=1024)
def _interval(values: tuple[float, ...]) -> tuple[float, float]:
    """Compute an interval, cached because a report shows it in several places."""
    import numpy as np

    scores = np.asarray(values, dtype=np.float64)
    random = np.random.default_rng(_SEED)
    # One resample at a time: all at once would take gigabytes for a full dev set.
    means = [scores[random.integers(0, len(scores), len(scores))].mean() for _ in range(_RESAMPLES)]
    low, high = np.percentile(means, [2.5, 97.5])
    return float(low), float(high)


def paired_permutation(first: Sequence[float], second: Sequence[float]) -> Paired:
    """Test the mean difference of two lists of scores with a paired permutation test.

    The test is exact for few questions, else from 9,999 seeded permutations.

    Raises:
        InputError: The lists are empty or differ in length.
        MissingExtra: scipy is not installed.
    """
    if not first or len(first) != len(second):
        raise InputError(
            f"{len(first)} and {len(second)} scores",
            expected="two lists of the same length, with at least one score",
            remedy="pair the scores by question",
        )
    if len(first) == 1:  # scipy needs two; one pair, swapped or not, is always as extreme
        return Paired(1, 100.0 * (first[0] - second[0]), 1.0)
    scipy = require("scipy", "search")
    import numpy as np

    # Signs of differences are flipped, not scores swapped: the difference of two means differs
    # between equal permutations in its last bits, which counted as less extreme.
    test = scipy.stats.permutation_test(
        (np.asarray(first) - np.asarray(second),),
        np.mean,
        permutation_type="samples",
        vectorized=True,
        n_resamples=_RESAMPLES,
        batch=500,
        rng=np.random.default_rng(_SEED),
    )
    return Paired(len(first), 100.0 * float(test.statistic), float(test.pvalue))


def holm(p_values: Sequence[float]) -> tuple[float, ...]:
    """Return Holm-Bonferroni adjusted p-values, in the order given (Holm 1979).

    Raises:
        InputError: A p-value is not from 0 to 1.

    >>> holm([0.04, 0.01, 0.5])
    (0.08, 0.03, 0.5)
    """
    for p_value in p_values:
        if not 0.0 <= p_value <= 1.0:
            raise InputError(
                f"a p-value of {p_value}",
                expected="from 0 to 1",
                remedy="pass the p-values of the tests themselves",
            )
    adjusted = [0.0] * len(p_values)
    largest = 0.0
    for rank, position in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[position]))
        adjusted[position] = largest
    return tuple(adjusted)
