"""Scores from 0 to 1, as the official scripts compute them if there are any."""

from __future__ import annotations

import re
import string
import unicodedata
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from statistics import harmonic_mean
from typing import NamedTuple

from ga_dspy.errors import InputError
from ga_dspy.eval.datasets import Fact
from ga_dspy.graph import Entity, KnowledgeGraph, Relation
from ga_dspy.graph.identity import identity, plain_relation, split_qualifier
from ga_dspy.passage import Passage
from ga_dspy.programs import EvidenceLink
from ga_dspy.text import fold, places, stands_in, words
from ga_dspy.text import normalise as normalise_name

# --- Scores of an answer, by the official HotpotQA and SQuAD scripts

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_DROP_PUNCTUATION = str.maketrans("", "", string.punctuation)
_CLOSED = frozenset({"yes", "no", "noanswer"})


class Overlap(NamedTuple):
    """The overlap of predicted and gold items, such as tokens, as fractions from 0 to 1."""

    f1: float
    precision: float
    recall: float


NO_OVERLAP = Overlap(0.0, 0.0, 0.0)


def normalise(answer: str) -> str:
    """Lower-case, remove ASCII punctuation, remove a/an/the, and collapse spaces, in that order.

    The order is that of the official script, and it matters: punctuation is removed first, so "A.N.
    Other" loses its initials as an article.

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
    overlaps = []
    for answer in _accepted(gold):
        is_closed = guess in _CLOSED or answer in _CLOSED
        overlaps.append(NO_OVERLAP if is_closed and guess != answer else _overlap(guess, answer))
    return max(overlaps)


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
        raise InputError("there is no accepted answer to score against", expected="at least one")
    return answers


def _overlap(guess: str, answer: str) -> Overlap:
    guessed, expected = guess.split(), answer.split()
    common = (Counter(guessed) & Counter(expected)).total()
    if common == 0:
        return NO_OVERLAP
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


# --- Supporting facts: the sentences that a quote is from, scored by HotpotQA's rules
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
    """Compare two sets of facts as `update_sp` in hotpot_evaluate_v1.py does, titles as written.

    2wikimultihop_evaluate.py lower-cases titles first. Facts from `facts_of` have the titles of the
    question's context, so both scripts give the same score.

    Returns:
        Fractions from 0 to 1, zeros if nothing was predicted; None without gold facts (MuSiQue,
        Bamboogle), a case that the scripts do not cover.

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
    titles = {_title_key(title): title for title in paragraphs}
    facts: set[Fact] = set()
    for title, quote in evidence:
        name = titles.get(_title_key(title))
        if name is None:
            facts.add((title, NO_SENTENCE))
        else:
            facts |= {(name, number) for number in _sentences_of(quote, name, paragraphs[name])}
    return facts


def _sentences_of(quote: str, title: str, sentences: Sequence[str]) -> set[int]:
    """Return the sentences that a quote is from, with `NO_SENTENCE` if a piece is from none."""
    text, sentence_of = list[str](), list[int]()  # the words, and the sentence of each
    for number, sentence in enumerate((title, *sentences), start=NO_SENTENCE):
        folded = _folded_words(sentence)
        text += folded
        sentence_of += [number] * len(folded)
    occurrences = []
    for piece in filter(None, map(_folded_words, quote.split(_BETWEEN_PIECES))):
        starts = places(piece, text)
        occurrences.append([{*sentence_of[start : start + len(piece)]} for start in starts])
    numbers: set[int] = set()
    for candidates in sorted(occurrences, key=len):
        stated = [place - {NO_SENTENCE} for place in candidates if place != {NO_SENTENCE}]
        if not candidates:
            numbers.add(NO_SENTENCE)
        elif stated:
            numbers |= next((place for place in stated if place & numbers), stated[0])
    return numbers or {NO_SENTENCE}


def _folded_words(text: str) -> list[str]:
    # A combining accent would split its word.
    return [word.folded for word in words(unicodedata.normalize("NFC", text))]


# --- Triples, scored against 2Wiki's gold evidences, whatever the wording of the relation

Triple = tuple[str, str, str]


def triple_score(predicted: Iterable[Triple], gold: Iterable[Triple]) -> Overlap | None:
    """Score predicted triples against gold ones; a gold triple can be matched only once.

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

    ours, wanted = _distinct(predicted), _distinct(gold)
    if not wanted:
        return None
    graph = networkx.Graph()
    for i, one in enumerate(ours):
        for j, other in enumerate(wanted):
            if _have_same_ends(one, other):
                graph.add_edge(("ours", i), ("wanted", j))
    left = [node for node in graph if node[0] == "ours"]
    matching = networkx.bipartite.hopcroft_karp_matching(graph, left)
    return _shares(len(matching) // 2, ours, wanted)


def _distinct(triples: Iterable[Triple]) -> list[Triple]:
    return list({tuple(map(normalise_name, triple)): triple for triple in triples}.values())


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
    my_base, your_base = (_spelling(split_qualifier(name).base) for name in (one, other))
    return mine in (yours, your_base) or my_base == yours


def _have_same_ends(one: Triple, other: Triple) -> bool:
    (head, _, tail), (gold_head, _, gold_tail) = one, other
    straight = same_name(head, gold_head) and same_name(tail, gold_tail)
    return straight or (same_name(head, gold_tail) and same_name(tail, gold_head))


def _spelling(name: str) -> str:
    plain = normalise_name(name)
    dated = any(character.isdigit() for character in plain)
    return " ".join(sorted(plain.split())) if dated else plain


# --- Faithfulness: whether cited edges are in the graph and stated in the cited passages


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
    return len(cited), sum(_is_faithful(link, graph, passages) for link in cited)


def _is_faithful(
    link: EvidenceLink, graph: KnowledgeGraph, passages: Mapping[str, Passage]
) -> bool:
    passage = passages.get(link.passage_id)
    if passage is None or not link.quote:
        return False
    pieces = link.quote.split(_BETWEEN_PIECES)
    text, *quoted = (" ".join(fold(part).split()) for part in (passage.content, *pieces))
    stated = {e.passage for item in _stating(link, graph) for e in item.evidence}
    return passage.id in stated and all(piece in text for piece in quoted)


def _stating(link: EvidenceLink, graph: KnowledgeGraph) -> list[Entity] | list[Relation]:
    """Return the relations or entities of the graph that state the link's triple."""
    if link.relation == "described as":
        return [
            entity
            for entity in graph.find_all(link.head)
            if identity(link.tail) in map(identity, (entity.type, *entity.attributes))
        ]
    triple = _triple_key(link)
    return [relation for relation in graph.relations if _triple_key(relation) == triple]


def _triple_key(item: EvidenceLink | Relation) -> tuple[str, str, str]:
    return identity(item.head), plain_relation(item.relation), identity(item.tail)


# --- The judgement "sufficient" as a classifier

Verdict = tuple[bool, bool | None]
"""Whether a step was judged sufficient, and whether passages of all gold titles had been read."""


def sufficiency(questions: Iterable[Sequence[Verdict]]) -> dict[str, float | None]:
    """Evaluate the judged steps of questions; a positive is a step judged sufficient.

    Args:
        questions: The verdicts on the steps of each question, in order. Questions without verdicts
            or without gold titles are left out.

    Returns:
        - questions: Number of questions counted.
        - precision: Percentage of the steps judged sufficient that were sufficient.
        - recall: Percentage of the sufficient steps that were judged sufficient.
        - f1: Harmonic mean of the two.
        - accuracy: Percentage of the steps that were judged correctly.
        - stopped_early: Percentage of the questions that ended on "sufficient" too early.
        - searched_long: Percentage of the questions that continued although all was read.

        A percentage is None if there is nothing to count.

    >>> sufficiency([[(False, False), (True, True)]])["accuracy"]
    100.0
    """
    counts, counted, early, long = Counter[Verdict](), 0, 0, 0
    for steps in questions:
        was_enough = [enough for _, enough in steps]
        if steps and None not in was_enough:
            counts.update(steps)
            counted += 1
            early += steps[-1] == (True, False)
            long += True in was_enough[:-1]
    right = counts[True, True]
    judged, sufficed = right + counts[True, False], right + counts[False, True]
    return {
        "questions": counted,
        "precision": _percent(right, judged),
        "recall": _percent(right, sufficed),
        "f1": _percent(2 * right, judged + sufficed),
        "accuracy": _percent(right + counts[False, False], counts.total()),
        "stopped_early": _percent(early, counted),
        "searched_long": _percent(long, counted),
    }


def _percent(part: int, whole: int) -> float | None:
    return 100 * part / whole if whole else None
