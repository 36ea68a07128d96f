"""Where runs are kept: which MLflow store, in which experiment, and how long to wait for it."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from ga_dspy.errors import GaDspyError, MissingExtra

if TYPE_CHECKING:
    from mlflow import MlflowClient

EXPERIMENT = "ga-dspy"
ROOT = Path("artifacts")

_URI = "MLFLOW_TRACKING_URI"
_DATABASE, _FILES = "mlflow.db", "mlartifacts"
_MLFLOW_LOG = logging.getLogger("mlflow")
_SETTINGS = threading.RLock()  # the environment belongs to the whole process
_PATIENCE = {
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
    """The tracking store was not reached, or refused what it was sent."""

    def __init__(self, uri: str, cause: BaseException) -> None:
        self.uri = without_password(uri)
        found = _root(cause)
        said = " ".join(str(found).replace(uri, self.uri).split())
        super().__init__(
            f"MLflow at {self.uri} failed ({type(found).__name__}: {said[:300]}); expected a "
            "store that takes runs; see that the server is up and the address right"
        )


def _root(error: BaseException) -> BaseException:
    """What happened on the network or the disk, from under the layers that only repeat it."""
    innermost = error
    while (under := innermost.__cause__ or innermost.__context__) is not None:
        innermost = under
    return innermost if isinstance(innermost, OSError) else error


def local_uri(root: Path) -> str:
    """The address of the store beside the artifacts in `root`: a SQLite file."""
    return f"sqlite:///{(root.resolve() / _DATABASE).as_posix()}"


def store_uri(uri: str | None, root: Path) -> str:
    """The address given, else that of `MLFLOW_TRACKING_URI`, else the store beside `root`."""
    return uri or os.environ.get(_URI) or local_uri(root)


def without_password(uri: str) -> str:
    """An address as it may be shown: without user name, password and query.

    >>> without_password("https://ann:secret@mlflow.example/x?token=1")
    'https://mlflow.example/x'
    """
    scheme, mark, rest = uri.partition("://")
    if not mark:
        return uri
    authority, slash, path = rest.partition("/")
    return f"{scheme}{mark}{authority.rpartition('@')[2]}{slash}{path.partition('?')[0]}"


class Store:
    """An experiment of an MLflow store, made where it does not exist.

    No global state of MLflow is touched: neither its tracking URI nor its active run.

    Args:
        uri: Any tracking URI.
        experiment: Its name.
        root: The folder that keeps the files of runs, where the store is a database without a
            server that keeps them.

    Attributes:
        client: MLflow's client of this store and of its model registry.
        experiment_id: Of the experiment.

    Raises:
        TrackingFailed: The store was not reached.
        MissingExtra: mlflow is not installed.
    """

    def __init__(self, uri: str, experiment: str = EXPERIMENT, root: Path = ROOT) -> None:
        self.uri, self.root = uri, root
        self.client = open_client(uri)
        with self.reached():
            self.experiment_id = self._experiment(experiment)

    @contextmanager
    def reached(self) -> Iterator[None]:
        """Do what is inside with little patience.

        Raises:
            TrackingFailed: The store failed.
        """
        with reaching(self.uri):
            yield

    def _experiment(self, name: str) -> str:
        from mlflow.exceptions import MlflowException

        found = self.client.get_experiment_by_name(name)
        if found is not None:
            return str(found.experiment_id)
        try:
            return str(self.client.create_experiment(name, artifact_location=self._files()))
        except MlflowException:
            # Another process may have made it in between; if not, the error stands.
            found = self.client.get_experiment_by_name(name)
            if found is None:
                raise
            return str(found.experiment_id)

    def _files(self) -> str | None:
        """Where a new experiment keeps files; None lets a server or a file store decide."""
        if self.uri.startswith("sqlite:///"):
            return (Path(self.uri.removeprefix("sqlite:///")).resolve().parent / _FILES).as_uri()
        if self.uri.startswith(("postgresql", "mysql", "mssql")):
            return (self.root.resolve() / _FILES).as_uri()
        return None


def open_client(uri: str) -> MlflowClient:
    """MLflow's client of a store and of the model registry in it.

    Raises:
        TrackingFailed: There is no such kind of store.
        MissingExtra: mlflow is not installed.
    """
    if uri.startswith("sqlite:///"):
        Path(uri.removeprefix("sqlite:///")).parent.mkdir(parents=True, exist_ok=True)
    try:
        # MLflow reports its use to its makers unless this is set while it is imported.
        with _environment({"MLFLOW_DISABLE_TELEMETRY": "true"}):
            from mlflow import MlflowClient
    except ImportError as error:
        raise MissingExtra("mlflow", "optimize") from error
    with reaching(uri):
        return MlflowClient(tracking_uri=uri, registry_uri=uri)


@contextmanager
def reaching(uri: str) -> Iterator[None]:
    """The one place where errors of a store are caught, and where its patience is set.

    Two tries of ten seconds, so that a compilation does not wait for a dead server; settings
    that the user made in the environment stand.

    Raises:
        TrackingFailed: The store failed: MLflow, the network, the database or the disk.
    """
    from mlflow.exceptions import MlflowException
    from sqlalchemy.exc import SQLAlchemyError

    with ExitStack() as stack:
        stack.enter_context(_environment(_PATIENCE))
        stack.enter_context(_quiet())
        try:
            yield
        except (MlflowException, SQLAlchemyError, OSError) as error:
            raise TrackingFailed(uri, error) from error


@contextmanager
def pointed_at(uri: str) -> Iterator[None]:
    """Point MLflow's process-wide tracking URI at a store, for what knows no other one."""
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
    with _SETTINGS:
        missing = {name: value for name, value in settings.items() if name not in os.environ}
        os.environ.update(missing)
        try:
            yield
        finally:
            for name in missing:
                os.environ.pop(name, None)


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep MLflow's notes on its own doings (tables made, versions counted) to itself."""
    level = _MLFLOW_LOG.level
    _MLFLOW_LOG.setLevel(max(level, logging.WARNING))
    try:
        yield
    finally:
        _MLFLOW_LOG.setLevel(level)
