"""The ladder under a predictor: a reply that does not parse is mended, asked for anew, or named.

1. The adapter reads the reply.
2. If it cannot, the fields are picked out of the raw text here, without a further LM call.
3. If a field is still missing, or the output was cut off, the LM is asked once more with a fresh
   rollout (an unparsable reply is cached like any other).
4. If that fails too, the step fails by name: `StepFailed`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Generator, Mapping
from typing import Any, Literal, get_args, get_origin

import dspy
import pydantic
from dspy.utils.exceptions import AdapterParseError

from ga_dspy.errors import GaDspyError
from ga_dspy.programs.conversation import Ask
from ga_dspy.programs.meter import Meter

_CUT_OFF = "it was cut off at the token limit"
_UNREADABLE = (AdapterParseError, pydantic.ValidationError)


class StepFailed(GaDspyError):
    """A step got no usable output from the LM, twice."""

    def __init__(self, step: str, cause: str, reply: str) -> None:
        super().__init__(
            f"the {step} step got no usable output from the LM, twice ({cause}); expected its "
            f"output fields, found {reply[:200]!r}; raise max_tokens, try another adapter "
            "(dspy.JSONAdapter, dspy.XMLAdapter) or a stronger model"
        )
        self.step, self.cause, self.reply = step, cause, reply


def asked(
    step: str, predictor: dspy.Predict, inputs: Mapping[str, Any], meter: Meter
) -> Generator[Ask, dspy.Prediction, dspy.Prediction]:
    """Ask a predictor and climb down the ladder until its output is usable.

    Of the inputs, those that the predictor's signature has are given.

    Raises:
        StepFailed: Neither attempt gave every output field, or both were cut off.
    """
    cause, reply = "", ""
    given = _given(predictor, inputs)
    for rollout in (0, 1):
        try:
            prediction = yield Ask(step, predictor, given, meter, rollout)
        except _UNREADABLE as error:
            reply = str(getattr(error, "lm_response", "") or error)
            cause = _CUT_OFF if meter.truncated else "it does not parse"
            mended = None if meter.truncated else salvage(predictor.signature, reply)
            if mended is not None:
                return _traced(predictor, given, mended)
        else:
            if not meter.truncated:
                return prediction
            untraced(prediction)
            cause, reply = _CUT_OFF, str(prediction)
    raise StepFailed(step, cause, reply)


def salvage(signature: type[dspy.Signature], reply: str) -> dspy.Prediction | None:
    """Pick the output fields of a signature out of a reply that its adapter rejected.

    Reads `[[ ## field ## ]]` sections, `<field>` tags, `field:` lines and JSON objects, whichever
    the model mixed up. None unless every field that must not be empty is found and fits its type.
    """
    texts = _sections(tuple(signature.output_fields), reply)
    values: dict[str, Any] = {}
    for name, field in signature.output_fields.items():
        if name not in texts:
            return None
        try:
            values[name] = _as_type(texts[name], field.annotation)
        except ValueError:
            return None
    return dspy.Prediction(**values)


def _sections(names: tuple[str, ...], reply: str) -> dict[str, Any]:
    found = _from_json(names, reply)
    if found:
        return found
    either = "|".join(map(re.escape, names))
    header = re.compile(
        rf"(?:\[\[\s*##\s*({either})\s*##\s*\]\]|<({either})>|^[\s*#_`]*({either})[\s*_`]*:)",
        re.IGNORECASE | re.MULTILINE,
    )
    marks = list(header.finditer(reply))
    ends = [*(mark.start() for mark in marks[1:]), len(reply)]
    for mark, end in zip(marks, ends, strict=False):
        name = next(group for group in mark.groups() if group).lower()
        body = reply[mark.end() : end]
        body = re.split(r"\[\[\s*##\s*completed|</\w+>\s*$", body)[0]
        found.setdefault(name, body.strip().removesuffix(f"</{name}>").strip())
    return found


def _from_json(names: tuple[str, ...], reply: str) -> dict[str, Any]:
    start, end = reply.find("{"), reply.rfind("}")
    if start < 0 or end < start:
        return {}
    try:
        value = json.loads(reply[start : end + 1])
    except json.JSONDecodeError:
        return {}
    if not isinstance(value, dict):
        return {}
    return {name: value[name] for name in names if name in value}


def _as_type(value: Any, annotation: Any) -> Any:
    if get_origin(annotation) is Literal:
        return _choice(str(value), get_args(annotation))
    if annotation is str:
        return "" if value is None else str(value)
    return pydantic.TypeAdapter(annotation).validate_python(value)


def _choice(text: str, allowed: tuple[str, ...]) -> str:
    said = re.sub(r"[^a-z ]", "", text.lower().replace("_", " ").replace("-", " ")).strip()
    for choice in allowed:
        if said == choice:
            return choice
    if said.startswith(("not ", "no ")):
        raise ValueError(f"{text!r} negates a choice of {allowed}")
    # The longest first, should one choice be part of another.
    for choice in sorted(allowed, key=len, reverse=True):
        if re.search(rf"\b{re.escape(choice)}\b", said):
            return choice
    raise ValueError(f"{text!r} is none of {allowed}")


def _traced(
    predictor: dspy.Predict, inputs: dict[str, Any], prediction: dspy.Prediction
) -> dspy.Prediction:
    if dspy.settings.trace is not None:
        dspy.settings.trace.append((predictor, dict(inputs), prediction))
    return prediction


def untraced(prediction: dspy.Prediction) -> None:
    """Take a reply that the program rejects off DSPy's trace: it is no demonstration."""
    trace = dspy.settings.trace
    if trace is not None:
        trace[:] = [entry for entry in trace if entry[2] is not prediction]


def retrace(
    predictor: dspy.Predict,
    rejected: list[dspy.Prediction],
    inputs: Mapping[str, Any],
    prediction: dspy.Prediction,
) -> None:
    """Leave in DSPy's trace only what a demonstration may teach.

    Optimizers make demos of the trace. Attempts that were sent back leave it, and what stands
    there for this call is the input without feedback and the output without ungrounded items.
    """
    for attempt in rejected:
        untraced(attempt)
    _traced(predictor, _given(predictor, inputs), prediction)


def _given(predictor: dspy.Predict, inputs: Mapping[str, Any]) -> dict[str, Any]:
    return {name: inputs[name] for name in predictor.signature.input_fields if name in inputs}
