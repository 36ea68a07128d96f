"""An adapter that sends a JSON schema of the outputs, so that the provider enforces their form."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, Final
from weakref import WeakKeyDictionary

import dspy
from dspy.utils import exceptions as lm_errors
from pydantic import TypeAdapter
from pydantic_core import to_jsonable_python

from ga_dspy.patience import causes, endpoint_digest
from ga_dspy.plain_adapter import PlainAdapter

ASKED_IN_JSON: Final = "Reply with one JSON object with these fields, in this order:"
_SCHEMA_REFUSED: Final = re.compile(
    r"response_?format|json.?schema|structured.?output|guided|grammar", re.IGNORECASE
)
_WITHOUT_SCHEMA: Final = set[tuple[str, str | None]]()
"""Model and address of the LMs that refused a schema."""
_SCHEMAS: Final = WeakKeyDictionary[Any, dict[str, Any]]()


class SchemaAdapter(PlainAdapter):
    """The plain adapter with replies in JSON, whose schema goes with each request.

    llama.cpp, vLLM, Ollama, LM Studio and OpenAI hold the model to the schema while it writes. An
    LM that refuses `response_format` is asked without it, at once and from then on. A reply may
    have any form that `read_reply` knows.

    >>> print(SchemaAdapter().format_system_message(dspy.Signature("question -> answer", "Answer")))
    Answer
    <BLANKLINE>
    Reply with one JSON object with these fields, in this order:
    - answer
    """

    _asked, _streamed_as = ASKED_IN_JSON, "JSONAdapter"

    def __call__(self, lm: Any, lm_kwargs: dict[str, Any], **call: Any) -> list[dict[str, Any]]:
        """Ask an LM."""
        known = (lm.model, endpoint_digest(lm))
        if known not in _WITHOUT_SCHEMA:
            try:
                return super().__call__(lm, _with_schema(lm_kwargs, call["signature"]), **call)
            except lm_errors.LMError as error:
                if not _refuses_schema(error):
                    raise
                _WITHOUT_SCHEMA.add(known)
        return super().__call__(lm, lm_kwargs, **call)

    async def acall(self, lm: Any, lm_kwargs: dict[str, Any], **call: Any) -> list[dict[str, Any]]:
        """Ask an LM from a coroutine."""
        known = (lm.model, endpoint_digest(lm))
        if known not in _WITHOUT_SCHEMA:
            try:
                return await super().acall(lm, _with_schema(lm_kwargs, call["signature"]), **call)
            except lm_errors.LMError as error:
                if not _refuses_schema(error):
                    raise
                _WITHOUT_SCHEMA.add(known)
        return await super().acall(lm, lm_kwargs, **call)

    def _value(self, field: Any, value: Any) -> Any:
        """An output as JSON has it; a text that stands for a value of another type as that."""
        kind = TypeAdapter(field.annotation)
        try:
            return kind.dump_python(kind.validate_python(value), mode="json")
        except ValueError:
            return to_jsonable_python(value, fallback=str)

    def _written(self, values: dict[str, Any]) -> str:
        """A reply with these values: a JSON object."""
        return json.dumps(values, ensure_ascii=False)


def _with_schema(lm_kwargs: Mapping[str, Any], signature: type[dspy.Signature]) -> dict[str, Any]:
    schema = {"name": "reply", "strict": True, "schema": reply_schema(signature)}
    return {"response_format": {"type": "json_schema", "json_schema": schema}, **lm_kwargs}


def _refuses_schema(error: BaseException) -> bool:
    """Whether an LM refused a request for the schema in it."""
    refusals = (lm_errors.LMInvalidRequestError, lm_errors.LMUnsupportedFeatureError)
    return any(
        isinstance(cause, refusals) and _SCHEMA_REFUSED.search(str(cause))
        for cause in causes(error)
    )


def reply_schema(signature: type[dspy.Signature]) -> dict[str, Any]:
    """Return the JSON schema of a signature's outputs, in order, all of them required.

    It refers to no definitions, which some servers do not know.

    >>> reply_schema(dspy.Signature("question -> answer, is_sure: bool"))["properties"]
    {'answer': {'type': 'string'}, 'is_sure': {'type': 'boolean'}}
    """
    if (schema := _SCHEMAS.get(signature)) is None:
        kinds = {name: field.annotation for name, field in signature.output_fields.items()}
        parts = {name: TypeAdapter(kind).json_schema() for name, kind in kinds.items()}
        schema = _strict({"type": "object", "properties": parts})
        _SCHEMAS[signature] = schema
    return schema


_LEFT_OUT: Final = ("title", "description", "default", "$defs")


def _strict(part: Any, definitions: Mapping[str, Any] | None = None) -> Any:
    """A schema with its definitions in their places, that allows no field beyond those it names.

    A type that holds itself may hold anything there.
    """
    if isinstance(part, list):
        return [_strict(each, definitions) for each in part]
    if not isinstance(part, Mapping):
        return part
    known = {**(definitions or {}), **part.get("$defs", {})}
    if (name := part.get("$ref", "").rpartition("/")[2]) in known:
        return _strict(known[name], {n: d for n, d in known.items() if n != name} | {name: {}})
    schema = {key: _strict(value, known) for key, value in part.items() if key not in _LEFT_OUT}
    if "properties" in part:
        named = {name: _strict(one, known) for name, one in part["properties"].items()}
        schema |= {"properties": named, "required": [*named], "additionalProperties": False}
    return schema
