"""Evidence for an answer: chains of triples, citations, and the sentences quoted for them."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from itertools import pairwise
from typing import Any, Literal, NamedTuple, Self, get_args

import dspy

from ga_dspy.graph import Relation
from ga_dspy.graph.paths import meanings_in
from ga_dspy.passage import Passage, Sourced
from ga_dspy.programs.reading import Labelled
from ga_dspy.signatures import Style, Verdict
from ga_dspy.signatures.prompt import cited_labels, free_text
from ga_dspy.text import STOPWORDS, mentions, sentences, supports_phrase, words

Support = Literal["chained", "quoted"]
"""How an answer is supported.

"chained": the graph leads from the question to the answer, a passage states each link, and all
checks of `ga_dspy.graph.checks` pass. "quoted": a sentence of a cited passage holds the answer and
shares a word with the question. Both compare wording; neither is a proof.
"""


class EvidenceLink(Sourced):
    """One link of the evidence chain: a triple, and a quote from the passage that states it.

    The triple is empty if a program without a graph quotes the passage that holds the answer.
    `time` says when the triple holds, if stated. `metadata` is the passage's; `source` is its file
    or address, and page.
    """

    head: str = ""
    relation: str = ""
    tail: str = ""
    time: str = ""
    passage_id: str
    title: str
    quote: str

    def __str__(self) -> str:
        """Return the link on one line."""
        time = f" ({self.time})" if self.time else ""
        triple = f"{self.head} -> {self.relation} -> {self.tail}{time}: " if self.head else ""
        source = "; ".join(filter(None, (self.title or self.passage_id, self.source)))
        return " ".join(f'{triple}"{self.quote}" ({source})'.split())

    @classmethod
    def to(cls, passage: Passage, quote: str, **triple: str) -> Self:
        """Return a link to a passage."""
        return cls.model_validate({**triple, **_quoted(passage, quote)})


def _quoted(passage: Passage, quote: str) -> dict[str, Any]:
    """Return the fields of a link or a citation that name its passage and the quote."""
    source = {"passage_id": passage.id, "title": passage.title, "metadata": passage.metadata}
    return {**source, "quote": quote}


def chain_links(
    chain: tuple[Relation, ...], passages: Mapping[str, Passage]
) -> tuple[EvidenceLink, ...]:
    """Return the links of a chain, each quoting the first passage that states it."""
    links = []
    for relation in chain:
        stated = [(passages[e.passage], e) for e in relation.evidence if e.passage in passages]
        spans = [(passage, (evidence.start, evidence.end)) for passage, evidence in stated]
        if relation.relation == "described as":
            # The evidence of an entity is its name; the description may stand elsewhere.
            described = [(p, span) for p, _ in stated for span in _mentions(relation.tail, p)[:1]]
            spans = described or spans
        if spans:
            first = spans[0][0]
            quote = first.quote(span for passage, span in spans if passage.id == first.id)
            triple = {name: getattr(relation, name) for name in ("head", "relation", "tail")}
            links.append(EvidenceLink.to(first, quote, time=relation.time or "", **triple))
    return tuple(links)


def quotes(answer: str, cited: Iterable[Passage], question: str = "") -> tuple[EvidenceLink, ...]:
    """Return a link for each cited passage, with the sentence that holds the answer or is nearest.

    A yes or no is never looked up: the nearest sentence is quoted.
    """
    links = []
    for passage in cited:
        spans = [] if is_judgement(answer) else _mentions(answer, passage)[:1]
        nearest = nearest_sentence(f"{question} {answer}", passage)
        links.append(EvidenceLink.to(passage, passage.quote(spans) if spans else nearest))
    return tuple(links)


def _mentions(phrase: str, passage: Passage) -> list[tuple[int, int]]:
    """Return where a passage mentions a phrase, except in its title."""
    found = mentions(phrase, passage.content)
    return [(each.start, each.end) for each in found if each.start >= len(passage.title)]


# --- The conclusion: an answer, the passages it cites, and whether they hold it.

_JUDGEMENT = re.compile(
    r"\W*(?:yes|no|true|false)\s*(?:\W*\Z|[,:;!–—-]\s|\.\s+(?!\d))", re.IGNORECASE
)
_CITATION = re.compile(r"\s*\[(\d{1,4}(?:\s*[,;]\s*\d{1,4})*)\]")

# Citations in a row, with their separators: " [1], [2] and [4]".
_CITATIONS = re.compile(r"\s*\[[\d,; ]+\](?:,? (?:and )?\[[\d,; ]+\])*")


class Citation(Sourced):
    """One statement of a written answer and a passage it cites, with that passage's metadata.

    Attributes:
        claim: The sentence, without its numbers.
        passage_id: The id of the passage cited; empty if no passage has the number.
        title: The title of the passage.
        holds: Whether the passage has the names, the numbers and most words of the sentence.
        quote: The nearest sentence of the passage.
    """

    claim: str
    passage_id: str = ""
    title: str = ""
    holds: bool = False
    quote: str = ""


class Conclusion(NamedTuple):
    """The outcome of the answer step.

    Attributes:
        answer: The answer as the LM gave it.
        verdict: "answered", "not in passages" or "premise refuted".
        cited: Labels of the passages that the answer rests on; only of passages that were read.
        quoted: Whether one of these passages holds the answer.
        left_out: Labels of the passages that the prompt did not show.
        citations: The statements of a written answer, each with a passage it cites.
        more: Extra outputs of a custom signature.
    """

    answer: str
    verdict: str
    cited: tuple[int, ...] = ()
    quoted: bool = False
    left_out: tuple[int, ...] = ()
    citations: tuple[Citation, ...] = ()
    more: Mapping[str, Any] = {}

    @classmethod
    def from_reply(
        cls,
        reply: dspy.Prediction,
        passages: Labelled,
        left_out: tuple[int, ...] = (),
        style: Style = "span",
        own: Collection[str] = (),
    ) -> Self:
        """Return the conclusion of a reply; `own` are the outputs of a custom signature.

        A short answer is quoted if the text of a cited passage mentions it; if only another passage
        does, that one is cited instead. A sentence that refutes a premise is quoted if a cited
        passage supports it, a written answer if all citations hold, and a "yes" or "no" if it cites
        any passage.
        """
        verdict = str(reply.get("verdict") or "")
        answer = str(reply.get("answer") or "").strip()
        if verdict == "not in passages":
            answer = free_text(answer)
        labels = _inline(str(reply.get("links") or ""))
        if "cited" in reply:
            labels = cited_labels(free_text(str(reply["cited"] or "")))
        cited = tuple(label for label in labels if label in passages)
        citations: tuple[Citation, ...] = ()
        if verdict == "premise refuted" and style == "span":
            # The answer is a sentence, which no passage holds word for word.
            quoted = any(supports_phrase(answer, passages[n].content) for n in cited)
        elif style == "span":
            holding = labels_stating(answer, passages, cited) or labels_stating(answer, passages)
            quoted = bool(holding) or (is_judgement(answer) and bool(cited))
            cited = (tuple(n for n in cited if n in holding) and cited) or holding[:1] or cited
        else:
            citations = tuple(check_citations(answer, passages))
            quoted = bool(citations) and all(citation.holds for citation in citations)
            labels = (*_inline(answer), *cited)
            cited = tuple(dict.fromkeys(n for n in labels if n in passages))
        if verdict not in get_args(Verdict):
            verdict = "answered" if quoted or (answer and cited) else "not in passages"
        standard = {"answer", "verdict", "cited"} | {"links"}.difference(own)
        more = {name: value for name, value in reply.items() if name not in standard}
        quoted = quoted and verdict != "not in passages"
        return cls(answer, verdict, cited, quoted, left_out, citations, more)

    @property
    def is_answer(self) -> bool:
        """Whether there is an answer that, by its verdict, rests on passages."""
        return bool(self.answer) and self.verdict != "not in passages"

    def quotes(self, cited: Iterable[Passage], question: str) -> tuple[EvidenceLink, ...]:
        """Return the quotes of the citations that hold, or else of the cited passages."""
        stated = (c.model_dump(exclude={"claim", "holds"}) for c in self.citations if c.holds)
        links = dict.fromkeys(EvidenceLink.model_validate(each) for each in stated)
        return tuple(links) or quotes(self.answer, cited, question)

    @classmethod
    def uncited(cls, answer: str, passages: Labelled) -> Self:
        """Return a conclusion without citations; the first passage that mentions it is cited."""
        answer = answer.strip()
        cited = labels_stating(answer, passages)[:1]
        return cls(answer, "answered" if cited else "not in passages", cited, bool(cited))


def _inline(text: str) -> tuple[int, ...]:
    """Return the passage numbers in brackets in a text, in order, each once."""
    labels = (n for found in _CITATION.finditer(text) for n in cited_labels(found[1]))
    return tuple(dict.fromkeys(labels))


def without_citations(text: str) -> str:
    """Return a text without its passage numbers.

    >>> without_citations("Orvik has 3 schools [1], while Tarn has 5 [2], and [4].")
    'Orvik has 3 schools, while Tarn has 5.'
    """
    return _CITATIONS.sub("", text)


def is_judgement(answer: str) -> bool:
    """Return whether an answer is a yes or a no, in any wording.

    >>> is_judgement("No, they are not."), is_judgement("No Country for Old Men")
    (True, False)
    """
    return bool(_JUDGEMENT.match(answer))


def labels_stating(
    answer: str, passages: Labelled, labels: Collection[int] | None = None
) -> tuple[int, ...]:
    """Return the labels of the passages that mention a short answer; none for a yes or a no.

    With `labels`, only the passages under these are searched.
    """
    if not answer or is_judgement(answer):
        return ()
    among = passages.keys() if labels is None else labels
    return tuple(n for n in passages if n in among and mentions(answer, passages[n].text))


def shares_question_word(question: str, answer: str, cited: Iterable[Passage]) -> bool:
    """Return whether a sentence that holds an answer shares a word with the question.

    The title counts as part of each sentence, and every sentence holds a yes or a no. If no
    sentence holds the answer, as with a written one, the result is True.

    >>> from ga_dspy.passage import Passage
    >>> town = Passage(id="t", title="Ostvik", text="Ada Lund was mayor from 2001.")
    >>> [shares_question_word(q, "Ada Lund", [town]) for q in ("Who was mayor?", "Who sang?")]
    [True, False]
    """
    wanted, holding = meanings_in(question), list[str]()
    for passage in cited:
        for start, end in sentences(passage.text):
            sentence = passage.text[start:end]
            if is_judgement(answer) or mentions(answer, sentence):
                holding.append(f"{passage.title} {sentence}")
    return not holding or any(not wanted.isdisjoint(meanings_in(each)) for each in holding)


def check_citations(answer: str, passages: Labelled) -> Iterable[Citation]:
    """Yield a citation for each passage number in or after each statement of an answer."""
    plain = _CITATION.sub(lambda found: " " * len(found[0]), answer)
    starts = (start for start, _ in sentences(plain))
    for start, end in pairwise([*starts, len(answer)]):
        statement = answer[start:end]  # with the numbers after its full stop
        claim = _CITATION.sub("", statement).strip()
        for number in _inline(statement):
            passage = passages.get(number)
            if passage is None:
                yield Citation(claim=claim)
            else:
                holds = supports_phrase(claim, passage.content)
                quoted = _quoted(passage, nearest_sentence(claim, passage))
                yield Citation(claim=claim, holds=holds, **quoted)


def nearest_sentence(text: str, passage: Passage) -> str:
    """Return the first of the sentences of a passage that share the most words with a text.

    Words of the title do not count: they do not distinguish the passage's sentences.
    """
    in_title = {word.folded for word in words(passage.title)}
    sought = {word.folded for word in words(text)} - STOPWORDS - in_title
    body = passage.text
    spans = sentences(body) or ((0, len(body)),)
    best = max(spans, key=lambda s: sum(w.folded in sought for w in words(body[s[0] : s[1]])))
    return " ".join(body[best[0] : best[1]].split()) or passage.title
