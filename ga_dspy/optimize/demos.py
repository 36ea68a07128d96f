"""Demonstrations: what one may teach, what is taken off a program, how they read."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import dspy
import pydantic

from ga_dspy.eval import f1, normalise
from ga_dspy.grounding import ground
from ga_dspy.optimize.turns import aimless, searches
from ga_dspy.passage import Passage
from ga_dspy.programs import MultiHopProgram
from ga_dspy.programs.ircot import conclusion
from ga_dspy.signatures import GraphProposal

_BLOCK = re.compile(r"^\[(\d+)\] (.*)\n(.*)$", re.MULTILINE)
_CUT = "<TRUNCATED FOR BREVITY>"  # what SIMBA leaves of a long input
_MARK = "augmented"


class Sanitised(NamedTuple):
    """A program whose demos may be kept, and why each of the others was taken off."""

    program: MultiHopProgram
    dropped: tuple[str, ...]


def sanitise(
    program: MultiHopProgram, train: Sequence[dspy.Example], threshold: float
) -> Sanitised:
    """Take off every demo that would teach a fault, and from the others what is no field.

    A demo is taken off where it shows feedback (so a second attempt), an item of the graph that
    its passages do not support (so a rejected attempt, or one that leans on passages the demo
    does not show), a guess from memory, a wrong candidate or answer, a turn that leads nowhere,
    or a cut-off input.

    Args:
        program: The compiled program; left as it is.
        train: The questions the demos are from, with their answers.
        threshold: The F1 from which an answer may be shown.
    """
    answers = {normalise(e.question): tuple(e.get("answers") or (e.answer,)) for e in train}
    clean, dropped = program.deepcopy(), []
    for name, predictor in clean.named_predictors():
        kept = []
        for number, demo in enumerate(predictor.demos, 1):
            gold = answers.get(normalise(str(demo.get("question", ""))), ())
            fault = next(faults(demo, predictor.signature, gold, threshold), "")
            if fault:
                dropped.append(f"{name}, demo {number}: {fault}")
            else:
                kept.append(_fields_only(demo, predictor.signature))
        predictor.demos = kept
    return Sanitised(clean, tuple(dropped))


def faults(
    demo: Mapping[str, Any],
    signature: type[dspy.Signature],
    gold: Sequence[str] = (),
    threshold: float = 1.0,
) -> Iterator[str]:
    """What a demo would teach that it must not."""
    if demo.get("feedback"):
        yield "it shows feedback on an earlier attempt"
    if any(_CUT in str(value) for value in demo.values()):
        yield "an input is cut off"
    missing = [name for name in signature.output_fields if name not in demo]
    if missing and (demo.get(_MARK) or len(missing) == len(signature.output_fields)):
        yield f"it lacks {', '.join(missing)}"
    if "additions" in demo:
        yield from _ungrounded(demo)
    yield from aimless(demo, signature)
    if demo.get("verdict") == "not in passages":
        yield "it answers what its passages do not hold"
    if gold:
        yield from _wrong(demo, gold, threshold)


def _ungrounded(demo: Mapping[str, Any]) -> Iterator[str]:
    try:
        draft = GraphProposal.model_validate(demo["additions"]).draft
    except pydantic.ValidationError:
        yield "its graph cannot be read"
        return
    for item in ground(draft, shown_passages(str(demo.get("passages", "")))).dropped:
        yield f"its passages do not support {item}"


def _wrong(demo: Mapping[str, Any], gold: Sequence[str], threshold: float) -> Iterator[str]:
    given = demo.get("answer", conclusion(str(demo.get("thought", ""))))
    if given is not None and not searches(demo) and f1(str(given), gold) < threshold:
        yield f"its answer {str(given)!r} is not the right one"
    candidate = str(demo.get("candidate") or "")
    if demo.get("judgement") == "sufficient" and candidate and f1(candidate, gold) == 0.0:
        yield f"it calls the wrong candidate {candidate!r} sufficient"


def shown_passages(text: str) -> dict[int, Passage]:
    r"""The passages of a prompt, by label.

    >>> shown_passages("[2] Helena\nHelena is a city.")[2].title
    'Helena'
    """
    return {
        int(label): Passage(id=label, title="" if title == "(untitled)" else title, text=body)
        for label, title, body in _BLOCK.findall(text)
    }


def _fields_only(demo: Any, signature: type[dspy.Signature]) -> dspy.Example:
    kept = {k: v for k, v in demo.items() if k in signature.fields or k == _MARK}
    return dspy.Example(**kept).with_inputs(*(k for k in signature.input_fields if k in kept))


def labelled(program: MultiHopProgram, rows: Sequence[dspy.Example]) -> MultiHopProgram:
    """A copy of a program with rows as demos, where a row says what a predictor puts out.

    A row knows a question and its answer. That makes an (incomplete) demo of the predictor that
    answers, which DSPy marks as such; the ones that read and judge get none, since no row says
    what they should have written.
    """
    copied: MultiHopProgram = program.deepcopy()
    for predictor in copied.predictors():
        predictor.demos = []
        # Who may search instead would learn from a bare answer never to do so.
        if {"answer", "query"} & predictor.signature.output_fields.keys() == {"answer"}:
            predictor.demos = [
                dspy.Example(question=row.question, answer=row.answer).with_inputs("question")
                for row in rows
            ]
    return copied


def prompts(program: MultiHopProgram) -> dict[str, str]:
    """Instruction and demos of each predictor, for a person to read."""
    return {
        name: "\n\n".join(
            [
                predictor.signature.instructions,
                *(_readable(n, demo) for n, demo in enumerate(predictor.demos, 1)),
            ]
        )
        for name, predictor in program.named_predictors()
    }


def _readable(number: int, demo: Any) -> str:
    lines = [f"{name}: {value}" for name, value in demo.items() if name != _MARK]
    return "\n".join([f"--- demo {number} ---", *lines])
