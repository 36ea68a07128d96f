"""The model registry: compiled programs as models, which one is the champion, their addresses."""

from __future__ import annotations

import atexit
import hashlib
import json
import re
import shutil
import tempfile
from collections.abc import Mapping
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING
from warnings import catch_warnings, filterwarnings

from pydantic import TypeAdapter

from ga_dspy.artifact.artifact import FILES, show
from ga_dspy.errors import DamagedFile, InputError
from ga_dspy.eval import Protocol, Report, paired_test
from ga_dspy.optimize.demos import Prompt
from ga_dspy.optimize.mlflow_store import (
    ROOT,
    Store,
    open_client,
    pointed_at,
    publishable,
    reaching,
    report_metrics,
    store_uri,
)
from ga_dspy.optimize.trials import Outcome
from ga_dspy.retrieval import Index
from ga_dspy.secrets import without_password

if TYPE_CHECKING:
    from mlflow.entities.model_registry import PromptVersion

ALIAS = "champion"
REPORT = "reports/after.json"
ARTIFACT, INDEX, GRAPH = "artifact", "index", "graph"
_ANSWERED = {
    "answer": "", "verdict": "", "supported": "", "evidence": [""], "cited": [""],
    "failures": [""], "steps": 1, "calls": 1, "tokens": 1,
}  # fmt: skip
EXAMPLE = {"question": "In which country is the river on which the city of Basel lies?"}

_SERVE = "Serve it: `mlflow models serve -m models:/{name}/{version} --env-manager local`"
_PROGRAM = "ga_dspy.program"  # the tag by which a program that is registered already is known
_EXPERIMENTS = "_mlflow_experiment_ids"  # MLflow's tag that puts a prompt on an experiment's page
_LONGEST_PROMPT = 100_000
_SERVED = Path(__file__).with_name("served.py")

# --- A compiled program as a model of MLflow: code and JSON, never a pickle


def log_program(
    store: Store,
    run: str,
    artifact: Path,
    index: Path | None,
    corpus: str | None,
    graph: Path | None = None,
) -> str:
    """Log a compiled program with a run; the model's id.

    Args:
        store: Where to.
        run: The run that made it.
        artifact: Its folder.
        index: A retrieval index to pack with it, so that it can be served by itself.
        corpus: The digest of the passages it was compiled on, where it is known.
        graph: The graph of the index's passages, for a program that searches one.

    Raises:
        GaDspyError: The packed model does not load, so it could not be served.
    """
    from mlflow import pyfunc
    from mlflow.entities import LoggedModelOutput, LoggedModelStatus
    from mlflow.models import Model, infer_signature

    client = store.client
    model = client.create_logged_model(
        store.experiment_id, name="program", source_run_id=run, model_type="ga-dspy"
    ).model_id
    # A packed index may want the model that made its vectors.
    extras = "minilm,offline,optimize" if index else "offline,optimize"
    ours = f"ga-dspy[{extras}]=={version('ga-dspy')}"
    with catch_warnings():
        filterwarnings("ignore", "Hint: Inferred schema contains integer")
        signature = infer_signature([EXAMPLE], [_ANSWERED])
    with tempfile.TemporaryDirectory(prefix="ga-dspy-") as folder:
        # Under its own name whatever the folder is called, and without what else lies in it.
        path, packed = Path(folder, "model"), Path(folder, ARTIFACT)
        packed.mkdir()
        for file in FILES:
            shutil.copyfile(artifact / file, packed / file)
        pyfunc.save_model(
            path=str(path),
            python_model=str(_SERVED),
            artifacts={
                ARTIFACT: str(packed),
                **{name: str(p.resolve()) for name, p in ((INDEX, index), (GRAPH, graph)) if p},
            },
            signature=signature,
            input_example=[EXAMPLE],
            pip_requirements=[ours, *(f"{name}=={version(name)}" for name in ("dspy", "mlflow"))],
            metadata={"corpus": corpus},
            mlflow_model=Model(run_id=run, model_uuid=model, model_id=model),
        )
        # As a server will, before anybody is told to serve it; where conditions are required, the
        # server is told them.
        if index and not Index.open(index).require:
            pyfunc.load_model(str(path))
        client.log_model_artifacts(model, str(path))
    client.finalize_logged_model(model, LoggedModelStatus.READY)
    client.log_outputs(run, [LoggedModelOutput(model, step=0)])
    return str(model)


# --- Which of the registered programs is the champion


def register(
    store: Store,
    name: str,
    run: str,
    model: str,
    outcome: Outcome,
    note: str,
    *,
    packed: bool = False,
) -> str:
    """Register a model under a name, and give it the alias `champion` if the rule says so.

    A program that is registered already, such as that of a compilation that is replayed, gets no
    second version.

    Returns:
        Under which name and version, and whether it is the champion, in a line.
    """
    from mlflow.exceptions import MlflowException

    client = store.client
    try:
        client.create_registered_model(name)
    except MlflowException as error:
        if error.error_code != "RESOURCE_ALREADY_EXISTS":
            raise
    same = _digest(outcome, packed)
    for known in client.search_model_versions(f"name = '{name}'"):
        if known.tags.get(_PROGRAM) == same:
            return f"{name} version {known.version}: the same program, registered before"
    try:
        champion, reason = decide(outcome, _reigning(store, name))
    except DamagedFile as error:
        champion, reason = False, f"the champion stays: {error}"
    after = report_metrics(outcome.after)
    tags = {key.partition("/")[2]: str(value) for key, value in after.items() if "/f1" in key}
    with pointed_at(store.uri):  # a database looks the model up in the process-wide store
        made = client.create_model_version(
            name,
            f"models:/{model}",
            run_id=run,
            model_id=model,
            tags={**tags, "champion_decision": reason, _PROGRAM: same},
        )
    serve = _SERVE.format(name=name, version=made.version)
    client.update_model_version(name, made.version, f"{publishable(note)}\n\n{serve}")
    if champion:
        client.set_registered_model_alias(name, ALIAS, made.version)
    crowned = ALIAS if champion else f"not {ALIAS}"
    return f"{name} version {made.version}: {crowned} ({reason})"


def _digest(outcome: Outcome, packed: bool) -> str:
    """What tells a registered program from another: what it is, what it answered on what."""
    manifest = show(outcome.artifact).manifest
    protocol = outcome.after.protocol
    about = [manifest.program, manifest.settings, manifest.sha256, manifest.lms, packed]
    answers = [(result.id, result.answer) for result in outcome.after.results]
    measured = [protocol.corpus, protocol.graph, outcome.held_out, answers]
    return hashlib.sha256(json.dumps([about, measured], sort_keys=True).encode()).hexdigest()


def register_prompts(
    store: Store, name: str, prompts: Mapping[str, Prompt], message: str
) -> list[PromptVersion]:
    """Keep prompts in the prompt registry; a text that is there already makes no new version.

    Args:
        store: Where to.
        name: What the program is called; a prompt is NAME.PREDICTOR.
        prompts: What each predictor is told.
        message: What is noted with a new version.
    """
    client, versions = store.client, []
    for predictor, prompt in prompts.items():
        # Of the signs that a name may have here.
        title = re.sub(r"[^\w.-]+", "-", f"{name}.{predictor}", flags=re.ASCII)
        text = publishable(str(prompt))[:_LONGEST_PROMPT]
        found = client.get_prompt(title) or client.create_prompt(title)
        homes = {*found.tags.get(_EXPERIMENTS, "").split(","), store.experiment_id} - {""}
        client.set_prompt_tag(title, _EXPERIMENTS, f",{','.join(sorted(homes))},")
        same = [v for v in client.search_prompt_versions(title) if v.template == text]
        tags = {"demos": str(len(prompt.demos))}
        versions += same[:1] or [client.create_prompt_version(title, text, message, tags)]
    return versions


# What two measurements may differ in and still be compared.
_FREE = {
    "dataset", "split", "source", "sha256", "limit", "seed", "versions", "prompts", "digests",
}  # fmt: skip


def decide(outcome: Outcome, reigning: Report | None) -> tuple[bool, str]:
    """Whether the alias goes to a new program, and why.

    Only if it was measured on test questions, is better than the program it was compiled from,
    and its F1 is higher than that of the reigning one, with p < 0.05 in the paired permutation
    test over both programs' stored answers to the same questions, asked of the same LM under the
    same settings and over the same passages. Everything else leaves the alias where it is, with
    the condition that failed.

    Args:
        outcome: What compiling came to.
        reigning: The champion on its held-out questions; None where there is no champion.
    """
    if outcome.held_out != "test":
        return False, "not measured on test questions, which the recipe has not seen"
    if not outcome.better:
        return False, f"{outcome.verdict}: not better than its own baseline"
    if reigning is None:
        return True, "no champion yet; better than its own baseline"
    # As they are published, since the champion's record was.
    old, new = (
        Protocol.model_validate(publishable(report.protocol.model_dump(mode="json")))
        for report in (reigning, outcome.after)
    )
    parted = [d for d in old.differences(new) if d.split()[0].partition(".")[0] not in _FREE]
    if parted:
        return False, f"the champion was measured under other conditions: {'; '.join(parted)}"
    paired = paired_test(outcome.after, reigning)
    return (
        paired.better,
        f"{'beats' if paired.better else 'does not beat'} the champion: "
        f"F1 {paired.difference:+.1f} on {paired.n} questions, p = {paired.p_value:.3g}",
    )


def _reigning(store: Store, name: str) -> Report | None:
    """The report of the champion of that name; None where there is no champion.

    Raises:
        DamagedFile: There is one, and its answers are not there, or not as this version writes
            them.
    """
    from mlflow.exceptions import MlflowException

    if ALIAS not in store.client.get_registered_model(name).aliases:
        return None
    run = store.client.get_model_version_by_alias(name, ALIAS).run_id
    try:
        with tempfile.TemporaryDirectory(prefix="ga-dspy-") as folder:
            record = Path(store.client.download_artifacts(run, REPORT, folder)).read_bytes()
        return TypeAdapter(Report).validate_json(record)
    except (MlflowException, OSError, ValueError) as error:
        raise DamagedFile(
            f"{REPORT} of run {run} cannot be read ({type(error).__name__})",
            expected=f"the answers behind the alias {ALIAS!r}",
            remedy="give the alias by hand, or delete it",
        ) from error


# --- From "models:/name@champion" and "runs:/id/path" to a folder on this disk

_FORMS = (
    "models:/NAME@ALIAS, models:/NAME/VERSION, models:/MODEL_ID, runs:/RUN_ID or runs:/RUN_ID/PATH"
)
_ADDRESS = re.compile(
    r"models:/(?P<name>[^/@]+)(@(?P<alias>[^/@]+)|/(?P<version>\d+))"
    r"|models:/(?P<model>m-[0-9a-f]+)"
    r"|runs:/(?P<run>[0-9a-f]+)(/(?P<path>.+))?"
)


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
        InputError: The address has none of these forms, or there is no such model, alias,
            version, run or folder.
        TrackingFailed: The store was not reached.
        MissingExtra: mlflow is not installed.
    """
    parts = _ADDRESS.fullmatch(uri.strip())
    if parts is None:
        raise InputError(f"the address {uri!r}", expected=_FORMS, remedy="correct the address")
    store = store_uri(tracking_uri, root)
    with reaching(store):
        return _fetched(_folder(parts, uri, store), store)


def _folder(parts: re.Match[str], uri: str, store: str) -> str:
    """The address of the files themselves, which never changes its meaning."""
    from mlflow.exceptions import MlflowException

    client, path = open_client(store), f"artifacts/{ARTIFACT}"
    try:
        if parts["run"]:
            location = client.get_run(parts["run"]).info.artifact_uri
            path = parts["path"] or ARTIFACT
        elif parts["model"]:
            location = client.get_logged_model(parts["model"]).artifact_location
        else:
            name, number = parts["name"], parts["version"]
            number = number or client.get_model_version_by_alias(name, parts["alias"]).version
            location = client.get_model_version_download_uri(name, str(number))
    except MlflowException as error:
        if error.error_code in ("RESOURCE_DOES_NOT_EXIST", "INVALID_PARAMETER_VALUE"):
            models = ", ".join(model.name for model in client.search_registered_models())
            raise InputError(
                f"{without_password(store)} has no {uri} ({' '.join(str(error).split())})",
                expected=f"a program that was compiled with tracking (there are: {models})",
                remedy="name another one, or another store by MLFLOW_TRACKING_URI",
            ) from error
        raise
    return f"{location.rstrip('/')}/{path.strip('/')}"


@cache
def _fetched(folder: str, store: str) -> Path:
    from mlflow.artifacts import download_artifacts, list_artifacts

    listed = list_artifacts(artifact_uri=folder, tracking_uri=store)
    there = {file.path.rpartition("/")[2] for file in listed}
    if missing := [file for file in FILES if file not in there]:
        raise InputError(
            f"there is no {missing[0]} in {without_password(folder)}",
            expected="the folder of an artifact",
            remedy="name a run that `ga-dspy compile` made, or the folder of the artifact in it",
        )
    target = tempfile.mkdtemp(prefix="ga-dspy-artifact-")
    atexit.register(shutil.rmtree, target, ignore_errors=True)
    for file in FILES:
        download_artifacts(artifact_uri=f"{folder}/{file}", dst_path=target, tracking_uri=store)
    return Path(target)
