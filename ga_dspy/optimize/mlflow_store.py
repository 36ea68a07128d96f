"""An MLflow store: where it is, how to reach it, and what must not be sent to it.

`reaching` is the one place where errors of a store are caught. What is sent has passed
`publishable`, since people who see a store may not have your keys.
"""

from __future__ import annotations

import json
import logging
import os
import re
import threading
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import JsonValue
from pydantic_core import to_jsonable_python

from ga_dspy.errors import GaDspyError, MissingExtra
from ga_dspy.secrets import secrets_in, secrets_of, without_password

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Metric, Param

EXPERIMENT = "ga-dspy"
ROOT = Path("artifacts")

_URI = "MLFLOW_TRACKING_URI"
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
    """The tracking store was not reached, or rejected what it was sent."""

    def __init__(self, uri: str, cause: BaseException) -> None:
        self.uri = without_password(uri)
        # The error of the network or the disk says more than the layers that wrap it.
        innermost = cause
        while (under := innermost.__cause__ or innermost.__context__) is not None:
            innermost = under
        found = innermost if isinstance(innermost, OSError) else cause
        text = " ".join(str(found).replace(uri, self.uri).split())
        super().__init__(
            f"MLflow at {self.uri} failed ({type(found).__name__}: {text[:300]})",
            expected="a store that takes runs",
            remedy="check that the server is up and the address is right",
        )


def local_uri(root: Path) -> str:
    """Return the address of the store in `root`: a SQLite file."""
    return f"sqlite:///{(root.resolve() / 'mlflow.db').as_posix()}"


def store_uri(uri: str | None, root: Path) -> str:
    """Return the address given, else that of `MLFLOW_TRACKING_URI`, else the store in `root`."""
    return uri or os.environ.get(_URI) or local_uri(root)


@contextmanager
def reaching(uri: str) -> Iterator[MlflowClient]:
    """Give MLflow's client of a store and of its model registry.

    A dead server is given up after two attempts of ten seconds; settings that the user made in the
    environment take precedence. MLflow's own log messages are silenced below warnings.

    Raises:
        TrackingFailed: The store failed: MLflow, the network, the database or the disk.
        MissingExtra: mlflow is not installed.
    """
    log = logging.getLogger("mlflow")
    level = log.level
    with _environment(_SETTINGS):
        try:
            from mlflow import MlflowClient
        except ImportError as error:
            raise MissingExtra("mlflow", "optimize") from error
        from mlflow.exceptions import MlflowException
        from sqlalchemy.exc import SQLAlchemyError

        log.setLevel(max(level, logging.WARNING))
        try:
            if uri.startswith("sqlite:///"):
                Path(uri.removeprefix("sqlite:///")).parent.mkdir(parents=True, exist_ok=True)
            yield MlflowClient(tracking_uri=uri, registry_uri=uri)
        except (MlflowException, SQLAlchemyError, OSError) as error:
            raise TrackingFailed(uri, error) from error
        finally:
            log.setLevel(level)


@contextmanager
def pointed_at(uri: str) -> Iterator[None]:
    """Point MLflow's process-wide tracking URI at a store, for functions that know no other one."""
    import mlflow

    in_environment = os.environ.get(_URI)
    before = mlflow.get_tracking_uri() if mlflow.is_tracking_uri_set() else None
    mlflow.set_tracking_uri(uri)
    try:
        yield
    finally:
        mlflow.set_tracking_uri(None if before == in_environment else before)
        if in_environment is not None:
            os.environ[_URI] = in_environment


@contextmanager
def _environment(settings: Mapping[str, str]) -> Iterator[None]:
    with _ENVIRONMENT:
        missing = {name: value for name, value in settings.items() if name not in os.environ}
        os.environ.update(missing)
        try:
            yield
        finally:
            for name in missing:
                os.environ.pop(name, None)


def experiment_of(client: MlflowClient, uri: str, root: Path, name: str = EXPERIMENT) -> str:
    """Return the id of an experiment; it is created if it does not exist.

    Args:
        client: The client of the store.
        uri: The store. A database keeps the files of runs in a folder beside it, or in `root`;
            a server decides itself.
        root: The folder of the local store.
        name: Its name.
    """
    from mlflow.exceptions import MlflowException

    files = None
    if uri.startswith("sqlite:///"):
        files = Path(uri.removeprefix("sqlite:///")).resolve().parent / "mlartifacts"
    elif uri.startswith(("postgresql", "mysql", "mssql")):
        files = root.resolve() / "mlartifacts"
    try:
        location = files.as_uri() if files else None
        return str(client.create_experiment(name, artifact_location=location))
    except MlflowException:
        found = client.get_experiment_by_name(name)
        if found is None:
            raise
        return str(found.experiment_id)


# --- What is sent


def publishable(value: object, known: Collection[str] = ()) -> Any:
    """Return a value as JSON, with everything that looks like a secret replaced by its kind.

    Texts are checked line by line, so that a prompt loses a line and not its whole.

    Args:
        value: What is sent.
        known: Secrets beside those of this process.

    >>> publishable({"recipe": "gepa", "api_key": "abc", "notes": ["fine", "sk-" + 20 * "x"]})
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
    if found is not None:
        return f"(withheld: {found.kind})"
    # Models emit lone surrogates (JSON can spell them); UTF-8 has none.
    return line.encode("utf-8", "replace").decode()


def params_of(values: Mapping[str, object]) -> list[Param]:
    """Return nested values as parameters of MLflow, by dotted name."""
    from mlflow.entities import Param

    params = []
    for name, value in _flat(publishable(values)):
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        params.append(Param(re.sub(r"[^\w\-. /:]", "_", name)[:250], text))
    return params


def _flat(value: JsonValue, name: str = "") -> Iterator[tuple[str, JsonValue]]:
    if isinstance(value, dict) and (value or not name):
        for key, inner in value.items():
            yield from _flat(inner, f"{name}.{key}" if name else key)
    else:
        yield name, value


def metrics_of(
    values: Mapping[str, float | None], at: int, step: int = 0, model: str | None = None
) -> list[Metric]:
    """Return values as metrics of MLflow at a time in milliseconds; None is left out."""
    from mlflow.entities import Metric

    known = {name: value for name, value in values.items() if value is not None}
    return [Metric(name, float(value), at, step, model) for name, value in known.items()]
