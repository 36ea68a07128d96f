"""A compiled program as a model of MLflow: code and JSON, never a pickle."""

from __future__ import annotations

import shutil
import tempfile
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from pydantic import BaseModel

from ga_dspy.artifact.folder import FILES
from ga_dspy.errors import GaDspyError
from ga_dspy.eval import Protocol, Report, Result
from ga_dspy.optimize.tracking.champion import ALIAS, decide
from ga_dspy.optimize.tracking.entries import report_metrics
from ga_dspy.optimize.tracking.store import Store, pointed_at

if TYPE_CHECKING:
    from mlflow.models import ModelSignature

REPORT = "reports/after.json"
ARTIFACT, INDEX = "artifact", "index"
EXAMPLE = {"question": "In which country is the river on which the city of Basel lies?"}

_SERVED = Path(__file__).with_name("served.py")


class Registration(NamedTuple):
    """A program in the registry: under which name and version, and whether it is the champion."""

    name: str
    version: str
    champion: bool
    reason: str


class ReportUnreadable(GaDspyError):
    """The stored answers of a program are not there, or not as this version writes them."""

    def __init__(self, run: str, cause: str) -> None:
        super().__init__(
            f"{REPORT} of run {run} cannot be read ({cause}); expected the answers behind the "
            f"alias {ALIAS!r}; give the alias by hand, or delete it"
        )


class _Stored(BaseModel):
    protocol: Protocol
    results: tuple[Result, ...]
    seconds: float


def log_program(store: Store, run: str, artifact: Path, index: Path | None) -> str:
    """Log a compiled program with a run; the model's id.

    Args:
        store: Where to.
        run: The run that made it.
        artifact: Its folder.
        index: A retrieval index to pack with it, so that it can be served by itself.
    """
    from mlflow.entities import LoggedModelOutput, LoggedModelStatus

    client = store.client
    logged = client.create_logged_model(
        store.experiment_id, name="program", source_run_id=run, model_type="ga-dspy"
    )
    with tempfile.TemporaryDirectory(prefix="ga-dspy-") as folder:
        path = Path(folder, "model")
        _save(path, artifact, index, run, logged.model_id)
        client.log_model_artifacts(logged.model_id, str(path))
    client.finalize_logged_model(logged.model_id, LoggedModelStatus.READY)
    client.log_outputs(run, [LoggedModelOutput(logged.model_id, step=0)])
    return str(logged.model_id)


def register(
    store: Store, name: str, run: str, model: str, after: Report, *, better: bool
) -> Registration:
    """Register a model under a name, and give it the alias `champion` if the rule says so."""
    from mlflow.exceptions import MlflowException

    client = store.client
    try:
        client.create_registered_model(name)
    except MlflowException as error:
        if error.error_code != "RESOURCE_ALREADY_EXISTS":
            raise
    try:
        decision = decide(after, reigning(store, name), better_than_before=better)
        champion, reason = decision.champion, decision.reason
    except ReportUnreadable as error:
        champion, reason = False, f"the champion stays: {error}"
    tags = {key: str(value) for key, value in report_metrics(after).items() if key[:2] == "f1"}
    with pointed_at(store.uri):  # a database looks the model up in the process-wide store
        made = client.create_model_version(
            name,
            f"models:/{model}",
            run_id=run,
            model_id=model,
            tags={**tags, "champion_decision": reason},
        )
    if champion:
        client.set_registered_model_alias(name, ALIAS, made.version)
    return Registration(name, str(made.version), champion, reason)


def reigning(store: Store, name: str) -> Report | None:
    """The report of the champion of that name; None where there is no champion.

    Raises:
        ReportUnreadable: There is one, and its answers cannot be read.
    """
    from mlflow.exceptions import MlflowException

    registered = store.client.get_registered_model(name)
    if ALIAS not in registered.aliases:
        return None
    run = store.client.get_model_version_by_alias(name, ALIAS).run_id
    try:
        with tempfile.TemporaryDirectory(prefix="ga-dspy-") as folder:
            path = store.client.download_artifacts(run, REPORT, folder)
            return report_of(Path(path).read_bytes())
    except (MlflowException, OSError, ValueError) as error:
        raise ReportUnreadable(str(run), type(error).__name__) from error


def report_of(record: bytes) -> Report:
    """The report that `report_record` wrote.

    Raises:
        ValidationError: It has other fields; a ValueError.
    """
    stored = _Stored.model_validate_json(record)
    return Report(stored.protocol, stored.results, stored.seconds)


def _save(path: Path, artifact: Path, index: Path | None, run: str, model: str) -> None:
    from mlflow import pyfunc
    from mlflow.models import Model

    # Under its own name whatever the folder is called, and without what else lies in it.
    packed = path.with_name(ARTIFACT)
    packed.mkdir()
    for file in FILES:
        shutil.copyfile(artifact / file, packed / file)
    artifacts = {ARTIFACT: str(packed)}
    if index is not None:
        artifacts[INDEX] = str(index.resolve())
    pyfunc.save_model(
        path=str(path),
        python_model=str(_SERVED),
        artifacts=artifacts,
        signature=signature(),
        input_example=[EXAMPLE],
        pip_requirements=_requirements(),
        mlflow_model=Model(run_id=run, model_uuid=model, model_id=model),
    )


def signature() -> ModelSignature:
    """A column of questions in; a row an answer out."""
    from mlflow.models import ModelSignature
    from mlflow.types import ColSpec, DataType, Schema
    from mlflow.types.schema import Array

    texts = Array(DataType.string)
    answered = {
        "answer": DataType.string, "verdict": DataType.string, "supported": DataType.boolean,
        "evidence": texts, "cited": texts, "failures": texts, "steps": DataType.long,
        "calls": DataType.long, "tokens": DataType.long,
    }  # fmt: skip
    return ModelSignature(
        inputs=Schema([ColSpec(DataType.string, "question")]),
        outputs=Schema([ColSpec(kind, name) for name, kind in answered.items()]),
    )


def _requirements() -> list[str]:
    ours = f"ga-dspy[offline,optimize]=={version('ga-dspy')}"
    return [ours, f"dspy=={version('dspy')}", f"mlflow=={version('mlflow')}"]
