"""The result of one question, and the journal of a run."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence, Sized
from pathlib import Path
from typing import Any, Literal

import dspy
from pydantic import BaseModel, JsonValue, ValidationError
from pydantic_core import to_jsonable_python

from ga_dspy.errors import DamagedFile, InputError
from ga_dspy.eval import scores
from ga_dspy.eval.datasets import Fact
from ga_dspy.eval.protocol import Protocol, ProtocolMismatch
from ga_dspy.eval.scores import Triple
from ga_dspy.graph import KnowledgeGraph, linearise
from ga_dspy.grounding import Dropped
from ga_dspy.lm.failures import is_transient
from ga_dspy.passage import Passage, replace_invalid
from ga_dspy.programs import EvidenceLink, Step, Usage
from ga_dspy.secrets import withheld
from ga_dspy.storage import Journal

_LONGEST_ERROR = 500
_MOST_DROPPED, _LONGEST_DROPPED = 20, 300  # of a step; characters of an item and of its reason


class StepTrace(BaseModel, frozen=True, extra="forbid"):
    """One round of retrieval.

    Attributes:
        query: The search query.
        reformulated: The query that replaced it because it found nothing new; empty without one.
        retrieved: Number of passages retrieved, by both queries.
        titles: Titles of the new ones.
        hit: Whether an accepted answer occurs in a passage read so far; None if it is yes or no.
        judgement: "sufficient", "insufficient", or empty if nothing was judged.
        candidate: The best answer so far.
        rule: Why the program overruled the LM, or empty.
        failure: Why the step failed, or empty.
        gained: Number of entities and relations added to the graph.
        dropped: Number of proposed items that were not grounded.
        dropped_items: The first of them, with the reasons.
        entities: Number of entities in the graph after the step.
        relations: Number of relations in it.
        graph: The graph after the step, as a prompt shows it; empty without one.
    """

    query: str
    reformulated: str = ""
    retrieved: int = 0
    titles: tuple[str, ...] = ()
    hit: bool | None = None
    judgement: str = ""
    candidate: str = ""
    rule: str = ""
    failure: str = ""
    gained: int = 0
    dropped: int = 0
    dropped_items: tuple[Dropped, ...] = ()
    entities: int = 0
    relations: int = 0
    graph: str = ""

    @property
    def overlap(self) -> float | None:
        """Share of the retrieved passages that were read before; None if none were retrieved."""
        return 1 - len(self.titles) / self.retrieved if self.retrieved else None


class Judged(BaseModel, frozen=True, extra="forbid"):
    """A judge LM's verdict on an answer.

    Attributes:
        right: Whether the answer is right; None if the judge failed.
        usage: The cost of the judge, which is not part of the question's cost.
        error: Why the judge failed.
    """

    right: bool | None = None
    usage: Usage = Usage()
    error: str | None = None


class Result(BaseModel, frozen=True, extra="forbid"):
    """One question, with the program's answer or the error it raised.

    Scores are fractions from 0 to 1, computed from the stored answer; a failed question scores 0.

    Attributes:
        id: The question's id, unique in its run.
        question: The question.
        type: The dataset's type of question; empty if it has none.
        gold: Accepted answers.
        gold_titles: Titles of the passages that are needed; empty if the dataset names none.
        gold_facts: Titles and numbers of the sentences that are needed; empty if not named.
        gold_triples: Triples that lead to the answer; empty if the dataset has none.
        answer: The program's answer; None if the question failed.
        passages: The passages it read, in the order in which they were first seen.
        facts: The sentences that its evidence quotes.
        triples: The relations of its graph.
        chain: The triples of its evidence chain.
        cited: The number of triples that the chain cites, and how many of them are faithful.
        steps: Number of rounds; None if not reported.
        calls: Number of LM calls; None if not reported.
        tokens: Number of prompt and completion tokens; None if not reported.
        usage: The cost by step of the program.
        seconds: Seconds that the question took; not reproducible.
        timing: Seconds by part of the program, if reported; not reproducible.
        supported: Whether the answer has support: "chained", "quoted", True or False; None if the
            program does not say.
        evidence: The evidence as it was returned.
        trace: The rounds of retrieval.
        step_failures: Failures of steps in spite of which the question was answered.
        error: Why the question failed.
        is_transient: Whether the failure, of the question or a step, is transient.
        judged: A judge LM's verdict; None without a judge.
    """

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
    seconds: float = 0.0
    timing: dict[str, float] = {}
    supported: Literal["chained", "quoted"] | bool | None = None
    evidence: JsonValue = None
    trace: tuple[StepTrace, ...] = ()
    step_failures: tuple[str, ...] = ()
    error: str | None = None
    is_transient: bool = False
    judged: Judged | None = None

    @classmethod
    def from_prediction(cls, example: dspy.Example, prediction: Any) -> Result:
        """Return the result of a question that was answered.

        Args:
            example: The question, with `id`, `answer` or `answers`, optionally `gold_titles`,
                `type`.
            prediction: A `dspy.Prediction` with `answer`, and optionally `passages` (each with a
                `title`), `steps` (a sequence or their number), `calls`, `tokens`, `supported`,
                `evidence`, `failures` (of single steps), `is_transient` (whether a retry may
                succeed).

        Raises:
            InputError: `answer` is missing or not a string.
        """
        get = prediction.get if isinstance(prediction, dspy.Prediction) else {}.get
        answer, steps, evidence = get("answer"), get("steps"), get("evidence")
        if not isinstance(answer, str):
            expected = "a dspy.Prediction whose field 'answer' is a string"
            raise InputError(f"the program returned {prediction!r:.80}", expected=expected)
        passages = tuple(map(_passage, get("passages") or ()))
        graph = get("graph")
        if not isinstance(graph, KnowledgeGraph):
            graph = KnowledgeGraph()
        links = [link for link in evidence or () if isinstance(link, EvidenceLink)]
        quotes = [(link.title, link.quote) for link in links]
        by_id = {passage.id: passage for passage in (*passages, *(get("quoted") or ()))}
        return cls(
            **_question_fields(example),
            answer=replace_invalid(answer),
            passages=passages,
            facts=tuple(sorted(scores.facts_of(quotes, dict(example.get("paragraphs") or ())))),
            triples=_triples(graph.relations),
            chain=_triples(link for link in links if link.head),
            cited=scores.count_faithful(links, graph, by_id),
            steps=_count(steps),
            calls=_count(get("calls")),
            tokens=_count(get("tokens")),
            usage=get("usage") or {},
            timing=get("seconds") or {},
            supported=(get("supported") or False) if "supported" in prediction else None,
            evidence=_as_json(evidence),
            trace=_trace(steps, passages, accepted_answers(example)),
            step_failures=tuple(map(replace_invalid, map(str, get("failures") or ()))),
            is_transient=bool(get("is_transient")),
        )

    @classmethod
    def from_failure(cls, example: dspy.Example, error: Exception) -> Result:
        """Return the result of a question for which the program raised an error."""
        text = replace_invalid(withheld(f"{type(error).__name__}: {error}")[:_LONGEST_ERROR])
        return cls(**_question_fields(example), error=text, is_transient=is_transient(error))

    @property
    def titles(self) -> tuple[str, ...]:
        """Titles of the passages read."""
        return tuple(passage.title for passage in self.passages)

    @property
    def f1(self) -> float:
        """Token F1 by HotpotQA's official rule, best over the accepted answers."""
        return self._score(scores.f1)

    @property
    def f1_squad(self) -> float:
        """Token F1 by SQuAD's rule, best over the accepted answers."""
        return self._score(scores.f1_squad)

    @property
    def em(self) -> float:
        """Exact match, 1.0 or 0.0."""
        return self._score(scores.exact_match)

    @property
    def acc(self) -> float:
        """1.0 if an accepted answer is contained in the answer, else 0.0."""
        return self._score(scores.contained)

    def _score(self, rule: Callable[[str, tuple[str, ...]], float]) -> float:
        return 0.0 if self.answer is None else rule(self.answer, self.gold)

    @property
    def support_recall(self) -> float | None:
        """Share of the gold titles that were retrieved; None without gold titles."""
        return scores.support_recall(self.titles, self.gold_titles)

    @property
    def cost(self) -> Usage:
        """The cost of the question, summed over the steps of the program."""
        return Usage.total(self.usage.values())


def accepted_answers(example: dspy.Example) -> tuple[str, ...]:
    """Return the example's `answers`, or its one `answer`; empty if it has neither."""
    return tuple(example.get("answers") or ([example.answer] if example.get("answer") else ()))


# --- From an example and a prediction to a result


def _question_fields(example: dspy.Example) -> dict[str, Any]:
    return {
        "id": example.id,
        "question": example.question,
        "type": example.get("type") or "",
        "gold": accepted_answers(example),
        "gold_titles": tuple(example.get("gold_titles") or ()),
        "gold_facts": tuple(example.get("supporting_facts") or ()),
        "gold_triples": tuple(example.get("evidences") or ()),
    }


def _trace(steps: Any, passages: Sequence[Passage], gold: tuple[str, ...]) -> tuple[StepTrace, ...]:
    """Return the traces of a prediction's steps; none if they are not of type `Step`."""
    if not isinstance(steps, Sequence) or not all(isinstance(step, Step) for step in steps):
        return ()
    by_id = {passage.id: passage for passage in passages}
    labels = {passage.id: number for number, passage in enumerate(passages, start=1)}
    hit = scores.answer_in("", gold)
    traces = []
    for step in steps:
        new = [by_id[id] for id in step.passage_ids if id in by_id]
        if hit is False:
            hit = any(scores.answer_in(passage.content, gold) for passage in new)
        graph = step.graph
        traces.append(
            StepTrace(
                **step.model_dump(include=_COPIED),
                retrieved=len(step.retrieved),
                titles=tuple(passage.title for passage in new),
                hit=hit,
                gained=len(step.entities) + len(step.relations),
                dropped=len(step.dropped),
                dropped_items=tuple(map(_cut, step.dropped[:_MOST_DROPPED])),
                entities=len(graph.entities),
                relations=len(graph.relations),
                graph=linearise(graph, labels=labels) if graph.entities or graph.relations else "",
            )
        )
    return tuple(traces)


_COPIED = {"query", "reformulated", "judgement", "candidate", "rule", "failure"}
"""Fields that a `StepTrace` copies from a `Step`."""


def _cut(dropped: Dropped) -> Dropped:
    item, reason = dropped.item[:_LONGEST_DROPPED], dropped.reason[:_LONGEST_DROPPED]
    texts = {"item": replace_invalid(item), "reason": replace_invalid(reason)}
    return dropped.model_copy(update=texts)


def _passage(item: Any) -> Passage:
    """Return a passage, converted from another program's type with a title and a text."""
    if isinstance(item, Passage):
        return item
    title, text = getattr(item, "title", ""), getattr(item, "text", "")
    return Passage(id=str(getattr(item, "id", title)), title=title, text=text)


def _triples(items: Iterable[Any]) -> tuple[Triple, ...]:
    return tuple((item.head, item.relation, item.tail) for item in items)


def _count(value: Any) -> Any:
    return len(value) if isinstance(value, Sized) else value


def _as_json(value: object) -> Any:
    plain = to_jsonable_python(value, inf_nan_mode="null", fallback=str)
    return json.loads(replace_invalid(json.dumps(plain, ensure_ascii=False)))


# --- The journal of a run: one committed row per question, so that a killed run can resume

_TABLES = {
    "run": "CREATE TABLE run (protocol TEXT NOT NULL)",
    "result": "CREATE TABLE result (position INTEGER PRIMARY KEY, json TEXT NOT NULL)",
}


class RunJournal(Journal):
    """The results of a run, by the position of their question; a context manager.

    Raises:
        ProtocolMismatch: The journal was started under another protocol than `protocol`.
        InUse: Another process is writing it.
        DamagedFile: The file is not a journal, or is missing and no `protocol` is given.
    """

    def __init__(self, path: Path, protocol: Protocol | None = None) -> None:
        if protocol is None and not path.is_file():
            remedy = "pass the output directory of a run"
            raise DamagedFile(f"{path}: no such file", remedy=remedy)
        super().__init__(path, "run", _TABLES, durable=True)
        try:
            self.protocol = self._begin(protocol)
        except BaseException:
            self.close()
            raise

    def _begin(self, current: Protocol | None) -> Protocol:
        """Return the protocol of the journal; a new journal stores the current one."""
        rows = self.rows("SELECT protocol FROM run")
        if not rows and current is not None:
            self.write("INSERT INTO run VALUES (?)", current.model_dump_json())
            return current
        try:
            saved = Protocol.model_validate_json(rows[0][0] if rows else "")
        except ValidationError as error:
            raise self.damaged("its protocol cannot be read") from error
        differences = saved.differences(current) if current else ()
        if differences:
            raise ProtocolMismatch(differences, self.path.parent)
        return saved

    def record(self, position: int, result: Result) -> None:
        """Write the result of the question at `position`, replacing an earlier one."""
        row = position, result.model_dump_json()
        self.write("INSERT OR REPLACE INTO result VALUES (?, ?)", *row)

    def results(self) -> dict[int, Result]:
        """Return all results so far by position, in order.

        A damaged row counts as missing, as does a row whose position is outside the run.
        """
        rows = self.rows("SELECT position, json, position FROM result ORDER BY position")
        return dict(self.readable(rows, self._read))

    def _read(self, text: str, position: int) -> Result:
        if not 0 <= position < self.protocol.n:
            raise ValueError(f"the run has questions 0 to {self.protocol.n - 1}")
        return Result.model_validate_json(text)
