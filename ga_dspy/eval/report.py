"""The report of a run: mean scores over all questions, and the files that store them.

Means and intervals are percentages, from 0 to 100. A failed question scores 0 in every mean; it is
never left out.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from math import fsum
from pathlib import Path
from typing import Any, Literal, NamedTuple

from ga_dspy.errors import InputError
from ga_dspy.eval import scores
from ga_dspy.eval.protocol import Protocol
from ga_dspy.eval.result import Judged, Result, RunJournal, StepTrace
from ga_dspy.eval.statistics import Paired, bootstrap_interval, paired_permutation
from ga_dspy.programs import Usage
from ga_dspy.storage import write_atomically

ScoreName = Literal["f1", "em", "acc", "f1_squad"]
JOURNAL, CALLS = "journal.sqlite", "calls.sqlite"
SUMMARY, PREDICTIONS = "summary.json", "predictions.jsonl"

_PREDICTION_FIELDS = (
    "id", "type", "question", "answer", "gold", "f1", "f1_squad", "em", "acc", "support_recall",
    "titles", "steps", "calls", "tokens", "supported", "evidence", "step_failures", "error",
)  # fmt: skip


class Report(NamedTuple):
    """All results of a finished run, in the order of the questions.

    Everything but the seconds is reproducible.
    """

    protocol: Protocol
    results: tuple[Result, ...]

    @property
    def seconds(self) -> float:
        """The program's time summed over all questions, regardless of the number of threads."""
        return fsum(result.seconds for result in self.results)

    @property
    def failed(self) -> tuple[Result, ...]:
        """The results of questions for which the program raised an error; see `error`."""
        return tuple(result for result in self.results if result.error is not None)

    @property
    def degraded(self) -> tuple[Result, ...]:
        """The results of questions answered although a step failed; see `step_failures`."""
        return tuple(r for r in self.results if r.step_failures and r.error is None)

    @property
    def usage(self) -> Usage:
        """The cost of the run, summed over all questions."""
        return Usage.total(result.cost for result in self.results)

    def values(self, score: ScoreName = "f1") -> list[float]:
        """Return a score of each question, from 0 to 1; "f1" is the protocol's F1 variant."""
        if score == "f1" and self.protocol.score == "squad":
            score = "f1_squad"
        return [getattr(result, score) for result in self.results]

    @property
    def f1(self) -> float:
        """Mean token F1 in percent, in the protocol's variant."""
        return _percent(self.values())

    @property
    def em(self) -> float:
        """Mean exact match, in percent."""
        return _percent(self.values("em"))

    @property
    def acc(self) -> float:
        """Share of answers that contain an accepted answer, in percent."""
        return _percent(self.values("acc"))

    @property
    def judged(self) -> float | None:
        """Share of the answers that the judge accepts, in percent; None without a judge.

        A failed question counts as wrong. Answers for which the judge failed are left out;
        `summary` lists them.
        """
        if not self.protocol.judge:
            return None
        verdicts = [r.judged.right if r.judged else None for r in self.results if not r.error]
        return _percent_of_known([*verdicts, *[False] * len(self.failed)])

    @property
    def support_recall(self) -> float | None:
        """Mean recall in percent over the questions with gold titles; None if none has any."""
        return _percent_of_known(result.support_recall for result in self.results)

    @property
    def ci95(self) -> tuple[float, float]:
        """The 95 % bootstrap confidence interval of the mean F1, in percent."""
        low, high = bootstrap_interval(self.values())
        return 100.0 * low, 100.0 * high

    def part(self, results: Iterable[Result]) -> Report:
        """Return the report of some of the questions."""
        return self._replace(results=tuple(results))

    def by_type(self) -> dict[str, dict[str, Any]]:
        """Return the scores by question type; questions without a type are under "(none)"."""
        by_type: dict[str, list[Result]] = {}
        for result in sorted(self.results, key=lambda result: result.type):
            by_type.setdefault(result.type or "(none)", []).append(result)
        return {name: self.part(results)._scores() for name, results in by_type.items()}

    def summary(self) -> dict[str, Any]:
        """Return the content of summary.json.

        Given the same answers, only `seconds` and `usage` may differ. `usage` includes failed
        attempts and replies from DSPy's cache.
        """
        protocol = self.protocol
        usage = {step: cost.model_dump() for step, cost in usage_by_step(self.results).items()}
        return {
            "dataset": protocol.dataset,
            "program": protocol.program,
            "lm": protocol.lm,
            **({"lms": protocol.lms} if protocol.lms else {}),
            **_rounded(self._scores()),
            **_rounded(self.measures()),
            "steps_mean": self._mean_count("steps"),
            "lm_calls_mean": self._mean_count("calls"),
            "tokens_mean": self._mean_count("tokens"),
            "usage": usage,
            **({"judge": self._judge()} if protocol.judge else {}),
            "seconds": round(self.seconds, 2),
            "ci95": _rounded(self.ci95),
            "by_type": _rounded(self.by_type()),
            "failed": _errors((result.id, result) for result in self.failed),
            "degraded_ids": [result.id for result in self.degraded],
            "protocol": protocol.model_dump(mode="json"),
            "protocol_hash": protocol.hash,
        }

    def measures(self) -> dict[str, Any]:
        """Return all other measures, in percent; None if a measure does not apply."""
        each = [_scores_of(result) for result in self.results]
        means: dict[str, float | None] = {}
        for name in each[0]:
            means[name] = _percent_of_known(of_result[name] for of_result in each)
        return {
            **means,
            "grounded_share": grounded_share(self.results),
            "faithful_share": faithful_share(self.results),
            "sufficiency": judgements(self.results),
            "by_step": by_step(self.results),
        }

    def _judge(self) -> dict[str, Any]:
        judged = {result.id: result.judged for result in self.results if result.judged}
        return {
            "lm": self.protocol.judge,
            "right": _rounded(self.judged),
            "failed": _errors(judged.items()),
            "usage": Usage.total(one.usage for one in judged.values()).model_dump(),
        }

    def _mean_count(self, field: str) -> float | None:
        """Return the mean of a count, unknown ones (of failed questions) as 0; None if all are."""
        counts = [getattr(result, field) for result in self.results]
        known = [count for count in counts if count is not None]
        return round(sum(known) / len(counts), 2) if known else None

    def _scores(self) -> dict[str, Any]:
        return {
            "n": len(self.results),
            "f1": self.f1,
            "em": self.em,
            "acc": self.acc,
            "support_recall": self.support_recall,
            "failures": len(self.failed),
            "degraded": len(self.degraded),
        }

    def write(self, out: Path) -> None:
        """Write predictions.jsonl and summary.json into `out`, each atomically.

        Scores are percentages in the summary, and fractions from 0 to 1 in each prediction.
        """
        lines = [json.dumps(_prediction(result), ensure_ascii=False) for result in self.results]
        write_atomically(out / PREDICTIONS, "".join(f"{line}\n" for line in lines))
        summary = json.dumps(self.summary(), ensure_ascii=False, indent=2)
        write_atomically(out / SUMMARY, f"{summary}\n")


def _prediction(result: Result) -> dict[str, Any]:
    """Return the line of a question in predictions.jsonl."""
    line = {name: getattr(result, name) for name in _PREDICTION_FIELDS}
    line["rounds"] = [step.model_dump(mode="json", exclude={"graph"}) for step in result.trace]
    if result.judged:
        line["judged"] = result.judged.model_dump()
    return line


def _errors(records: Iterable[tuple[str, Result | Judged]]) -> list[dict[str, str]]:
    return [{"id": id, "error": record.error} for id, record in records if record.error]


def load_report(out: Path) -> Report:
    """Load the report of the finished run in `out` from its journal.

    Raises:
        InputError: The run is not finished.
        DamagedFile: There is no run in `out`.
    """
    with RunJournal(out / JOURNAL) as journal:
        results, n = journal.results(), journal.protocol.n
    if len(results) < n:
        found = f"{out} holds {len(results)} of {n} questions"
        raise InputError(found, remedy="start the same run again to finish it")
    return Report(journal.protocol, tuple(results.values()))


def paired_test(a: Report, b: Report, score: ScoreName = "f1") -> Paired:
    """Compare two runs with a paired permutation test over the questions that they share.

    Raises:
        InputError: They share no question, by id and text.
    """
    first, second = _by_question(a, score), _by_question(b, score)
    pairs = [(value, second[question]) for question, value in first.items() if question in second]
    if not pairs:
        found = f"the runs ({a.protocol.source}, {b.protocol.source}) share no question"
        raise InputError(found, remedy="run both programs on one file")
    return paired_permutation(*zip(*pairs, strict=True))


def _by_question(report: Report, score: ScoreName) -> dict[tuple[str, str], float]:
    questions = [(result.id, result.question) for result in report.results]
    return dict(zip(questions, report.values(score), strict=True))


# --- Other measures: by step, of the judgements, of the cost


def by_step(results: Sequence[Result]) -> list[dict[str, float | None]]:
    """Return the state after each step, over all questions (the paper's Figures 3 and 4).

    A question that ended earlier keeps its last state; for a failed question nothing was read.

    Returns:
        - step: The number of the step, from 1.
        - reached: The number of questions that reached this step.
        - hit: Percentage of questions with an accepted answer in a passage read so far, among those
          whose answer is not yes or no; None if there are none.
        - overlap: Percentage of this step's retrieved passages that were read before, averaged over
          the questions that reached it; None if none did.
        - entities, relations: Their mean number in the graph.
    """
    points = []
    failed = [scores.answer_in("", result.gold) for result in results if not result.trace]
    for step in range(1, 1 + max((len(result.trace) for result in results), default=0)):
        reached = [result.trace[step - 1] for result in results if len(result.trace) >= step]
        states = [result.trace[:step][-1] for result in results if result.trace]
        hits = [state.hit for state in states]
        entities = sum(state.entities for state in states)
        relations = sum(state.relations for state in states)
        point = {
            "step": step,
            "reached": len(reached),
            "hit": _percent_of_known([*hits, *failed]),
            "overlap": _percent_of_known(state.overlap for state in reached),
            "entities": entities / len(results),
            "relations": relations / len(results),
        }
        points.append(point)
    return points


def judgements(results: Sequence[Result]) -> dict[str, float | None]:
    """Score the judge as a classifier: whether all gold titles had been read."""
    questions = []
    for result in results:
        titles: list[str] = []
        verdicts: list[scores.Verdict] = []
        for step in result.trace:
            titles += step.titles
            if step.judgement:
                recall = scores.support_recall(titles, result.gold_titles)
                sufficed = None if recall is None else recall == 1.0
                verdicts.append((step.judgement == "sufficient", sufficed))
        questions.append(verdicts)
    return scores.sufficiency(questions)


FailureKind = Literal[
    "failed", "not retrieved", "not in the graph", "judged too early", "judged too late",
    "wrong answer",
]  # fmt: skip
"""The reason for a wrong answer: the first stage that lost what the answer needs."""


def is_right(result: Result) -> bool:
    """Return whether the answer contains an accepted one; yes and no must match exactly."""
    return bool(result.em or (result.answer and scores.answer_in(result.answer, result.gold)))


def failure_reason(result: Result) -> FailureKind | None:
    """Return the reason for a wrong answer; None if the answer is right.

    - "failed": the program raised an error.
    - "judged too early": the judge said "sufficient" before all needed passages were read.
    - "not retrieved": a needed passage was not retrieved.
    - "not in the graph": the passages were read, but the graph contains no accepted answer.
    - "judged too late": the evidence was complete, but the judge said "insufficient".
    - "wrong answer": the evidence was complete, but the answer is wrong.

    The needed passages are those with the gold titles, or, without gold titles, one with an
    accepted answer. The graph check does not apply to yes/no answers and programs without a graph.
    """
    if result.error is not None:
        return "failed"
    if is_right(result):
        return None
    verdicts = [step.judgement for step in result.trace if step.judgement]
    hits = [scores.answer_in(passage.content, result.gold) for passage in result.passages]
    if not _is_found(result, result.titles, None in hits or any(hits)):
        return "judged too early" if verdicts[-1:] == ["sufficient"] else "not retrieved"
    if result.trace and not _is_in_graph(result.trace[-1], result):
        return "not in the graph"
    titles: list[str] = []
    for step in result.trace[:-1]:
        titles += step.titles
        is_there = _is_found(result, titles, step.hit) and _is_in_graph(step, result)
        if is_there and step.judgement == "insufficient":
            return "judged too late"
    return "wrong answer"


def _is_found(result: Result, titles: Iterable[str], hit: bool | None) -> bool:
    recall = scores.support_recall(titles, result.gold_titles)
    return hit is not False if recall is None else recall == 1.0


def _is_in_graph(step: StepTrace, result: Result) -> bool:
    return not step.graph or scores.answer_in(step.graph, result.gold) is not False


def grounded_share(results: Sequence[Result]) -> float | None:
    """Return the percentage of proposed graph items that were grounded; None without any."""
    steps = [step for result in results for step in result.trace]
    gained = sum(step.gained for step in steps)
    proposed = gained + sum(step.dropped for step in steps)
    return 100.0 * gained / proposed if proposed else None


def faithful_share(results: Sequence[Result]) -> float | None:
    """Return the percentage of cited edges that are faithful; None if no edge is cited."""
    cited = sum(result.cited[0] for result in results)
    faithful = sum(result.cited[1] for result in results)
    return 100.0 * faithful / cited if cited else None


def usage_by_step(results: Sequence[Result]) -> dict[str, Usage]:
    """Return the usage of a run by step of the program, summed over all questions."""
    by_step: dict[str, list[Usage]] = {}
    for result in results:
        for step, usage in result.usage.items():
            by_step.setdefault(step, []).append(usage)
    return {step: Usage.total(usages) for step, usages in by_step.items()}


def _scores_of(result: Result) -> dict[str, float | None]:
    """Return more scores of a question, from 0 to 1; None if a score does not apply."""
    answer = result.answer
    facts = scores.support_score(result.facts, result.gold_facts)
    overlap = scores.NO_OVERLAP if answer is None else scores.answer_overlap(answer, result.gold)
    joint = facts and scores.joint_score(overlap, result.em, facts)
    graph = scores.triple_score(result.triples, result.gold_triples)
    chain = scores.triple_score(result.chain, result.gold_triples)
    is_known = result.supported is not None or result.error is not None
    return {
        "f1_official": result.f1,
        "f1_squad": result.f1_squad,
        "support_precision": scores.support_precision(result.titles, result.gold_titles),
        "fact_em": facts and facts.em,
        "fact_f1": facts and facts.f1,
        "joint_em": joint and joint.em,
        "joint_f1": joint and joint.f1,
        "graph_precision": graph and graph.precision,
        "graph_recall": graph and graph.recall,
        "chain_precision": chain and chain.precision,
        "chain_recall": chain and chain.recall,
        "supported": float(bool(result.supported)) if is_known else None,
        "chained": float(result.supported == "chained") if is_known else None,
    }


def _percent(values: Sequence[float]) -> float:
    return 100.0 * fsum(values) / len(values)


def _percent_of_known(values: Iterable[float | None]) -> float | None:
    """Return the mean of the known scores in percent; None if none is known."""
    known = [value for value in values if value is not None]
    return _percent(known) if known else None


def _rounded(value: Any) -> Any:
    """Round all numbers in a JSON value to two decimals."""
    if isinstance(value, dict):
        return {name: _rounded(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [_rounded(part) for part in value]
    return round(value, 2) if isinstance(value, float) else value
