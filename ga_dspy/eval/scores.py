"""Scores, by the official scripts where there is one; every score is a fraction from 0 to 1."""

from __future__ import annotations

import re
import string
import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
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
    """How far the tokens of an answer and of an accepted one agree."""

    f1: float
    precision: float
    recall: float


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
    return float(normalise(predicted) in _accepted(gold))


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
    return max(
        Overlap(0.0, 0.0, 0.0)
        if guess != answer and (guess in _CLOSED or answer in _CLOSED)
        else _overlap(guess, answer)
        for answer in _accepted(gold)
    )


def f1_squad(predicted: str, gold: str | Iterable[str]) -> float:
    """Token F1 of SQuAD's evaluate-v1.1.py, the best over the accepted answers.

    As `f1`, but yes, no and noanswer are words like others. Where nothing is left of both sides
    after normalisation the score is 0, as in v1.1 and in HippoRAG's scorer; only
    evaluate-v2.0.py, which has unanswerable questions, scores 1 there.

    >>> round(f1_squad("yes it is", "yes"), 2)
    0.5
    """
    guess = normalise(predicted)
    return max(_overlap(guess, answer).f1 for answer in _accepted(gold))


def contained(predicted: str, gold: str | Iterable[str]) -> float:
    """1.0 where a normalised accepted answer is a substring of the normalised prediction.

    This is the "Acc" (cover match) of the literature, which compares characters, not words:
    "no" is contained in "northern". An accepted answer that is empty after normalisation is
    contained in nothing.

    >>> contained("It was in Billings, Montana.", "Billings")
    1.0
    """
    text = normalise(predicted)
    return float(any(answer and answer in text for answer in _accepted(gold)))


def _accepted(gold: str | Iterable[str]) -> list[str]:
    """The accepted answers, normalised."""
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


# --- What was retrieved.


def support_recall(retrieved: Iterable[str], gold: Iterable[str]) -> float | None:
    """Share of the gold supporting titles among the titles of the retrieved passages.

    Titles are equal as written, up to Unicode composition and spaces.

    Returns:
        A fraction from 0 to 1; None where the question names no gold titles (Bamboogle).

    >>> support_recall(["Red Lodge", "Montana"], ["Red Lodge", "Billings"])
    0.5
    """
    wanted, found = set(map(_title_key, gold)), set(map(_title_key, retrieved))
    return len(wanted & found) / len(wanted) if wanted else None


def support_precision(retrieved: Iterable[str], gold: Iterable[str]) -> float | None:
    """Share of the titles of the retrieved passages, each counted once, that are gold.

    Returns:
        A fraction from 0 to 1, 0.0 where nothing was retrieved; None where the question names no
        gold titles (Bamboogle).

    >>> support_precision(["Red Lodge", "Montana", "Montana"], ["Red Lodge", "Billings"])
    0.5
    """
    wanted, found = set(map(_title_key, gold)), set(map(_title_key, retrieved))
    return len(wanted & found) / max(1, len(found)) if wanted else None


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
    telling = set(_accepted(gold)) - _CLOSED - {""}
    text = normalise(passage_text)
    return any(stands_in(answer, text) for answer in telling) if telling else None


def _title_key(title: str) -> str:
    return " ".join(unicodedata.normalize("NFC", title).split())


# --- Supporting facts: which sentences a quote is from, and HotpotQA's scores of them.
#
# A fact is the title of a paragraph and the number of a sentence in it, from 0.

NO_SENTENCE = -1
"""The sentence number of a quote that is from no sentence; no gold fact has it."""

_BETWEEN_PIECES = " … "


class SupportScore(NamedTuple):
    """Predicted facts against gold ones, or answer and facts together."""

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
        no supporting facts (MuSiQue, Bamboogle), a case that the script does not have.

    >>> support_score({("Red Lodge", 0), ("Montana", 3)}, {("Red Lodge", 0)})
    SupportScore(em=0.0, f1=0.6666666666666666, precision=0.5, recall=1.0)
    """
    ours, wanted = set(predicted), set(gold)
    if not wanted:
        return None
    right = len(ours & wanted)
    precision, recall = right / max(1, len(ours)), right / len(wanted)
    f1 = float(harmonic_mean((precision, recall)))
    return SupportScore(float(ours == wanted), f1, precision, recall)


def joint_score(answer: Overlap, answer_em: float, support: SupportScore) -> SupportScore:
    """The joint scores of hotpot_evaluate_v1.py: precisions, recalls and EMs multiplied.

    F1 is the harmonic mean of the two products, not the product of the two F1s.

    Args:
        answer: Of `ga_dspy.eval.scores.answer_overlap`.
        answer_em: Of `ga_dspy.eval.scores.exact_match`.
        support: Of `support_score`.
    """
    precision, recall = answer.precision * support.precision, answer.recall * support.recall
    f1 = float(harmonic_mean((precision, recall)))
    return SupportScore(answer_em * support.em, f1, precision, recall)


def facts_of(
    evidence: Iterable[tuple[str, str]], paragraphs: Mapping[str, Sequence[str]]
) -> set[Fact]:
    """The facts that quotes are from, with titles as `paragraphs` has them.

    Every sentence that a quote overlaps is a fact. Quote and paragraph are compared word by
    word: case, accents, punctuation and spaces do not count. A quote joined by " … " is several
    pieces. A piece that stands in several places counts where another piece of the quote is,
    else in the first. A piece that is in the title alone adds no fact to those of the others.

    Args:
        evidence: Title of the passage and the words quoted from it, such as `EvidenceLink` has.
        paragraphs: The sentences of each paragraph of the question's context, by title.

    Returns:
        A set that holds (title, `NO_SENTENCE`), a wrong fact, for each title with a quote that
        is in no sentence, or that the context does not have.

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
    """Numbers of the sentences a quote is from, and `NO_SENTENCE` where a piece is from none."""
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


# --- Triples against 2Wiki's gold evidences, whatever words a relation is put in.

Triple = tuple[str, str, str]


class TripleScore(NamedTuple):
    """Shares from 0 to 1 of the predicted triples that are gold, and of the gold ones found."""

    precision: float
    recall: float
    f1: float


def triple_score(predicted: Iterable[Triple], gold: Iterable[Triple]) -> TripleScore | None:
    """How many predicted triples are gold ones, each gold one found at most once.

    Two triples match where they have the same two ends by `same_name`, in either direction
    ("father of" turns "father" around). Triples that are spelled the same count once. Where one
    could stand for several gold ones, the pairing with the most pairs counts, so that stating
    one relation in many ways gains nothing.

    Args:
        predicted: (head, relation, tail), relations in any words.
        gold: (head, relation, tail); 2Wiki's `evidences`.

    Returns:
        Zeros where nothing was predicted; None where there are no gold triples.

    >>> triple_score([("Ann Lee", "daughter of", "Bo Lee")], [("Bo Lee", "child", "Ann Lee")])
    TripleScore(precision=1.0, recall=1.0, f1=1.0)
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
    found = len(matching) // 2
    precision, recall = found / max(1, len(ours)), found / len(wanted)
    return TripleScore(precision, recall, float(harmonic_mean((precision, recall))))


def same_name(one: str, other: str) -> bool:
    """Whether two names are spelled the same, as the graph compares them.

    Case, accents, punctuation, a leading article and a qualifier in parentheses on one side do
    not count; two different qualifiers do. The words of a name with a number may stand in any
    order, because dates do.

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


# --- Faithfulness: do the edges that an answer cites exist, and are they stated where it says?


def count_faithful(
    evidence: Iterable[EvidenceLink], graph: KnowledgeGraph, passages: Mapping[str, Passage]
) -> tuple[int, int]:
    """How many links cite an edge (have a triple), and how many of these edges are faithful.

    An edge is faithful where the graph holds that relation between these ends, in whichever
    tense, by evidence from the passage that the link names, and every piece of the quote stands
    in that passage. What an entity is said to be may be cited in the place of a relation.

    Args:
        evidence: An answer's links; a quote alone cites no edge.
        graph: The graph that the answer was given from.
        passages: What was read or quoted, by id.
    """
    cited = [link for link in evidence if link.head]
    faithful = sum(
        any(
            found.passage == link.passage_id
            for item in _stating(link, graph)
            for found in item.evidence
        )
        and _is_quoted_from(link.quote, passages.get(link.passage_id))
        for link in cited
    )
    return len(cited), faithful


def _stating(link: EvidenceLink, graph: KnowledgeGraph) -> Iterable[Entity | Relation]:
    """What the graph holds that states the link's triple."""
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


# --- The judgement "sufficient" as a classifier: how often it is right, and what its errors cost.


class StepVerdict(NamedTuple):
    """One judged step: what the program said, and whether it was so.

    `sufficed` is True where passages of all gold titles had been read by the end of the step;
    None where the question names no gold titles.
    """

    judged: bool
    sufficed: bool | None


class Sufficiency(NamedTuple):
    """Judgements over all steps of all questions, and where they led.

    A positive is a step judged sufficient. Every ratio is a fraction from 0 to 1, and None where
    there is nothing to divide by.

    Attributes:
        questions: Questions counted.
        left_out: Questions without a judged step, or of unknown truth.
        precision: Share of the steps judged sufficient that were.
        recall: Share of the steps with everything read that were judged sufficient.
        f1: Twice the true positives over all positives, judged and true.
        accuracy: Share of the steps judged rightly.
        stopped_early: Share of the questions that ended on "sufficient" with gold missing.
        searched_long: Share that went on for a step or more after everything had been read.
        wasted_steps: Mean number of such steps, over all questions counted.
    """

    questions: int
    left_out: int
    precision: float | None
    recall: float | None
    f1: float | None
    accuracy: float | None
    stopped_early: float | None
    searched_long: float | None
    wasted_steps: float | None


def sufficiency(questions: Iterable[Sequence[StepVerdict]]) -> Sufficiency:
    """Count the judged steps of each question, in order.

    Args:
        questions: The judged steps of each question asked; of a failed one those it came to,
            so maybe none.

    >>> one = [StepVerdict(judged=False, sufficed=False), StepVerdict(judged=True, sufficed=True)]
    >>> sufficiency([one]).accuracy
    1.0
    """
    asked = [tuple(steps) for steps in questions]
    known = [steps for steps in asked if steps and all(s.sufficed is not None for s in steps)]
    every = [step for steps in known for step in steps]
    said, true = sum(step.judged for step in every), sum(bool(step.sufficed) for step in every)
    both = sum(step.judged and bool(step.sufficed) for step in every)
    sufficed = [[step.sufficed for step in steps] for steps in known]
    # Steps after the first by which everything had been read.
    wasted = [len(s) - 1 - s.index(True) if True in s else 0 for s in sufficed]
    early = [steps[-1].judged and not steps[-1].sufficed for steps in known]
    return Sufficiency(
        questions=len(known),
        left_out=len(asked) - len(known),
        precision=_ratio(both, said),
        recall=_ratio(both, true),
        f1=_ratio(2 * both, said + true),
        accuracy=_ratio(sum(step.judged == step.sufficed for step in every), len(every)),
        stopped_early=_ratio(sum(early), len(known)),
        searched_long=_ratio(sum(map(bool, wasted)), len(known)),
        wasted_steps=_ratio(sum(wasted), len(known)),
    )


def _ratio(part: int, whole: int) -> float | None:
    return part / whole if whole else None


# --- How sure a mean is, and whether two programs differ.

_RESAMPLES = 9_999
_SEED = 20_240_601


class Paired(NamedTuple):
    """Two runs over the questions they share.

    `difference` is the mean of the first less that of the second, in percent points; `p_value`
    is two-sided: how often a random swap of the two answers of each question gives a difference
    at least as large.
    """

    n: int
    difference: float
    p_value: float

    @property
    def better(self) -> bool:
        """Whether the first is better, and not by chance at the 5 % level."""
        return self.difference > 0 and self.p_value < 0.05


def bootstrap_interval(values: Sequence[float]) -> tuple[float, float]:
    """95 % percentile bootstrap interval of the mean, from 9,999 resamples of a fixed seed.

    Of one value nothing is known about the mean of others: the interval is the whole scale.

    Raises:
        InputError: there are no values.

    >>> bootstrap_interval([0.5, 0.5, 0.5])
    (0.5, 0.5)
    """
    if not values:
        raise InputError(
            "an interval of no scores",
            expected="at least one score",
            remedy="leave the interval out where nothing was scored",
        )
    return _interval(tuple(values)) if len(values) > 1 else (0.0, 1.0)


@lru_cache(maxsize=1024)
def _interval(values: tuple[float, ...]) -> tuple[float, float]:
    """Kept, since a report shows one interval in several tables and pictures."""
    import numpy as np

    scores = np.asarray(values, dtype=np.float64)
    random = np.random.default_rng(_SEED)
    # One resample at a time: all at once would take gigabytes for a full dev set.
    means = [scores[random.integers(0, len(scores), len(scores))].mean() for _ in range(_RESAMPLES)]
    low, high = np.percentile(means, [2.5, 97.5])
    return float(low), float(high)


def paired_permutation(first: Sequence[float], second: Sequence[float]) -> Paired:
    """Paired permutation test on the mean difference of two lists of scores from 0 to 1.

    Exact where there are few enough questions, else from 9,999 permutations of a fixed seed.

    Raises:
        InputError: the lists are empty or not of one length.
        MissingExtra: scipy is not installed.
    """
    if not first or len(first) != len(second):
        raise InputError(
            f"{len(first)} and {len(second)} scores",
            expected="as many of the one as of the other, and at least one",
            remedy="pair the scores by question",
        )
    if len(first) == 1:  # scipy wants two; of one pair, swapped or not, all ways are as extreme
        return Paired(1, 100.0 * (first[0] - second[0]), 1.0)
    scipy = require("scipy", "search")
    import numpy as np

    test = scipy.stats.permutation_test(
        (np.asarray(first), np.asarray(second)),
        lambda a, b, axis: np.mean(a, axis=axis) - np.mean(b, axis=axis),
        permutation_type="samples",
        vectorized=True,
        n_resamples=_RESAMPLES,
        batch=500,
        rng=np.random.default_rng(_SEED),
    )
    return Paired(len(first), 100.0 * float(test.statistic), float(test.pvalue))


def holm(p_values: Sequence[float]) -> tuple[float, ...]:
    """Holm-Bonferroni adjusted p-values, in the order given.

    Each is the smallest family-wise error rate at which that comparison would be called a
    difference when all of them are made (Holm 1979).

    Raises:
        InputError: a p-value is not from 0 to 1.

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
