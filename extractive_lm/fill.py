"""Filling the output fields of a prompt: those it knows by name, any other by its type."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple

from extractive_lm.answer import better_notes, rank
from extractive_lm.chain import Walk, leading, shifts, walks
from extractive_lm.facts import Additions, additions, statements
from extractive_lm.features import share, weigh
from extractive_lm.judge import (
    Judgement,
    cited,
    enough,
    judge,
    names_to_search,
    query_for,
)
from extractive_lm.prompt import (
    Answer,
    Demo,
    DemoTurn,
    Doc,
    Fact,
    Field,
    Inputs,
    KnownGraph,
    Prompt,
    read_inputs,
)
from extractive_lm.question import Question, analyse
from extractive_lm.ranker import shipped_ranker
from extractive_lm.text import normalize, parse, sentences

_UNSUPPORTED = 0.02
_FENCE = re.compile(r"```\w*\n(.*?)```", re.DOTALL)
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?")


def fill(prompt: Prompt) -> dict[str, Any]:
    """A value for each output field; one nameless value where the prompt has no fields."""
    filling = Filling(prompt)
    if prompt.style == "plain":
        return {"": filling.plain()}
    return {field.name: filling.value(field) for field in prompt.output_fields}


class Turn(NamedTuple):
    """A reply to a transcript; of `query` and `answer` exactly one is empty."""

    thought: str
    query: str
    answer: str


class Filling:
    """One prompt's values, worked out when first asked for."""

    def __init__(self, prompt: Prompt) -> None:
        self.prompt = prompt
        self.inputs: Inputs = read_inputs(prompt.inputs)
        self.demos: tuple[Demo, ...] = read_demos(prompt.demos)
        self.question: Question = analyse(self.inputs.question)
        self.takes_turns = "transcript" in prompt.inputs

    # --- What is worked out once

    @cached_property
    def docs(self) -> tuple[Doc, ...]:
        """The passages, then what the graph says of others; the notes where there are neither."""
        given = self.inputs
        labels = {doc.label for doc in given.docs}
        if labels:
            unseen = (fact for fact in given.graph.facts if labels.isdisjoint(fact.labels))
            return (*given.docs, *facts_as_passages(unseen))
        return graph_as_passages(given.graph) or read_notes(given.notes)

    @cached_property
    def walked(self) -> Mapping[str, Walk]:
        """Walks along the question, where the prompt has a graph to walk on."""
        given = self.inputs
        if "graph" not in self.prompt.inputs or self.question.wants in ("yesno", "choice"):
            return {}
        return walks(given.question, (*given.docs, *graph_as_passages(given.graph)))

    @cached_property
    def ranked(self) -> list[Answer]:
        """The ranker's answers, best first.

        An earlier candidate is no hint where the passages it came from are there to be read, nor
        are facts of the graph: measured on training questions, they then pulled more right answers
        away than they brought in.
        """
        hint = "" if self.inputs.docs else self.inputs.best
        return rank(
            self.inputs.question, self.docs, hint=hint, demos=self.demos, shifts=shifts(self.walked)
        )

    @property
    def best(self) -> Answer:
        """The ranker's best answer."""
        return self.ranked[0] if self.ranked else Answer()

    @cached_property
    def additions(self) -> Additions:
        """What the passages add to the graph."""
        return additions(
            self.question,
            self.inputs.docs,
            self.inputs.graph,
            candidate=self.best.text,
            walked=[walk.path for walk in leading(self.walked)],
        )

    @cached_property
    def evidence(self) -> Inputs:
        """The inputs as the judge reads them: notes are its passages where there are no others."""
        given = self.inputs
        return given if given.docs else given._replace(docs=read_notes(given.notes))

    @cached_property
    def judgement(self) -> Judgement:
        """What the judge says of the step."""
        facts: tuple[Fact, ...] = self.inputs.graph.facts
        if self.takes_turns or any(f.name == "additions" for f in self.prompt.output_fields):
            facts = (*facts, *self.additions.facts)
        return judge(self.question, self.evidence, facts, self.ranked, self.walked)

    @cached_property
    def turn(self) -> Turn:
        """The reply to a transcript: search for what is missing, answer where nothing is.

        The question is searched for first. Where no search is left, the best answer has to do.
        """
        given, answer = self.inputs, self.best.text or "unknown"
        thought, query = self.judgement.reasoning, self.judgement.next_query
        if given.searches_left == 0:
            return Turn(f"{thought} No search is left.", "", answer)
        if not given.docs and not given.tried:
            return Turn("Nothing was read yet.", self.question.text, "")
        if not query and not self.best.text:
            # The question's names, where they were not searched for yet.
            names = " ".join(self.question.names)
            query = "" if normalize(names) in map(normalize, given.tried) else names
        return Turn(thought, query, "" if query else answer)

    @property
    def supported(self) -> bool:
        """Whether the passages hold an answer at all."""
        return bool(self.best.text) and self.best.score >= _UNSUPPORTED

    # --- Fields known by name

    def verdict(self) -> str:
        """Either "answered" or "not in passages"; what refutes a premise is not looked for."""
        return "answered" if self.supported else "not in passages"

    def cited(self) -> str:
        """The numbers of the passages the answer rests on."""
        labels = cited(self.question, self.docs, self.best) if self.supported else ()
        return ", ".join(map(str, labels))

    def answer(self) -> str:
        """The short answer, supported or not; empty in mid-search."""
        return self.turn.answer if self.takes_turns else self.best.text

    def links(self) -> str:
        """The answer with the passages it stands in, as the one link that was followed."""
        return f"{self.best.text} [{self.cited()}]" if self.supported else "missing"

    def thought(self) -> str:
        """What is known and missing, or the next sentence of a chain of thought."""
        if self.takes_turns:
            return self.turn.thought
        return next_thought(self.question, self.evidence, self.ranked)

    def query(self) -> str:
        """The next query; the question itself where nothing was read yet."""
        if self.takes_turns:
            return self.turn.query
        return self.judgement.next_query if self.inputs.docs else self.inputs.question

    def better(self) -> str:
        """Which of two notes helps more, "new" or "old"."""
        given = self.prompt.inputs
        old, new = (read_notes(given.get(f"{age}_notes", "")) for age in ("old", "new"))
        return better_notes(self.question, old, new, self.demos)

    def notes(self) -> str:
        """The notes after reading the passages: the best of the notes so far and of them."""
        known = read_notes(self.inputs.notes)
        docs = (*known, *self.inputs.docs)
        ranked = rank(self.inputs.question, docs, demos=self.demos) if known else self.ranked
        return write_notes(self.question, docs, ranked)

    # --- Any field

    def value(self, field: Field) -> Any:
        """The value of a field, in its type."""
        text = self.text(field.name)
        if field.allowed:
            same = (value for value in field.allowed if str(value).lower() == text.lower())
            return next(same, field.allowed[0])
        kind = field.type_text.replace("Optional[", "").replace("Union[", "")
        if kind.startswith("bool"):
            return self.judgement.sufficient if "suffic" in field.name else text.lower() == "yes"
        if kind.startswith(("int", "float")):
            number = _NUMBER.search(text)
            value = float(number[0]) if number else self.best.score
            return int(value) if kind.startswith("int") else value
        if kind.startswith("list"):
            return [text] if text and kind.startswith("list[str") else []
        if kind.startswith("dict"):
            return {}
        return text

    def text(self, name: str) -> str:
        """A field's text; of a name unknown here, a like-named input, an answer, or a sentence."""
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
        """A completion for a prompt without fields: its fenced text again, or its best sentence.

        A prompt that asks for a rewriting of instructions in a fence gets them back unchanged.
        """
        if fenced := _FENCE.search(self.prompt.text):
            return f"```\n{fenced[1].strip()}\n```"
        return next(iter(sentences(self.prompt.text)), self.prompt.text).strip() or "(empty)"


_BY_NAME: Mapping[str, Callable[[Filling], str | None]] = {
    "additions": lambda f: str(f.additions),
    "reasoning": lambda f: f.judgement.reasoning,
    "rationale": lambda f: f.judgement.reasoning,
    "thought": Filling.thought,
    "judgement": lambda f: "sufficient" if f.judgement.sufficient else "insufficient",
    "candidate": lambda f: f.judgement.candidate,
    "next_query": lambda f: f.judgement.next_query,
    "query": Filling.query,
    "search_query": Filling.query,
    "answer": Filling.answer,
    "verdict": Filling.verdict,
    "cited": Filling.cited,
    "links": Filling.links,
    "better": Filling.better,
    "notes": Filling.notes,
    "note": Filling.notes,
    "points": Filling.notes,
    "title": lambda f: " and ".join(most_linked(f.inputs.graph)[:2]) or None,
    "summary": lambda f: summary(f.inputs.graph) or None,
    "entities": lambda f: "\n".join(f.question.names) or None,
}
"""What fills a field of a known name; None leaves it to what fills any other."""


def read_demos(demos: Sequence[DemoTurn]) -> tuple[Demo, ...]:
    """The answers in the examples of a prompt: they re-weigh the kinds of answers preferred."""
    answers: dict[str, Demo] = {}
    for inputs, outputs in demos:
        text = (outputs.get("answer") or outputs.get("candidate") or "").strip()
        if text and text != "none" and (question := inputs.get("question")):
            answers[question] = Demo(question, text)
    return tuple(answers.values())


# --- Running notes: the sentences that bear on a question, each with its passage's number.
# A line reads `- sentence [n]`. The first line of a passage shows its title, so that notes can be
# read back as what they are: shortened passages.

MOST_NOTES = 12
_PER_PASSAGE = 3
_LIKELY = 8
_FIRST, _LATER = 0.2, 0.02
_LONGEST_TITLE = 12
_BULLET = re.compile(r"^\s*(?:[-*•]|\d+[.)])\s+")
_LABELS = re.compile(r"\s*\[(\d+)[^\]\n]*\]\s*\.?\s*$")


def write_notes(question: Question, docs: Sequence[Doc], ranked: Sequence[Answer]) -> str:
    """The best sentences of passages, in their order: at most `MOST_NOTES`, three a passage.

    A sentence counts by the question's words that it and its title hold, by the likeliest answer
    in it, and for being the first of its passage.
    """
    asked = weigh(question, shipped_ranker().idf)
    likely = [(f" {normalize(answer.text)} ", answer.score) for answer in ranked[:_LIKELY]]
    weighed: list[tuple[float, int, int, str]] = []
    for n, doc in enumerate(docs):
        in_title = set(parse(doc.title).stems)
        for at, sentence in enumerate(sentences(doc.text)):
            stems, norm = set(parse(sentence).stems), f" {normalize(sentence)} "
            words = share(stems | in_title, asked.weights) + share(stems, asked.related)
            best = max((score for answer, score in likely if answer in norm), default=0.0)
            early = _FIRST * (at == 0) - _LATER * at
            weighed.append((-(words + best + early), n, at, sentence))
    kept: dict[int, list[tuple[int, str]]] = {}
    left = MOST_NOTES
    for _, n, at, sentence in sorted(weighed):
        if left and len(kept.get(n, ())) < _PER_PASSAGE:
            kept.setdefault(n, []).append((at, sentence))
            left -= 1
    lines: list[str] = []
    for n in sorted(kept):
        doc, texts = docs[n], [text for _, text in sorted(kept[n])]
        first, *more = (in_full(text, doc) for text in texts)
        if doc.title and _title(first) != doc.title:
            first = f"{doc.title}: {texts[0]}"
        lines += [f"- {line} [{doc.label}]" for line in (first, *more)]
    return "\n".join(lines)


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
    r"""Notes as the shortened passages that they are, by their numbers.

    A line without a number belongs to the one before it; without any number, all is one passage.

    >>> read_notes("- Red Lodge: It is a city. [3]\n- It has a mine. [3]")
    (Doc(label=3, title='Red Lodge', text='It is a city. It has a mine.'),)
    """
    noted: dict[int, list[str]] = {}
    label = 1
    for raw in text.splitlines():
        line = _BULLET.sub("", raw).strip().removeprefix("(empty)")
        found = _LABELS.search(line)
        label = int(found[1]) if found else label
        if sentence := line[: found.start()] if found else line:
            noted.setdefault(label, []).append(sentence)
    docs: list[Doc] = []
    for label, lines in sorted(noted.items()):
        title = _title(lines[0])
        docs.append(Doc(label, title, " ".join(s.removeprefix(f"{title}: ") for s in lines)))
    return tuple(docs)


def _title(line: str) -> str:
    """What stands before a colon, the longest part that comes again behind it or else the first.

    Without a colon it is the name that a line begins with.
    """
    heads = [line[: m.start()] for m in re.finditer(": ", line)]
    heads = [h for h in heads if len(h.split()) <= _LONGEST_TITLE and h and not h[0].islower()]
    again = [h for h in heads if normalize(h.partition(" (")[0]) in normalize(line[len(h) + 1 :])]
    if heads:
        return max(again, key=len, default=heads[0])
    subject = statements("", line).subject
    return subject if line.startswith(subject) else ""


# --- A chain of thought: its next sentence, which is a search query as well


def next_thought(question: Question, inputs: Inputs, ranked: Sequence[Answer]) -> str:
    """The sentence that leads on to the first missing link, else "So the answer is: ...".

    A link is missing by the judge's rules. The thought is a sentence of a passage that names it,
    or, where none does or that one was thought before, what must be looked up. No thought comes
    twice; the empty string where nothing leads on and no answer is seen.
    """
    best = ranked[0] if ranked else Answer()
    before = {normalize(thought) for thought in inputs.thoughts}
    unsure = best.score < enough(inputs)
    for name, home in names_to_search(question, inputs, ranked, unsure):
        for thought in _thoughts(question, name, home):
            if normalize(thought) not in before:
                return thought
    return f"So the answer is: {best.text}." if best.text else ""


def _thoughts(question: Question, name: str, home: Doc | None) -> Iterator[str]:
    """What to think about a name: the sentence that mentions it, then that it is not known."""
    if home is not None:
        mentioning = [s for s in sentences(home.text) if name in s and "answer is" not in s.lower()]
        if mentioning:
            close = [len(set(parse(s).stems) & set(question.keywords)) for s in mentioning]
            yield in_full(mentioning[close.index(max(close))], home)
    missing = query_for(name, question, home, ()).removeprefix(name).strip()
    yield f"{name} must be looked up: {missing}." if missing else f"{name} must be looked up."


# --- What a graph says, in sentences: a title, a summary, and a passage for each of its names

_SENTENCES = 6


def most_linked(graph: KnownGraph) -> list[str]:
    """The names of a graph, those with the most relations first."""
    links = Counter(end for fact in graph.facts for end in (fact.head, fact.tail))
    return [name for name, _ in links.most_common()] or list(graph.entities)


def summary(graph: KnownGraph) -> str:
    """Up to six facts as sentences, those of the most linked names first.

    >>> summary(KnownGraph(facts=(Fact("Red Lodge", "is in", "Montana", (1,)),)))
    'Red Lodge is in Montana.'
    """
    order = {name: place for place, name in enumerate(most_linked(graph))}
    best = sorted(graph.facts, key=lambda fact: min(order[fact.head], order[fact.tail]))
    lines = (f"{fact.head} {fact.relation} {fact.tail}" for fact in best[:_SENTENCES])
    return " ".join(text if text.endswith(".") else f"{text}." for text in lines)


def facts_as_passages(facts: Iterable[Fact]) -> tuple[Doc, ...]:
    """Facts in sentences, one passage for each head."""
    about: dict[str, list[Fact]] = {}
    for fact in facts:
        about.setdefault(fact.head, []).append(fact)
    return tuple(
        Doc(
            min((label for fact in stated for label in fact.labels), default=1),
            head,
            " ".join(f"{fact.head} {fact.relation} {fact.tail}." for fact in stated),
        )
        for head, stated in about.items()
    )


def graph_as_passages(graph: KnownGraph) -> tuple[Doc, ...]:
    """All that a graph says: what its names are, then its facts; for reading it by itself.

    >>> graph = KnownGraph({"Red Lodge": (3,)}, details={"Red Lodge": ("city", "has a mine")})
    >>> graph_as_passages(graph)
    (Doc(label=3, title='Red Lodge', text='Red Lodge is a city. Red Lodge: has a mine.'),)
    """
    about = {doc.title: doc for doc in facts_as_passages(graph.facts)}
    docs: list[Doc] = []
    for name in dict.fromkeys((*about, *graph.details)):
        kind, *attributes = graph.details.get(name, ("",))
        article = "an" if kind[:1].lower() in tuple("aeiou") else "a"
        lines = [f"{name} is {article} {kind}."] if kind else []
        lines += [f"{name}: {attribute}." for attribute in attributes]
        label = min(graph.entities.get(name, ()), default=1)
        if name in about:
            label = about[name].label
            lines.append(about[name].text)
        docs.append(Doc(label, name, " ".join(lines)))
    return tuple(docs)
