"""Tracking in MLflow: compilations and evaluations."""

from __future__ import annotations

import hashlib
import json
import logging
import platform
import re
import shlex
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from ga_dspy.artifact.artifact import FILES
from ga_dspy.errors import InputError, need_package
from ga_dspy.eval import Report
from ga_dspy.optimize.demos import Prompt
from ga_dspy.optimize.mlflow_store import (
    ROOT,
    Run,
    Store,
    TrackingFailed,
    local_uri,
    pointed_at,
    publishable,
    reaching,
    report_metrics,
    report_record,
    store_uri,
)
from ga_dspy.optimize.registry import (
    ARTIFACT,
    REPORT,
    log_program,
    register,
    register_prompts,
)
from ga_dspy.optimize.trials import Candidate, Outcome
from ga_dspy.secrets import without_password

_COSTS = ("calls", "replayed", "tokens", "seconds", "money")
_PARENT, _NOTE = "mlflow.parentRunId", "mlflow.note.content"
_SAME = "ga_dspy.same"
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
        root: The folder of the artifacts, and of the local store.
        index: A retrieval index to pack with the program, so that it can be served by itself.
        graph: The graph of its passages, to pack with a program that searches one.
        say: Takes what the user should know; by default it is logged as a warning.

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
    def model_id(self) -> str | None:
        """The compiled program as a logged model; None where it is the one that was given."""
        return self._run.model if self._run else None

    @property
    def place(self) -> str:
        """Where in the registry the compiled program is, in a line."""
        return self._run.place if self._run else ""

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
        if setup.get("graph") and self.index is not None and self.graph is None:
            raise InputError(
                "an index to pack without the graph that the program searches",
                expected="both: the registered model could answer nothing",
                remedy="pass graph=… (on the command line --graph), or pack no index",
            )
        same = json.dumps([platform.node(), name, setup], default=str)
        name = f"{setup['program']} by {name}" if "program" in setup else name
        self._begun = name, hashlib.sha256(same.encode()).hexdigest(), _now()
        self._open(self.uri)
        self._note(lambda run, at: run.start(setup))

    def candidate(self, c: Candidate) -> None:
        """A program was tried."""
        self._note(lambda run, at: run.candidate(c, at))

    def finish(self, outcome: Outcome) -> None:
        """It came to its end; the artifact is written."""
        self._note(lambda run, at: run.finish(outcome, self.index, self.graph, at))

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
            self._store = Store(uri, self.root)
        except TrackingFailed as failure:
            self._fall_back(failure)
        else:
            self._write(self._events)

    def _fall_back(self, failure: TrackingFailed) -> None:
        self._store, self._run, local = None, None, local_uri(self.root)
        last, self.uri = failure.uri == local, local
        goes_on = f"the compilation goes on and is tracked in {local}"
        ends = "nothing is tracked from here on, the compilation goes on"
        self._say(f"{failure}; {ends if last else goes_on}")
        if not last:
            self._open(local)


class _CompilationRun(Run):
    """A compilation in one store: a run for the whole, a nested one for each candidate.

    One that was interrupted goes on in the run it has; its candidates are not logged twice.
    """

    def __init__(self, store: Store, name: str, same: str, at: int) -> None:
        begun = store.find(f"tags.`{_SAME}` = '{same}' and attributes.status != 'FINISHED'")
        super().__init__(store, name, "compile", at, {_SAME: same}, begun)
        self.place = "no version registered: the program is as it was given"
        self.model: str | None = None
        self._elapsed = 0.0
        self._recipe: dict[str, Any] = {}

    def start(self, setup: dict[str, Any]) -> None:
        """How it is compiled, and from which questions."""
        self._recipe = {name: setup.get(name) for name in ("recipe", "parameters")}
        self.parameters({name: value for name, value in setup.items() if name != "data"})
        self.json("parameters.json", setup)
        data = setup.get("data", {})
        self.data({role: data[role] for role in data if role != setup.get("held_out")})

    def candidate(self, c: Candidate, at: int) -> None:
        """A nested run with its settings and prompts, and a point of the curves of the whole."""
        same = f"{self.id} {c.number}"
        there = self.store.find(f"tags.`{_SAME}` = '{same}'")
        if there and there.status == "FINISHED":
            return
        began = at - int(1000 * (c.seconds - self._elapsed))
        self._elapsed, prompts = c.seconds, c.prompts or {}
        tags = {_PARENT: self.id, _SAME: same}
        name = publishable(f"{c.number}: {c.description}")
        nested = Run(self.store, name, "candidate", began, tags, there)
        told = {
            role: {"demos": len(told.demos), "instruction": _digest(told.instruction)}
            for role, told in prompts.items()
        }
        nested.parameters({**self._recipe, "prompts": c.mark, **told})
        nested.text("prompts.txt", _joined(prompts))
        spent = {f"cost/{name}": getattr(c, name) for name in ("calls", "tokens", "seconds")}
        scored = {"validation/score": c.score, "validation/failures": c.failed}
        nested.metrics({**scored, **spent}, at)
        nested.end(at)
        curves = {"candidates/score": c.score, "candidates/best": c.best}
        self.metrics({**curves, "candidates/tokens": c.tokens}, at, step=c.number)

    def finish(self, outcome: Outcome, index: Path | None, graph: Path | None, at: int) -> None:
        """What it bought, what it cost, its prompts, the program and its place in the registry."""
        artifact, held_out = outcome.artifact, outcome.held_out
        self.tag("ga_dspy.verdict", outcome.verdict)
        self.json("summary.json", outcome.summary())
        self.questions(outcome.after, held_out)
        self.predictions(outcome.after, outcome.before)
        self.json("reports/before.json", report_record(outcome.before))
        self.json(REPORT, report_record(outcome.after))
        for file in FILES:
            self.client.log_artifact(self.id, str(artifact / file), ARTIFACT)
        # MLflow's addresses give "/", ":" and "@" a meaning, so names have none of them.
        name = re.sub(r"[/:@]+", "-", artifact.resolve().name).strip() or "ga-dspy"
        gained = f"by {outcome.recipe}: {outcome.verdict}"
        register_prompts(self.store, name, outcome.prompts_before, "as given")
        prompts = register_prompts(self.store, name, outcome.prompts_after, gained)
        if not outcome.unchanged:
            corpus = outcome.after.protocol.corpus
            note = _note(outcome)
            try:
                self.model = log_program(self.store, self.id, artifact, index, corpus, graph)
                self.place = register(
                    self.store, name, self.id, self.model, outcome, note, packed=index is not None
                )
            except InputError as fault:
                self.place = f"not registered, for it could not be served: {fault}"
        with pointed_at(self.store.uri):  # where a link looks for the run
            for prompt in prompts:
                self.client.link_prompt_version_to_run(self.id, prompt)
                if self.model:
                    version = str(prompt.version)
                    self.client.link_prompt_version_to_model(prompt.name, version, self.model)
        bought = {
            **{f"cost/{part}": getattr(outcome, part) for part in _COSTS},
            **{f"gain/{part}": getattr(outcome, part) for part in ("p_value", "better")},
            "gain/f1": outcome.after.f1 - outcome.before.f1,
            "gain/dropped_demos": len(outcome.dropped_demos),
            "candidates/number": len(outcome.candidates),
            **outcome.shortfall,
        }
        self.metrics({**report_metrics(outcome.before, "baseline"), **bought}, at)
        self.metrics(report_metrics(outcome.after, held_out), at, model=self.model)
        self.tag(_NOTE, f"{_note(outcome)}\n\n{self.place}")
        self.end(at)

    def fail(self, error: BaseException, at: int) -> None:
        """Close the run with what ended it."""
        text = f"{type(error).__name__}: {error}"
        self.tag("ga_dspy.error", text, longest=500)
        self.tag(_NOTE, text, longest=5_000)
        self.end(at, "FAILED" if isinstance(error, Exception) else "KILLED")


_Event = tuple[Callable[[_CompilationRun, int], None], int]


def _note(outcome: Outcome) -> str:
    """The first thing one reads in the run: Markdown."""
    rows = []
    for when, report in (("before", outcome.before), ("after", outcome.after)):
        low, high = report.ci95
        rows.append(f"| {when} | {report.f1:.1f} | {low:.1f} – {high:.1f} | {report.em:.1f} |")
    stopped = f", stopped early: {publishable(outcome.stopped)}" if outcome.stopped else ""
    by = f"(p = {outcome.p_value:.3g}, {outcome.basis}), by {outcome.recipe}{stopped}"
    table = ["| | F1 | 95 % | EM |", "|---|---:|---:|---:|", *rows]
    cost = f"{outcome.calls:,} LM calls, {outcome.tokens:,} tokens, {outcome.seconds:,.0f} s."
    return "\n".join([f"**{outcome.verdict}** {by}", "", *table, "", cost])


def _joined(prompts: Mapping[str, Prompt]) -> str:
    return "\n\n".join(f"=== {name} ===\n{prompt}" for name, prompt in prompts.items())


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def _now() -> int:
    return int(time.time() * 1000)


# --- An evaluation as one run


class Tracked(NamedTuple):
    """Where an evaluation was logged: the store, the run, and whether that was made now."""

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

    One that is there already, with the same answers and verdicts on them, is not logged again.

    Args:
        report: The evaluation.
        uri: Any tracking URI; by default `MLFLOW_TRACKING_URI`, else `mlflow.db` in `root`.
        root: The folder of the local store, which takes it over from one that fails.
        say: Takes what the user should know; by default it is logged as a warning.

    Returns:
        Where it is; None where the local store failed too, which is said.

    Raises:
        MissingExtra: mlflow is not installed.
    """
    say = say or logging.getLogger(__name__).warning
    for place in dict.fromkeys([store_uri(uri, root), local_uri(root)]):
        try:
            store = Store(place, root)
            with reaching(store.uri):
                return Tracked(place, *_log(store, report))
        except TrackingFailed as failure:
            last = place == local_uri(root)
            so = "the evaluation is not tracked" if last else f"it is kept in {local_uri(root)}"
            say(f"{failure}; {so}")
    return None


def _log(store: Store, report: Report) -> tuple[str, bool]:
    """The run of an evaluation, and whether it was made now."""
    protocol, at = report.protocol, _now()
    given = [(r.answer, r.error, *([r.judged.right] if r.judged else [])) for r in report.results]
    same = _digest(json.dumps([protocol.hash, *given]))
    there = store.find(f"tags.`{_SAME}` = '{same}'")
    if there and there.status == "FINISHED":
        return str(there.run_id), False
    name = f"{protocol.program} on {protocol.dataset} with {protocol.lm_names}"
    began = at - int(report.seconds * 1000)
    run = Run(store, name, "eval", began, {_SAME: same}, there)
    run.parameters(protocol.model_dump(mode="json"))
    run.questions(report, "test")
    run.metrics(report_metrics(report), at)
    run.predictions(report)
    run.json("report.json", report_record(report))
    run.json("summary.json", report.summary())
    run.end(at)
    return run.id, True
