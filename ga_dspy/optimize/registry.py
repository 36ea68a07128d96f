"""MLflow's model registry: compiled programs as models, the champion, and their addresses."""

from __future__ import annotations

import atexit
import hashlib
import json
import re
import shutil
import tempfile
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING
from warnings import catch_warnings, filterwarnings

from pydantic import TypeAdapter

from ga_dspy.artifact.artifact import FILES, show
from ga_dspy.errors import DamagedFile, InputError
from ga_dspy.eval import Protocol, Report, paired_test
from ga_dspy.optimize.mlflow_store import ROOT, pointed_at, publishable, reaching, store_uri
from ga_dspy.optimize.trials import Outcome
from ga_dspy.retrieval import Index
from ga_dspy.secrets import without_password

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities.model_registry import PromptVersion

ALIAS = "champion"
REPORT = "reports/after.json"
ARTIFACT = "artifact"

_SERVED = Path(__file__).with_name("served.py")
_PROGRAM = "ga_dspy.program"  # the tag by which a registered program is recognised
_QUESTION = {"question": ""}
_ANSWER = {
    "answer": "", "verdict": "", "supported": "", "evidence": [""], "cited": [""],
    "failures": [""], "steps": 1, "calls": 1, "tokens": 1,
}  # fmt: skip


def register_program(
    client: MlflowClient,
    uri: str,
    run: str,
    outcome: Outcome,
    card: str,
    packed: Mapping[str, Path | None],
) -> tuple[str | None, str]:
    """Register a compiled program as a model, and make it the champion if `decide` says so.

    A program that is registered already, such as that of a repeated compilation, gets no second
    version.

    Args:
        client: The client of the store.
        uri: The store.
        run: The run of the compilation.
        outcome: The result of the compilation.
        card: Its score card, for the description of the version.
        packed: The "index" to pack with the program, so that it can be served by itself, and the
            "graph" of the index's passages, for a program that searches one.

    Returns:
        The id of the logged model, if it is a new one; its name and version, and whether it is the
        champion.

    Raises:
        GaDspyError: The packed model does not load, so it could not be served.
    """
    import mlflow

    # MLflow's addresses give "/", ":" and "@" a meaning, so names have none of them.
    name = re.sub(r"[/:@]+", "-", outcome.artifact.resolve().name).strip() or "ga-dspy"
    index, digest = packed["index"], _digest(outcome, packed)
    for known in client.search_model_versions(f"name = '{name}'"):
        if known.tags.get(_PROGRAM) == digest:
            return None, f"{name} version {known.version}: the same program, registered before"
    with pointed_at(uri):
        model = _log_model(run, outcome, packed, _register_prompts(client, name, outcome))
        # Load it as a server will, before anybody is told to serve it; only a server knows the
        # conditions that a protected index requires.
        if index and not Index.open(index).require:
            mlflow.pyfunc.load_model(f"models:/{model}")
        try:
            is_champion, reason = decide(outcome, _champion(client, name))
        except DamagedFile as error:
            is_champion, reason = False, f"the champion stays: {error}"
        tags = {"champion_decision": reason, _PROGRAM: digest, "f1": str(outcome.after.f1)}
        made = mlflow.register_model(f"models:/{model}", name, tags=tags)
    serve = f"mlflow models serve -m models:/{name}/{made.version} --env-manager local"
    client.update_model_version(name, made.version, f"{card}\n\nServe it: `{serve}`")
    if is_champion:
        client.set_registered_model_alias(name, ALIAS, made.version)
    title = ALIAS if is_champion else f"not {ALIAS}"
    return model, f"{name} version {made.version}: {title} ({reason})"


def _digest(outcome: Outcome, packed: Mapping[str, Path | None]) -> str:
    """Return what identifies a compiled program: its artifact, and what it was measured on."""
    parts = {"program", "settings", "sha256", "lms", "predictor_lms"}
    manifest = show(outcome.artifact).manifest.model_dump(mode="json", include=parts)
    answers = [(result.id, result.answer) for result in outcome.after.results]
    protocol = outcome.after.protocol
    about = [manifest, answers, protocol.corpus, protocol.graph, any(packed.values())]
    return hashlib.sha256(json.dumps(about, sort_keys=True).encode()).hexdigest()


def _register_prompts(client: MlflowClient, name: str, outcome: Outcome) -> list[PromptVersion]:
    """Keep the prompts in the prompt registry, those of the program as given first."""
    versions = []
    for predictor, prompt in outcome.prompts_after.items():
        title = re.sub(r"[^\w.-]+", "-", f"{name}.{predictor}", flags=re.ASCII)
        before, after = (
            publishable(str(one)) for one in (outcome.prompts_before[predictor], prompt)
        )
        if client.get_prompt(title) is None:
            client.register_prompt(title, before, "as given")
        message = f"by {outcome.recipe}: {outcome.verdict}"
        versions.append(client.register_prompt(title, after, message))
    return versions


def _log_model(
    run: str,
    outcome: Outcome,
    packed: Mapping[str, Path | None],
    prompts: list[PromptVersion],
) -> str:
    """Log a compiled program as a model of code and JSON, never a pickle; return its id."""
    import mlflow
    from mlflow.models import infer_signature

    # A packed index may want the model that made its vectors.
    extras = "minilm,offline,optimize" if packed["index"] else "offline,optimize"
    ours = f"ga-dspy[{extras}]=={version('ga-dspy')}"
    with catch_warnings(), tempfile.TemporaryDirectory(prefix="ga-dspy-") as folder:
        filterwarnings("ignore", "Hint: Inferred schema contains integer")
        filterwarnings("ignore", ".*An input example was not provided")
        # Under its own name whatever the folder is called, and without what else lies in it.
        copied = Path(folder, ARTIFACT)
        copied.mkdir()
        for file in FILES:
            shutil.copyfile(outcome.artifact / file, copied / file)
        with mlflow.start_run(run_id=run, nested=True):
            # No input example: MLflow would ask the program, and so an LM, to check it.
            logged = mlflow.pyfunc.log_model(
                name="program",
                python_model=str(_SERVED),
                artifacts={
                    ARTIFACT: str(copied),
                    **{part: str(path.resolve()) for part, path in packed.items() if path},
                },
                signature=infer_signature([_QUESTION], [_ANSWER]),
                pip_requirements=[ours, *(f"{lib}=={version(lib)}" for lib in ("dspy", "mlflow"))],
                metadata={"corpus": outcome.after.protocol.corpus},
                model_type="ga-dspy",
                prompts=prompts,
            )
    return str(logged.model_id)


# --- Which of the registered programs is the champion

# What two measurements may differ in and still be compared.
_FREE = {
    "dataset", "split", "source", "sha256", "limit", "seed", "versions", "prompts", "digests",
}  # fmt: skip


def decide(outcome: Outcome, champion: Report | None) -> tuple[bool, str]:
    """Return whether a new program becomes the champion, and why.

    It does only if it was measured on test questions, is better than the program it was compiled
    from, and has a higher F1 than the current champion, with p < 0.05 in the paired permutation
    test over both programs' stored answers to the same questions, asked of the same LM under the
    same settings and over the same passages.

    Args:
        outcome: What compiling came to.
        champion: The current champion on its held-out questions; None if there is none.
    """
    if outcome.held_out != "test":
        return False, "not measured on test questions, which the recipe has not seen"
    if not outcome.better:
        return False, f"{outcome.verdict}: not better than its own baseline"
    if champion is None:
        return True, "no champion yet; better than its own baseline"
    # In the published form, which is the one that the champion's record has.
    old, new = (
        Protocol.model_validate(publishable(report.protocol.model_dump(mode="json")))
        for report in (champion, outcome.after)
    )
    parted = [d for d in old.differences(new) if d.split()[0].partition(".")[0] not in _FREE]
    if parted:
        return False, f"the champion was measured under other conditions: {'; '.join(parted)}"
    paired = paired_test(outcome.after, champion)
    verb = "beats" if paired.better else "does not beat"
    return paired.better, (
        f"{verb} the champion: F1 {paired.difference:+.1f} on {paired.n} questions, "
        f"p = {paired.p_value:.3g}"
    )


def _champion(client: MlflowClient, name: str) -> Report | None:
    """Return the report of the current champion, None if there is none.

    Raises:
        DamagedFile: There is one, and its answers cannot be read.
    """
    from mlflow.exceptions import MlflowException

    models = client.search_registered_models(f"name = '{name}'")
    if not any(ALIAS in model.aliases for model in models):
        return None
    run = client.get_model_version_by_alias(name, ALIAS).run_id
    try:
        with tempfile.TemporaryDirectory(prefix="ga-dspy-") as folder:
            record = Path(client.download_artifacts(run, REPORT, folder)).read_bytes()
        return TypeAdapter(Report).validate_json(record)
    except (MlflowException, OSError, ValueError) as error:
        raise DamagedFile(
            f"{REPORT} of run {run} cannot be read ({type(error).__name__})",
            expected=f"the answers behind the alias {ALIAS!r}",
            remedy="give the alias by hand, or delete it",
        ) from error


# --- From an address to a folder on this disk


def resolve(uri: str, *, tracking_uri: str | None = None, root: Path = ROOT) -> Path:
    """Download the artifact of a compiled program from MLflow.

    It goes into a folder that is removed when the process ends. Nothing of it is executed or
    unpickled.

    Args:
        uri: "models:/name@alias", "models:/name/3" or "runs:/id/artifact".
        tracking_uri: The store; by default `MLFLOW_TRACKING_URI`, else `mlflow.db` in `root`.
        root: The folder of the local store.

    Returns:
        A folder with manifest.json and program.json.

    Raises:
        InputError: There is no such model, alias, version, run or folder.
        TrackingFailed: The store was not reached.
        MissingExtra: mlflow is not installed.
    """
    store = store_uri(tracking_uri, root)
    folder = uri if uri.startswith("runs:") else f"{uri}/artifacts/{ARTIFACT}"
    target = tempfile.mkdtemp(prefix="ga-dspy-artifact-")
    atexit.register(shutil.rmtree, target, ignore_errors=True)
    with reaching(store) as client, pointed_at(store):
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
