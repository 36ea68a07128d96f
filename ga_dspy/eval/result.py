"""What became of one question: the answer and its scores, or the failure."""

from __future__ import annotations

import json
from collections.abc import Sized

import dspy
from pydantic import BaseModel, ConfigDict, JsonValue
from pydantic_core import to_jsonable_python

from ga_dspy.errors import GaDspyError, InputError
from ga_dspy.eval import scores

_LONGEST_ERROR = 500


class NoAnswer(GaDspyError):
    """The program returned something without an answer in it."""

    def __init__(self, found: str) -> None:
        super().__init__(
            f"the program returned {found}; expected a dspy.Prediction whose field 'answer' is a "
            "string; have the program set it"
        )


class Result(BaseModel):
    """One question asked, with what the program returned or the error it raised.

    Scores are fractions from 0 to 1, computed from the stored answer; a failed question
    (`error` is set) scores 0. `steps`, `calls` and `tokens` are None where the program does not
    tell them, and for a failed question.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    id: str
    question: str
    type: str
    gold: tuple[str, ...]
    gold_titles: tuple[str, ...]
    answer: str | None = None
    titles: tuple[str, ...] = ()
    steps: int | None = None
    calls: int | None = None
    tokens: int | None = None
    supported: bool | None = None
    evidence: JsonValue = None
    step_failures: tuple[str, ...] = ()
    error: str | None = None

    @classmethod
    def from_prediction(cls, example: dspy.Example, prediction: object) -> Result:
        """The result of a question that was answered.

        Args:
            example: The question, with `id`, `answer` or `answers`, maybe `gold_titles`, `type`.
            prediction: Has `answer`, and maybe `passages` (each with a `title`), `steps` (a
                sequence, or their number), `calls`, `tokens`, `supported`, `evidence`, `failures`
                (of steps that the program got over).

        Raises:
            NoAnswer: there is no string in `prediction.answer`.
        """
        answer = getattr(prediction, "answer", None)
        if not isinstance(answer, str):
            shown = f"answer={answer!r:.80}" if prediction is not None else "None"
            raise NoAnswer(f"{type(prediction).__name__}({shown})")
        passages = getattr(prediction, "passages", None) or ()
        evidence = getattr(prediction, "evidence", None)
        failures = getattr(prediction, "failures", None) or ()
        return cls(
            **_asked(example),
            answer=_storable(answer),
            titles=tuple(passage.title for passage in passages),
            steps=_number(getattr(prediction, "steps", None)),
            calls=_number(getattr(prediction, "calls", None)),
            tokens=_number(getattr(prediction, "tokens", None)),
            supported=getattr(prediction, "supported", None),
            evidence=_json(evidence),
            step_failures=tuple(_storable(str(failure)) for failure in failures),
        )

    @classmethod
    def from_failure(cls, example: dspy.Example, error: Exception) -> Result:
        """The result of a question whose program raised `error`."""
        text = f"{type(error).__name__}: {error}"[:_LONGEST_ERROR]
        return cls(**_asked(example), error=_storable(text))

    @property
    def f1(self) -> float:
        """Token F1, best over the accepted answers."""
        return scores.f1(self.answer, self.gold) if self.answer is not None else 0.0

    @property
    def em(self) -> float:
        """Exact match, 1.0 or 0.0."""
        return scores.exact_match(self.answer, self.gold) if self.answer is not None else 0.0

    @property
    def acc(self) -> float:
        """An accepted answer is contained in the answer, 1.0 or 0.0."""
        return scores.contained(self.answer, self.gold) if self.answer is not None else 0.0

    @property
    def support_recall(self) -> float | None:
        """Share of gold titles retrieved; None where the question names none."""
        return scores.support_recall(self.titles, self.gold_titles)


def accepted_answers(example: dspy.Example) -> tuple[str, ...]:
    """The example's `answers`, or its one `answer`; empty where it has neither."""
    return tuple(example.get("answers") or ([example.answer] if example.get("answer") else ()))


def _asked(example: dspy.Example) -> dict[str, object]:
    return {
        "id": example.id,
        "question": example.question,
        "type": example.get("type") or "",
        "gold": accepted_answers(example),
        "gold_titles": tuple(example.get("gold_titles") or ()),
    }


def _storable(text: str) -> str:
    # Models emit lone surrogates (JSON can spell them); UTF-8 has none.
    return text.encode("utf-8", "replace").decode()


def _json(value: object) -> JsonValue:
    plain = to_jsonable_python(value, inf_nan_mode="null", fallback=str)
    parsed: JsonValue = json.loads(_storable(json.dumps(plain, ensure_ascii=False)))
    return parsed


def _number(value: object) -> int | None:
    if value is None or isinstance(value, int):
        return value
    if isinstance(value, Sized):
        return len(value)
    raise InputError(
        f"the program returned {value!r:.80} as a count",
        expected="a whole number or a sequence",
        remedy="set steps, calls and tokens to one of these, or leave them out",
    )
