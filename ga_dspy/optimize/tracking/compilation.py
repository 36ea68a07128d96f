"""A compilation as MLflow shows it: one run for the whole, a nested one for each candidate."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from ga_dspy.artifact.folder import FILES
from ga_dspy.optimize.plots import plot_candidates, plot_cost
from ga_dspy.optimize.record import Candidate, Outcome
from ga_dspy.optimize.tracking.difference import prompts_difference
from ga_dspy.optimize.tracking.entries import (
    log_data,
    log_metrics,
    log_parameters,
    predictions,
    report_metrics,
    report_record,
)
from ga_dspy.optimize.tracking.model import ARTIFACT, REPORT, Registration, log_program, register
from ga_dspy.optimize.tracking.store import Store
from ga_dspy.optimize.tracking.withheld import publishable, publishable_text

_PARENT, _NOTE = "mlflow.parentRunId", "mlflow.note.content"


class CompilationRun:
    """Writes a compilation into one store, as it goes; times are in milliseconds.

    Args:
        store: Where to.
        registered: Name in the model registry; by default that of the artifact's folder.
        index: A retrieval index to pack with the compiled program.
    """

    def __init__(self, store: Store, registered: str | None = None, index: Path | None = None):
        self.store, self.client = store, store.client
        self.registered, self.index = registered, index
        self.id = ""
        self.registration: Registration | None = None
        self._elapsed = 0.0

    def start(
        self, name: str, parameters: dict[str, Any], data: dict[str, dict[str, Any]], at: int
    ) -> None:
        """Open the run."""
        self.id = self._open(name, {"ga_dspy.kind": "compile"}, at)
        log_parameters(self.client, self.id, {"parameters": parameters})
        self._json("parameters.json", parameters)
        log_data(self.client, self.id, data)

    def candidate(self, c: Candidate, at: int) -> None:
        """A nested run, and a point of the curves of the whole."""
        tags = {_PARENT: self.id, _NOTE: publishable_text(c.description)}
        began = at - int(1000 * (c.seconds - self._elapsed))
        self._elapsed = c.seconds
        nested = self._open(f"candidate {c.number}", {**tags, "ga_dspy.kind": "candidate"}, began)
        spent = {"calls": c.calls, "tokens": c.tokens, "seconds": c.seconds}
        log_metrics(self.client, nested, {"score": c.score, "best": c.best, **spent}, at)
        self.client.set_terminated(nested, end_time=at)
        curves = {"candidate_score": c.score, "best_score": c.best, "spent_tokens": c.tokens}
        log_metrics(self.client, self.id, curves, at, step=c.number)

    def finish(self, outcome: Outcome, at: int) -> None:
        """What it bought, what it cost, the program itself, and its place in the registry."""
        self._numbers(outcome, at)
        summary = outcome.summary()
        self._texts(outcome, summary)
        self._tables(outcome)
        self._pictures(outcome)
        for file in FILES:
            self.client.log_artifact(self.id, str(outcome.artifact / file), ARTIFACT)
        model = log_program(self.store, self.id, outcome.artifact, self.index)
        name = self.registered or _model_name(outcome.artifact.resolve().name)
        self.registration = register(
            self.store, name, self.id, model, outcome.after, better=outcome.better
        )
        self._tag(_NOTE, _note(outcome, summary, self.registration))
        self.client.set_terminated(self.id, "FINISHED", end_time=at)

    def fail(self, error: BaseException, at: int) -> None:
        """Close the run with what ended it."""
        said = publishable_text(f"{type(error).__name__}: {error}")
        self._tag("ga_dspy.error", said[:500])
        self._tag(_NOTE, said[:5_000])
        ended = "FAILED" if isinstance(error, Exception) else "KILLED"
        self.client.set_terminated(self.id, ended, end_time=at)

    def _open(self, name: str, tags: dict[str, str], at: int) -> str:
        source = {"mlflow.source.name": "ga_dspy", "mlflow.source.type": "LOCAL"}
        run = self.client.create_run(
            self.store.experiment_id, start_time=at, tags={**source, **tags}, run_name=name
        )
        return str(run.info.run_id)

    def _numbers(self, outcome: Outcome, at: int) -> None:
        told = {"recipe": outcome.recipe, "held_out": outcome.held_out, "lm": outcome.lms}
        log_parameters(self.client, self.id, told)
        bought = {
            **report_metrics(outcome.before, "_before"),
            **report_metrics(outcome.after, "_after"),
            "f1_gained": outcome.after.f1 - outcome.before.f1,
            "p_value": outcome.p_value,
            "better": outcome.better,
        }
        cost = {
            "calls": outcome.calls, "tokens": outcome.tokens, "seconds": outcome.seconds,
            "money": outcome.money, "replayed_calls": outcome.replayed,
            "candidates": len(outcome.candidates), "dropped_demos": len(outcome.dropped_demos),
        }  # fmt: skip
        log_metrics(self.client, self.id, {**bought, **cost}, at)
        self._tag("ga_dspy.verdict", outcome.verdict)
        if outcome.stopped:
            self._tag("ga_dspy.stopped", publishable_text(outcome.stopped))

    def _texts(self, outcome: Outcome, summary: dict[str, Any]) -> None:
        before, after = outcome.prompts_before, outcome.prompts_after
        self._text("prompts/before.txt", _joined(before))
        self._text("prompts/after.txt", _joined(after))
        self._text("prompts/difference.txt", prompts_difference(before, after))
        self._json("summary.json", summary)

    def _tables(self, outcome: Outcome) -> None:
        table = predictions(outcome.after, outcome.before)
        self.client.log_table(self.id, table, "predictions.json")
        self._json("reports/before.json", report_record(outcome.before))
        self._json(REPORT, report_record(outcome.after))

    def _pictures(self, outcome: Outcome) -> None:
        if outcome.candidates:
            figure = plot_candidates(outcome.candidates)
            self.client.log_figure(self.id, figure, "plots/score_by_candidate.png")
        self.client.log_figure(self.id, plot_cost(outcome), "plots/f1_against_cost.png")

    def _text(self, path: str, text: str) -> None:
        self.client.log_text(self.id, publishable_text(text), path)

    def _json(self, path: str, value: object) -> None:
        text = json.dumps(publishable(value), ensure_ascii=False, indent=2)
        self.client.log_text(self.id, text, path)

    def _tag(self, name: str, value: str) -> None:
        self.client.set_tag(self.id, name, value)


def _note(outcome: Outcome, summary: dict[str, Any], registration: Registration) -> str:
    """The first thing one reads in the run: Markdown."""
    rows = [_row(when, summary) for when in ("before", "after")]
    crowned = "champion" if registration.champion else "not champion"
    return "\n".join(
        [
            f"**{outcome.verdict}** (p = {outcome.p_value:.3g}, {len(outcome.after.results)} "
            f"questions of {outcome.held_out}), by {outcome.recipe}"
            + (f", stopped early: {publishable_text(outcome.stopped)}" if outcome.stopped else ""),
            "",
            "| | F1 | 95 % | EM |",
            "|---|---:|---:|---:|",
            *rows,
            "",
            f"{outcome.calls:,} LM calls, {outcome.tokens:,} tokens, {outcome.seconds:,.0f} s. "
            f"{registration.name} version {registration.version}: {crowned} "
            f"({registration.reason}).",
        ]
    )


def _row(when: str, summary: dict[str, Any]) -> str:
    low, high = summary[f"ci95_{when}"]
    f1, em = summary[f"f1_{when}"], summary[f"em_{when}"]
    return f"| {when} | {f1:.1f} | {low:.1f} – {high:.1f} | {em:.1f} |"


def _joined(prompts: dict[str, str]) -> str:
    return "\n\n".join(f"=== {name} ===\n{text}" for name, text in prompts.items())


def _model_name(name: str) -> str:
    """MLflow's addresses give "/", ":" and "@" a meaning, so names have none of them."""
    return re.sub(r"[/:@]+", "-", name).strip() or "ga-dspy"
