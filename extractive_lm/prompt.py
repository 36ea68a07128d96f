"""What a prompt says: adapters write prompts, and this reads them back.

An LM sees rendered text alone, and so does this. It reads the forms of `dspy.ChatAdapter` and
`dspy.JSONAdapter`, and two that list the outputs one per line ("Reply with …"), below markers or in
JSON. Text of another form is a `Prompt` without output fields. Inside the fields stand passages,
graphs, queries and transcripts, which the second half of this file reads.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from itertools import chain
from typing import Any, Literal, NamedTuple

from dspy.lm15 import Request

from extractive_lm.text import ExtractiveError

Style = Literal["chat", "json", "plain"]

_INPUTS, _OUTPUTS = "Your input fields are:\n", "Your output fields are:\n"
_STRUCTURE = "All interactions will be structured in the following way"
_REQUEST = re.compile(r"(?:\A|\n\n)Respond with (?:the corresponding output fields|a JSON object)")
_FIELD = re.compile(r"^\d+\. `(\w+)` \((.*?)\):", re.MULTILINE)
_REQUESTED = re.compile(r"`(?:\[\[ ## (\w+) ## \]\]|(\w+))`")
_SECTION = re.compile(r"^\[\[ ## (\w+) ## \]\][ \t]*\n?", re.MULTILINE)
_CHOICES = re.compile(r"Literal(\[[^\]]*\])")
_FORM = re.compile(
    r"(?:\A|\n\n)Reply with (?:these fields, each below its marker, \[\[ ## name ## \]\]|"
    r"one (?P<json>JSON) object with these fields, in this order):\n"
)
_LINE = re.compile(r"^- (\w+):?(.*(?:\n(?!- \w+).*)*)", re.MULTILINE)
_LINE_CHOICES = re.compile(r"\(one of: (.*)\)\Z")
_LINE_SCHEMA = re.compile(r"\(JSON by this schema: (\{.*\})\)\Z")


class Field(NamedTuple):
    """An output field as the prompt describes it.

    Attributes:
        name: The field's name.
        type_text: Its type as printed, e.g. "str", "list[str]", "Literal['a', 'b']".
        allowed: The only values it may have; empty where it is free.
    """

    name: str
    type_text: str = "str"
    allowed: tuple[Any, ...] = ()


class Prompt(NamedTuple):
    """A prompt taken apart.

    Attributes:
        inputs: The texts of the input fields, by name, of the last user message.
        output_fields: What is asked for, in order; empty where the prompt is of no known form.
        style: How the completion has to be written.
        text: The last user message as it stands.
    """

    inputs: dict[str, str]
    output_fields: tuple[Field, ...]
    style: Style
    text: str


def read_prompt(request: Request) -> Prompt:
    """Take a request apart; instructions and examples are not read.

    Raises:
        ExtractiveError: The prompt asks for a reply in XML.
    """
    given = request.system or ""
    given = given if isinstance(given, str) else "".join(getattr(p, "text", "") for p in given)
    developer = (m.text or "" for m in request.messages if m.role == "developer")
    system = "\n".join(filter(None, (given, *developer)))
    last = next((m.text or "" for m in reversed(request.messages) if m.role == "user"), "")
    for form in list(_FORM.finditer(system))[-1:]:
        return _read_form(system[form.end() :], "json" if form["json"] else "chat", last)
    cut = max((m.start() for m in _REQUEST.finditer(last)), default=len(last))
    asked = last[cut:]
    if _OUTPUTS not in system or not asked:
        return Prompt({}, (), "plain", last)
    if "wrapped in XML tags" in asked:
        raise ExtractiveError(
            "the embedded LM does not write XML, which this prompt asks for; expected the form of "
            "ga_dspy.PlainAdapter, dspy.ChatAdapter or dspy.JSONAdapter; configure one of them"
        )
    described = system.partition(_STRUCTURE)[0].partition(_INPUTS)[2]
    inputs, _, outputs = described.partition(_OUTPUTS)
    names = [m[1] for m in _FIELD.finditer(inputs)]
    fields = _output_fields(outputs, asked)
    return Prompt(_values(last[:cut], names), fields, "json" if "JSON" in asked else "chat", last)


def _output_fields(described: str, asked: str) -> tuple[Field, ...]:
    """Return the fields asked for, with the values that their types allow."""
    types = {m[1]: m[2] for m in _FIELD.finditer(described)}
    named = (m[1] or m[2] for m in _REQUESTED.finditer(asked))
    fields: list[Field] = []
    for name in [n for n in dict.fromkeys(named) if n in types]:
        allowed: tuple[Any, ...] = ()
        if choices := _CHOICES.search(types[name]):
            with suppress(ValueError, SyntaxError):
                allowed = tuple(ast.literal_eval(choices[1]))
        fields.append(Field(name, types[name], allowed))
    return tuple(fields)


def _read_form(form: str, style: Style, last: str) -> Prompt:
    """Take a prompt apart that states its outputs in lines, one each."""
    about = {m[1]: m[2].strip() for m in _LINE.finditer(form)}
    # Which inputs there are is not said: a value could forge one that was left out.
    headers = (m[1] for m in _SECTION.finditer(last))
    names = list(dict.fromkeys(name for name in headers if name not in about))
    fields = tuple(_field_in_line(name, text) for name, text in about.items())
    return Prompt(_values(last, names), fields, style, last)


def _field_in_line(name: str, text: str) -> Field:
    if listed := _LINE_CHOICES.search(text):
        if listed[1] == "True; False":
            return Field(name, "bool")
        return Field(name, "Literal", tuple(listed[1].split("; ")))
    if found := _LINE_SCHEMA.search(text):
        schema: Mapping[str, Any] = json.loads(found[1])
        if schema.get("items", {}).get("type") == "string":
            return Field(name, "list[str]")
        return Field(name, {"array": "list", "object": "dict"}.get(schema.get("type", ""), "str"))
    numbers = {"(a whole number)": "int", "(a number)": "float"}
    return Field(name, next((numbers[end] for end in numbers if text.endswith(end)), "str"))


def _values(text: str, names: list[str]) -> dict[str, str]:
    """Return the fields' texts; headers count in order, so that a value cannot forge one."""
    marks: list[re.Match[str]] = []
    for mark in _SECTION.finditer(text):
        if mark[1] in names:
            names = names[names.index(mark[1]) + 1 :]
            marks.append(mark)
    ends = [m.start() for m in marks[1:]] + [len(text)]
    return {m[1]: text[m.end() : end].strip() for m, end in zip(marks, ends, strict=True)}


# --- What inputs hold: passages, transcripts, graphs, lists of queries


class Doc(NamedTuple):
    """A passage with the number that the prompt gives it."""

    label: int
    title: str
    text: str


class Fact(NamedTuple):
    """A relation of a graph, with the numbers of its passages; `time` is "" where not stated."""

    head: str
    relation: str
    tail: str
    labels: tuple[int, ...]
    time: str = ""


class Answer(NamedTuple):
    """An answer, the passages it was read from, and how sure the ranker is.

    `score` is in [0, 1], the expected F1. The text is empty where nothing can be answered.
    """

    text: str = ""
    score: float = 0.0
    labels: tuple[int, ...] = ()


_PASSAGE = re.compile(r"^\[(\d+)\][ \t]*(.*)$", re.MULTILINE)
_BY_TITLE = "\n\nRead as well, by title:"
_BLANK = re.compile(r"\n[ \t]*\n")
_SEARCH = "Search:"


def read_passages(text: str) -> tuple[Doc, ...]:
    r"""Read passages as `[n] title` over a line of text, or DSPy's numbered list; else as one.

    >>> read_passages("[3] Red Lodge\nA city.")
    (Doc(label=3, title='Red Lodge', text='A city.'),)
    """
    text = text.partition(_BY_TITLE)[0].removeprefix("(empty)")
    marks = list(_PASSAGE.finditer(text))
    if not marks:
        return (Doc(1, "", text),) if text else ()
    docs: list[Doc] = []
    for mark, end in zip(marks, [*(m.start() for m in marks[1:]), len(text)], strict=True):
        title, body = mark[2].strip(), text[mark.end() : end].strip()
        if not body:
            title, body = "", title.strip("«»")
        title = "" if title == "(untitled)" else title
        docs.append(Doc(int(mark[1]), title, " ".join(body.split())))
    return tuple(docs)


def read_transcript(text: str) -> tuple[tuple[str, ...], tuple[Doc, ...]]:
    r"""Read the searches and their passages from blocks divided by blank lines.

    >>> read_transcript("Thought: A city?\n\nSearch: red lodge\n\n[1] Red Lodge\nA city.")
    (('red lodge',), (Doc(label=1, title='Red Lodge', text='A city.'),))
    """
    blocks = _BLANK.split(text.strip())
    searches = (b.removeprefix(_SEARCH).strip() for b in blocks if b.startswith(_SEARCH))
    docs = map(read_passages, filter(_PASSAGE.match, blocks))
    return tuple(searches), tuple(chain.from_iterable(docs))


_LABELS = re.compile(r"\s*\[((?:\d+[,;\s]*)+)\]\s*$")
_NUMBERED = re.compile(r"^\s*(?:\d+[.)]|[-*•])\s+")
_ANNOTATIONS = re.compile(r"(?:\s*\((?:time|confidence):[^()]*\))+\s*$")
_ARROW = re.compile(r"\s(?<!\\)->\s")
_TYPE = re.compile(
    r"(?<!\\)\((?:person|place|organi[sz]ation|work|event|date|quantity|role|other)\)$",
    re.IGNORECASE,
)


def read_graph(text: str) -> tuple[Fact, ...]:
    r"""Read the relations of a graph in the compact form.

    >>> read_graph("- Ann Lee (person) -> born in -> Oslo [2]")
    (Fact(head='Ann Lee', relation='born in', tail='Oslo', labels=(2,), time=''),)
    """
    facts: list[Fact] = []
    for raw in text.splitlines():
        line = _NUMBERED.sub("", raw)
        cited = _LABELS.search(line)
        labels = tuple(map(int, re.findall(r"\d+", cited[1]))) if cited else ()
        line = _ANNOTATIONS.sub("", line[: cited.start()] if cited else line).strip()
        parts = _ARROW.split(line)
        if len(parts) == 3:
            head, relation, tail = (_unescaped(_TYPE.sub("", part)) for part in parts)
            facts.append(Fact(head, relation, tail, labels))
    return tuple(facts)


def _unescaped(name: str) -> str:
    return re.sub(r"\\(.)", r"\1", name).strip()


def read_tried(text: str) -> tuple[str, ...]:
    """Read the queries of a list such as "1. red lodge => passages 1,2"."""
    lines = (_NUMBERED.sub("", line).partition("=>")[0].strip() for line in text.splitlines())
    return tuple(filter(None, lines))


# --- The inputs of a prompt. Fields are known by their names, several names for each; what is
# missing is empty.

_QUESTIONS = ("question", "original_question", "query", "claim", "user_question")
_PASSAGES = ("passages", "context", "documents", "docs", "new_passages", "passage", "evidence")
_NOTES = ("notes_so_far", "notes", "note", "best_note", "previous_note")
_TRIED = ("tried", "queries", "previous_queries", "search_history")
_EMPTY = frozenset(("", "(empty)", "n/a", "none", "[]"))


class Inputs(NamedTuple):
    """The inputs, read.

    Attributes:
        question: The question; the empty string where none is seen.
        docs: The passages of this call.
        facts: The relations of the graph so far.
        notes: The notes so far, as given.
        tried: Queries searched before; the question and the thoughts, where each was a query.
        searches_left: How many more searches are possible; None where the prompt does not say.
    """

    question: str
    docs: tuple[Doc, ...] = ()
    facts: tuple[Fact, ...] = ()
    notes: str = ""
    tried: tuple[str, ...] = ()
    searches_left: int | None = None


def read_inputs(values: Mapping[str, str]) -> Inputs:
    """Read the inputs of a prompt by the names of their fields."""
    known = {n: "" if v.strip().lower() in _EMPTY else v.strip() for n, v in values.items()}

    def first(names: Iterable[str]) -> str:
        return next((known[name] for name in names if known.get(name)), "")

    questions = (t for t in known.values() if t.endswith("?") and len(t) < 500)
    question = first(_QUESTIONS) or next(questions, "")
    searches, found = read_transcript(known.get("transcript", ""))
    thoughts = known.get("thoughts", "").splitlines()
    left = known.get("searches_left", "")
    return Inputs(
        question=question,
        docs=read_passages(first(_PASSAGES)) or found,
        facts=read_graph(known.get("graph", "")),
        notes=first(_NOTES),
        tried=read_tried(first(_TRIED)) or searches or ((question, *thoughts) if thoughts else ()),
        searches_left=int(left) if left.isdigit() else None,
    )
