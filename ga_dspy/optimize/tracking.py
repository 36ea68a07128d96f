"""Tracking in MLflow: compilations, evaluations, traces."""

from __future__ import annotations

import hashlib
import json
import logging
import platform
import re
import shlex
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from difflib import unified_diff
from pathlib import Path
from textwrap import wrap
from typing import TYPE_CHECKING, Any, NamedTuple

import dspy

from ga_dspy.artifact.files import FILES
from ga_dspy.errors import InputError, need_package
from ga_dspy.eval import Report
from ga_dspy.optimize.mlflow_store import (
    EXPERIMENT,
    ROOT,
    Run,
    Store,
    TrackingFailed,
    local_uri,
    pointed_at,
    publishable,
    publishable_text,
    reaching,
    report_metrics,
    report_record,
    store_uri,
)
from ga_dspy.optimize.plots import plot_candidates, plot_cost
from ga_dspy.optimize.registry import ARTIFACT, REPORT, Registration, log_program, register
from ga_dspy.optimize.trials import Candidate, Outcome
from ga_dspy.programs import MultiHopProgram
from ga_dspy.programs.calls import Ask, Request, Search, drive
from ga_dspy.programs.events import Tell
from ga_dspy.programs.program import as_json
from ga_dspy.secrets import without_password

if TYPE_CHECKING:
    from mlflow.entities import LiveSpan

_PARENT, _NOTE, _SOURCE_RUN = "mlflow.parentRunId", "mlflow.note.content", "mlflow.sourceRun"
_SAME = "ga_dspy.compilation"
_WIDTH = 100
_SENTENCE = re.compile(r"(?<=[.!?;:])\s+")
# What MLflow's server imports fetches a price list; without a network that can hang for ever.
_OFFLINE = "LITELLM_LOCAL_MODEL_COST_MAP=True"

# --- Following a compilation into MLflow, whatever becomes of the server


class MLflowTracker:
    """A `ga_dspy.optimize.trials.Tracker` over MLflow.

    A store that fails never costs the compilation anything but seconds: all that it was given so
    far is given again to the local store, which takes the rest as well, and that is said once.
    Where the local store fails too, that is said, and nothing further is tracked.

    Args:
        uri: Any tracking URI; by default `MLFLOW_TRACKING_URI`, else `mlflow.db` in `root`.
        experiment: Name of the experiment.
        name: Name in the model registry; by default that of the artifact's folder.
        root: The folder of the artifacts, and of the local store.
        index: A retrieval index to pack with the program, so that it can be served by itself.
        say: Takes what the user should know; by default it is logged as a warning.

    Attributes:
        notices: What was said.

    Raises:
        MissingExtra: mlflow or matplotlib is not installed.
        InputError: `name` has a character that means something in "models:/…", or there is no
            `index`.
    """

    def __init__(
        self,
        uri: str | None = None,
        experiment: str = EXPERIMENT,
        name: str | None = None,
        root: Path = ROOT,
        *,
        index: Path | None = None,
        say: Callable[[str], None] | None = None,
    ) -> None:
        for package in ("mlflow", "matplotlib"):
            need_package(package, "optimize")
        if name is not None and (not name.strip() or set(name) & set("/:@")):
            raise InputError(
                f"the name {name!r} for the registry",
                expected="a name without '/', ':' and '@'",
                remedy="pass a name such as 'hotpotqa'",
            )
        if index is not None and not index.is_dir():
            raise InputError(
                f"there is no index at {index}",
                expected="the folder of a built index",
                remedy="build one with: ga-dspy index build … --out DIR",
            )
        self.uri, self.experiment, self.root = store_uri(uri, root), experiment, root
        self.name, self.index = name, index
        self.notices: list[str] = []
        self._say = say or logging.getLogger(__name__).warning
        self._one_at_a_time = threading.RLock()
        self._begun: tuple[str, str, int] | None = None
        self._events: list[_Event] = []
        self._store: Store | None = None
        self._run: _CompilationRun | None = None

    @property
    def run_id(self) -> str | None:
        """The run of the compilation; None before it started, or where nothing is tracked."""
        return self._run.id if self._run else None

    @property
    def registration(self) -> Registration | None:
        """The compiled program in the registry, once the compilation is finished."""
        return self._run.registration if self._run else None

    @property
    def how_to_open(self) -> str:
        """How to look at the run: the page of a server, or the command that starts one."""
        if self._store is None:
            return ""
        where, experiment = without_password(self._store.uri), self._store.experiment_id
        if where.startswith(("http://", "https://")):
            return f"{where.rstrip('/')}/#/experiments/{experiment}/runs/{self.run_id or ''}"
        return f"{_OFFLINE} mlflow ui --backend-store-uri {shlex.quote(where)}"

    def start(self, name: str, setup: dict[str, Any]) -> None:
        """The compilation called `name` begins, or goes on after it was interrupted."""
        same = json.dumps([platform.node(), name, setup], default=str)
        self._begun = name, hashlib.sha256(same.encode()).hexdigest(), _now()
        self._open(self.uri)
        self._note(lambda run, at: run.start(setup))

    def candidate(self, c: Candidate) -> None:
        """A program was tried."""
        self._note(lambda run, at: run.candidate(c, at))

    def finish(self, outcome: Outcome) -> None:
        """It came to its end; the artifact is written."""
        self._note(lambda run, at: run.finish(outcome, self.name, self.index, at))

    def fail(self, error: BaseException) -> None:
        """It ended without an outcome."""
        self._note(lambda run, at: run.fail(error, at))

    def _note(self, event: Callable[[_CompilationRun, int], None]) -> None:
        at = _now()
        with self._one_at_a_time:
            self._events.append((event, at))
            self._write(self._events[-1:])

    def _write(self, events: list[_Event]) -> None:
        if self._store is None or self._begun is None:
            return
        try:
            with reaching(self._store.uri):
                self._run = self._run or _CompilationRun(self._store, *self._begun)
                for event, at in events:
                    event(self._run, at)
        except TrackingFailed as failure:
            self._fall_back(failure)

    def _open(self, uri: str) -> None:
        try:
            self._store = Store(uri, self.experiment, self.root)
        except TrackingFailed as failure:
            self._fall_back(failure)
        else:
            self._write(self._events)

    def _fall_back(self, failure: TrackingFailed) -> None:
        self._store, self._run, local = None, None, local_uri(self.root)
        last, self.uri = failure.uri == local, local
        goes_on = f"the compilation goes on and is tracked in {local}"
        ends = "nothing is tracked from here on, the compilation goes on"
        self.notices.append(f"{failure}; {ends if last else goes_on}")
        self._say(self.notices[-1])
        if not last:
            self._open(local)


class _CompilationRun(Run):
    """A compilation in one store: a run for the whole, a nested one for each candidate.

    One that was interrupted goes on in the run it has; its candidates are not logged twice.
    """

    def __init__(self, store: Store, name: str, same: str, at: int) -> None:
        begun = store.find(f"tags.`{_SAME}` = '{same}' and attributes.status != 'FINISHED'")
        super().__init__(store, name, "compile", at, {_SAME: same}, begun)
        self.registration: Registration | None = None
        self._elapsed = 0.0

    def start(self, setup: dict[str, Any]) -> None:
        """How it is compiled, and from which questions."""
        self.parameters({name: value for name, value in setup.items() if name != "data"})
        self.json("parameters.json", setup)
        self.data(setup.get("data", {}))

    def candidate(self, c: Candidate, at: int) -> None:
        """A nested run with its prompts, and a point of the curves of the whole."""
        same = f"{self.id} {c.number}"
        there = self.store.find(f"tags.`{_SAME}` = '{same}'")
        if there and there.status == "FINISHED":
            return
        began = at - int(1000 * (c.seconds - self._elapsed))
        self._elapsed = c.seconds
        tags = {_PARENT: self.id, _SAME: same, _NOTE: publishable_text(c.description)}
        nested = Run(self.store, f"candidate {c.number}", "candidate", began, tags, there)
        measured = ("score", "best", "calls", "tokens", "seconds", "failed")
        nested.parameters({"prompts": c.mark, "description": c.description})
        nested.text("prompts.txt", _joined(c.prompts or {}))
        nested.metrics({name: getattr(c, name) for name in measured}, at)
        nested.end(at)
        curves = {"candidate_score": c.score, "best_score": c.best, "spent_tokens": c.tokens}
        self.metrics(curves, at, step=c.number)

    def finish(self, outcome: Outcome, name: str | None, index: Path | None, at: int) -> None:
        """What it bought, what it cost, the program itself, and its place in the registry."""
        summary, artifact = outcome.summary(), outcome.artifact
        before, after = outcome.prompts_before, outcome.prompts_after
        self.parameters({"recipe": outcome.recipe, "held_out": outcome.held_out, "lm": outcome.lms})
        facts = ("p_value", "better", "calls", "tokens", "seconds", "money")
        numbers = {
            **report_metrics(outcome.before, "_before"),
            **report_metrics(outcome.after, "_after"),
            **outcome.shortfall,
            "f1_gained": outcome.after.f1 - outcome.before.f1,
            **{name: getattr(outcome, name) for name in facts},
            "replayed_calls": outcome.replayed,
            "candidates": len(outcome.candidates),
            "dropped_demos": len(outcome.dropped_demos),
        }
        self.metrics(numbers, at)
        self.tag("ga_dspy.verdict", outcome.verdict)
        if outcome.stopped:
            self.tag("ga_dspy.stopped", outcome.stopped)
        self.text("prompts/before.txt", _joined(before))
        self.text("prompts/after.txt", _joined(after))
        self.text("prompts/difference.txt", prompts_difference(before, after))
        self.json("summary.json", summary)
        self.predictions(outcome.after, outcome.before)
        self.json("reports/before.json", report_record(outcome.before))
        self.json(REPORT, report_record(outcome.after))
        if outcome.candidates:
            scores = plot_candidates(outcome.candidates)
            self.client.log_figure(self.id, scores, "plots/score_by_candidate.png")
        self.client.log_figure(self.id, plot_cost(outcome), "plots/f1_against_cost.png")
        for file in FILES:
            self.client.log_artifact(self.id, str(artifact / file), ARTIFACT)
        corpus = outcome.after.protocol.corpus
        model = log_program(self.store, self.id, artifact, index, corpus)
        # MLflow's addresses give "/", ":" and "@" a meaning, so names have none of them.
        default = re.sub(r"[/:@]+", "-", artifact.resolve().name).strip() or "ga-dspy"
        self.registration = register(self.store, name or default, self.id, model, outcome)
        self.tag(_NOTE, _note(outcome, summary, self.registration))
        self.end(at)

    def fail(self, error: BaseException, at: int) -> None:
        """Close the run with what ended it."""
        text = f"{type(error).__name__}: {error}"
        self.tag("ga_dspy.error", text, longest=500)
        self.tag(_NOTE, text, longest=5_000)
        self.end(at, "FAILED" if isinstance(error, Exception) else "KILLED")


_Event = tuple[Callable[[_CompilationRun, int], None], int]


def _note(outcome: Outcome, summary: dict[str, Any], registration: Registration) -> str:
    """The first thing one reads in the run: Markdown."""
    rows = []
    for when in ("before", "after"):
        low, high = summary[f"ci95_{when}"]
        f1, em = summary[f"f1_{when}"], summary[f"em_{when}"]
        rows.append(f"| {when} | {f1:.1f} | {low:.1f} – {high:.1f} | {em:.1f} |")
    stopped = f", stopped early: {publishable_text(outcome.stopped)}" if outcome.stopped else ""
    verdict = (
        f"**{outcome.verdict}** (p = {outcome.p_value:.3g}, {outcome.basis}), by "
        f"{outcome.recipe}{stopped}"
    )
    table = ["| | F1 | 95 % | EM |", "|---|---:|---:|---:|", *rows]
    crowned = "champion" if registration.champion else "not champion"
    cost = (
        f"{outcome.calls:,} LM calls, {outcome.tokens:,} tokens, {outcome.seconds:,.0f} s. "
        f"{registration.name} version {registration.version}: {crowned} ({registration.reason})."
    )
    return "\n".join([verdict, "", *table, "", cost])


def _joined(prompts: Mapping[str, str]) -> str:
    return "\n\n".join(f"=== {name} ===\n{text}" for name, text in prompts.items())


def prompts_difference(before: Mapping[str, str], after: Mapping[str, str]) -> str:
    """What compiling did to the prompts of each predictor: a unified diff, a sentence a line.

    >>> print(prompts_difference({"answer": "Be brief."}, {"answer": "Be brief. Copy a span."}))
    === answer ===
      Be brief.
    + Copy a span.
    <BLANKLINE>
    """
    parts = []
    for name in dict.fromkeys([*before, *after]):
        old, new = before.get(name, ""), after.get(name, "")
        if old == new:
            parts.append(f"=== {name} === (unchanged)\n")
            continue
        diff = list(unified_diff(_lines(old), _lines(new), n=3, lineterm=""))
        hunks = diff[3:]  # without the two file names and the first position
        marked = [
            "  […]" if line.startswith("@@") else f"{line[0]} {line[1:]}".rstrip() for line in hunks
        ]
        parts.append("\n".join([f"=== {name} ===", *marked, ""]))
    return "\n".join(parts)


def _lines(text: str) -> list[str]:
    sentences = (s for line in text.splitlines() for s in _SENTENCE.split(line))
    return [piece for sentence in sentences for piece in wrap(sentence, _WIDTH) or [""]]


def _now() -> int:
    return int(time.time() * 1000)


# --- An evaluation as one run


class Tracked(NamedTuple):
    """Where an evaluation was logged."""

    uri: str
    run_id: str


def track_evaluation(
    report: Report,
    *,
    uri: str | None = None,
    experiment: str = EXPERIMENT,
    name: str | None = None,
    root: Path = ROOT,
    say: Callable[[str], None] | None = None,
) -> Tracked | None:
    """Log a finished evaluation: its protocol, its scores with intervals, every prediction.

    Args:
        report: The evaluation.
        uri: Any tracking URI; by default `MLFLOW_TRACKING_URI`, else `mlflow.db` in `root`.
        experiment: Name of the experiment.
        name: Name of the run; by default program, dataset and LM.
        root: The folder of the local store, which also takes over from one that fails.
        say: Takes what the user should know; by default it is logged as a warning.

    Returns:
        Where it is; None where the local store failed too, which is said.

    Raises:
        MissingExtra: mlflow is not installed.
    """
    say = say or logging.getLogger(__name__).warning
    for place in dict.fromkeys([store_uri(uri, root), local_uri(root)]):
        try:
            store = Store(place, experiment, root)
            with reaching(store.uri):
                return Tracked(place, _log(store, report, name))
        except TrackingFailed as failure:
            last = place == local_uri(root)
            so = "the evaluation is not tracked" if last else f"it is kept in {local_uri(root)}"
            say(f"{failure}; {so}")
    return None


def _log(store: Store, report: Report, name: str | None) -> str:
    protocol, at = report.protocol, _now()
    name = name or f"{protocol.program} on {protocol.dataset} with {protocol.lm}"
    run = Run(store, name, "eval", at - int(report.seconds * 1000))
    facts = protocol.model_dump(mode="json")
    run.parameters(facts)
    asked = ("dataset", "source", "sha256", "questions_sha256", "n", "limit", "seed")
    run.data({"eval": {key: facts[key] for key in asked}})
    run.metrics({**report_metrics(report), "seconds": report.seconds}, at)
    run.predictions(report)
    run.json("report.json", report_record(report))
    run.json("summary.json", report.summary())
    run.end(at)
    return run.id


# --- Traces of a few questions: a span a step, with what went in and what came out
#
# Meant for a sample. A trace costs some 30 kilobytes and more time than the program itself, so
# neither compiling nor evaluating writes any.


def traced_sample(
    program: MultiHopProgram,
    questions: Iterable[str],
    *,
    uri: str | None = None,
    experiment: str = EXPERIMENT,
    root: Path = ROOT,
    run_id: str | None = None,
) -> tuple[str, ...]:
    """Ask a program a few questions and trace each: "retrieve 1", "read 1", "judge 1", "answer".

    While it runs, MLflow's tracking URI is that of the store; it is put back at the end. The LM
    is the caller's. A question that fails has a trace with the error, and the next one is asked.

    Args:
        program: Any program of this library.
        questions: What to ask; keep it to a handful.
        uri: Any tracking URI; by default `MLFLOW_TRACKING_URI`, else `mlflow.db` in `root`.
        experiment: Name of the experiment.
        root: The folder of the local store.
        run_id: The run that the traces belong to.

    Returns:
        The ids of the traces, in order.

    Raises:
        TrackingFailed: The store was not reached before the first question.
        MissingExtra: mlflow is not installed.
    """
    store = Store(store_uri(uri, root), experiment, root)
    with pointed_at(store.uri):
        return tuple(_Trace(program, question, store, run_id).ask() for question in questions)


class _Trace:
    """One question, asked with every request of the program inside a span of its own."""

    def __init__(
        self, program: MultiHopProgram, question: str, store: Store, run: str | None
    ) -> None:
        from mlflow import start_span_no_context

        self._program, self._question, self._store = program, question, store
        self._names = {id(predictor): name for name, predictor in program.named_predictors()}
        self._step, self._searched = 0, False
        with reaching(store.uri):
            self._root = start_span_no_context(
                type(program).__name__,
                span_type="AGENT",
                inputs={"question": publishable_text(question)},
                metadata={_SOURCE_RUN: run} if run else None,
                experiment_id=store.experiment_id,
            )

    def ask(self) -> str:
        """Ask; the id of the trace."""
        try:
            prediction = drive(
                self._program.converse(self._program.start(self._question)), self._run
            )
        except Exception as error:  # noqa: BLE001 - any error is shown in the trace, as its outcome
            self._end(self._root, error)
        else:
            self._end(self._root, as_json(prediction))
        return str(self._root.trace_id)

    def _run(self, request: Request) -> Any:
        from mlflow import start_span_no_context

        if isinstance(request, Tell):
            return request.run()
        kind = "RETRIEVER" if isinstance(request, Search) else "LLM"
        name, inputs = self._name(request), publishable(_inputs(request))
        with reaching(self._store.uri):
            span = start_span_no_context(name, kind, self._root, inputs=inputs)
        meter = request.meter if isinstance(request, Ask) else None
        before = (meter.calls, meter.tokens) if meter else (0, 0)
        try:
            result = request.run()
        except Exception as error:
            self._end(span, error)
            raise
        if meter:
            cost = {"calls": meter.calls - before[0], "tokens": meter.tokens - before[1]}
            span.set_attributes(cost)
        self._end(span, _outputs(result))
        return result

    def _name(self, request: Search | Ask) -> str:
        """What a request does and the step it belongs to.

        A search after a reading opens a step; a search after a search that brought nothing new
        (the query was made anew) stays in it.
        """
        if isinstance(request, Search):
            self._step += not self._searched
            self._searched = True
            return f"retrieve {self._step}"
        self._searched = False
        predictor = self._names.get(id(request.predictor), "ask")
        return predictor if predictor == "answer" else f"{predictor} {self._step}"

    def _end(self, span: LiveSpan, outcome: object) -> None:
        with reaching(self._store.uri):
            if isinstance(outcome, Exception):
                text = publishable_text(f"{type(outcome).__name__}: {outcome}")
                span.end(outputs={"error": text}, status="ERROR")
            else:
                span.end(outputs=publishable(outcome))


def _inputs(request: Search | Ask) -> dict[str, Any]:
    if isinstance(request, Search):
        return {"query": request.query, "k": request.k}
    return {**request.inputs, **({"rollout": request.rollout} if request.rollout else {})}


def _outputs(result: Any) -> object:
    if isinstance(result, dspy.Prediction):
        return {name: str(value) for name, value in result.items()}
    # The form in which MLflow shows documents.
    return [{"page_content": p.text, "metadata": {"title": p.title}, "id": p.id} for p in result]
