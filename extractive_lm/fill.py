"""Fill the output fields of a prompt: known fields by name, any other by its type."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any

from extractive_lm.english import analyse, bare_title, keywords, normalize, sentences
from extractive_lm.facts import Walk, additions, walks, write_facts
from extractive_lm.prompt import Answer, Doc, Fact, Field, Prompt, read_graph, read_passages
from extractive_lm.ranker import rank

_END, _BETWEEN = 2.0, 1.0
_MOST_NOTES = 12
_NOTE = re.compile(r"^- (.*?): (.*) \[(\d+)\]$", re.MULTILINE)


def fill(prompt: Prompt) -> dict[str, Any]:
    """Return a value per output field, or one under an empty name if the prompt has no fields."""
    if prompt.style != "plain":
        filling = Filling(prompt)
        return {field.name: filling.value(field) for field in prompt.output_fields}
    # A prompt that asks to rewrite instructions in a code fence gets them back unchanged.
    if fenced := re.search(r"```\w*\n(.*?)```", prompt.text, re.DOTALL):
        return {"": f"```\n{fenced[1].strip()}\n```"}
    return {"": next(iter(sentences(prompt.text)), "(empty)")}


class Filling:
    """The values for one prompt, computed on first use."""

    def __init__(self, prompt: Prompt) -> None:
        self.prompt, first = prompt, prompt.first
        asked = next((text for text in prompt.inputs.values() if text.endswith("?")), "")
        self.question = analyse(first("question", "query", "claim") or asked)
        self.facts = read_graph(first("graph"))
        self.noted = read_notes(first("notes_so_far", "notes"))
        self.passages = read_passages(first("passages", "context", "documents", "transcript"))
        self.docs = self.passages or self.noted or facts_as_passages(self.facts)

    # --- Shared by several fields

    @cached_property
    def walks(self) -> list[Walk]:
        """The five best walks over the passages and the graph; none for a comparison."""
        is_comparison = self.question.wants in ("yesno", "choice")
        return [] if is_comparison else walks(self.question, self.docs, self.facts)[:5]

    @cached_property
    def best(self) -> Answer:
        """The likeliest answer; a whole walk over a graph favours its end over the other names."""
        shifts: dict[str, float] = {}
        for walk in self.walks[:1]:
            if walk.is_whole and "graph" in self.prompt.inputs:
                shifts = {**dict.fromkeys(walk.path, -_BETWEEN), walk.path[-1]: _END}
        return next(iter(rank(self.question, self.docs, shifts)), Answer())

    @cached_property
    def missing(self) -> tuple[str, str]:
        """The name to search for next and its query, not tried before; empty if none is missing.

        The ends of the best walks come first, unless the best walk is whole, then the names of the
        question that do not occur in the passages; the answer is never searched for. A query is the
        name with the words of the question that are still unanswered.
        """
        read = {normalize(bare_title(doc.title)) for doc in self.docs}
        read |= {normalize(self.best.text), *(normalize(fact.head) for fact in self.facts)}
        seen = normalize(" ".join([*(f"{doc.title} {doc.text}" for doc in self.docs), *read]))
        walks = [walk for walk in self.walks if walk.taken and not self.walks[0].is_whole]
        leads = [(walk.name, {*walk.taken, *keywords(" ".join(walk.path))}) for walk in walks]
        for name in self.question.names:
            if not any(word in seen for word in normalize(name).split()):
                leads.append((name, set()))
        tried, parsed = set(map(normalize, self.prompt.tried)), self.question.parsed
        for name, answered in leads:
            done = {*answered, *keywords(name), ""}
            words = zip(parsed.words, parsed.stems, strict=True)
            query = " ".join(dict.fromkeys([name, *(w for w, stem in words if stem not in done)]))
            if name[0].isupper() and normalize(name) not in read and normalize(query) not in tried:
                return name, query
        return "", ""

    # --- Fields known by name

    def reasoning(self) -> str:
        """Return the best answer and what is missing."""
        best = f'The best answer so far is "{self.best.text}" ({self.best.score:.2f}).'
        missing = f"Missing: what is asked about {self.missing[0]}." if self.missing[0] else ""
        return f"{best} {missing}".strip()

    def thought(self) -> str:
        """Return the next sentence of a chain of thought, which is also a search query."""
        name, query = self.missing
        thought = f"{name} must be looked up: {query.removeprefix(name).strip()}."
        if name and thought not in self.prompt.tried:
            return thought
        return f"So the answer is: {self.best.text}." if self.best.text else ""

    def query(self) -> str:
        """Return the next query; the question itself if nothing was read yet."""
        if self.prompt.inputs.get("searches_left") == "0":
            return ""
        is_first = not self.docs and not self.prompt.tried
        return self.question.parsed.text if is_first else self.missing[1]

    def answer(self) -> str:
        """Return the short answer; empty while the search continues."""
        if "transcript" in self.prompt.inputs:
            return "" if self.query() else self.best.text or "unknown"
        return self.best.text

    def cited(self) -> str:
        """Return the numbers of the passages that the answer is from."""
        return ", ".join(map(str, self.best.labels))

    def notes(self) -> str:
        """Return the twelve sentences that have the most keywords of the question, in order."""
        docs = (*self.noted, *self.passages)
        lines = [f"- {d.title}: {each} [{d.label}]" for d in docs for each in sentences(d.text)]
        shared = [len(self.question.focus.keys() & set(keywords(line))) for line in lines]
        best = sorted(range(len(lines)), key=lambda i: (-shared[i], i))[:_MOST_NOTES]
        return "\n".join(lines[i] for i in sorted(best))

    # --- Any field

    def value(self, field: Field) -> Any:
        """Return the value of a field, in its type."""
        text, form = self.text(field.name), field.form
        if field.allowed:
            same = (value for value in field.allowed if str(value).lower() == text.lower())
            return next(same, field.allowed[0])
        if form.startswith("bool"):
            return text.lower() in ("yes", "true")
        if form.startswith(("int", "float", "a ")):
            return int((re.findall(r"-?\d+", text) or [0])[0])
        if form.startswith("list") or '"array"' in form:
            return [text] if text and re.search(r'\[str\]|"string"', form) else []
        return {} if form.startswith(("dict", "JSON")) else text

    def text(self, name: str) -> str:
        """Return the text of a field.

        An unknown field gets the first input with a word of its name, else the answer if there is a
        question, else the passages, else the first sentence of the longest input.
        """
        if name in _BY_NAME:
            return _BY_NAME[name](self)
        words, inputs = set(name.lower().split("_")), self.prompt.inputs
        for other, text in inputs.items():
            if text and words & set(other.lower().split("_")):
                return text
        read = " ".join(doc.text for doc in self.docs[:6])
        longest = max(inputs.values(), key=len, default=self.prompt.text)
        answer = self.best.text if self.question.focus else read
        return answer or "".join(sentences(longest)[:1])


_BY_NAME: Mapping[str, Callable[[Filling], str]] = {
    "additions": lambda f: write_facts(additions(f.question, f.docs, f.facts, f.walks), f.docs),
    "reasoning": Filling.reasoning,
    "thought": Filling.thought,
    "judgement": lambda f: "insufficient" if f.missing[1] else "sufficient",
    "candidate": lambda f: f.best.text,
    "next_query": Filling.query,
    "query": Filling.query,
    "answer": Filling.answer,
    "verdict": lambda f: "answered" if f.best.text else "not in passages",
    "cited": Filling.cited,
    "links": lambda f: f"{f.best.text} [{f.cited()}]" if f.best.text else "missing",
    "notes": Filling.notes,
    "points": Filling.notes,
    "title": lambda f: "".join(doc.title for doc in f.docs[:1]),
}


def read_notes(text: str) -> tuple[Doc, ...]:
    """Parse notes as passages of one sentence.

    >>> read_notes("- Red Lodge: It is a city. [3]")
    (Doc(label=3, title='Red Lodge', text='It is a city.'),)
    """
    return tuple(Doc(int(label), title, note) for title, note, label in _NOTE.findall(text))


def facts_as_passages(facts: Sequence[Fact]) -> tuple[Doc, ...]:
    """Return each fact as a passage of one sentence.

    >>> facts_as_passages([Fact("Red Lodge", "is in", "Montana", (3,))])
    (Doc(label=3, title='Red Lodge', text='Red Lodge is in Montana.'),)
    """
    return tuple(Doc(f.labels[0], f.head, " ".join(f[:3]) + ".") for f in facts)
