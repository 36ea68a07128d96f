"""The last step, the same for every program: a short answer, and whether a passage carries it."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from typing import Any, NamedTuple

import dspy

from ga_dspy.mentions import fold, mentions
from ga_dspy.passage import Passage
from ga_dspy.programs.conversation import Ask
from ga_dspy.programs.meter import Meter
from ga_dspy.programs.salvage import asked
from ga_dspy.signatures.prompt import cited_labels, said


class Conclusion(NamedTuple):
    """The outcome of the answer step.

    Attributes:
        answer: The short answer as the model gave it.
        verdict: "answered", "not in passages" or "premise refuted".
        cited: Labels of the passages the answer rests on; only passages that were read.
        supported: Whether the answer rests on a passage rather than on the model's memory.
    """

    answer: str
    verdict: str
    cited: tuple[int, ...]
    supported: bool


def concluded(
    predictor: dspy.Predict,
    inputs: Mapping[str, Any],
    passages: Mapping[int, Passage],
    meter: Meter,
) -> Generator[Ask, dspy.Prediction, Conclusion]:
    """Ask for the answer."""
    reply = yield from asked("answer", predictor, inputs, meter)
    answer, verdict = (reply.answer or "").strip(), str(reply.verdict)
    named = tuple(label for label in cited_labels(said(reply.cited)) if label in passages)
    cited = named or _holding(answer, passages)[:1]
    supported = rests_on(answer, verdict, {label: passages[label] for label in cited})
    return Conclusion(answer, verdict, cited if supported else named, supported)


def recognised(answer: str, passages: Mapping[int, Passage]) -> Conclusion:
    """An answer given without citing, credited to the first passage that mentions it."""
    answer = answer.strip()
    cited = _holding(answer, passages)[:1]
    verdict = "answered" if cited else "not in passages"
    return Conclusion(answer, verdict, cited, bool(cited))


def rests_on(answer: str, verdict: str, cited: Mapping[int, Passage]) -> bool:
    """Whether an answer rests on the passages it cites.

    "not in passages" never does. A span does if one of the passages mentions it; "yes", "no" and
    the sentence that refutes a premise do if they cite a passage at all.
    """
    if verdict == "not in passages" or not answer or not cited:
        return False
    if verdict == "premise refuted" or fold(answer).strip(" .") in ("yes", "no"):
        return True
    return bool(_holding(answer, cited))


def _holding(answer: str, passages: Mapping[int, Passage]) -> tuple[int, ...]:
    if not answer:
        return ()
    return tuple(n for n, passage in passages.items() if mentions(answer, passage.content))
