"""An evaluation as one run."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from ga_dspy.eval import Report
from ga_dspy.optimize.tracking.entries import (
    log_data,
    log_metrics,
    log_parameters,
    predictions,
    report_metrics,
    report_record,
)
from ga_dspy.optimize.tracking.store import (
    EXPERIMENT,
    ROOT,
    Store,
    TrackingFailed,
    local_uri,
    store_uri,
)
from ga_dspy.optimize.tracking.withheld import publishable


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
            with store.reached():
                return Tracked(place, _log(store, report, name))
        except TrackingFailed as failure:
            last = place == local_uri(root)
            so = "the evaluation is not tracked" if last else f"it is kept in {local_uri(root)}"
            say(f"{failure}; {so}")
    return None


def _log(store: Store, report: Report, name: str | None) -> str:
    client, protocol = store.client, report.protocol
    now = int(time.time() * 1000)
    run = client.create_run(
        store.experiment_id,
        start_time=now - int(report.seconds * 1000),
        run_name=name or f"{protocol.program} on {protocol.dataset} with {protocol.lm}",
        tags={"ga_dspy.kind": "eval", "mlflow.source.name": "ga_dspy"},
    ).info.run_id
    facts = protocol.model_dump(mode="json")
    log_parameters(client, run, facts)
    asked = ("dataset", "source", "sha256", "questions_sha256", "n", "limit", "seed")
    log_data(client, run, {"eval": {key: facts[key] for key in asked}})
    log_metrics(client, run, {**report_metrics(report), "seconds": report.seconds}, now)
    client.log_table(run, predictions(report), "predictions.json")
    for path, value in (("report.json", report_record(report)), ("summary.json", report.summary())):
        client.log_text(run, json.dumps(publishable(value), ensure_ascii=False, indent=2), path)
    client.set_terminated(run, end_time=now)
    return str(run)
