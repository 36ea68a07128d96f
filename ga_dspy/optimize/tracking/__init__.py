"""Tracking in MLflow; nothing else in the library imports mlflow, and this only when called.

The order in which the files build on one another: `store` (where to, and what happens when it
is down), `withheld` (what is never sent), `entries` and `difference` (what is told of a run, and
in which shape), `champion`, `model` and `served` (the compiled program in the registry),
`compilation` and `tracker` (a compilation as it goes), `evaluation`, `traces`, and `addresses`
(from "models:/…" back to a folder).
"""

from __future__ import annotations

from ga_dspy.optimize.tracking.addresses import NotFound as NotFound
from ga_dspy.optimize.tracking.addresses import resolve as resolve
from ga_dspy.optimize.tracking.champion import Decision as Decision
from ga_dspy.optimize.tracking.champion import decide as decide
from ga_dspy.optimize.tracking.evaluation import Tracked as Tracked
from ga_dspy.optimize.tracking.evaluation import track_evaluation as track_evaluation
from ga_dspy.optimize.tracking.model import Registration as Registration
from ga_dspy.optimize.tracking.store import TrackingFailed as TrackingFailed
from ga_dspy.optimize.tracking.traces import traced_sample as traced_sample
from ga_dspy.optimize.tracking.tracker import MLflowTracker as MLflowTracker
