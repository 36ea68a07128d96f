"""What a prompt says: adapters write prompts, and this reads them back.

An LM sees rendered text alone, and so does this. The forms of `dspy.ChatAdapter`, `JSONAdapter`,
`BAMLAdapter` and `XMLAdapter` differ in how they ask for the output. A fifth and a sixth list the
outputs, one a line ("Reply with …"), below markers or in JSON. Text of another form is a `Prompt`
without output fields. Inside the fields stand passages, graphs, queries and transcripts, which the
second half of this file reads.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from itertools import chain, pairwise
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

from dspy.lm15 import Request

Style = Literal["chat", "json", "xml", "plain"]

_INPUTS, _OUTPUTS = "Your input fields are:\n", "Your output fields are:\n"
_STRUCTURE = "All interactions will be structured in the following way"
_OBJECTIVE = "In adhering to this structure, your objective is:"
_REQUEST = re.compile(r"(?:\A|\n\n)Respond with (?:the corresponding output fields|a JSON object)")
_FIELD = re.compile(r"^\d+\. `(\w+)` \((.*?)\):", re.MULTILINE)
_REQUESTED = re.compile(r"`(?:\[\[ ## (\w+) ## \]\]|<?(\w+)>?)`")
_SECTION = re.compile(r"^\[\[ ## (\w+) ## \]\][ \t]*\n?", re.MULTILINE)
_CHOICES = re.compile(r"Literal(\[[^\]]*\])")
_ONE_OF = re.compile(r"\{(\w+)\} +# note: .*\bone of: ([^\"\n]*)")
_NOT_SUPPLIED = "Not supplied for this "
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


class DemoTurn(NamedTuple):
    """A worked example: the texts of its inputs and of its outputs, by field name."""

    inputs: dict[str, str]
    outputs: dict[str, str]


class Prompt(NamedTuple):
    """A prompt taken apart.

    Attributes:
        inputs: The texts of the input fields, by name, of the last user message.
        output_fields: What is asked for, in order; empty where the prompt is of no known form.
        demos: Worked examples and earlier turns.
        style: How the completion has to be written.
        text: The last user message as it stands.
    """

    inputs: dict[str, str]
    output_fields: tuple[Field, ...]
    demos: tuple[DemoTurn, ...]
    style: Style
    text: str


def read_prompt(request: Request) -> Prompt:
    """Take a request apart."""
    given = request.system or ""
    given = given if isinstance(given, str) else "".join(getattr(p, "text", "") for p in given)
    developer = (m.text or "" for m in request.messages if m.role == "developer")
    system = "\n".join(filter(None, (given, *developer)))
    turns = [(m.role, m.text or "") for m in request.messages if m.role in ("user", "assistant")]
    last = next((text for role, text in reversed(turns) if role == "user"), "")
    for form in list(_FORM.finditer(system))[-1:]:
        return _read_form(system[form.end() :], "json" if form["json"] else "chat", turns, last)
    body, asked = _split_request(last)
    if _OUTPUTS not in system or not asked:
        return Prompt({}, (), (), "plain", last)
    style: Style = "json" if "JSON object" in asked else "chat"
    style = "xml" if "wrapped in XML tags" in asked else style
    described, _, rest = system.partition(_STRUCTURE)
    inputs = [m[1] for m in _FIELD.finditer(described.partition(_INPUTS)[2].partition(_OUTPUTS)[0])]
    fields = _output_fields(described, rest.partition(_OBJECTIVE)[0], asked)
    names = [field.name for field in fields]
    demos = tuple(
        DemoTurn(_values(_split_request(question)[0], inputs, style), supplied)
        for question, reply in _pairs(turns)
        if (supplied := _supplied(_reply_values(reply, names, style)))
    )
    return Prompt(_values(body, inputs, style), fields, demos, style, last)


def _pairs(turns: list[tuple[str, str]]) -> Iterable[tuple[str, str]]:
    """What a user said and what came back, for each time that something did."""
    for (role, question), (other, reply) in pairwise(turns):
        if (role, other) == ("user", "assistant"):
            yield question, reply


def _supplied(outputs: Mapping[str, str]) -> dict[str, str]:
    return {n: v for n, v in outputs.items() if v and not v.startswith(_NOT_SUPPLIED)}


def _read_form(form: str, style: Style, turns: list[tuple[str, str]], last: str) -> Prompt:
    """Take a prompt apart that states its outputs in lines, one each."""
    about = {m[1]: m[2].strip() for m in _LINE.finditer(form)}
    fields = tuple(_field_in_line(name, text) for name, text in about.items())

    def inputs(message: str) -> dict[str, str]:
        # Which inputs there are is not said: a value could forge one that was left out.
        headers = (m[1] for m in _SECTION.finditer(message))
        return _values(message, list(dict.fromkeys(n for n in headers if n not in about)), "chat")

    demos = tuple(
        DemoTurn(inputs(question), supplied)
        for question, reply in _pairs(turns)
        if (supplied := _supplied(_reply_values(reply, list(about), style)))
    )
    return Prompt(inputs(last), fields, demos, style, last)


def _field_in_line(name: str, text: str) -> Field:
    if listed := _LINE_CHOICES.search(text):
        if listed[1] == "True; False":
            return Field(name, "bool")
        return Field(name, "Literal", tuple(listed[1].split("; ")))
    found = _LINE_SCHEMA.search(text)
    schema = _json_object(found[1]) if found else {}
    kind = {"array": "list", "object": "dict"}.get(schema.get("type", ""), "str")
    if schema.get("items", {}).get("type") == "string":
        kind = "list[str]"
    numbers = {"(a whole number)": "int", "(a number)": "float"}
    return Field(name, next((numbers[end] for end in numbers if text.endswith(end)), kind))


def _split_request(message: str) -> tuple[str, str]:
    """A user message and its closing request for the output fields."""
    cut = max((m.start() for m in _REQUEST.finditer(message)), default=len(message))
    return message[:cut], message[cut:]


def _output_fields(described: str, structure: str, asked: str) -> tuple[Field, ...]:
    """The fields asked for, with the values that the structure allows them."""
    types = {m[1]: m[2] for m in _FIELD.finditer(described.partition(_OUTPUTS)[2])}
    named = (m[1] or m[2] for m in _REQUESTED.finditer(asked))
    noted = {m[1]: tuple(m[2].split("; ")) for m in _ONE_OF.finditer(structure)}
    fields: list[Field] = []
    for name in [n for n in dict.fromkeys(named) if n in types] or types:
        allowed: tuple[Any, ...] = noted.get(name, ())
        if choices := _CHOICES.search(types[name]):
            with suppress(ValueError, SyntaxError):
                allowed = tuple(ast.literal_eval(choices[1]))
        fields.append(Field(name, types[name], allowed))
    return tuple(fields)


def _json_object(text: str) -> Mapping[str, Any]:
    with suppress(json.JSONDecodeError):
        if isinstance(value := json.loads(text), dict):
            return value
    return {}


def _values(text: str, names: list[str], style: Style) -> dict[str, str]:
    """The fields' texts. Headers count in the fields' order, so that a value cannot forge one."""
    if style == "xml":
        found, position = dict[str, str](), 0
        for name in names:
            tag = re.compile(rf"<{name}>\n?(.*?)\n?</{name}>(?=\s*(?:<|\Z))", re.DOTALL)
            if match := tag.search(text, position):
                found[name], position = match[1].strip(), match.end()
        return found
    marks: list[re.Match[str]] = []
    for mark in _SECTION.finditer(text):
        if mark[1] in names:
            names = names[names.index(mark[1]) + 1 :]
            marks.append(mark)
    ends = [m.start() for m in marks[1:]] + [len(text)]
    return {m[1]: text[m.end() : end].strip() for m, end in zip(marks, ends, strict=True)}


def _reply_values(text: str, names: list[str], style: Style) -> dict[str, str]:
    if style == "chat":
        return _values(text.partition("[[ ## completed ## ]]")[0], names, style)
    if style == "xml":
        return _values(text.replace("&lt;", "<").replace("&amp;", "&"), names, style)
    value = _json_object(text)
    texts = {n: v if isinstance(v, str) else json.dumps(v) for n, v in value.items()}
    return {name: texts[name] for name in names if name in texts}


# --- What the answerer is given and what it gives back


class Doc(NamedTuple):
    """A passage as a prompt shows it: its label `[n]`, its title ("" where none) and its text."""

    label: int
    title: str
    text: str


class Fact(NamedTuple):
    """A relation of the graph, the labels of the passages it came from, and when, if it is new."""

    head: str
    relation: str
    tail: str
    labels: tuple[int, ...]
    time: str = ""


class Demo(NamedTuple):
    """A question answered in the prompt as an example."""

    question: str
    answer: str


class Answer(NamedTuple):
    """An answer, the passages it was read from, and how sure the ranker is.

    `score` is in [0, 1], roughly the probability of being right, comparable across questions. The
    text is empty where nothing can be answered.
    """

    text: str = ""
    score: float = 0.0
    labels: tuple[int, ...] = ()


# --- Passages and transcripts

_PASSAGE = re.compile(r"^\[(\d+)\][ \t]*(.*)$", re.MULTILINE)
_QUOTED = re.compile(r"[«]+(.*?)[»]+", re.DOTALL)
_BY_TITLE = "\n\nRead as well, by title:"
_BLANK = re.compile(r"\n[ \t]*\n")
_TURN = re.compile(r"(Thought|Search):[ \t]*")


def read_passages(text: str) -> tuple[Doc, ...]:
    r"""Passages as `[n] title` over a line of text; else DSPy's numbered list; else one passage.

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
        if quoted := _QUOTED.search(f"{title}\n{body}"):
            title, body = quoted[1].strip(), ""
        if not body:
            first, bar, rest = title.partition(" | ")
            title, body = (first, rest) if bar else ("", title)
        docs.append(Doc(int(mark[1]), "" if title == "(untitled)" else title, _one_line(body)))
    return tuple(docs)


class Transcript(NamedTuple):
    """What a transcript holds, each in its order."""

    thoughts: tuple[str, ...] = ()
    searches: tuple[str, ...] = ()
    docs: tuple[Doc, ...] = ()


def read_transcript(text: str) -> Transcript:
    r"""Read blocks divided by blank lines: "Thought: ...", "Search: ...", and passages.

    A passage stands behind a search; what else has no heading goes on with the thought before it,
    and words behind a search that are no passage ("nothing new") are none of the three.

    >>> read_transcript("Search: red lodge\n\n[1] Red Lodge\nA city.\n\nThought: It is a city.")
    ... # doctest: +NORMALIZE_WHITESPACE
    Transcript(thoughts=('It is a city.',), searches=('red lodge',),
               docs=(Doc(label=1, title='Red Lodge', text='A city.'),))
    """
    thoughts: list[str] = []
    searches: list[str] = []
    results: list[list[str]] = []
    searched = False
    for block in _BLANK.split(text.strip()):
        if turn := _TURN.match(block):
            searched = turn[1] == "Search"
            (searches if searched else thoughts).append(_one_line(block[turn.end() :]))
            results += [[]] if searched else []
        elif searched:
            results[-1].append(block)
        elif thoughts:
            thoughts[-1] = f"{thoughts[-1]} {_one_line(block)}"
    texts = filter(_PASSAGE.match, map("\n\n".join, results))
    docs = tuple(chain.from_iterable(map(read_passages, texts)))
    return Transcript(tuple(filter(None, thoughts)), tuple(filter(None, searches)), docs)


def _one_line(text: str) -> str:
    return " ".join(text.split())


# --- Graphs, and lists of queries

_LABELS = re.compile(r"\s*\[((?:\d+[,;\s]*)+)\]\s*$")
_NUMBERED = re.compile(r"^\s*(?:\d+[.)]|[-*•])\s+")
_ANNOTATIONS = re.compile(r"(?:\s*\((?:time|confidence):[^()]*\))+\s*$")
_ARROW = re.compile(r"\s(?<!\\)->\s")
_DETAILS = re.compile(r"(?<!\\);")
_TYPED = re.compile(
    r"(.+)(?<!\\)\((person|place|organi[sz]ation|work|event|date|quantity|role|other)\)",
    re.IGNORECASE,
)


class KnownGraph(NamedTuple):
    """The graph of a prompt.

    Attributes:
        entities: The names, with the labels of their passages.
        facts: The relations.
        details: The type, which may be empty, and the attributes of the names that have any.
    """

    entities: Mapping[str, tuple[int, ...]] = MappingProxyType({})
    facts: tuple[Fact, ...] = ()
    details: Mapping[str, tuple[str, ...]] = MappingProxyType({})

    @property
    def names(self) -> frozenset[str]:
        """Every name the graph holds, in lower case."""
        ends = (end for fact in self.facts for end in (fact.head, fact.tail))
        return frozenset(name.lower() for name in (*self.entities, *ends))


def read_graph(text: str) -> KnownGraph:
    r"""The names and relations of a graph in the compact form.

    >>> graph = read_graph("- Ann Lee (person) -> born in -> Oslo [2]")
    >>> graph.facts[0][:4], graph.details
    (('Ann Lee', 'born in', 'Oslo', (2,)), {'Ann Lee': ('person',)})
    """
    entities: dict[str, tuple[int, ...]] = {}
    facts: list[Fact] = []
    details: dict[str, tuple[str, ...]] = {}
    for raw in text.splitlines():
        line = _NUMBERED.sub("", raw)
        cited = _LABELS.search(line)
        labels = tuple(map(int, re.findall(r"\d+", cited[1]))) if cited else ()
        line = _ANNOTATIONS.sub("", line[: cited.start()] if cited else line).strip()
        parts = _ARROW.split(line)
        if len(parts) == 3:
            head, tail = ends = _typed(parts[0]), _typed(parts[2])
            facts.append(Fact(head[0], _unescaped(parts[1]), tail[0], labels))
            for name, kind in ends:
                if kind:
                    entities.setdefault(name, labels)
                    details.setdefault(name, (kind,))
        elif _NUMBERED.match(raw) and line:
            cut = _details_start(line)
            name = _unescaped(line[:cut])
            entities[name] = labels
            stated = tuple(map(_unescaped, _DETAILS.split(line[cut:].strip()[1:-1])))
            details |= {name: stated} if any(stated) else {}
    return KnownGraph(entities, tuple(facts), details)


def _details_start(line: str) -> int:
    """Where the group in parentheses at the end of a line begins; the line's end without one."""
    depth = 0
    for i in range(len(line) - 1, -1, -1) if line.endswith(")") else ():
        depth += (line[i] == ")") - (line[i] == "(")
        if depth == 0:
            return i
    return len(line)


def _typed(end: str) -> tuple[str, str]:
    """The name at the end of a relation, and its type where it stands behind it."""
    typed = _TYPED.fullmatch(end)
    return (_unescaped(typed[1]), typed[2]) if typed else (_unescaped(end), "")


def _unescaped(name: str) -> str:
    return re.sub(r"\\(.)", r"\1", name).strip()


def read_tried(text: str) -> tuple[str, ...]:
    """The queries of a list such as "1. red lodge => passages 1,2"."""
    lines = (_NUMBERED.sub("", line).partition("=>")[0].strip() for line in text.splitlines())
    return tuple(filter(None, lines))


# --- What the inputs of a prompt say. Fields are known by their names, several names for each; what
# is missing is empty.

_QUESTIONS = ("question", "original_question", "query", "claim", "user_question")
_PASSAGES = ("passages", "context", "documents", "docs", "new_passages", "passage", "evidence")
_NOTES = ("notes_so_far", "notes", "note", "best_note", "previous_note")
_TRIED = ("tried", "queries", "previous_queries", "search_history")
_REASONING = ("previous_reasoning", "thoughts", "thoughts_so_far", "rationale_so_far", "reasoning")
_EMPTY = frozenset(("", "(empty)", "n/a", "none", "[]"))
_BEST = re.compile(r'[Bb]est answer so far is "([^"\n]+)"(?:[^"\n]*?\((0\.\d+|1\.0+)\))?')


class Inputs(NamedTuple):
    """The inputs, read.

    Attributes:
        question: The question; the empty string where none is seen.
        docs: The passages of this call.
        graph: The graph so far.
        notes: The notes so far, as given.
        tried: Queries searched before; the question and the thoughts, where each was a query.
        best: The best answer so far, from the previous reasoning.
        confidence: How sure the step before was of `best`, from 0 to 1.
        thoughts: The sentences of a chain of thought so far.
        searches_left: How many more searches are possible; None where the prompt does not say.
    """

    question: str
    docs: tuple[Doc, ...] = ()
    graph: KnownGraph = KnownGraph()
    notes: str = ""
    tried: tuple[str, ...] = ()
    best: str = ""
    confidence: float = 0.0
    thoughts: tuple[str, ...] = ()
    searches_left: int | None = None


def read_inputs(values: Mapping[str, str]) -> Inputs:
    """Read the inputs of a prompt by the names of their fields."""
    known = {n: "" if v.strip().lower() in _EMPTY else v.strip() for n, v in values.items()}

    def first(names: Iterable[str]) -> str:
        return next((known[name] for name in names if known.get(name)), "")

    questions = (t for t in known.values() if t.endswith("?") and len(t) < 500)
    question = first(_QUESTIONS) or next(questions, "")
    best = _BEST.search(first(_REASONING))
    turns = read_transcript(known.get("transcript", ""))
    thoughts = tuple(filter(None, map(str.strip, known.get("thoughts", "").splitlines())))
    left = known.get("searches_left", "")
    return Inputs(
        question=question,
        docs=read_passages(first(_PASSAGES)) or turns.docs,
        graph=read_graph(known.get("graph", "")),
        notes=first(_NOTES),
        tried=read_tried(first(_TRIED))
        or turns.searches
        or ((question, *thoughts) if thoughts else ()),
        best=best[1] if best else "",
        confidence=float(best[2] or 0.0) if best else 0.0,
        thoughts=thoughts or turns.thoughts,
        searches_left=int(left) if left.isdigit() else None,
    )
