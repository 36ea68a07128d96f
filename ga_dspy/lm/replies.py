"""Parse the output fields of a signature from an LM's reply, in any format."""

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
    """Cache a function's results for the last 256 signatures."""
    return cast("Function", lru_cache(maxsize=256)(function))


# --- Fields, converted to their types


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
    """Parse the output fields of a signature from a reply.

    Fields may be `[[ ## field ## ]]` sections, JSON, Python dicts, `<field>` tags, headings or
    `field:` lines, in any mixture. If a field occurs several times, the last one with text counts.
    Reasoning (`<think>…`) is ignored.

    Args:
        signature: The signature.
        reply: The LM's reply.
        required: The fields without which the reply is unusable; all if left out. Another field
            that is missing, or does not fit its type, gets its default or an empty value.

    Returns:
        The values by field name; None if a required field is missing.
    """
    outputs = signature.output_fields
    if not outputs.keys() >= set(required or ()):
        return None
    found = _find(field_names(signature).outputs, reply).texts
    texts = {name: text for name, text in found.items() if not is_echo(text, outputs[name])}
    if required is None:
        required = {name for name, field in outputs.items() if field.is_required()}
    values: dict[str, Any] = {}
    for name, field in outputs.items():
        try:
            values[name] = _as_type(texts[name], field.annotation)
        except (KeyError, ValueError):
            if name in required:
                return None
            values[name] = _without_text(field)
    return values


def is_echo(text: Any, field: Any) -> bool:
    """Return whether a text only repeats its field's description, as small models do.

    It does if its words, at least three, begin the description, or if it is an ellipsis.

    >>> answer = dspy.OutputField(desc="the answer alone; empty if not in passages")
    >>> is_echo("The answer alone.", answer), is_echo("...", answer), is_echo("The Answer", answer)
    (True, True, False)
    """
    if not isinstance(text, str):
        return False
    if text.strip() in _DOTS:
        return True
    words = re.findall(r"\w+", text.casefold())
    description = (field.json_schema_extra or {}).get("desc") or ""
    described = re.findall(r"\w+", description.casefold())
    return len(words) > 2 and words == described[: len(words)]


_DOTS = ("...", "…")


def holds_whole(signature: type[dspy.Signature], reply: str, required: Collection[str]) -> bool:
    """Return whether all required fields of a reply cut off at the token limit are complete.

    They are if the reply has its closing marker, or stopped within another field.
    """
    found = _find(field_names(signature).outputs, reply)
    return found.closed or found.last not in required


def has_thoughts(signature: type[dspy.Signature], reply: str) -> bool:
    """Return whether a reply has a reasoning block that is not a field of the signature."""
    return _without_thoughts(reply, field_names(signature).outputs) != reply


def _as_type(value: Any, annotation: Any) -> Any:
    if get_origin(annotation) is Literal:
        return read_choice(str(value), get_args(annotation))
    if annotation is str:
        return tidy(_as_text(value))
    if isinstance(annotation, type) and issubclass(annotation, dspy.Type):
        # DSPy's parser would take graph lines with their [1] for a JSON list.
        return clean(TypeAdapter(annotation).validate_python(value))
    return clean(parse_value(value, annotation))


def _without_text(field: Any) -> Any:
    """Return the value of an output that is missing from a reply."""
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


# --- Cleaning texts

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
    """Remove lone surrogates and control characters from all texts in a value, at any depth."""
    if isinstance(value, str):
        return _NO_TEXT.sub("", value)
    if isinstance(value, list):
        return [clean(item) for item in value]
    if isinstance(value, dict):
        return {clean(key): clean(item) for key, item in value.items()}
    if isinstance(value, BaseModel):
        fields = {name: getattr(value, name) for name in type(value).model_fields}
        cleaned = {name: clean(item) for name, item in fields.items()}
        return value if cleaned == fields else value.model_copy(update=cleaned)
    return value


_FLAGS = re.IGNORECASE | re.MULTILINE
THOUGHTS = ("think", "thinking", "thought", "thoughts", "reasoning", "analysis", "scratchpad")


def _without_thoughts(reply: str, names: tuple[str, ...]) -> str:
    """Remove reasoning blocks from a reply.

    An unclosed block ends at the first thing that is certainly a field, else at the end of the
    reply. A block that was opened in the prompt starts with the reply.
    """
    tags = "|".join(tag for tag in THOUGHTS if tag not in names)
    if not tags or "<" not in reply:
        return reply
    closed = [m.end() for m in re.finditer(r"</think(?:ing)?>", reply, re.IGNORECASE)]
    if closed and not re.search(r"<think(?:ing)?>", reply[: closed[0]], re.IGNORECASE):
        reply = reply[closed[0] :]
    fields = "|".join(map(re.escape, names))
    field = re.compile(rf"(?=\[\[\s*##|<(?:{fields})>|^[ \t]*\{{|^```)", _FLAGS)
    parts: list[str] = []
    start = 0
    for opening in re.finditer(rf"<({tags})>", reply, re.IGNORECASE):
        if opening.start() < start:
            continue
        parts.append(reply[start : opening.start()])
        closing = re.compile(rf"</{opening[1]}>", re.IGNORECASE)
        end = closing.search(reply, opening.end()) or field.search(reply, opening.end())
        start = end.end() if end else len(reply)
    return "".join([*parts, reply[start:]])


# --- Finding the fields in a reply


class _Found(NamedTuple):
    """The texts or JSON values by field, the last field, and whether a closing marker follows."""

    texts: Mapping[str, Any]
    last: str = ""
    closed: bool = False


_BULLET = r"(?:(?:[-*•>]|\d{1,2}[.)]|#{1,6})[ \t]+|#{1,6})?"
_OPENING = rf"(?:^[ \t]*{_BULLET})?[*_`]{{0,3}}\[\[\s*##\s*"
_COMPLETED = re.compile(rf"{_OPENING}completed\b", _FLAGS)
# Servers with a wrong chat template add these after a reply, sometimes with an invented turn.
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
    # A weaker mark counts only for fields without a stronger one: within a marked section,
    # "Answer: …" is an ordinary line.
    borders: list[tuple[int, int, str]] = []
    for pattern in (marks, tags, lines):
        marked = {name for _, _, name in borders}
        for mark in pattern.finditer(reply):
            name = _name(mark[mark.lastindex or 0], names)
            if name not in marked:
                borders.append((mark.start(), mark.end(), name))
    borders.sort()
    if not borders and len(names) == 1 and re.match(r"\s*[^\s{<]", reply):
        borders = [(0, 0, names[0])]  # the reply to a single field may be its value alone
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
    """Return patterns for markers, tags, and headings or `field:` lines, strongest first."""
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
    """Return the field with a name, whatever its spelling; the name itself if there is none."""
    folded = re.sub(r"[ _-]", "", written.lower())
    return next((n for n in names if n.lower().replace("_", "") == folded), written)


def _body(name: str, text: str) -> str:
    text = re.split(rf"</{name}>", text, maxsplit=1, flags=re.IGNORECASE)[0].strip()
    opening = _FENCE.match(text)
    if text.endswith("\n```") and (opening or text.count("```") % 2):
        text = text[: -len("```")]  # closes a fence around this section or the whole reply
    text = text[opening.end() :] if opening else text
    return re.sub(rf"\A[*_`]*{name}[*_`]*[:：][*_`]*\s*", "", text.strip(), flags=re.IGNORECASE)


def _in_json(names: tuple[str, ...], reply: str) -> _Found | None:
    """Return the fields of the last JSON object in a reply, which may be malformed."""
    key = re.search(rf"[\"'](?:{spellings(names)})[\"']\s*:", reply, re.IGNORECASE)
    start = reply.find("{")
    if key is None or start < 0:
        return None
    try:
        value = json.loads(reply[start : reply.rfind("}") + 1], strict=False)
    except (ValueError, RecursionError):
        try:
            start = max(start, reply.rfind("{", 0, key.start()))
            # Repairing JSON takes quadratic time in endless repetitions.
            value = parse_value(_RUN.sub(r"\1", reply[start:]), dict[str, Any] | list[Any])
        except (ValueError, RecursionError):
            return None
    found: dict[str, Any] = {}
    for item in value if isinstance(value, list) else [value]:
        # The fields may be wrapped, for example in a tool call.
        inner = list(item.values()) if isinstance(item, dict) else []
        for part in [item, *inner] if len(inner) == 1 else [*inner, item]:
            if isinstance(part, dict):
                by_name = {_name(str(key), names): value for key, value in part.items()}
                found |= {name: by_name[name] for name in names if name in by_name}
    closed = reply.rstrip(" \n`").endswith("}")
    return _Found(found, next(reversed(found)), closed) if found else None


# --- Choices among allowed values

_DOUBT = re.compile(
    r"\b(?:not|no|non|never|neither|nor|none|nothing|cannot|unable|partial\w*|partly|almost|nearly"
    r"|hardly|barely|far|short|would|could|might|if|unless|until|maybe|perhaps)\b|n't\b|\?"
)
_DENIALS = ("no", "not", "not yet", "not really", "false", "partially")


def read_choice(text: str, allowed: tuple[Any, ...]) -> Any:
    """Return which of the allowed values a text means.

    Usually the text is the value itself. A value at the beginning also counts if punctuation
    follows it, and so does the only value named in a text without a negation or hedge.

    >>> read_choice("**Sufficient**: all links are stated.", ("sufficient", "insufficient"))
    'sufficient'

    Raises:
        ValueError: The text names none of them, or several.
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
