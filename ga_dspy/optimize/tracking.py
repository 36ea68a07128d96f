"""Tracking in MLflow: compilations, evaluations, and traces of a few questions."""

from __future__ import annotations

import hashlib
import json
import logging
import platform
import shlex
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import dspy

from ga_dspy.artifact.artifact import FILES
from ga_dspy.errors import InputError, need_package
from ga_dspy.eval import Report, Result
from ga_dspy.eval.report import usage_by_step
from ga_dspy.optimize.mlflow_store import (
    ROOT,
    TrackingFailed,
    experiment_of,
    local_uri,
    metrics_of,
    params_of,
    pointed_at,
    publishable,
    reaching,
    store_uri,
)
from ga_dspy.optimize.registry import ARTIFACT, REPORT, register_program
from ga_dspy.optimize.trials import Candidate, Outcome
from ga_dspy.programs import MultiHopProgram
from ga_dspy.programs.prediction import as_json
from ga_dspy.secrets import without_password
from ga_dspy.viewer import page

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import LiveSpan

_NOTE = "mlflow.note.content"
_SAME = "ga_dspy.same"  # the tag by which a run is recognised when it is logged again
# What MLflow's server imports fetches a price list; without a network that can hang for ever.
_OFFLINE = "LITELLM_LOCAL_MODEL_COST_MAP=True"
_COLUMNS = (
    "id", "type", "question", "gold", "answer", "f1", "em", "support_recall", "supported",
    "steps", "calls", "tokens", "error",
)  # fmt: skip

# --- A compilation: a run, and a nested run for each candidate


class MLflowTracker:
    """A `ga_dspy.optimize.trials.Tracker` over MLflow.

    A store that fails costs the compilation seconds and nothing else: what was logged so far and
    the rest go to the local store, with one message. If that fails too, nothing more is tracked.
    An interrupted compilation continues its run; its candidates are not logged twice.

    Args:
        uri: Any tracking URI; by default `MLFLOW_TRACKING_URI`, else `mlflow.db` in `root`.
        root: The folder of the artifacts, and of the local store.
        index: A retrieval index to pack with the program, so that it can be served by itself.
        graph: The graph of its passages, to pack with a program that searches one.
        say: Takes messages for the user; by default they are logged as warnings.

    Attributes:
        uri: The store; empty if nothing is tracked any more.
        run_id: The run; None before the compilation started, or if nothing is tracked.
        place: Where in the registry the compiled program is, in one line.

    Raises:
        MissingExtra: mlflow is not installed.
        InputError: There is no `index`.
    """

    def __init__(
        self,
        uri: str | None = None,
        root: Path = ROOT,
        *,
        index: Path | None = None,
        graph: Path | None = None,
        say: Callable[[str], None] | None = None,
    ) -> None:
        need_package("mlflow", "optimize")
        if index is not None and not index.is_dir():
            raise InputError(
                f"there is no index at {index}",
                expected="the folder of a built index",
                remedy="build one with: ga-dspy index build … --out DIR",
            )
        self.uri, self.root = store_uri(uri, root), root
        self.index, self.graph = index, graph
        self.run_id: str | None = None
        self.place = ""
        self._say = say or logging.getLogger(__name__).warning
        self._one_at_a_time = threading.RLock()
        self._events: list[Callable[[MlflowClient], None]] = []
        self._experiment = ""
        self._recipe: dict[str, Any] = {}

    @property
    def how_to_open(self) -> str:
        """How to look at the run: the page of a server, or the command that starts one."""
        where = without_password(self.uri)
        if where.startswith(("http://", "https://")):
            return f"{where.rstrip('/')}/#/experiments/{self._experiment}/runs/{self.run_id or ''}"
        return f"{_OFFLINE} mlflow ui --backend-store-uri {shlex.quote(where)}" if where else ""

    def start(self, name: str, setup: dict[str, Any]) -> None:
        """Begin the run of a compilation, or continue it if it was interrupted."""
        if setup.get("graph") and self.index is not None and self.graph is None:
            raise InputError(
                "an index to pack without the graph that the program searches",
                expected="both: the registered model could answer nothing",
                remedy="pass graph=… (on the command line --graph), or pack no index",
            )
        self._log(partial(self._start, name, setup, _now()))

    def candidate(self, c: Candidate) -> None:
        """Log a candidate as a nested run."""
        self._log(partial(self._candidate, c, _now()))

    def finish(self, outcome: Outcome) -> None:
        """Log the outcome, register the program and close the run."""
        self._log(partial(self._finish, outcome, _now()))

    def fail(self, error: BaseException) -> None:
        """Close the run with the error that ended the compilation."""
        self._log(partial(self._fail, error, _now()))

    def _log(self, event: Callable[[MlflowClient], None]) -> None:
        """Log an event; if the store fails, log all events so far to the local store."""
        with self._one_at_a_time:
            self._events.append(event)
            pending = [event]
            while self.uri:
                try:
                    with reaching(self.uri) as client:
                        for one in pending:
                            one(client)
                    return
                except TrackingFailed as failure:
                    pending = self._events
                    self._fall_back(failure)

    def _fall_back(self, failure: TrackingFailed) -> None:
        local = local_uri(self.root)
        self.uri, self.run_id = "" if self.uri == local else local, None
        where = f"the compilation continues and is tracked in {local}"
        nowhere = "nothing is tracked from here on; the compilation continues"
        self._say(f"{failure}; {where if self.uri else nowhere}")

    def _start(self, name: str, setup: dict[str, Any], at: int, client: MlflowClient) -> None:
        self._experiment = experiment_of(client, self.uri, self.root)
        same = json.dumps([platform.node(), name, setup], default=str)
        title = f"{setup['program']} by {name}" if "program" in setup else name
        run = _open_run(client, self._experiment, title, "compile", _digest(same), at)
        self.run_id = run
        self._recipe = {name: setup.get(name) for name in ("recipe", "parameters")}
        client.log_batch(run, params=params_of(setup))
        client.log_dict(run, publishable(setup), "parameters.json")

    def _candidate(self, c: Candidate, at: int, client: MlflowClient) -> None:
        same = f"{self.run_id} {c.number}"
        if _find_run(client, self._experiment, same, "="):
            return
        name = f"{c.number}: {c.description}"
        parent = {"mlflow.parentRunId": self.run_id}
        run = _open_run(client, self._experiment, name, "candidate", same, at, parent)
        prompts = c.prompts or {}
        about = {
            predictor: {"demos": len(prompt.demos), "instruction": _digest(prompt.instruction)[:12]}
            for predictor, prompt in prompts.items()
        }
        params = params_of({**self._recipe, "prompts": c.mark, **about})
        values = {"validation/score": c.score, "validation/failures": c.failed}
        values |= {f"cost/{part}": getattr(c, part) for part in ("calls", "tokens", "seconds")}
        client.log_batch(run, metrics_of(values, at), params)
        text = "\n\n".join(f"=== {name} ===\n{prompt}" for name, prompt in prompts.items())
        client.log_text(run, publishable(text), "prompts.txt")
        client.set_terminated(run, end_time=at)
        curves = {"score": c.score, "best": c.best, "tokens": c.tokens}
        points = {f"candidates/{name}": value for name, value in curves.items()}
        client.log_batch(self.run_id, metrics_of(points, at, c.number))

    def _finish(self, outcome: Outcome, at: int, client: MlflowClient) -> None:
        run, before, after = str(self.run_id), outcome.before, outcome.after
        client.log_dict(run, publishable(outcome.summary()), "summary.json")
        client.log_dict(run, publishable(_record(before)), "reports/before.json")
        client.log_dict(run, publishable(_record(after)), REPORT)
        client.log_table(run, _table(after, before), "predictions.json")
        for file in FILES:
            client.log_artifact(run, str(outcome.artifact / file), ARTIFACT)
        if outcome.figure.is_file():
            client.log_artifact(run, str(outcome.figure))
        values = {
            **report_metrics(before, "baseline"),
            **{
                f"cost/{part}": getattr(outcome, part)
                for part in ("calls", "replayed", "tokens", "seconds", "money")
            },
            "gain/f1": after.f1 - before.f1,
            "gain/p_value": outcome.p_value,
            "gain/better": outcome.better,
            "gain/dropped_demos": len(outcome.dropped_demos),
            "candidates/number": len(outcome.candidates),
            **outcome.shortfall,
        }
        card, model = score_card(outcome), None
        if outcome.unchanged:
            self.place = "no version registered: the program is as it was given"
        else:
            try:
                packed = {"index": self.index, "graph": self.graph}
                model, self.place = register_program(client, self.uri, run, outcome, card, packed)
            except InputError as fault:
                self.place = f"not registered, because it could not be served: {fault}"
        # Only now: a model takes over the metrics that its run has when it is logged.
        client.log_batch(run, metrics_of(values, at))
        client.log_batch(run, metrics_of(report_metrics(after, outcome.held_out), at, model=model))
        client.set_tag(run, "ga_dspy.verdict", outcome.verdict)
        client.set_tag(run, _NOTE, publishable(f"{card}\n\n{self.place}"))
        client.set_terminated(run, end_time=at)

    def _fail(self, error: BaseException, at: int, client: MlflowClient) -> None:
        run, text = self.run_id, publishable(f"{type(error).__name__}: {error}")[:5_000]
        client.set_tag(run, "ga_dspy.error", text)
        client.set_tag(run, _NOTE, text)
        client.set_terminated(run, "FAILED" if isinstance(error, Exception) else "KILLED", at)


def score_card(outcome: Outcome) -> str:
    """Return the verdict, the scores before and after, and the cost, as Markdown."""
    rows = []
    for when, report in (("before", outcome.before), ("after", outcome.after)):
        low, high = report.ci95
        rows.append(f"| {when} | {report.f1:.1f} | {low:.1f} – {high:.1f} | {report.em:.1f} |")
    stopped = f", stopped early: {outcome.stopped}" if outcome.stopped else ""
    by = f"(p = {outcome.p_value:.3g}, {outcome.basis}), by {outcome.recipe}{stopped}"
    table = ["| | F1 | 95 % | EM |", "|---|---:|---:|---:|", *rows]
    cost = f"{outcome.calls:,} LM calls, {outcome.tokens:,} tokens, {outcome.seconds:,.0f} s."
    return str(publishable("\n".join([f"**{outcome.verdict}** {by}", "", *table, "", cost])))


# --- An evaluation as one run


class Tracked(NamedTuple):
    """Where an evaluation was logged: the store, the run, and whether the run is new."""

    uri: str
    run_id: str
    is_new: bool


def track_evaluation(
    report: Report,
    *,
    uri: str | None = None,
    root: Path = ROOT,
    say: Callable[[str], None] | None = None,
) -> Tracked | None:
    """Log a finished evaluation as a run: protocol, scores with intervals, predictions.

    An evaluation with the same answers and verdicts is logged once.

    Args:
        report: The evaluation.
        uri: Any tracking URI; by default `MLFLOW_TRACKING_URI`, else `mlflow.db` in `root`.
        root: The folder of the local store, which is used if the other one fails.
        say: Takes messages for the user; by default they are logged as warnings.

    Returns:
        Where it is; None if the local store failed too.

    Raises:
        MissingExtra: mlflow is not installed.
    """
    say, local = say or logging.getLogger(__name__).warning, local_uri(root)
    for place in dict.fromkeys([store_uri(uri, root), local]):
        try:
            with reaching(place) as client:
                return Tracked(place, *_log_evaluation(client, place, root, report))
        except TrackingFailed as failure:
            lost = place == local
            say(f"{failure}; " + ("the evaluation is not tracked" if lost else f"using {local}"))
    return None


def _log_evaluation(client: MlflowClient, uri: str, root: Path, report: Report) -> tuple[str, bool]:
    """Return the run of an evaluation, and whether it is new."""
    protocol, at = report.protocol, _now()
    given = [(r.answer, r.error, *([r.judged.right] if r.judged else [])) for r in report.results]
    same = _digest(json.dumps([protocol.hash, *given]))
    experiment = experiment_of(client, uri, root)
    if run := _find_run(client, experiment, same, "="):
        return run, False
    name = f"{protocol.program} on {protocol.dataset} with {protocol.lm_names}"
    begun = at - int(report.seconds * 1000)
    run = _open_run(client, experiment, name, "eval", same, begun)
    params = params_of(protocol.model_dump(mode="json"))
    client.log_batch(run, metrics_of(report_metrics(report), at), params)
    client.log_table(run, _table(report), "predictions.json")
    client.log_dict(run, publishable(_record(report)), "report.json")
    client.log_dict(run, publishable(report.summary()), "summary.json")
    client.set_terminated(run, end_time=at)
    return run, True


# --- What a run holds


def _find_run(client: MlflowClient, experiment: str, same: str, status: str) -> str | None:
    """Return the newest run with this tag that is finished ("=") or not ("!=")."""
    where = f"tags.`{_SAME}` = '{same}' and attributes.status {status} 'FINISHED'"
    found = client.search_runs([experiment], where, max_results=1)
    return str(found[0].info.run_id) if found else None


def _open_run(
    client: MlflowClient,
    experiment: str,
    name: str,
    kind: str,
    same: str,
    at: int,
    tags: Mapping[str, Any] | None = None,
) -> str:
    """Continue the unfinished run with this tag, or begin a new one; return its id."""
    if run := _find_run(client, experiment, same, "!="):
        client.update_run(run, status="RUNNING")
        return run
    ours = {"mlflow.source.name": "ga_dspy", "mlflow.source.type": "LOCAL", "ga_dspy.kind": kind}
    made = client.create_run(
        experiment,
        start_time=at,
        tags={**ours, _SAME: same, **(tags or {})},
        run_name=publishable(name),
    )
    return str(made.info.run_id)


def report_metrics(report: Report, questions: str = "test") -> dict[str, float | None]:
    """Return the scores of a report with their interval, and what a question cost, as metrics.

    If steps have LMs of their own, also what each step cost. The names begin with the `questions`
    measured on, so that runs of any kind meet in one chart.
    """
    summary, n = report.summary(), len(report.results)
    low, high = summary["ci95"]
    shares = ("em", "acc", "support_recall", "supported", "chained", "failures", "degraded")
    values = {
        "f1": report.f1, "f1_low": low, "f1_high": high, "judge": report.judged,
        **{name: summary[name] for name in shares},
        "calls": summary["lm_calls_mean"], "tokens": summary["tokens_mean"],
        "steps": summary["steps_mean"], "seconds": report.seconds / n,
        "money": None if report.usage.cost is None else report.usage.cost / n,
    }  # fmt: skip
    for step, usage in usage_by_step(report.results).items() if report.protocol.lms else ():
        values[f"{step}/calls"] = usage.calls / n
        values[f"{step}/tokens"] = usage.tokens / n
        values[f"{step}/money"] = None if usage.cost is None else usage.cost / n
    return {f"{questions}/{name}": value for name, value in values.items()}


def _record(report: Report) -> dict[str, Any]:
    """Return a report as JSON, without rounds and the passages' texts."""
    results = [result.model_dump(mode="json", exclude={"trace"}) for result in report.results]
    for result in results:
        result["passages"] = [{**passage, "text": ""} for passage in result["passages"]]
    return {"protocol": report.protocol.model_dump(mode="json"), "results": results}


def _table(report: Report, before: Report | None = None) -> dict[str, list[Any]]:
    """Return the answers and scores by column; with `before`, also those on the same questions."""
    rows = []
    for result, old in zip(report.results, (before or report).results, strict=True):
        row = {column: getattr(result, column) for column in _COLUMNS}
        row["gold"] = " | ".join(result.gold)
        if report.protocol.judge:
            row["judge"] = result.judged.right if result.judged else None
        if before is not None:
            row |= {"answer_before": old.answer, "f1_before": old.f1}
            row["f1_gained"] = result.f1 - old.f1
        rows.append(publishable(row))
    return {column: [row[column] for row in rows] for column in (rows[0] if rows else ())}


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _now() -> int:
    return int(time.time() * 1000)


# --- Traces: a few questions asked again under `mlflow.dspy.autolog`


def worst(report: Report, examples: Sequence[dspy.Example], most: int) -> list[dspy.Example]:
    """Return the questions with the worst answers: those without an answer first, then by F1."""
    scores = {result.id: result.f1 - bool(result.error) for result in report.results}
    return sorted(examples, key=lambda example: scores.get(example.id, -1.0))[:most]


def trace_questions(
    program: MultiHopProgram,
    examples: Sequence[dspy.Example],
    report: Report,
    *,
    uri: str,
    run_id: str,
) -> tuple[str, ...]:
    """Ask a program a few questions and trace each in the run of its evaluation.

    A trace costs about 80 kilobytes and more time than the program itself, so neither compiling nor
    evaluating writes any. The accepted answer is the trace's expectation; F1, exact match, what
    supports the answer, and the judge's verdict on the same answer are its feedback. If a question
    fails, its trace holds the error, and the next one is asked. The LM is the configured one.

    Args:
        program: Any program of this library.
        examples: What to ask, with `id`, `answer` or `answers`; pass only a handful.
        report: The evaluation in which they were asked.
        uri: The store.
        run_id: The run that the traces belong to.

    Returns:
        The ids of the traces, in order.

    Raises:
        TrackingFailed: The store was not reached; no further question is asked.
        MissingExtra: mlflow is not installed.
    """
    with reaching(uri) as client, pointed_at(uri), _autologging():
        import mlflow

        with mlflow.start_run(run_id=run_id, nested=True):
            return tuple(_trace(program, one, report, client, run_id) for one in examples)


@contextmanager
def _autologging() -> Iterator[None]:
    """Let MLflow trace DSPy, with secrets removed from what it records."""
    import mlflow
    from mlflow.dspy.callback import MlflowCallback

    class Callback(MlflowCallback):
        """MLflow's callback; an error's message and stack trace may name a key."""

        def _end_span(
            self,
            call_id: str,
            outputs: Any,
            exception: Exception | None = None,
            attributes: dict[str, Any] | None = None,
        ) -> None:
            if exception is not None:
                exception = RuntimeError(_error_text(exception))
            super()._end_span(call_id, outputs, exception, attributes)

    own, counts_usage = list(dspy.settings.callbacks), dspy.settings.track_usage
    mlflow.dspy.autolog(silent=True)
    others = [one for one in dspy.settings.callbacks if not isinstance(one, MlflowCallback)]
    try:
        with (
            dspy.context(callbacks=[*others, Callback()], track_usage=True),
            mlflow.tracing.configure(span_processors=[_remove_secrets]),
        ):
            yield
    finally:
        if not any(isinstance(one, MlflowCallback) for one in own):
            mlflow.dspy.autolog(disable=True)
        dspy.configure(track_usage=counts_usage)


def _remove_secrets(span: LiveSpan) -> None:
    span.set_inputs(publishable(span.inputs))
    span.set_outputs(publishable(span.outputs))
    for name, value in span.attributes.items():
        if not name.startswith("mlflow."):
            span.set_attribute(name, publishable({name: value})[name])


def _error_text(error: Exception) -> str:
    return str(publishable(f"{type(error).__name__}: {error}"))


def _trace(
    program: MultiHopProgram, example: dspy.Example, report: Report, client: MlflowClient, run: str
) -> str:
    """Ask one question, and log its page and how right the answer is; return the trace's id."""
    import mlflow

    prediction = None
    try:
        prediction = program(question=example.question)
        result = Result.from_prediction(example, prediction)
    except Exception as error:  # noqa: BLE001 - any error is the outcome of the question
        result = Result.from_failure(example, error)
    trace = str(mlflow.get_last_active_trace_id(thread_local=True))
    client.set_trace_tag(trace, "question", publishable(example.id))
    if prediction is not None:
        record = {"prediction": as_json(prediction), "question": example.question}
        client.log_text(run, page(**publishable(record)), f"traces/{trace}.html")
    accepted = publishable(list(result.gold))
    code = mlflow.entities.AssessmentSource("CODE", "ga_dspy")
    mlflow.log_expectation(
        trace_id=trace,
        name="expected_response",
        value=accepted[0] if len(accepted) == 1 else accepted,
        source=code,
    )
    scores = {"f1": result.f1, "em": result.em == 1.0, "supported": result.supported}
    for name, value in scores.items():
        if value is not None:
            mlflow.log_feedback(trace_id=trace, name=name, value=value, source=code)
    for same in report.results:
        if same.judged and (same.id, same.answer) == (result.id, result.answer):
            judge = mlflow.entities.AssessmentSource("LLM_JUDGE", report.protocol.judge)
            mlflow.log_feedback(trace_id=trace, name="judge", value=same.judged.right, source=judge)
    return trace
