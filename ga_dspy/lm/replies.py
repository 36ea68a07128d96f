"""Replies: parse the output fields of a signature from an LM's reply, in any format."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Mapping
from functools import lru_cache
from typing import Any, Literal, NamedTuple, TypeVar, cast, get_args, get_origin

import dspy
from pydantic import BaseModel, TypeAdapter

from ga_dspy.lm.dspy_private import parse_value

Function = TypeVar("Function", bound=Callable[..., Any])


def cached(function: Function) -> Function:
    """Remember what a function returns for each of the last 256 signatures."""
    return cast("Function", lru_cache(maxsize=256)(function))


# --- A reply: its fields, each in its type.


class FieldNames(NamedTuple):
    """The names of a signature's fields, in order."""

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


@cached
def field_names(signature: type[dspy.Signature]) -> FieldNames:
    """Return the names of a signature's fields; DSPy computes them on each access."""
    return FieldNames(tuple(signature.input_fields), tuple(signature.output_fields))


def read_reply(
    signature: type[dspy.Signature], reply: str, required: Collection[str] | None = None
) -> dict[str, Any] | None:
    """Read the output fields of a signature out of a reply.

    `[[ ## field ## ]]` sections are read, JSON, Python dicts, `<field>` tags, headings and
    `field:` lines, whichever the model mixed up; of two sections of one field the later one that
    says something. Thoughts (`<think>…`) are no part of a reply.

    Args:
        signature: Whose outputs are read.
        reply: What the LM wrote.
        required: The fields without which the reply is of no use; all if left out. Another that
            is missing, or does not fit its type, has its default, or reads as an empty text.

    Returns:
        The values by field name; None where a required field is missing.
    """
    outputs = signature.output_fields
    if not outputs.keys() >= set(required or ()):
        return None
    found = _find(field_names(signature).outputs, reply).texts
    texts = {name: text for name, text in found.items() if not is_echo(text, outputs[name])}
    needed = {n for n, f in outputs.items() if f.is_required()} if required is None else required
    values: dict[str, Any] = {}
    for name, field in outputs.items():
        try:
            values[name] = _as_type(texts[name], field.annotation)
        except (KeyError, ValueError):
            if name in needed:
                return None
            values[name] = _without_text(field)
    return values


def is_echo(text: Any, field: Any) -> bool:
    """Return whether a value is a text that repeats its field's description, as small models do.

    It does where all its words are those with which the description begins, three at least, or
    where it is a row of dots.

    >>> answer = dspy.OutputField(desc="the answer alone; empty if not in passages")
    >>> is_echo("The answer alone.", answer), is_echo("...", answer), is_echo("The Answer", answer)
    (True, True, False)
    """
    if not isinstance(text, str):
        return False
    said = re.findall(r"\w+", text.casefold())
    described = (field.json_schema_extra or {}).get("desc") or ""
    asked = re.findall(r"\w+", described.casefold())
    return text.strip() in _DOTS or (len(said) > 2 and said == asked[: len(said)])


_DOTS = ("...", "…")


def holds_whole(signature: type[dspy.Signature], reply: str, required: Collection[str]) -> bool:
    """Return whether a reply that was cut off at the token limit has all required fields complete.

    It has where it says that it is complete, or where the field in which it stopped is another.
    """
    found = _find(field_names(signature).outputs, reply)
    return found.closed or found.last not in required


def has_thoughts(signature: type[dspy.Signature], reply: str) -> bool:
    """Return whether a reply has a block of reasoning that is no field of the signature."""
    return _without_thoughts(reply, field_names(signature).outputs) != reply


def _as_type(value: Any, annotation: Any) -> Any:
    if get_origin(annotation) is Literal:
        return read_choice(str(value), get_args(annotation))
    if annotation is str:
        return tidy(_as_text(value))
    if isinstance(annotation, type) and issubclass(annotation, dspy.Type):
        # Its own validator first: graph lines with their [1] would else be read as a JSON list.
        return clean(TypeAdapter(annotation).validate_python(value))
    return clean(parse_value(value, annotation))


def _without_text(field: Any) -> Any:
    """Return the value of an output that is missing in a reply."""
    if not field.is_required():
        return field.get_default(call_default_factory=True)
    if field.annotation is str or get_origin(field.annotation) is Literal:
        return ""
    try:
        return TypeAdapter(field.annotation).validate_python("")
    except ValueError:
        return None


def _as_text(value: Any) -> str:
    if isinstance(value, list):
        flat = all(isinstance(item, int | float) for item in value)
        return (", " if flat else "\n").join(map(_as_text, value))
    if isinstance(value, dict):
        return json.dumps(value, ensure_ascii=False)
    return "" if value is None else str(value)


# --- What is taken off a text.

_NO_TEXT = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ufeff\ud800-\udfff]")
_WRAPPED = re.compile(r"(\*{1,3}|_{1,3}|`{1,3}|[\"'“‘«])(\S|\S.*\S)(\1|[\"'”’»])", re.DOTALL)
_CLOSING = {"“": "”", "‘": "’", "«": "»"}
_SHORT = 300


def tidy(text: str) -> str:
    """Remove control characters from a text, and emphasis or quotes around a short one.

    >>> tidy(" **Maria Bello** "), tidy('"Heroes"'), tidy('"Red Lodge" "Montana"')
    ('Maria Bello', 'Heroes', '"Red Lodge" "Montana"')
    """
    text = _NO_TEXT.sub("", text).strip()
    while len(text) < _SHORT and (found := _WRAPPED.fullmatch(text)):
        opening, inner, closing = found.groups()
        if closing != _CLOSING.get(opening, opening) or opening in inner or closing in inner:
            break
        text = inner
    return text


def clean(value: Any) -> Any:
    """Remove lone surrogates and control characters from all texts of a value, at any depth."""
    if isinstance(value, str):
        return _NO_TEXT.sub("", value)
    if isinstance(value, list):
        return [clean(item) for item in value]
    if isinstance(value, dict):
        return {clean(key): clean(item) for key, item in value.items()}
    if isinstance(value, BaseModel):
        held = {name: getattr(value, name) for name in type(value).model_fields}
        new = {name: clean(item) for name, item in held.items()}
        return value if new == held else value.model_copy(update=new)
    return value


_FLAGS = re.IGNORECASE | re.MULTILINE
THOUGHTS = ("think", "thinking", "thought", "thoughts", "reasoning", "analysis", "scratchpad")


def _without_thoughts(reply: str, names: tuple[str, ...]) -> str:
    """Remove blocks of reasoning from a reply.

    A block that is never closed goes on to the first thing that is surely a field, else to the
    end; one that was opened in the prompt begins with the reply.
    """
    tags = "|".join(tag for tag in THOUGHTS if tag not in names)
    if not tags or "<" not in reply:
        return reply
    closed = [m.end() for m in re.finditer(r"</think(?:ing)?>", reply, re.IGNORECASE)]
    if closed and not re.search(r"<think(?:ing)?>", reply[: closed[0]], re.IGNORECASE):
        reply = reply[closed[0] :]
    fields = "|".join(map(re.escape, names))
    field = re.compile(rf"(?=\[\[\s*##|<(?:{fields})>|^[ \t]*\{{|^```)", _FLAGS)
    kept: list[str] = []
    place = 0
    for opening in re.finditer(rf"<({tags})>", reply, re.IGNORECASE):
        if opening.start() < place:
            continue
        kept.append(reply[place : opening.start()])
        closing = re.compile(rf"</{opening[1]}>", re.IGNORECASE)
        end = closing.search(reply, opening.end()) or field.search(reply, opening.end())
        place = end.end() if end else len(reply)
    return "".join([*kept, reply[place:]])


# --- Where the fields stand in a reply.


class _Found(NamedTuple):
    """The texts, or JSON values, by field; the last field; whether the reply says it is whole."""

    texts: Mapping[str, Any]
    last: str = ""
    closed: bool = False


_BULLET = r"(?:(?:[-*•>]|\d{1,2}[.)]|#{1,6})[ \t]+|#{1,6})?"
_OPENING = rf"(?:^[ \t]*{_BULLET})?[*_`]{{0,3}}\[\[\s*##\s*"
_COMPLETED = re.compile(rf"{_OPENING}completed\b", _FLAGS)
# What servers with a wrong chat template leave behind a reply, and a turn that they made up.
_END = re.compile(r"<\|(?:im_end|eot_id|endoftext|end_of_text)\|>|</s>|<end_of_turn>")
_RUN = re.compile(r"(.{1,8}?)\1{99,}", re.DOTALL)
_FENCE = re.compile(r"```[\w-]*[ \t]*\n")


def _find(names: tuple[str, ...], reply: str) -> _Found:
    reply = _END.split(_without_thoughts(reply.replace("\r\n", "\n"), names), maxsplit=1)[0]
    marks, tags, lines = patterns(names)
    first = marks.search(reply)
    if first is None and (found := _in_json(names, reply)):
        return found
    completed = _COMPLETED.search(reply, first.end() if first else 0)
    reply = reply[: completed.start()] if completed else reply
    # A weaker mark counts only for the fields that have no stronger one: in a section of its
    # own, "Answer: …" is a line like any other.
    borders: list[tuple[int, int, str]] = []
    for pattern in (marks, tags, lines):
        known = {name for _, _, name in borders}
        borders += [
            (mark.start(), mark.end(), name)
            for mark in pattern.finditer(reply)
            if (name := _name(mark[mark.lastindex or 0], names)) not in known
        ]
    borders.sort()
    if not borders and len(names) == 1 and re.match(r"\s*[^\s{<]", reply):
        borders = [(0, 0, names[0])]  # who is asked for one thing may write that alone
    texts: dict[str, str] = {}
    ends = [*(start for start, _, _ in borders[1:]), len(reply)]
    for (_, start, name), end in zip(borders, ends, strict=bool(borders)):
        if name in names:
            texts[name] = _body(name, reply[start:end]) or texts.get(name, "")
    last = borders[-1][2] if borders else ""
    closed = completed is not None or reply.rstrip(" \n`").endswith(f"</{last}>")
    return _Found(texts, last, closed)


@lru_cache(maxsize=256)
def patterns(names: tuple[str, ...]) -> tuple[re.Pattern[str], ...]:
    """Return patterns for markers, tags, and headings or lines with a colon, strongest first."""
    either = spellings(names)
    before, after = r"[*_`\"'\[]{0,4}(?:final )?", r"[*_`\"'\]]{0,4}"
    line = rf"{_BULLET}{before}({either}){after}[ \t]*[:：][*_`]{{0,3}}"
    heading = rf"(?:#{{1,6}}[ \t]*|[*_]{{2,3}}|\[{{1,2}})(?:final )?({either})[*_\]]{{0,3}}[ \t]*$"
    label = rf"\[({either})\]"
    return (
        re.compile(rf"{_OPENING}([\w -]*\w)\s*##\s*\]\](?:[*_`]{{1,3}}(?!\S)|:)?", _FLAGS),
        re.compile(rf"<({either})>", _FLAGS),
        re.compile(rf"^[ \t]*(?:{line}|{heading}|{label})", _FLAGS),
    )


def spellings(names: tuple[str, ...]) -> str:
    """Return a pattern for field names: a space, a hyphen or nothing may replace the underscore."""
    by_length = sorted(names, key=len, reverse=True)
    return "|".join(re.escape(name).replace("_", "[ _-]?") for name in by_length)


def _name(written: str, names: tuple[str, ...]) -> str:
    """Return the field that a name means; the name itself if none."""
    folded = re.sub(r"[ _-]", "", written.lower())
    return next((n for n in names if n.lower().replace("_", "") == folded), written)


def _body(name: str, text: str) -> str:
    text = re.split(rf"</{name}>", text, maxsplit=1, flags=re.IGNORECASE)[0].strip()
    opening = _FENCE.match(text)
    if text.endswith("\n```") and (opening or text.count("```") % 2):
        text = text[: -len("```")]  # of a fence around this section, or around the whole reply
    text = text[opening.end() :] if opening else text
    return re.sub(rf"\A[*_`]*{name}[*_`]*[:：][*_`]*\s*", "", text.strip(), flags=re.IGNORECASE)


def _in_json(names: tuple[str, ...], reply: str) -> _Found | None:
    """Return the fields of a JSON object, also of a malformed one; the last of several."""
    key = re.search(rf"[\"'](?:{spellings(names)})[\"']\s*:", reply, re.IGNORECASE)
    start = reply.find("{")
    if key is None or start < 0:
        return None
    try:
        value = json.loads(reply[start : reply.rfind("}") + 1], strict=False)
    except (ValueError, RecursionError):
        try:
            start = max(start, reply.rfind("{", 0, key.start()))
            # Mending takes time in the square of what a model repeats without end.
            value = parse_value(_RUN.sub(r"\1", reply[start:]), dict[str, Any] | list[Any])
        except (ValueError, RecursionError):
            return None
    found: dict[str, Any] = {}
    for item in value if isinstance(value, list) else [value]:
        # A wrapper may hold them, such as a call of a tool.
        inner = list(item.values()) if isinstance(item, dict) else []
        for held in [item, *inner] if len(inner) == 1 else [*inner, item]:
            if isinstance(held, dict):
                known = {_name(str(key), names): held[key] for key in held}
                found |= {name: known[name] for name in names if name in known}
    closed = reply.rstrip(" \n`").endswith("}")
    return _Found(found, next(reversed(found)), closed) if found else None


# --- A choice: which of the allowed values a model means.

_DOUBT = re.compile(
    r"\b(?:not|no|non|never|neither|nor|none|nothing|cannot|unable|partial\w*|partly|almost|nearly"
    r"|hardly|barely|far|short|would|could|might|if|unless|until|maybe|perhaps)\b|n't\b|\?"
)
_DENIALS = ("no", "not", "not yet", "not really", "false", "partially")


def read_choice(text: str, allowed: tuple[Any, ...]) -> Any:
    """Return which of the allowed values a text means.

    LMs write the value alone, as a rule. A value at the beginning counts too, if punctuation parts
    it from what follows, and the only value named in a text without a negation or a hedge.

    >>> read_choice("**Sufficient**: all links are stated.", ("sufficient", "insufficient"))
    'sufficient'

    Raises:
        ValueError: It means none of them, or more than one, or lists them all.
    """
    wording = re.sub(r"[*`\"“”]", "", text.lower().replace("’", "'").replace("_", " "))
    wording = wording.strip(" \n\t'.,!")
    values = {str(value).lower(): value for value in allowed}
    if wording in values:
        return values[wording]
    by_length = sorted(values, key=len, reverse=True)
    value = rf"(?<![\w-])({'|'.join(map(re.escape, by_length))})(?![\w-])"
    named, around = set(re.findall(value, wording)), re.sub(value, " ", wording)
    is_doubtful = _DOUBT.search(around) is not None
    first = re.match(rf"{value}\s*(?:[.,;:!(\n–—]|-\s)(.*)", wording, re.DOTALL)
    lists_all = len(named) == len(values) > 1 and not is_doubtful
    if first and not lists_all and first[2].strip(" .,;:!()") not in _DENIALS:
        return values[first[1]]
    if len(named) != 1 or is_doubtful:
        raise ValueError(f"{text!r} is none of {allowed}")
    return values[named.pop()]
