"""Following a compilation into MLflow, whatever becomes of the server."""

from __future__ import annotations

import logging
import shlex
import threading
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from ga_dspy.errors import InputError, MissingExtra
from ga_dspy.optimize.record import Candidate, Outcome
from ga_dspy.optimize.tracking.compilation import CompilationRun
from ga_dspy.optimize.tracking.model import Registration
from ga_dspy.optimize.tracking.store import (
    EXPERIMENT,
    ROOT,
    Store,
    TrackingFailed,
    local_uri,
    store_uri,
    without_password,
)

# What MLflow's server imports fetches a price list; without a network that can hang for ever.
_OFFLINE = "LITELLM_LOCAL_MODEL_COST_MAP=True"

Event = Callable[[CompilationRun], None]
Say = Callable[[str], None]


class MLflowTracker:
    """A `ga_dspy.optimize.record.Tracker` over MLflow.

    A store that fails never costs the compilation anything but seconds: all that it was told so
    far is told again to the local store, which takes the rest as well, and that is said once.
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
        say: Say | None = None,
    ) -> None:
        _check(name, index)
        self.uri, self.experiment, self.root = store_uri(uri, root), experiment, root
        self.name, self.index = name, index
        self.notices: list[str] = []
        self._say = say or logging.getLogger(__name__).warning
        self._events: list[Event] = []
        self._one_at_a_time = threading.RLock()
        self._run: CompilationRun | None = None
        self._open(self.uri)

    @property
    def run_id(self) -> str | None:
        """The run of the compilation; None before it started, or where nothing is tracked."""
        return (self._run.id or None) if self._run else None

    @property
    def registration(self) -> Registration | None:
        """The compiled program in the registry, once the compilation is finished."""
        return self._run.registration if self._run else None

    @property
    def how_to_open(self) -> str:
        """How to look at the run: the page of a server, or the command that starts one."""
        if self._run is None:
            return ""
        store = self._run.store
        if store.uri.startswith(("http://", "https://")):
            page = without_password(store.uri).rstrip("/")
            return f"{page}/#/experiments/{store.experiment_id}/runs/{self._run.id}"
        where = shlex.quote(without_password(store.uri))
        return f"{_OFFLINE} mlflow ui --backend-store-uri {where}"

    def start(self, name: str, parameters: dict[str, Any], data: dict[str, dict[str, Any]]) -> None:
        """The compilation called `name` begins."""
        at = _now()
        self._tell(lambda run: run.start(name, parameters, data, at))

    def candidate(self, c: Candidate) -> None:
        """A program was tried."""
        at = _now()
        self._tell(lambda run: run.candidate(c, at))

    def finish(self, outcome: Outcome) -> None:
        """It came to its end; the artifact is written."""
        at = _now()
        self._tell(lambda run: run.finish(outcome, at))

    def fail(self, error: BaseException) -> None:
        """It ended without an outcome."""
        at = _now()
        self._tell(lambda run: run.fail(error, at))

    def _tell(self, event: Event) -> None:
        with self._one_at_a_time:
            self._events.append(event)
            self._write([event])

    def _write(self, events: list[Event]) -> None:
        if self._run is None:
            return
        try:
            with self._run.store.reached():
                for event in events:
                    event(self._run)
        except TrackingFailed as failure:
            self._fall_back(failure)

    def _open(self, uri: str) -> None:
        try:
            store = Store(uri, self.experiment, self.root)
        except TrackingFailed as failure:
            self._fall_back(failure)
        else:
            self._run = CompilationRun(store, self.name, self.index)
            self._write(self._events)

    def _fall_back(self, failure: TrackingFailed) -> None:
        self._run, local = None, local_uri(self.root)
        if failure.uri == local:
            self._note(f"{failure}; nothing is tracked from here on, the compilation goes on")
            return
        self._note(f"{failure}; the compilation goes on and is tracked in {local}")
        self._open(local)

    def _note(self, message: str) -> None:
        self.notices.append(message)
        self._say(message)


def _check(name: str | None, index: Path | None) -> None:
    if find_spec("matplotlib") is None:
        raise MissingExtra("matplotlib", "optimize")
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


def _now() -> int:
    return int(time.time() * 1000)
