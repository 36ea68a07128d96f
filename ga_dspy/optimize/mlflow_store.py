"""An MLflow store: its address, its client, and what is removed before anything is sent.

`mlflow_client` is the only place that catches errors of a store. Everything sent passes through
`without_secrets`, because people who can read a store must not see your keys.
"""

from __future__ import annotations

import atexit
import logging
import os
import shutil
import tempfile
import threading
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import JsonValue
from pydantic_core import to_jsonable_python

from ga_dspy.artifact import FILES
from ga_dspy.errors import GaDspyError, InputError, require
from ga_dspy.passage import replace_invalid
from ga_dspy.secrets import secrets_in, secrets_of, without_password

if TYPE_CHECKING:
    from mlflow import MlflowClient

EXPERIMENT = "ga-dspy"
ROOT = Path("artifacts")

_URI = "MLFLOW_TRACKING_URI"
_SQLITE = "sqlite:///"
_DATABASES = (_SQLITE, "postgresql", "mysql", "mssql")
_ENVIRONMENT = threading.RLock()  # the environment belongs to the whole process
_SETTINGS = {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1",
    "MLFLOW_HTTP_REQUEST_BACKOFF_FACTOR": "1",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "10",
    "MLFLOW_ENABLE_ASYNC_TRACE_LOGGING": "false",
    "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
    "MLFLOW_UV_AUTO_DETECT": "false",
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",  # fetched on import otherwise, and it can hang
}


class TrackingFailed(GaDspyError):
    """The tracking store could not be reached, or rejected a request.

    Attributes:
        is_outage: Whether it could not be reached, so that a retry may succeed.
    """

    def __init__(self, uri: str, cause: BaseException) -> None:
        self.uri = without_password(uri)
        # The error of the network or the disk says more than the layers that wrap it.
        innermost = cause
        while (under := innermost.__cause__ or innermost.__context__) is not None:
            innermost = under
        self.is_outage = isinstance(innermost, OSError)
        error = innermost if self.is_outage else cause
        text = " ".join(str(error).replace(uri, self.uri).split())
        remedy = "check that the server is up and the address is right"
        what = f"MLflow at {self.uri} failed ({type(error).__name__}: {text[:300]})"
        super().__init__(what, remedy=remedy)


def store_uri(uri: str | None, root: Path) -> str:
    """Return `uri`, else the address in `MLFLOW_TRACKING_URI`, else the store in `root`."""
    local = f"{_SQLITE}{(root.resolve() / 'mlflow.db').as_posix()}"
    return uri or os.environ.get(_URI) or local


@contextmanager
def mlflow_client(uri: str) -> Iterator[MlflowClient]:
    """Point MLflow at a store and its model registry, and yield the client.

    A server that does not answer fails after two attempts of ten seconds; settings in the
    environment take precedence. MLflow logs warnings and errors only. At the end, its previous
    address and the environment are restored.

    Raises:
        TrackingFailed: The store failed: MLflow, the network, the database or the disk.
        MissingExtra: mlflow is not installed.
    """
    with _ENVIRONMENT:
        before, log = dict(os.environ), logging.getLogger("mlflow")
        level = log.level
        os.environ.update({**_SETTINGS, **before})
        try:
            mlflow = require("mlflow", "optimize")
            from sqlalchemy.exc import SQLAlchemyError

            log.setLevel(max(level, logging.WARNING))
            previous = mlflow.get_tracking_uri() if mlflow.is_tracking_uri_set() else None
            mlflow.set_tracking_uri(uri)
            try:
                if uri.startswith(_SQLITE):
                    _file_of(uri).parent.mkdir(parents=True, exist_ok=True)
                yield mlflow.MlflowClient(tracking_uri=uri, registry_uri=uri)
            except (mlflow.exceptions.MlflowException, SQLAlchemyError, OSError) as error:
                raise TrackingFailed(uri, error) from error
            finally:
                mlflow.set_tracking_uri(None if previous == before.get(_URI) else previous)
        finally:
            log.setLevel(level)
            for name in (*_SETTINGS, _URI):
                os.environ.pop(name, None)
            os.environ.update({n: before[n] for n in (*_SETTINGS, _URI) if n in before})


def _file_of(uri: str) -> Path:
    return Path(uri.removeprefix(_SQLITE)).resolve()


def experiment_of(client: MlflowClient, uri: str, root: Path, name: str = EXPERIMENT) -> str:
    """Return the id of an experiment, which is created if it does not exist.

    Args:
        client: The client of the store.
        uri: The store. The files of a database's runs are in a folder beside it, or in `root`; a
            server has its own folder.
        root: The folder of the local store.
        name: The name of the experiment.
    """
    if (experiment := client.get_experiment_by_name(name)) is not None:
        return str(experiment.experiment_id)
    location = None
    if uri.startswith(_DATABASES):
        folder = _file_of(uri).parent if uri.startswith(_SQLITE) else root.resolve()
        location = (folder / "mlartifacts").as_uri()
    return str(client.create_experiment(name, artifact_location=location))


# --- Download a program


def resolve(uri: str, *, tracking_uri: str | None = None) -> Path:
    """Download the artifact of a compiled program from MLflow.

    It goes into a folder that is removed when the process ends. Nothing of it is executed or
    unpickled.

    Args:
        uri: "models:/name@alias", "models:/name/3" or "runs:/id/artifact".
        tracking_uri: The store; by default `MLFLOW_TRACKING_URI`, else `artifacts/mlflow.db`.

    Returns:
        A folder with manifest.json and program.json.

    Raises:
        InputError: There is no such model, alias, version, run or folder.
        TrackingFailed: The store could not be reached.
        MissingExtra: mlflow is not installed.
    """
    store = store_uri(tracking_uri, ROOT)
    folder = uri if uri.startswith("runs:") else f"{uri}/artifacts"
    target = tempfile.mkdtemp(prefix="ga-dspy-artifact-")
    atexit.register(shutil.rmtree, target, ignore_errors=True)
    with mlflow_client(store) as client:
        from mlflow.artifacts import download_artifacts
        from mlflow.exceptions import MlflowException

        try:
            for file in FILES:
                local = download_artifacts(artifact_uri=f"{folder}/{file}", dst_path=target)
        except (MlflowException, OSError) as error:
            models = ", ".join(model.name for model in client.search_registered_models())
            raise InputError(
                f"{without_password(store)} has no {uri} ({' '.join(str(error).split())})",
                expected="models:/NAME@ALIAS, models:/NAME/VERSION or runs:/RUN_ID/artifact of a "
                f"program that was compiled with tracking (there are: {models})",
                remedy="correct the address, or name another store in MLFLOW_TRACKING_URI",
            ) from error
    return Path(local).parent


# --- Remove secrets from what is sent


def without_secrets(value: object, known: Collection[str] = ()) -> Any:
    """Return a value as JSON, with everything that looks like a secret replaced by its kind.

    Texts are checked line by line, so that a prompt loses only the lines with secrets.

    Args:
        value: The value to send.
        known: Secrets in addition to those of this process.

    >>> without_secrets({"recipe": "gepa", "api_key": "abc", "notes": ["fine", "sk-" + 20 * "x"]})
    {'recipe': 'gepa', 'api_key': '(withheld)', 'notes': ['fine', '(withheld: an API key)']}
    """
    plain = to_jsonable_python(value, inf_nan_mode="null", fallback=str)
    return _clean(plain, secrets_of(addresses=True).union(known))


def _clean(value: JsonValue, known: Collection[str]) -> JsonValue:
    if isinstance(value, str):
        return "\n".join(_clean_line(line, known) for line in value.split("\n"))
    if isinstance(value, Mapping):
        return {
            key: "(withheld)" if any(secrets_in({key: None}, "", known)) else _clean(inner, known)
            for key, inner in value.items()
        }
    if isinstance(value, Sequence):
        return [_clean(inner, known) for inner in value]
    return value


def _clean_line(line: str, known: Collection[str]) -> str:
    found = next(secrets_in(line, "", known), None)
    return f"(withheld: {found.kind})" if found else replace_invalid(line)
