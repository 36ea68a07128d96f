"""Adapters: short prompts, and replies in any format or under a JSON schema."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from enum import Enum
from typing import Any, Final, Literal, get_args, get_origin

import dspy
from dspy.adapters.baml_adapter import BAMLAdapter
from pydantic import TypeAdapter
from pydantic_core import to_jsonable_python

from ga_dspy.lm.dspy_private import format_field_value, translate_field_type
from ga_dspy.lm.endpoints import lm_name
from ga_dspy.lm.failures import causes
from ga_dspy.lm.replies import cached, read_reply

ASKED = "Reply with these fields, each below its marker, [[ ## name ## ]]:"


class PlainAdapter(dspy.ChatAdapter):
    """DSPy's chat adapter with a third of its words, and a tolerant parser of replies.

    The prompt has the instruction, the inputs that have a description, and a line for each output
    with its description, allowed values or format. No line looks like a finished reply, since small
    models would copy it; demos show what a reply looks like. Empty optional inputs are left out. A
    reply may have any format that `read_reply` parses.

    >>> print(PlainAdapter().format_system_message(dspy.Signature("question -> answer", "Answer.")))
    Answer.
    <BLANKLINE>
    Reply with these fields, each below its marker, [[ ## name ## ]]:
    - answer
    """

    _asked, _streamed_as = ASKED, "ChatAdapter"

    def __init__(self, *, use_json_adapter_fallback: bool = False, **options: Any) -> None:
        """Configure the adapter.

        Args:
            use_json_adapter_fallback: Whether an unreadable reply is requested again in JSON.
            options: Further arguments of `dspy.ChatAdapter`.
        """
        super().__init__(use_json_adapter_fallback=use_json_adapter_fallback, **options)

    def __call__(self, *args: Any, **kwargs: Any) -> list[dict[str, Any]]:
        """Ask an LM."""
        _show_markers(type(self).__name__, self._streamed_as)
        return super().__call__(*args, **kwargs)  # type: ignore[no-any-return]

    async def acall(self, *args: Any, **kwargs: Any) -> list[dict[str, Any]]:
        """Ask an LM from a coroutine."""
        _show_markers(type(self).__name__, self._streamed_as)
        return await super().acall(*args, **kwargs)  # type: ignore[no-any-return]

    def format_system_message(self, signature: type[dspy.Signature]) -> str:
        """Return the instruction, the inputs and the format of the reply."""
        inputs, outputs = ["You are given:"], [self._asked]
        for name, field in signature.input_fields.items():
            if text := _described(name, field):
                inputs.append(f"- {name}: {text}")
        for name, field in signature.output_fields.items():
            text, form = _described(name, field), _form(name, field)
            line = (f"- {name}:" if text else f"- {name}", text, f"({form})" if form else "")
            outputs.append(" ".join(filter(None, line)))
        parts = [inspect.cleandoc(signature.instructions)]
        if len(inputs) > 1:
            parts.append("\n".join(inputs))
        return "\n\n".join(filter(None, [*parts, "\n".join(outputs)]))

    def format_demos(
        self, signature: type[dspy.Signature], demos: list[dict[str, Any]]
    ) -> list[dict[str, Any]]:
        """Return the demos as messages; a missing optional input is empty."""
        optional = {n: "" for n, f in signature.input_fields.items() if not f.is_required()}
        whole = [{**optional, **demo} for demo in demos]
        return super().format_demos(signature, whole)  # type: ignore[no-any-return]

    def format_assistant_message_content(
        self,
        signature: type[dspy.Signature],
        outputs: dict[str, Any],
        missing_field_message: str | None = None,
    ) -> str:
        """Return the outputs in the format of a reply."""
        values = dict[str, Any]()
        for name, field in signature.output_fields.items():
            is_given = name in outputs
            values[name] = self._value(field, outputs[name]) if is_given else missing_field_message
        return self._written(values)

    def _value(self, field: Any, value: Any) -> Any:
        """Return an output of a demo in the format of a reply; a DSPy type is converted."""
        kind = field.annotation
        is_typed = isinstance(kind, type) and issubclass(kind, dspy.Type)
        if is_typed and isinstance(value, str):
            with suppress(ValueError):
                value = kind.model_validate(value)
        return format_field_value(field, value)

    def _written(self, values: dict[str, Any]) -> str:
        """Return a reply with the values, each below its marker."""
        return "\n\n".join(f"[[ ## {name} ## ]]\n{text}" for name, text in values.items()).strip()

    def format_user_message_content(
        self,
        signature: type[dspy.Signature],
        inputs: dict[str, Any],
        prefix: str = "",
        suffix: str = "",
        main_request: bool = False,
    ) -> str:
        """Return the inputs below their markers, without those that are empty and optional."""
        parts = [prefix]
        for name, field in signature.input_fields.items():
            value = inputs.get(name)
            if name in inputs and (field.is_required() or value not in ("", None)):
                # DSPy would pass a text through Pydantic, which takes longer.
                text = value if type(value) is str else format_field_value(field, value)
                parts.append(f"[[ ## {name} ## ]]\n{text}")
        return "\n\n".join([*parts, suffix]).strip()

    def parse(self, signature: type[dspy.Signature], completion: str) -> dict[str, Any]:
        """Parse the outputs.

        Raises:
            AdapterParseError: An output is missing or does not fit its type.
        """
        values = read_reply(signature, completion)
        if values is None:
            raise dspy.AdapterParseError(
                adapter_name="PlainAdapter", signature=signature, lm_response=completion
            )
        return values


def _show_markers(name: str, like: str) -> None:
    """Make DSPy's stream listeners treat an adapter like one of DSPy's, with the same markers.

    They look up an adapter's markers by the name of its class.
    """
    for listener in dspy.settings.get("stream_listeners") or ():
        markers = listener.adapter_identifiers
        markers.setdefault(name, markers[like])


def _described(name: str, field: Any) -> str:
    """Return a field's description, with those of DSPy's types in its annotation."""
    extra = field.json_schema_extra or {}
    desc = extra.get("desc") or ""
    types = dspy.Type.extract_custom_type_from_annotation(field.rebuild_annotation())
    if desc == f"${{{name}}}":  # DSPy's placeholder for a missing description
        desc = ""
    parts = (desc, *(kind.description() for kind in types), extra.get("constraints"))
    return "; ".join(filter(None, parts))


def _form(name: str, field: Any) -> str:
    """Return the format of an output; empty for text and for types that describe themselves."""
    kind: Any = field.annotation
    values: tuple[Any, ...] = ()
    if get_origin(kind) is Literal:
        values = get_args(kind)
    elif kind is bool:
        values = (True, False)
    elif isinstance(kind, type) and issubclass(kind, Enum):
        values = tuple(member.value for member in kind)
    if values:
        return f"one of: {'; '.join(map(str, values))}"
    if kind in (int, float):
        return "a whole number" if kind is int else "a number"
    custom: Any = kind if isinstance(kind, type) and issubclass(kind, dspy.Type) else None
    if kind in (str, str | None) or (custom and custom.description()):
        return ""
    note = translate_field_type(name, field).partition("must adhere to the JSON schema: ")[2]
    return f"JSON by this schema: {note}" if note else ""


# --- Replies under a JSON schema

ASKED_IN_JSON: Final = "Reply with one JSON object with these fields, in this order:"
_SCHEMA_REFUSED: Final = re.compile(
    r"response_?format|json.?schema|structured.?output|guided|grammar", re.IGNORECASE
)
_WITHOUT_SCHEMA: Final = set[tuple[str, str | None]]()
"""The LMs that refused a schema, by model and server."""


class SchemaAdapter(PlainAdapter):
    """The plain adapter with replies in JSON, whose schema is sent with each request.

    llama.cpp, vLLM, Ollama, LM Studio and OpenAI enforce the schema during decoding. An LM that
    refuses `response_format` is asked without it, immediately and from then on. A reply may have
    any format that `read_reply` parses.

    >>> print(SchemaAdapter().format_system_message(dspy.Signature("question -> answer", "Answer")))
    Answer
    <BLANKLINE>
    Reply with one JSON object with these fields, in this order:
    - answer
    """

    _asked, _streamed_as = ASKED_IN_JSON, "JSONAdapter"

    def __call__(self, lm: Any, lm_kwargs: dict[str, Any], **call: Any) -> list[dict[str, Any]]:
        """Ask an LM."""
        with _noting_refusal(lm) as takes_schema:
            if takes_schema:
                return super().__call__(lm, _with_schema(lm_kwargs, call["signature"]), **call)
        return super().__call__(lm, lm_kwargs, **call)

    async def acall(self, lm: Any, lm_kwargs: dict[str, Any], **call: Any) -> list[dict[str, Any]]:
        """Ask an LM from a coroutine."""
        with _noting_refusal(lm) as takes_schema:
            if takes_schema:
                return await super().acall(lm, _with_schema(lm_kwargs, call["signature"]), **call)
        return await super().acall(lm, lm_kwargs, **call)

    def _value(self, field: Any, value: Any) -> Any:
        """Return an output as a JSON value; a text is parsed if the field has another type."""
        kind = TypeAdapter(field.annotation)
        try:
            return kind.dump_python(kind.validate_python(value), mode="json")
        except ValueError:
            return to_jsonable_python(value, fallback=str)

    def _written(self, values: dict[str, Any]) -> str:
        """Return a reply with the values as a JSON object."""
        return json.dumps(values, ensure_ascii=False)


def _with_schema(lm_kwargs: Mapping[str, Any], signature: type[dspy.Signature]) -> dict[str, Any]:
    schema = {"name": "reply", "strict": True, "schema": reply_schema(signature)}
    return {"response_format": {"type": "json_schema", "json_schema": schema}, **lm_kwargs}


@contextmanager
def _noting_refusal(lm: Any) -> Iterator[bool]:
    """Yield whether an LM accepts a schema; if it refuses one, note that and suppress the error."""
    refusals = (dspy.LMInvalidRequestError, dspy.LMUnsupportedFeatureError)
    try:
        yield lm_name(lm) not in _WITHOUT_SCHEMA
    except dspy.LMError as error:
        messages = (str(cause) for cause in causes(error) if isinstance(cause, refusals))
        if not any(map(_SCHEMA_REFUSED.search, messages)):
            raise
        _WITHOUT_SCHEMA.add(lm_name(lm))


@cached
def reply_schema(signature: type[dspy.Signature]) -> dict[str, Any]:
    """Return the JSON schema of a signature's outputs, in order, all required.

    Definitions are inlined, because some servers do not support references.

    >>> reply_schema(dspy.Signature("question -> answer, is_sure: bool"))["properties"]
    {'answer': {'type': 'string'}, 'is_sure': {'type': 'boolean'}}
    """
    kinds = {name: field.annotation for name, field in signature.output_fields.items()}
    parts = {name: TypeAdapter(kind).json_schema() for name, kind in kinds.items()}
    return _strict({"type": "object", "properties": parts})  # type: ignore[no-any-return]


_LEFT_OUT: Final = ("title", "description", "default", "$defs")


def _strict(part: Any, definitions: Mapping[str, Any] | None = None) -> Any:
    """Return a schema without references, additional properties and annotations.

    Where a type contains itself, anything is allowed.
    """
    if isinstance(part, list):
        return [_strict(each, definitions) for each in part]
    if not isinstance(part, Mapping):
        return part
    definitions = {**(definitions or {}), **part.get("$defs", {})}
    if (name := part.get("$ref", "").rpartition("/")[2]) in definitions:
        return _strict(definitions[name], {**definitions, name: {}})
    schema = {k: _strict(value, definitions) for k, value in part.items() if k not in _LEFT_OUT}
    if "properties" in part:
        fields = {name: _strict(field, definitions) for name, field in part["properties"].items()}
        schema |= {"properties": fields, "required": [*fields], "additionalProperties": False}
    return schema


AdapterName = Literal["plain", "schema", "chat", "json", "xml", "baml"]
ADAPTERS: Final[dict[AdapterName, type[dspy.Adapter]]] = {
    "plain": PlainAdapter,
    "schema": SchemaAdapter,
    "chat": dspy.ChatAdapter,
    "json": dspy.JSONAdapter,
    "xml": dspy.XMLAdapter,
    "baml": BAMLAdapter,
}
"""Our adapters and those of DSPy, by their names on the command line."""
