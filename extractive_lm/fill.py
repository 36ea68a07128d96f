"""Filling the output fields of a prompt: those it knows by name, any other by its type."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

from extractive_lm.facts import FITS, WHOLE, Walk, additions, shifts, walks, write_facts
from extractive_lm.prompt import Answer, Doc, Fact, Field, Inputs, Prompt, read_inputs
from extractive_lm.question import Question, analyse
from extractive_lm.ranker import rank, share, shipped_ranker, weigh
from extractive_lm.spans import bare_title
from extractive_lm.text import keywords, normalize, parse, sentences

_UNSUPPORTED, _SURE = 0.02, 0.3
_LIKELY = 3
_MOST_WORDS = 12
_FENCE = re.compile(r"```\w*\n(.*?)```", re.DOTALL)
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?")


def fill(prompt: Prompt) -> dict[str, Any]:
    """Return a value for each output field; one nameless value where the prompt has no fields."""
    filling = Filling(prompt)
    if prompt.style == "plain":
        return {"": filling.plain()}
    return {field.name: filling.value(field) for field in prompt.output_fields}


class Filling:
    """One prompt's values, computed when first asked for."""

    def __init__(self, prompt: Prompt) -> None:
        self.prompt = prompt
        self.inputs: Inputs = read_inputs(prompt.inputs)
        self.question: Question = analyse(self.inputs.question)

    # --- What several fields rest on

    @cached_property
    def docs(self) -> tuple[Doc, ...]:
        """The passages; what the graph or the notes say where there are none."""
        given = self.inputs
        return given.docs or read_notes(given.notes) or facts_as_passages(given.facts)

    @cached_property
    def walked(self) -> list[Walk]:
        """Walks along the question, over the passages and the graph."""
        if self.question.wants in ("yesno", "choice"):
            return []
        return walks(self.question, self.docs, self.inputs.facts)

    @cached_property
    def ranked(self) -> list[Answer]:
        """The ranker's answers, best first; walks shift them where the prompt has a graph."""
        moved = shifts(self.walked) if "graph" in self.prompt.inputs else {}
        return rank(self.inputs.question, self.docs, shifts=moved)

    @property
    def best(self) -> Answer:
        """The ranker's best answer."""
        return self.ranked[0] if self.ranked else Answer()

    @property
    def is_supported(self) -> bool:
        """Whether the passages hold an answer at all."""
        return bool(self.best.text) and self.best.score >= _UNSUPPORTED

    @cached_property
    def added(self) -> tuple[Fact, ...]:
        """The facts that the passages add to the graph."""
        given = self.inputs
        return additions(self.question, given.docs, given.facts, self.walked[:5])

    @cached_property
    def missing(self) -> tuple[str, str]:
        """The name to search next and the query for it, untried; empty where nothing is missing."""
        tried = set(map(normalize, self.inputs.tried))
        read = {normalize(bare_title(doc.title)) for doc in self.docs}
        read |= {normalize(fact.head) for fact in self.inputs.facts}
        for name, known in self._names_to_search(read):
            query = f"{name} {open_words(self.question, {*known, *keywords(name)})}".strip()
            if normalize(query) not in tried:
                return name, query
        return "", ""

    def _names_to_search(self, read: set[str]) -> Iterator[tuple[str, Collection[str]]]:
        """Return names to search, each with the words of the question that need no search.

        First the ends of the best walks, unless the best of them ends at what is asked for; then
        the names of the question that were not met; then, while the answer is unsure, the
        likeliest answers.
        """
        likeliest, is_whole = normalize(self.best.text), False
        for walk in self.walked[:1]:
            is_whole = walk.fit >= FITS and (walk.share >= WHOLE or walk.path[-1] == likeliest)
        for walk in () if is_whole else self.walked[:5]:
            if walk.taken and walk.path[-1] not in read and walk.name[0].isupper():
                yield walk.name, {*walk.taken, *(w for name in walk.path for w in keywords(name))}
        seen = " ".join([normalize(f"{doc.title} {doc.text}") for doc in self.docs] + sorted(read))
        for name in self.question.names:
            if " " in name and not any(word in seen for word in normalize(name).split()):
                yield name, ()
        is_unsure = self.best.score < _SURE and not self.question.choices
        for answer in self.ranked[:_LIKELY] if is_unsure else ():
            norm = normalize(answer.text)
            if answer.text[0].isupper() and norm not in read and not self.question.holds(norm):
                home = (keywords(doc.text) for doc in self.docs if doc.label in answer.labels)
                yield answer.text, {word for words in home for word in words}

    # --- Fields known by name

    def reasoning(self) -> str:
        """What is established, the best answer, what is missing."""
        facts = (*self.inputs.facts, *self.added)
        near = [fact for fact in facts if self.question.holds(normalize(fact.head))][:3]
        stated = "; ".join(f"{f.head} {f.relation} {f.tail} [{f.labels[0]}]" for f in near)
        parts = [f"Established: {stated}."] if stated else []
        best = f'The best answer so far is "{self.best.text}" ({self.best.score:.2f}).'
        parts.append(best if self.best.text else "No answer is seen yet.")
        if self.missing[0]:
            parts.append(f"Missing: what is asked about {self.missing[0]}.")
        return " ".join(parts)

    def thought(self) -> str:
        """The next sentence of a chain of thought, which is a search query as well."""
        if "transcript" in self.prompt.inputs:
            return self.reasoning()
        tried = set(map(normalize, self.inputs.tried))
        name, query = self.missing
        thought = f"{name} must be looked up: {query.removeprefix(name).strip()}."
        if name and normalize(thought) not in tried:
            return thought
        return f"So the answer is: {self.best.text}." if self.best.text else ""

    def query(self) -> str:
        """The next query; the question itself where nothing was read yet."""
        given = self.inputs
        if given.searches_left == 0:
            return ""
        if not given.docs and not given.tried:
            return given.question
        return self.missing[1]

    def answer(self) -> str:
        """The short answer, supported or not; empty in mid-search."""
        if "transcript" in self.prompt.inputs:
            return "" if self.query() else self.best.text or "unknown"
        return self.best.text

    def cited(self) -> str:
        """The numbers of the passages the answer stands in."""
        return ", ".join(map(str, self.best.labels)) if self.is_supported else ""

    def links(self) -> str:
        """The answer with the passages it stands in, as the one link that was followed."""
        return f"{self.best.text} [{self.cited()}]" if self.is_supported else "missing"

    def better(self) -> str:
        """Which of two notes holds more of the question's words, "new" or "old"."""
        asked = dict.fromkeys(self.question.focus, 1.0)
        old, new = (
            share(set(keywords(self.prompt.inputs.get(f"{age}_notes", ""))), asked)
            for age in ("old", "new")
        )
        return "new" if new > old else "old"

    def notes(self) -> str:
        """The notes after reading the passages: the best sentences of the notes and of them."""
        return write_notes(self.question, (*read_notes(self.inputs.notes), *self.inputs.docs))

    # --- Any field

    def value(self, field: Field) -> Any:
        """Return the value of a field, in its type."""
        text = self.text(field.name)
        if field.allowed:
            same = (value for value in field.allowed if str(value).lower() == text.lower())
            return next(same, field.allowed[0])
        kind = field.type_text.replace("Optional[", "").replace("Union[", "")
        if kind.startswith("bool"):
            return text.lower() in ("yes", "true")
        if kind.startswith(("int", "float")):
            number = _NUMBER.search(text)
            value = float(number[0]) if number else 0.0
            return int(value) if kind.startswith("int") else value
        if kind.startswith("list"):
            return [text] if text and kind.startswith("list[str") else []
        return {} if kind.startswith("dict") else text

    def text(self, name: str) -> str:
        """Return a field's text; of an unknown name, a like-named input, an answer, a sentence."""
        known = _BY_NAME[name](self) if name in _BY_NAME else None
        if known is not None:
            return known
        own = set(name.lower().split("_"))
        for given, text in self.prompt.inputs.items():
            if own & set(given.lower().split("_")) and text:
                return text
        if self.inputs.question and self.docs and self.best.text:
            return self.best.text
        longest = max(self.prompt.inputs.values(), key=len, default="")
        return next(iter(sentences(longest)), longest) or self.prompt.text[:200]

    def plain(self) -> str:
        """Complete a prompt without fields: its fenced text again, or its first sentence.

        A prompt that asks for a rewriting of instructions in a fence gets them back unchanged.
        """
        if fenced := _FENCE.search(self.prompt.text):
            return f"```\n{fenced[1].strip()}\n```"
        return next(iter(sentences(self.prompt.text)), self.prompt.text).strip() or "(empty)"


_BY_NAME: Mapping[str, Callable[[Filling], str | None]] = {
    "additions": lambda f: write_facts(f.added, f.inputs.docs),
    "reasoning": Filling.reasoning,
    "rationale": Filling.reasoning,
    "thought": Filling.thought,
    "judgement": lambda f: "insufficient" if f.missing[1] else "sufficient",
    "candidate": lambda f: f.best.text,
    "next_query": Filling.query,
    "query": Filling.query,
    "search_query": Filling.query,
    "answer": Filling.answer,
    "verdict": lambda f: "answered" if f.is_supported else "not in passages",
    "cited": Filling.cited,
    "links": Filling.links,
    "better": Filling.better,
    "notes": Filling.notes,
    "note": Filling.notes,
    "points": Filling.notes,
    "title": lambda f: f.inputs.facts[0].head if f.inputs.facts else None,
    "summary": lambda f: summary(f.inputs.facts) or None,
}
"""What fills a field of a known name; None leaves it to what fills any other."""


def open_words(question: Question, known: set[str]) -> str:
    """Return the words of a question that are not known yet, at most twelve."""
    pairs = zip(question.parsed.tokens, question.parsed.stems, strict=True)
    words = dict.fromkeys(token.text for token, word in pairs if word and word not in known)
    return " ".join(list(words)[:_MOST_WORDS])


# --- Running notes: the sentences that bear on a question, a line each, `- title: sentence [n]`

MOST_NOTES = 12
_PER_PASSAGE = 3
_NOTE = re.compile(
    r"^\s*(?:[-*•]|\d+[.)])?\s*(?:(\S[^:\n]*): )?(.+?)(?:\s*\[(\d+)[^\]\n]*\]\.?)?\s*$"
)


def write_notes(question: Question, docs: Sequence[Doc]) -> str:
    """Write the best sentences of passages, in their order: at most twelve, three per passage.

    A sentence counts by the question's words that it and its title hold.
    """
    asked = weigh(question, shipped_ranker().idf)
    weighed: list[tuple[float, int, int, str]] = []
    for n, doc in enumerate(docs):
        for at, sentence in enumerate(sentences(doc.text)):
            stems = set(parse(f"{doc.title} {sentence}").stems)
            worth = share(stems, asked.weights) + share(stems, asked.related) - 0.02 * at
            weighed.append((-worth, n, at, sentence))
    kept: list[tuple[int, int, str]] = []
    by_passage: Counter[int] = Counter()
    for _, n, at, sentence in sorted(weighed):
        by_passage[n] += 1
        if by_passage[n] <= _PER_PASSAGE:
            kept.append((n, at, sentence))
    heads = [f"{doc.title}: " if doc.title else "" for doc in docs]
    best = sorted(kept[:MOST_NOTES])
    return "\n".join(f"- {heads[n]}{sentence} [{docs[n].label}]" for n, _, sentence in best)


def read_notes(text: str) -> tuple[Doc, ...]:
    r"""Read notes as the shortened passages that they are, by their numbers.

    >>> read_notes("- Red Lodge: It is a city. [3]\n- Red Lodge: It has a mine. [3]")
    (Doc(label=3, title='Red Lodge', text='It is a city. It has a mine.'),)
    """
    noted: dict[tuple[int, str], list[str]] = {}
    for line in text.removeprefix("(empty)").splitlines():
        if note := _NOTE.match(line):
            noted.setdefault((int(note[3] or 1), note[1] or ""), []).append(note[2])
    return tuple(Doc(*key, " ".join(lines)) for key, lines in noted.items())


# --- What a graph says, in sentences: a title, a summary, and a passage for each of its names

_SENTENCES = 6


def summary(facts: Sequence[Fact]) -> str:
    """Return up to six facts as sentences.

    >>> summary((Fact("Red Lodge", "is in", "Montana", (1,)),))
    'Red Lodge is in Montana.'
    """
    return " ".join(map(_sentence, facts[:_SENTENCES]))


def _sentence(fact: Fact) -> str:
    return f"{fact.head} {fact.relation} {fact.tail}".removesuffix(".") + "."


def facts_as_passages(facts: Sequence[Fact]) -> tuple[Doc, ...]:
    """Return facts in sentences, one passage for each head.

    >>> facts_as_passages((Fact("Red Lodge", "is in", "Montana", (3,)),))
    (Doc(label=3, title='Red Lodge', text='Red Lodge is in Montana.'),)
    """
    about: dict[str, list[Fact]] = {}
    for fact in facts:
        about.setdefault(fact.head, []).append(fact)
    return tuple(
        Doc((*stated[0].labels, 1)[0], head, " ".join(map(_sentence, stated)))
        for head, stated in about.items()
    )
