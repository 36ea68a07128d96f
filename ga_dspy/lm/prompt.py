"""What a prompt says: DSPy's adapters write prompts, and this reads them back.

An LM sees rendered text alone, and so does this. The four forms of `dspy.ChatAdapter`,
`JSONAdapter`, `BAMLAdapter` and `XMLAdapter` are told apart by how they ask for the output.
Text of another form is a `Prompt` without output fields.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import Any, Literal, NamedTuple
from xml.etree import ElementTree

from dspy.lm15 import Request

Style = Literal["chat", "json", "baml", "xml", "plain"]

_INPUTS, _OUTPUTS = "Your input fields are:\n", "Your output fields are:\n"
_STRUCTURE = "All interactions will be structured in the following way"
_OBJECTIVE = "In adhering to this structure, your objective is:"
_ASKS = re.compile(r"(?:\A|\n\n)Respond with (?:the corresponding output fields|a JSON object)")
_FIELD = re.compile(r"^\d+\. `(\w+)` \((.*?)\):", re.MULTILINE)
_ASKED = re.compile(r"`(?:\[\[ ## (\w+) ## \]\]|<(\w+)>|(\w+))`")
_SECTION = re.compile(r"^\[\[ ## (\w+) ## \]\][ \t]*\n?", re.MULTILINE)
_CHOICES = re.compile(r"Literal\[.*\]", re.DOTALL)
_ONE_OF = re.compile(r"must (?:exactly match \(no extra characters\) )?(?:be )?one of: (.*)")
_SCHEMA = re.compile(r"must adhere to the JSON schema: (\{.*\})")
_JSON_FIELDS = "Outputs will be a JSON object with the following fields."
_NOT_SUPPLIED = "Not supplied for this "


class Field(NamedTuple):
    """An output field as the prompt describes it.

    Attributes:
        name: The field's name.
        type_text: Its type as printed, e.g. "str", "list[str]", "Literal['a', 'b']".
        allowed: The only values it may take; empty where it is free.
        schema: The JSON schema of its type, where the prompt holds one.
    """

    name: str
    type_text: str = "str"
    allowed: tuple[Any, ...] = ()
    schema: Mapping[str, Any] | None = None


class DemoTurn(NamedTuple):
    """A worked example: the texts of its inputs and of its outputs, by field name."""

    inputs: dict[str, str]
    outputs: dict[str, str]


class Prompt(NamedTuple):
    """A prompt taken apart.

    Attributes:
        instructions: The task in words.
        inputs: The texts of the input fields, by name, of the last user message.
        output_fields: What is asked for, in order; empty where the prompt is of no known form.
        demos: Worked examples and earlier turns.
        style: How the completion has to be written.
        text: The last user message as it stands.
    """

    instructions: str
    inputs: dict[str, str]
    output_fields: tuple[Field, ...]
    demos: tuple[DemoTurn, ...]
    style: Style
    text: str


def read_prompt(request: Request) -> Prompt:
    """Take a request apart."""
    system = _system(request)
    turns = [(m.role, m.text or "") for m in request.messages if m.role in ("user", "assistant")]
    last = next((text for role, text in reversed(turns) if role == "user"), "")
    style = _style(system, last)
    if style == "plain":
        return Prompt(system, {}, (), (), style, last)
    described, structure, instructions = _parts(system)
    inputs = [f.name for f in _described(_between(described, _INPUTS, _OUTPUTS))]
    outputs = _outputs(described, structure, last, request.config.response_format)
    return Prompt(
        instructions=instructions,
        inputs=_values(_body(last), inputs, style),
        output_fields=outputs,
        demos=tuple(_demos(turns, inputs, [f.name for f in outputs], style)),
        style=style,
        text=last,
    )


def _system(request: Request) -> str:
    system = request.system or ""
    told = system if isinstance(system, str) else "".join(getattr(p, "text", "") for p in system)
    developer = (m.text or "" for m in request.messages if m.role == "developer")
    return "\n".join(filter(None, (told, *developer)))


def _style(system: str, last: str) -> Style:
    asked = last[max((m.start() for m in _ASKS.finditer(last)), default=len(last)) :]
    if _OUTPUTS not in system or not asked:
        return "plain"
    if "wrapped in XML tags" in asked:
        return "xml"
    if "JSON object" not in asked:
        return "chat"
    return "json" if "Outputs will be a JSON object" in system else "baml"


def _parts(system: str) -> tuple[str, str, str]:
    """The description of the fields, the structure of a turn, the instructions."""
    described, _, rest = system.partition(_STRUCTURE)
    structure, _, instructions = rest.partition(_OBJECTIVE)
    lines = (line.removeprefix(" " * 8) for line in instructions.strip("\n ").splitlines())
    return described, structure, "\n".join(lines).strip()


def _between(text: str, start: str, end: str) -> str:
    return text.partition(start)[2].partition(end)[0]


def _described(text: str) -> list[Field]:
    return [Field(m[1], m[2], _literals(m[2])) for m in _FIELD.finditer(text)]


def _literals(type_text: str) -> tuple[Any, ...]:
    match = _CHOICES.search(type_text)
    if match is None:
        return ()
    try:
        return tuple(ast.literal_eval(match.group().removeprefix("Literal").split("]")[0] + "]"))
    except (ValueError, SyntaxError):
        return ()


def _outputs(
    described: str, structure: str, last: str, response_format: Mapping[str, Any] | None
) -> tuple[Field, ...]:
    known = {f.name: f for f in _described(described.partition(_OUTPUTS)[2])}
    asks = list(_ASKS.finditer(last))[-1:]
    asked = [next(filter(None, m.groups())) for a in asks for m in _ASKED.finditer(last, a.start())]
    names = [name for name in dict.fromkeys(asked) if name in known] or list(known)
    whole = (response_format or {}).get("schema") or {}
    notes = _json(structure.partition(_JSON_FIELDS)[2].strip()) or {}
    return tuple(
        _completed(known[name], str(notes.get(name) or _note(name, structure)), whole)
        for name in names
    )


def _note(name: str, structure: str) -> str:
    """What the structure says about a field's value, or its XML skeleton."""
    note = re.search(rf"\{{{name}\}} +# note: (.*)", structure)
    skeleton = re.search(rf"^<{name}><.*</{name}>$", structure, re.MULTILINE)
    return note[1] if note else skeleton[0] if skeleton else ""


def _completed(field: Field, told: str, whole: Mapping[str, Any]) -> Field:
    """Add what the structure notes and the response schema tell about the field's type."""
    allowed = field.allowed
    if not allowed and (listed := _ONE_OF.search(told)):
        allowed = tuple(listed[1].split("; "))
    schema = whole.get("properties", {}).get(field.name)
    if schema is not None:
        schema = {**schema, "$defs": whole.get("$defs", {})}
    elif found := _SCHEMA.search(told):
        schema = _json(found[1])
    elif told.startswith("<"):
        schema = _of_skeleton(ElementTree.fromstring(told))
    return field._replace(allowed=allowed, schema=schema)


def _of_skeleton(element: ElementTree.Element) -> dict[str, Any]:
    """A schema from nested XML tags, which tell no types: a 0 is read as most of them."""
    children = list(element)
    if not children:
        return {"type": "integer"}
    if [child.tag for child in children] == ["item"]:
        return {"type": "array"}
    return {"type": "object", "properties": {c.tag: _of_skeleton(c) for c in children}}


def _json(text: str) -> Mapping[str, Any] | None:
    try:
        value = json.loads(text)
    except json.JSONDecodeError:
        return None
    return value if isinstance(value, dict) else None


def _body(message: str) -> str:
    """A user message without the closing request for the output fields."""
    asks = list(_ASKS.finditer(message))
    return message[: asks[-1].start()] if asks else message


def _values(text: str, names: list[str], style: Style) -> dict[str, str]:
    """The fields' texts. Headers count in the fields' order, so that a value cannot forge one."""
    return _tagged(text, names) if style == "xml" else _sections(text, names)


def _sections(text: str, names: list[str]) -> dict[str, str]:
    marks: list[re.Match[str]] = []
    position = -1
    for mark in _SECTION.finditer(text):
        if mark[1] in names and names.index(mark[1]) > position:
            position = names.index(mark[1])
            marks.append(mark)
    ends = [m.start() for m in marks[1:]] + [len(text)]
    return {m[1]: text[m.end() : end].strip() for m, end in zip(marks, ends, strict=True)}


def _tagged(text: str, names: list[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    position = 0
    for name in names:
        match = re.compile(rf"<{name}>\n?(.*?)\n?</{name}>(?=\s*(?:<|\Z))", re.DOTALL).search(
            text, position
        )
        if match:
            found[name] = match[1].strip()
            position = match.end()
    return found


def _demos(
    turns: list[tuple[str, str]], inputs: list[str], outputs: list[str], style: Style
) -> Iterable[DemoTurn]:
    for (role, asked), (other, said) in pairwise(turns):
        if (role, other) == ("user", "assistant"):
            given = _values(_body(asked), inputs, style)
            told = _said(said, outputs, style)
            known = {n: v for n, v in told.items() if v and not v.startswith(_NOT_SUPPLIED)}
            yield DemoTurn(given, known)


def _said(text: str, names: list[str], style: Style) -> dict[str, str]:
    if style == "chat":
        return _sections(text.partition("[[ ## completed ## ]]")[0], names)
    if style == "xml":
        unescaped = text.replace("&lt;", "<").replace("&amp;", "&")
        return _tagged(unescaped, names)
    value = _json(text) or {}
    texts = {n: v if isinstance(v, str) else json.dumps(v) for n, v in value.items()}
    return {name: texts[name] for name in names if name in texts}
