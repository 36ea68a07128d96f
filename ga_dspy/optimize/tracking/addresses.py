"""From "models:/name@champion" and "runs:/id/path" to a folder on this disk."""

from __future__ import annotations

import atexit
import re
import shutil
import tempfile
import threading
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from ga_dspy.artifact.folder import FILES
from ga_dspy.errors import GaDspyError, InputError
from ga_dspy.optimize.tracking.model import ARTIFACT
from ga_dspy.optimize.tracking.store import (
    ROOT,
    open_client,
    reaching,
    store_uri,
    without_password,
)

if TYPE_CHECKING:
    from mlflow import MlflowClient

_IN_MODEL = f"artifacts/{ARTIFACT}"
_FORMS = (
    "models:/NAME@ALIAS, models:/NAME/VERSION, models:/MODEL_ID, runs:/RUN_ID or runs:/RUN_ID/PATH"
)
_ADDRESS = re.compile(
    r"models:/(?P<name>[^/@]+)(@(?P<alias>[^/@]+)|/(?P<version>\d+))"
    r"|models:/(?P<model>m-[0-9a-f]+)"
    r"|runs:/(?P<run>[0-9a-f]+)(/(?P<path>.+))?"
)
_FETCHED: dict[tuple[str, str], Path] = {}
_ONE_AT_A_TIME = threading.Lock()


class NotFound(GaDspyError):
    """The store has nothing under that address."""

    def __init__(self, address: str, where: str, there: str) -> None:
        super().__init__(
            f"{without_password(where)} has no {address} ({there}); expected the address of a "
            "program that was compiled with tracking into that store; name another one, or "
            "another store by MLFLOW_TRACKING_URI"
        )
        self.address = address


class _Place(NamedTuple):
    """Files in a store: where they are, by an address that never changes its meaning."""

    location: str
    path: str


def resolve(uri: str, *, tracking_uri: str | None = None, root: Path = ROOT) -> Path:
    """Fetch the artifact of a compiled program from MLflow.

    An alias is looked up each time; what it points at is fetched once in this process, into a
    folder that is removed when the process ends. Nothing of it is executed or unpickled.

    Args:
        uri: "models:/name@alias", "models:/name/3", "models:/m-…", "runs:/id" or
            "runs:/id/path".
        tracking_uri: The store; by default `MLFLOW_TRACKING_URI`, else `mlflow.db` in `root`.
        root: The folder of the local store.

    Returns:
        A folder with manifest.json and program.json.

    Raises:
        InputError: The address has none of these forms.
        NotFound: There is no such model, alias, version, run or folder.
        TrackingFailed: The store was not reached.
        MissingExtra: mlflow is not installed.
    """
    parts = _ADDRESS.fullmatch(uri.strip())
    if parts is None:
        raise InputError(f"the address {uri!r}", expected=_FORMS, remedy="correct the address")
    store = store_uri(tracking_uri, root)
    client = open_client(store)
    with reaching(store):
        place = _place(client, parts, uri, store)
        with _ONE_AT_A_TIME:
            known = _FETCHED.get((store, f"{place.location}/{place.path}"))
            if known is None:
                known = _fetched(place, uri, store)
                _FETCHED[store, f"{place.location}/{place.path}"] = known
            return known


def _place(client: MlflowClient, parts: re.Match[str], uri: str, store: str) -> _Place:
    from mlflow.exceptions import MlflowException

    try:
        if parts["run"]:
            location = client.get_run(parts["run"]).info.artifact_uri
            return _Place(str(location), parts["path"] or ARTIFACT)
        if parts["model"]:
            location = client.get_logged_model(parts["model"]).artifact_location
        else:
            version = parts["version"] or _version(client, parts["name"], parts["alias"])
            location = client.get_model_version_download_uri(parts["name"], version)
        return _Place(str(location), _IN_MODEL)
    except MlflowException as error:
        if error.error_code in ("RESOURCE_DOES_NOT_EXIST", "INVALID_PARAMETER_VALUE"):
            raise NotFound(uri, store, _there(client, parts["name"], str(error))) from error
        raise


def _version(client: MlflowClient, name: str, alias: str) -> str:
    return str(client.get_model_version_by_alias(name, alias).version)


def _there(client: MlflowClient, name: str | None, said: str) -> str:
    """What there is instead of the thing that is not there."""
    names = [model.name for model in client.search_registered_models()]
    if name in names:
        model = client.get_registered_model(name)
        versions = [int(v.version) for v in client.search_model_versions(f"name = '{name}'")]
        aliases = ", ".join(model.aliases) or "none"
        return f"versions {', '.join(map(str, sorted(versions)))}; aliases: {aliases}"
    return f"registered: {', '.join(names) or 'nothing'}" if name else " ".join(said.split())


def _fetched(place: _Place, uri: str, store: str) -> Path:
    from mlflow.artifacts import download_artifacts, list_artifacts

    folder = f"{place.location.rstrip('/')}/{place.path.strip('/')}"
    listed = list_artifacts(artifact_uri=folder, tracking_uri=store)
    there = {file.path.rpartition("/")[2] for file in listed}
    for file in FILES:
        if file not in there:
            raise NotFound(uri, store, f"no {file} in {place.path}")
    target = tempfile.mkdtemp(dir=_cache())
    for file in FILES:
        download_artifacts(artifact_uri=f"{folder}/{file}", dst_path=target, tracking_uri=store)
    return Path(target)


@cache
def _cache() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="ga-dspy-artifacts-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder
