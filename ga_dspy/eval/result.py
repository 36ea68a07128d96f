"""What became of one question: the answer and its scores, or the failure."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence, Sized
from typing import Any

import dspy
from pydantic import BaseModel, ConfigDict, JsonValue
from pydantic_core import to_jsonable_python

from ga_dspy.errors import GaDspyError, InputError
from ga_dspy.eval import scores
from ga_dspy.eval.facts import SupportScore, facts_of, support_score
from ga_dspy.eval.faithful import cited_edges
from ga_dspy.eval.trace import StepTrace, traced
from ga_dspy.eval.triples import TripleScore, triple_score
from ga_dspy.graph import KnowledgeGraph
from ga_dspy.passage import Passage
from ga_dspy.programs import EvidenceLink, Usage

Fact = tuple[str, int]
Triple = tuple[str, str, str]
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

    Attributes:
        id: The question's id, unique in its run.
        question: The question.
        type: The dataset's kind of question; empty where it has none.
        gold: Accepted answers.
        gold_titles: Titles of the passages that are needed; empty where the dataset names none.
        gold_facts: Title and number of each sentence that is needed; empty where not named.
        gold_triples: The triples that lead to the answer; empty where the dataset has none.
        answer: What the program answered.
        passages: What it read, in first-seen order.
        facts: Sentences that its evidence quotes.
        triples: The relations of its graph.
        chain: The triples of its evidence chain.
        cited: How many of these it cited, and how many of them are faithful.
        steps: How many rounds it took.
        calls: How many LM calls.
        tokens: How many tokens, in and out.
        usage: What each step of the program cost.
        timing: Seconds of its parts, where it tells them; not reproducible.
        supported: Whether it says that a passage carries the answer.
        evidence: The evidence as it was given.
        trace: Its rounds.
        step_failures: Failures of rounds that it got over.
        error: Why the question failed.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    id: str
    question: str
    type: str
    gold: tuple[str, ...]
    gold_titles: tuple[str, ...]
    gold_facts: tuple[Fact, ...] = ()
    gold_triples: tuple[Triple, ...] = ()
    answer: str | None = None
    passages: tuple[Passage, ...] = ()
    facts: tuple[Fact, ...] = ()
    triples: tuple[Triple, ...] = ()
    chain: tuple[Triple, ...] = ()
    cited: tuple[int, int] = (0, 0)
    steps: int | None = None
    calls: int | None = None
    tokens: int | None = None
    usage: dict[str, Usage] = {}
    timing: dict[str, float] = {}
    supported: bool | None = None
    evidence: JsonValue = None
    trace: tuple[StepTrace, ...] = ()
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
        passages = tuple(map(_passage, getattr(prediction, "passages", None) or ()))
        evidence = getattr(prediction, "evidence", None)
        failures = getattr(prediction, "failures", None) or ()
        steps = getattr(prediction, "steps", None)
        rounds = steps if isinstance(steps, Sequence) else ()
        links = [link for link in evidence or () if isinstance(link, EvidenceLink)]
        return cls(
            **_asked(example),
            answer=_storable(answer),
            passages=passages,
            facts=tuple(sorted(_facts(links, example))),
            triples=_triples(getattr(getattr(prediction, "graph", None), "relations", ())),
            chain=_triples(link for link in links if link.head),
            cited=_cited(links, prediction, passages),
            steps=_number(steps),
            calls=_number(getattr(prediction, "calls", None)),
            tokens=_number(getattr(prediction, "tokens", None)),
            usage=dict(getattr(prediction, "usage", None) or {}),
            timing=dict(getattr(prediction, "seconds", None) or {}),
            supported=getattr(prediction, "supported", None),
            evidence=_json(evidence),
            trace=traced(rounds, passages, accepted_answers(example)),
            step_failures=tuple(_storable(str(failure)) for failure in failures),
        )

    @classmethod
    def from_failure(cls, example: dspy.Example, error: Exception) -> Result:
        """The result of a question whose program raised `error`."""
        text = f"{type(error).__name__}: {error}"[:_LONGEST_ERROR]
        return cls(**_asked(example), error=_storable(text))

    @property
    def titles(self) -> tuple[str, ...]:
        """Titles of the passages read."""
        return tuple(passage.title for passage in self.passages)

    @property
    def f1(self) -> float:
        """Token F1 by HotpotQA's official rule, best over the accepted answers."""
        return scores.f1(self.answer, self.gold) if self.answer is not None else 0.0

    @property
    def f1_squad(self) -> float:
        """Token F1 by SQuAD's rule, best over the accepted answers."""
        return scores.f1_squad(self.answer, self.gold) if self.answer is not None else 0.0

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

    @property
    def support_precision(self) -> float | None:
        """Share of the retrieved titles that are gold; None where the question names none."""
        return scores.support_precision(self.titles, self.gold_titles)

    @property
    def support(self) -> SupportScore | None:
        """Supporting facts by HotpotQA's official rule; None where the question names none."""
        return support_score(self.facts, self.gold_facts) if self.gold_facts else None

    @property
    def coverage(self) -> TripleScore | None:
        """The graph against the gold triples, by their ends; None where there are none."""
        return triple_score(self.triples, self.gold_triples)

    @property
    def reasoning(self) -> TripleScore | None:
        """The evidence chain against the gold triples, by their ends; None where there are none."""
        return triple_score(self.chain, self.gold_triples)

    @property
    def cost(self) -> Usage:
        """What the question cost, all steps of the program together."""
        return Usage.total(self.usage.values())


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
        "gold_facts": tuple(example.get("supporting_facts") or ()),
        "gold_triples": tuple(example.get("evidences") or ()),
    }


def _passage(found: Any) -> Passage:
    """A passage of ours, or the title and text of another program's."""
    if isinstance(found, Passage):
        return found
    title, text = getattr(found, "title", ""), getattr(found, "text", "")
    return Passage(id=str(getattr(found, "id", title)), title=title, text=text)


def _facts(links: Iterable[EvidenceLink], example: dspy.Example) -> set[Fact]:
    quoted = [(link.title, link.quote) for link in links]
    return facts_of(quoted, dict(example.get("paragraphs") or ()))


def _cited(
    links: Iterable[EvidenceLink], prediction: object, passages: Iterable[Passage]
) -> tuple[int, int]:
    graph = getattr(prediction, "graph", None)
    if not isinstance(graph, KnowledgeGraph):
        return (0, 0)
    known = (*passages, *(getattr(prediction, "quoted", None) or ()))
    return cited_edges(links, graph, {passage.id: passage for passage in known})


def _triples(items: Iterable[Any]) -> tuple[Triple, ...]:
    return tuple((item.head, item.relation, item.tail) for item in items)


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
