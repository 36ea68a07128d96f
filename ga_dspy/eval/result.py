"""What became of one question, and the journal that keeps it."""

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
from ga_dspy.eval.scores import SupportScore, Triple, TripleScore
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
    """One round of retrieval: enough for every table, without the program's objects.

    Attributes:
        query: What was searched.
        reformulated: The query made in its place, where it brought nothing new.
        retrieved: How many passages came back, with those of the reformulated query.
        titles: Titles of those that were new.
        hit: Whether an accepted answer occurs in a passage read so far; None where it is yes/no.
        judgement: "sufficient", "insufficient", or empty where nothing was judged.
        candidate: The answer seen by then.
        rule: Where the program overruled the LM, and why.
        failure: Why the step failed, or empty.
        gained: Entities and relations that the graph gained.
        dropped: How many proposed items were not grounded.
        dropped_items: The first of them, with the reasons; empty in a run of an earlier version.
        entities: Entities in the graph after the step.
        relations: Relations in it.
        names: Entities that were new in this step.
        graph: The graph after the step, as a prompt shows it; empty where there is none.
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
        """Share of the retrieved passages that were read before; None where nothing came back."""
        return 1 - len(self.titles) / self.retrieved if self.retrieved else None


class Judged(BaseModel):
    """What a judge LM said of an answer.

    Attributes:
        right: Whether the answer is right; None where the judge failed.
        usage: What the judge cost, which is no part of the question's cost.
        error: Why it failed.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    right: bool | None = None
    usage: Usage = Usage()
    error: str | None = None


class Result(BaseModel):
    """One question asked, with what the program returned or the error it raised.

    Scores are fractions from 0 to 1, computed from the stored answer; a failed question
    (`error` is set) scores 0. `steps`, `calls` and `tokens` are None where the program does not
    report them, and for a failed question.

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
        timing: Seconds of its parts, where it reports them; not reproducible.
        supported: What it says carries the answer: "chained", "quoted", or a plain yes; False for
            none, None where it does not say.
        evidence: The evidence as it was given.
        trace: Its rounds.
        step_failures: Failures of rounds that it got over.
        error: Why the question failed.
        may_pass: Whether what failed, the question or a round, may go well another time.
        judged: What a judge LM said of the answer; None where none was asked.
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
        """The result of a question that was answered.

        Args:
            example: The question, with `id`, `answer` or `answers`, maybe `gold_titles`, `type`.
            prediction: Has `answer`, and maybe `passages` (each with a `title`), `steps` (a
                sequence, or their number), `calls`, `tokens`, `supported`, `evidence`, `failures`
                (of steps that the program got over), `may_pass` (whether those may pass).

        Raises:
            InputError: there is no string in `prediction.answer`.
        """
        answer = getattr(prediction, "answer", None)
        if not isinstance(answer, str):
            content = f"answer={answer!r:.80}" if prediction is not None else "None"
            raise InputError(
                f"the program returned {type(prediction).__name__}({content})",
                expected="a dspy.Prediction whose field 'answer' is a string",
                remedy="have the program set it",
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
        """The result of a question whose program raised `error`."""
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
        return scores.support_score(self.facts, self.gold_facts)

    @property
    def coverage(self) -> TripleScore | None:
        """The graph against the gold triples, by their ends; None where there are none."""
        return scores.triple_score(self.triples, self.gold_triples)

    @property
    def reasoning(self) -> TripleScore | None:
        """The evidence chain against the gold triples, by their ends; None where there are none."""
        return scores.triple_score(self.chain, self.gold_triples)

    @property
    def cost(self) -> Usage:
        """What the question cost, all steps of the program together."""
        return Usage.total(self.usage.values())


def accepted_answers(example: dspy.Example) -> tuple[str, ...]:
    """The example's `answers`, or its one `answer`; empty where it has neither."""
    return tuple(example.get("answers") or ([example.answer] if example.get("answer") else ()))


# --- What of an example and a prediction is kept.


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
    """The steps of a prediction; none where the program has steps of another kind."""
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
    """A passage of ours, or the title and text of another program's."""
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


# --- The journal of a run: one committed row a question, so that a killed run can go on.

_LAYOUT = 2
_TABLES = {
    "run": "CREATE TABLE run (layout INTEGER NOT NULL, protocol TEXT NOT NULL)",
    "result": "CREATE TABLE result ( position INTEGER PRIMARY KEY, failed INTEGER NOT NULL, "
    "json TEXT NOT NULL, seconds REAL NOT NULL )",
}


class Entry(NamedTuple):
    """A journaled result and the seconds its question took."""

    result: Result
    seconds: float


class RunJournal(Journal):
    """The results of a run, by the position of their question; a context manager.

    Raises:
        ProtocolMismatch: `protocol` is given and is not the one the journal was begun under.
        InUse: another process is writing it.
        DamagedFile: the file is something else, or is missing and no `protocol` is given.
    """

    def __init__(self, path: Path, protocol: Protocol | None = None) -> None:
        if protocol is None and not path.is_file():
            raise DamagedFile(
                f"{path}: no such file",
                expected="the journal of a ga_dspy run",
                remedy="pass the output directory of a run",
            )
        super().__init__(path, "run", _TABLES, layout=0, durable=True)
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
        """Write the result of the question at `position`, over an earlier one if there is one."""
        self.write(
            "INSERT OR REPLACE INTO result VALUES (?, ?, ?, ?)",
            *(position, result.error is not None, result.model_dump_json(), seconds),
        )

    def entries(self) -> dict[int, Entry]:
        """All results so far, by position, in order.

        A damaged row counts as missing, and so does one at a position that the run does not have.
        """
        rows = self.rows("SELECT position, json, position, seconds FROM result ORDER BY position")
        return dict(self.readable(rows, self._entry))

    def _entry(self, text: str, position: int, seconds: float) -> Entry:
        if not 0 <= position < self.protocol.n:
            raise ValueError(f"the run has questions 0 to {self.protocol.n - 1}")
        return Entry(Result.model_validate_json(text), float(seconds))
