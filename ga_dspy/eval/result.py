"""The result of one question, and the journal of a run."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence, Sized
from pathlib import Path
from typing import Any, Literal, NamedTuple

import dspy
from pydantic import BaseModel, ConfigDict, JsonValue, ValidationError
from pydantic_core import to_jsonable_python

from ga_dspy.errors import DamagedFile, InputError
from ga_dspy.eval import scores
from ga_dspy.eval.datasets import Fact
from ga_dspy.eval.protocol import Protocol, ProtocolMismatch
from ga_dspy.eval.scores import Overlap, SupportScore, Triple
from ga_dspy.graph import KnowledgeGraph, linearise
from ga_dspy.grounding import Dropped
from ga_dspy.lm.failures import is_transient
from ga_dspy.passage import Passage
from ga_dspy.programs import EvidenceLink, Step, Usage
from ga_dspy.secrets import withheld
from ga_dspy.storage import Journal

_LONGEST_ERROR = 500
_MOST_DROPPED, _LONGEST_DROPPED = 20, 300  # of a step; characters of an item and of its reason


class StepTrace(BaseModel):
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
        names: Entities added in this step.
        graph: The graph after the step, as a prompt shows it; empty without one.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

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
    names: tuple[str, ...] = ()
    graph: str = ""

    @property
    def overlap(self) -> float | None:
        """Share of the retrieved passages that were read before; None if none were retrieved."""
        return 1 - len(self.titles) / self.retrieved if self.retrieved else None


class Judged(BaseModel):
    """A judge LM's verdict on an answer.

    Attributes:
        right: Whether the answer is right; None if the judge failed.
        usage: The cost of the judge, which is not part of the question's cost.
        error: Why the judge failed.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    right: bool | None = None
    usage: Usage = Usage()
    error: str | None = None


class Result(BaseModel):
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
        timing: Seconds by part of the program, if reported; not reproducible.
        supported: Whether the answer has support: "chained", "quoted", True or False; None if the
            program does not say.
        evidence: The evidence as it was returned.
        trace: The rounds of retrieval.
        step_failures: Failures of steps in spite of which the question was answered.
        error: Why the question failed.
        may_pass: Whether the failure, of the question or a step, is transient.
        judged: A judge LM's verdict; None without a judge.
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
    supported: Literal["chained", "quoted"] | bool | None = None
    evidence: JsonValue = None
    trace: tuple[StepTrace, ...] = ()
    step_failures: tuple[str, ...] = ()
    error: str | None = None
    may_pass: bool = False
    judged: Judged | None = None

    @classmethod
    def from_prediction(cls, example: dspy.Example, prediction: Any) -> Result:
        """Return the result of a question that was answered.

        Args:
            example: The question, with `id`, `answer` or `answers`, optionally `gold_titles`,
                `type`.
            prediction: Has `answer`, and optionally `passages` (each with a `title`), `steps` (a
                sequence or their number), `calls`, `tokens`, `supported`, `evidence`, `failures`
                (of single steps), `may_pass` (whether those are transient).

        Raises:
            InputError: `prediction.answer` is not a string.
        """
        answer = getattr(prediction, "answer", None)
        if not isinstance(answer, str):
            content = f"answer={answer!r:.80}" if prediction is not None else "None"
            raise InputError(
                f"the program returned {type(prediction).__name__}({content})",
                expected="a dspy.Prediction whose field 'answer' is a string",
                remedy="set it in the program",
            )
        passages = tuple(map(_passage, getattr(prediction, "passages", None) or ()))
        quoted = getattr(prediction, "quoted", None) or ()
        graph = getattr(prediction, "graph", None)
        evidence = getattr(prediction, "evidence", None)
        links = [link for link in evidence or () if isinstance(link, EvidenceLink)]
        quotes = [(link.title, link.quote) for link in links]
        facts = scores.facts_of(quotes, dict(example.get("paragraphs") or ()))
        known = {passage.id: passage for passage in (*passages, *quoted)}
        cited = (0, 0)
        if isinstance(graph, KnowledgeGraph):
            cited = scores.count_faithful(links, graph, known)
        return cls(
            **_question_fields(example),
            answer=_storable(answer),
            passages=passages,
            facts=tuple(sorted(facts)),
            triples=_triples(getattr(graph, "relations", ())),
            chain=_triples(link for link in links if link.head),
            cited=cited,
            steps=_count(getattr(prediction, "steps", None)),
            calls=_count(getattr(prediction, "calls", None)),
            tokens=_count(getattr(prediction, "tokens", None)),
            usage=dict(getattr(prediction, "usage", None) or {}),
            timing=dict(getattr(prediction, "seconds", None) or {}),
            supported=(prediction.supported or False) if hasattr(prediction, "supported") else None,
            evidence=_as_json(evidence),
            trace=_trace(getattr(prediction, "steps", None), passages, accepted_answers(example)),
            step_failures=tuple(
                _storable(str(failure)) for failure in getattr(prediction, "failures", None) or ()
            ),
            may_pass=bool(getattr(prediction, "may_pass", False)),
        )

    @classmethod
    def from_failure(cls, example: dspy.Example, error: Exception) -> Result:
        """Return the result of a question for which the program raised an error."""
        text = withheld(f"{type(error).__name__}: {error}")[:_LONGEST_ERROR]
        return cls(**_question_fields(example), error=_storable(text), may_pass=is_transient(error))

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
        """1.0 if an accepted answer is contained in the answer, else 0.0."""
        return scores.contained(self.answer, self.gold) if self.answer is not None else 0.0

    @property
    def support_recall(self) -> float | None:
        """Share of the gold titles that were retrieved; None without gold titles."""
        return scores.support_recall(self.titles, self.gold_titles)

    @property
    def support_precision(self) -> float | None:
        """Share of the retrieved titles that are gold; None without gold titles."""
        return scores.support_precision(self.titles, self.gold_titles)

    @property
    def support(self) -> SupportScore | None:
        """Supporting facts by HotpotQA's official rule; None without gold facts."""
        return scores.support_score(self.facts, self.gold_facts)

    @property
    def coverage(self) -> Overlap | None:
        """The graph scored against the gold triples by their ends; None without gold triples."""
        return scores.triple_score(self.triples, self.gold_triples)

    @property
    def reasoning(self) -> Overlap | None:
        """The evidence chain scored likewise; None without gold triples."""
        return scores.triple_score(self.chain, self.gold_triples)

    @property
    def cost(self) -> Usage:
        """The cost of the question, summed over the steps of the program."""
        return Usage.total(self.usage.values())


def accepted_answers(example: dspy.Example) -> tuple[str, ...]:
    """Return the example's `answers`, or its one `answer`; empty if it has neither."""
    return tuple(example.get("answers") or ([example.answer] if example.get("answer") else ()))


# --- From an example and a prediction to what the journal stores.


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
    """Return the steps of a prediction; none if the program has steps of another kind."""
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
                query=step.query,
                reformulated=step.reformulated,
                retrieved=len(step.retrieved),
                titles=tuple(passage.title for passage in new),
                hit=hit,
                judgement=step.judgement,
                candidate=step.candidate,
                rule=step.rule,
                failure=step.failure,
                gained=len(step.entities) + len(step.relations),
                dropped=len(step.dropped),
                dropped_items=tuple(map(_cut, step.dropped[:_MOST_DROPPED])),
                entities=len(graph.entities),
                relations=len(graph.relations),
                names=tuple(entity.name for entity in step.entities),
                graph=linearise(graph, labels=labels) if graph.entities or graph.relations else "",
            )
        )
    return tuple(traces)


def _cut(dropped: Dropped) -> Dropped:
    texts = {"item": dropped.item, "reason": dropped.reason}
    cut = {name: _storable(text[:_LONGEST_DROPPED]) for name, text in texts.items()}
    return dropped.model_copy(update=cut)


def _passage(found: Any) -> Passage:
    """Return a passage of ours, or make one of another program's title and text."""
    if isinstance(found, Passage):
        return found
    title, text = getattr(found, "title", ""), getattr(found, "text", "")
    return Passage(id=str(getattr(found, "id", title)), title=title, text=text)


def _triples(items: Iterable[Any]) -> tuple[Triple, ...]:
    return tuple((item.head, item.relation, item.tail) for item in items)


def _count(value: object) -> int | None:
    if value is None or isinstance(value, int):
        return value
    if isinstance(value, Sized):
        return len(value)
    raise InputError(
        f"the program returned {value!r:.80} as a count",
        expected="a whole number or a sequence",
        remedy="set steps, calls and tokens to one of these, or leave them out",
    )


def _storable(text: str) -> str:
    # Models emit lone surrogates (JSON can spell them); UTF-8 has none.
    return text.encode("utf-8", "replace").decode()


def _as_json(value: object) -> Any:
    plain = to_jsonable_python(value, inf_nan_mode="null", fallback=str)
    return json.loads(_storable(json.dumps(plain, ensure_ascii=False)))


# --- The journal of a run: one committed row per question, so that a killed run can resume.

_LAYOUT = 2
_TABLES = {
    "run": "CREATE TABLE run (layout INTEGER NOT NULL, protocol TEXT NOT NULL)",
    "result": "CREATE TABLE result ( position INTEGER PRIMARY KEY, failed INTEGER NOT NULL, "
    "json TEXT NOT NULL, seconds REAL NOT NULL )",
}


class Entry(NamedTuple):
    """A journaled result and the seconds of its question."""

    result: Result
    seconds: float


class RunJournal(Journal):
    """The results of a run, by the position of their question; a context manager.

    Raises:
        ProtocolMismatch: The journal was begun under another protocol than `protocol`.
        InUse: Another process is writing it.
        DamagedFile: The file is no journal, or is missing and no `protocol` is given.
    """

    def __init__(self, path: Path, protocol: Protocol | None = None) -> None:
        if protocol is None and not path.is_file():
            raise DamagedFile(
                f"{path}: no such file",
                expected="the journal of a ga_dspy run",
                remedy="pass the output directory of a run",
            )
        super().__init__(path, "run", _TABLES, durable=True)
        try:
            self.protocol = self._begin(protocol)
        except BaseException:
            self.close()
            raise

    def _begin(self, given: Protocol | None) -> Protocol:
        begun = self.rows("SELECT layout, protocol FROM run")
        if not begun and given is not None:
            self.write("INSERT INTO run VALUES (?, ?)", _LAYOUT, given.model_dump_json())
            return given
        layout, text = begun[0] if begun else (None, "")
        if layout != _LAYOUT:
            raise self.damaged(f"layout {layout} of another version")
        try:
            saved = Protocol.model_validate_json(text)
        except ValidationError as error:
            raise self.damaged("its protocol cannot be read") from error
        differences = saved.differences(given) if given else ()
        if differences:
            raise ProtocolMismatch(differences, self.path.parent)
        return saved

    def record(self, position: int, result: Result, seconds: float) -> None:
        """Write the result of the question at `position`, replacing an earlier one."""
        self.write(
            "INSERT OR REPLACE INTO result VALUES (?, ?, ?, ?)",
            *(position, result.error is not None, result.model_dump_json(), seconds),
        )

    def entries(self) -> dict[int, Entry]:
        """Return all results so far by position, in order.

        A damaged row counts as missing, as does one at a position that the run does not have.
        """
        rows = self.rows("SELECT position, json, position, seconds FROM result ORDER BY position")
        return dict(self.readable(rows, self._entry))

    def _entry(self, text: str, position: int, seconds: float) -> Entry:
        if not 0 <= position < self.protocol.n:
            raise ValueError(f"the run has questions 0 to {self.protocol.n - 1}")
        return Entry(Result.model_validate_json(text), float(seconds))
