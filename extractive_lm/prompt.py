"""Parse rendered prompts back into fields, passages and graphs.

Like any LM, the engine sees only rendered text. It understands the prompts of `dspy.ChatAdapter`,
`dspy.JSONAdapter`, `ga_dspy.PlainAdapter` and `ga_dspy.SchemaAdapter`; any other text becomes a
`Prompt` without output fields. The second half of this file parses the passages and graphs that
inputs contain.
"""

from __future__ import annotations

import ast
import re
from typing import Any, Literal, NamedTuple

from dspy.lm15 import Request

Style = Literal["chat", "json", "plain"]

_OUTPUTS = re.compile(
    r"Your output fields are:\n|Reply with (?:these fields, each below|one JSON object with these)"
)
# A numbered field with its type (DSPy), or a line that ends with the type in parentheses (ga_dspy).
_FIELD = re.compile(
    r"^(?:\d+\. `(\w+)` \((.*?)\):|- (\w+).*?(?:\((one of: .*|a .*number|JSON .*)\))?$)",
    re.MULTILINE,
)
_REQUEST = re.compile(r"(?:\A|\n\n)Respond with (?:the corresponding output fields|a JSON object)")
_TRIED = re.compile(r"^(?:\d+\. |Search: )(.*?)(?: =>.*)?$", re.MULTILINE)
_SECTION = re.compile(r"^\[\[ ## (\w+) ## \]\][ \t]*\n?", re.MULTILINE)


class Field(NamedTuple):
    """An output field as the prompt describes it.

    Attributes:
        name: The field's name.
        form: Its type as printed: "list[str]", "one of: a; b", "a number"; empty for text.
        allowed: The allowed values; empty if there is no such list.
    """

    name: str
    form: str = ""
    allowed: tuple[Any, ...] = ()


class Prompt(NamedTuple):
    """A parsed prompt.

    Attributes:
        inputs: The texts of the input fields in the last user message, by name.
        output_fields: The fields to fill, in order; empty if the prompt has no known format.
        style: The format of the completion.
        text: The last user message, unchanged.
    """

    inputs: dict[str, str]
    output_fields: tuple[Field, ...]
    style: Style
    text: str

    def first(self, *names: str) -> str:
        """Return the first of these inputs that is not empty; "" if there is none."""
        return next((self.inputs[name] for name in names if self.inputs.get(name)), "")

    @property
    def tried(self) -> tuple[str, ...]:
        """The queries so far, from a list ("1. red lodge => [1]"), a transcript or thoughts."""
        if thoughts := self.first("thoughts"):
            return (self.first("question"), *thoughts.splitlines())
        return tuple(_TRIED.findall(self.first("tried", "transcript")))


def read_prompt(request: Request) -> Prompt:
    """Parse a request; instructions and demos are ignored."""
    system = request.system or ""
    if not isinstance(system, str):
        system = "".join(getattr(part, "text", "") for part in system)
    developer = [m.text or "" for m in request.messages if m.role == "developer"]
    system = "\n".join([system, *developer])
    last = next((m.text or "" for m in reversed(request.messages) if m.role == "user"), "")
    forms = list(_OUTPUTS.finditer(system))
    if not forms:
        return Prompt({}, (), "plain", last)
    described = system[forms[-1].end() :].partition("All interactions will be")[0]
    fields = tuple(_field(m[1] or m[3], m[2] or m[4] or "") for m in _FIELD.finditer(described))
    request_at = max((m.start() for m in _REQUEST.finditer(last)), default=len(last))
    inputs = _values(last[:request_at], {field.name for field in fields})
    is_json = "JSON" in last[request_at:] + forms[-1][0]
    return Prompt(inputs, fields, "json" if is_json else "chat", last)


def _field(name: str, form: str) -> Field:
    if form == "one of: True; False":
        return Field(name, "bool")
    if choices := re.search(r"Literal(\[.*?\])", form):
        return Field(name, form, tuple(ast.literal_eval(choices[1])))
    listed = form.removeprefix("one of: ")
    return Field(name, form, tuple(listed.split("; ")) if listed != form else ())


def _values(text: str, outputs: set[str]) -> dict[str, str]:
    """Return the texts of the inputs by name; of repeated markers only the first one counts."""
    first: dict[str, re.Match[str]] = {}
    for mark in _SECTION.finditer(text):
        if mark[1] not in outputs:
            first.setdefault(mark[1], mark)
    starts = [mark.start() for mark in first.values()]
    bounds = zip(first.values(), [*starts[1:], len(text)], strict=False)
    texts = (text[mark.end() : end].strip().removeprefix("(empty)") for mark, end in bounds)
    return dict(zip(first, map(str.strip, texts), strict=True))


# --- Passages and graphs in the inputs


class Doc(NamedTuple):
    """A passage with the number that the prompt gives it."""

    label: int
    title: str
    text: str


class Fact(NamedTuple):
    """A relation, with the numbers of its passages."""

    head: str
    relation: str
    tail: str
    labels: tuple[int, ...]


class Answer(NamedTuple):
    """An answer with its expected F1, from 0 to 1, and the numbers of the passages it is from.

    The text is empty if there is no answer.
    """

    text: str = ""
    score: float = 0.0
    labels: tuple[int, ...] = ()


_BLOCKS = re.compile(r"\n[ \t]*\n|\n(?=\[\d+\])")
_PASSAGE = re.compile(r"\[(\d+)\][ \t]*(.*)\n?((?:.*\n?)*)")


def read_passages(text: str) -> tuple[Doc, ...]:
    r"""Parse passages, `[n] title` above a text or DSPy's numbered list; other text is one passage.

    >>> read_passages("Thought: A city?\n\n[3] Red Lodge\nA city.")
    (Doc(label=3, title='Red Lodge', text='A city.'),)
    """
    docs: list[Doc] = []
    for match in filter(None, map(_PASSAGE.match, _BLOCKS.split(text))):
        title, body = match[2].strip(), " ".join(match[3].split())
        if not body:
            title, body = "", title.strip("«»")
        docs.append(Doc(int(match[1]), "" if title == "(untitled)" else title, body))
    is_plain = text and not docs and not text.startswith(("Read as well", "Thought:", "Search:"))
    return (Doc(1, "", " ".join(text.split())),) if is_plain else tuple(docs)


_FACT = re.compile(
    r"^(?:\d+[.)]|[-*•])\s+(.+?)\s(?<!\\)->\s(.+?)\s(?<!\\)->\s(.+?)"
    r"(?:\s*\((?:time|confidence):[^()]*\))*(?:\s*\[([\d,; ]+)\])?\s*$",
    re.MULTILINE,
)
_TYPE = re.compile(
    r"(?<!\\)\((?:person|place|organi[sz]ation|work|event|date|quantity|role|other)\)$",
    re.IGNORECASE,
)


def read_graph(text: str) -> tuple[Fact, ...]:
    r"""Parse the relations of a graph in its line format.

    >>> read_graph("- Ann Lee (person) -> born in -> Oslo [2]")
    (Fact(head='Ann Lee', relation='born in', tail='Oslo', labels=(2,)),)
    """
    facts: list[Fact] = []
    for *ends, cited in _FACT.findall(text):
        head, relation, tail = (re.sub(r"\\(.)", r"\1", _TYPE.sub("", end)).strip() for end in ends)
        labels = tuple(map(int, re.findall(r"\d+", cited or "1")))
        facts.append(Fact(head, relation, tail, labels))
    return tuple(facts)
