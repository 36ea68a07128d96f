"""Tracking in MLflow: compilations, the registry of their programs, and evaluations."""

from __future__ import annotations

import hashlib
import json
import re
import shlex
import tempfile
import warnings
from collections.abc import Callable, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from pydantic import TypeAdapter

from ga_dspy.artifact import FILES
from ga_dspy.eval import Protocol, Report, paired_test
from ga_dspy.eval.report import usage_by_step
from ga_dspy.optimize.mlflow_store import (
    ROOT,
    experiment_of,
    mlflow_client,
    store_uri,
    without_secrets,
)
from ga_dspy.optimize.trials import AS_GIVEN, Candidate, Outcome
from ga_dspy.secrets import without_password

if TYPE_CHECKING:
    from mlflow import ActiveRun, MlflowClient
    from mlflow.entities.model_registry import PromptVersion

ALIAS = "champion"
REPORT = "reports/after.json"
ARTIFACT = "artifact"

_SERVED = Path(__file__).with_name("served.py")
_ANSWER = {
    "answer": "", "verdict": "", "supported": "", "evidence": [""], "cited": [""],
    "failures": [""], "steps": 1, "calls": 1, "tokens": 1,
}  # fmt: skip
_SAME = "ga_dspy.same"  # the tag that identifies a run, so that it is logged only once
# LiteLLM, which MLflow's server imports, fetches a price list; offline, that can hang forever.
_OFFLINE = "LITELLM_LOCAL_MODEL_COST_MAP=True"
_COLUMNS = (
    "id", "type", "question", "answer", "f1", "em", "support_recall", "supported", "steps", "calls",
    "tokens", "error",
)  # fmt: skip


class Tracked(NamedTuple):
    """The run of a compilation or an evaluation in MLflow.

    Attributes:
        uri: The address of the store.
        experiment: The id of the experiment.
        run_id: The id of the run.
        is_new: False if a run with the same answers was logged before.
        place: For a compilation, one line on the program's version in the registry.
    """

    uri: str
    experiment: str
    run_id: str
    is_new: bool
    place: str = "logged before"

    @property
    def how_to_open(self) -> str:
        """The address of its page, or the command that starts a server."""
        where = without_password(self.uri)
        if where.startswith(("http://", "https://")):
            return f"{where.rstrip('/')}/#/experiments/{self.experiment}/runs/{self.run_id}"
        return f"{_OFFLINE} mlflow ui --backend-store-uri {shlex.quote(where)}"


# --- A compilation: a run, and a nested run for each candidate


def track_compilation(
    outcome: Outcome,
    *,
    uri: str | None = None,
    root: Path = ROOT,
    index: Path | None = None,
    graph: Path | None = None,
) -> Tracked:
    """Log a finished compilation as a run, its candidates as nested runs; register the program.

    A compilation with the same setup and the same answers is logged only once. An unchanged program
    is not registered.

    Args:
        outcome: The result of the compilation.
        uri: Any tracking URI; by default `MLFLOW_TRACKING_URI`, else `mlflow.db` in `root`.
        root: The folder of the local store.
        index: A retrieval index to pack with the program, so that it can be served elsewhere.
        graph: The corpus graph to pack with a program that searches one.

    Raises:
        TrackingFailed: The store failed.
        MissingExtra: mlflow is not installed.
    """
    before, after = outcome.before, outcome.after
    folders = {"index": index, "graph": graph}
    packed = {part: path.resolve() for part, path in folders.items() if path is not None}
    about = ("recipe", "parameters", "seed", "held_out", "data")
    setup = {
        **after.protocol.model_dump(mode="json"),
        **{name: getattr(outcome, name) for name in about},
        "lm": outcome.lms,
    }
    answers = [(result.id, result.answer) for result in (*before.results, *after.results)]
    same = _digest([setup, answers, [*packed]])

    def log(client: MlflowClient, experiment: str) -> str:
        import mlflow

        _log_params(setup)
        for candidate in outcome.candidates:
            _log_candidate(candidate, outcome, experiment)
        mlflow.log_table(_table(after), "predictions.json")
        mlflow.log_dict(without_secrets(_record(after)), REPORT)
        for file in FILES:
            mlflow.log_artifact(str(outcome.artifact / file), ARTIFACT)
        if outcome.figure.is_file():
            mlflow.log_artifact(str(outcome.figure))
        # Log the metrics before the model, which takes them over from its run.
        _log_metrics(report_metrics(after, outcome.held_out))
        _log_metrics(_gains(outcome))
        card = score_card(outcome)
        place = "no version registered: the program is unchanged"
        if not outcome.unchanged:
            place = register_program(client, outcome, card, packed)
        note = f"{card}\n\n{place}"
        mlflow.set_tags({"ga_dspy.verdict": outcome.verdict, "mlflow.note.content": note})
        return place

    name = f"{after.protocol.program} by {outcome.recipe}"
    return _track_once(store_uri(uri, root), root, name, "compile", same, log)


def _gains(outcome: Outcome) -> dict[str, float | None]:
    """Return the scores of the program as given, the gain and the cost, as metrics."""
    return {
        **report_metrics(outcome.before, "baseline"),
        **{f"cost/{part}": value for part, value in outcome.cost().items()},
        "gain/f1": outcome.after.f1 - outcome.before.f1,
        "gain/p_value": outcome.p_value,
        "gain/better": outcome.better,
        "gain/dropped_demos": len(outcome.dropped_demos),
        "candidates/number": len(outcome.candidates),
        **outcome.shortfall,
    }


def _log_candidate(c: Candidate, outcome: Outcome, experiment: str) -> None:
    """Log a candidate as a nested run, and its score in the run of the compilation."""
    import mlflow

    prompts = c.prompts or {}
    about = {
        predictor: {"demos": len(prompt.demos), "instruction": _digest(prompt.instruction)[:12]}
        for predictor, prompt in prompts.items()
    }
    with _open_run(experiment, f"{c.number}: {c.description}", "candidate"):
        recipe = {"recipe": outcome.recipe, "parameters": outcome.parameters}
        _log_params({**recipe, "prompts": c.mark, **about})
        cost = {f"cost/{part}": getattr(c, part) for part in ("calls", "tokens", "seconds")}
        _log_metrics({"validation/score": c.score, **cost})
        text = "\n\n".join(f"=== {name} ===\n{prompt}" for name, prompt in prompts.items())
        mlflow.log_text(without_secrets(text), "prompts.txt")
    curves = {"score": c.score, "best": c.best, "tokens": c.tokens}
    _log_metrics({f"candidates/{name}": value for name, value in curves.items()}, step=c.number)


def score_card(outcome: Outcome) -> str:
    """Return the verdict, the scores before and after, and the cost, as Markdown."""
    before, after, spent = outcome.before, outcome.after, outcome.spent
    stopped = f", stopped early: {outcome.stopped}" if outcome.stopped else ""
    p_value = f"p = {outcome.p_value:.3g}, {outcome.basis}"
    scores = f"F1 {before.f1:.1f} → {after.f1:.1f}, EM {before.em:.1f} → {after.em:.1f}"
    cost = f"{spent.calls:,} LM calls, {spent.tokens:,} tokens, {outcome.seconds:,.0f} s"
    card = f"**{outcome.verdict}** by {outcome.recipe}: {scores} ({p_value}); {cost}{stopped}"
    return str(without_secrets(card))


# --- The registry: compiled programs as models, and the champion among them


def register_program(
    client: MlflowClient, outcome: Outcome, card: str, packed: dict[str, Path]
) -> str:
    """Register a compiled program as a model, and make it the champion if `decide` says so.

    Args:
        client: The client of the store that MLflow points at; the compilation is the active run.
        outcome: The result of the compilation.
        card: Its score card, for the description of the version.
        packed: The folders to pack with the program: "index", and "graph" for a program that
            searches one.

    Returns:
        The name, the version, and whether it is the champion, in one line.
    """
    import mlflow

    # In MLflow's addresses and filters these characters have a meaning.
    name = re.sub(r"[/:@'\"]+", "-", outcome.artifact.resolve().name).strip() or "ga-dspy"
    is_champion, reason = decide(outcome, _champion(client, name))
    model = _log_model(outcome, packed, _register_prompts(client, name, outcome))
    tags = {"champion_decision": reason, "f1": str(outcome.after.f1)}
    made = mlflow.register_model(f"models:/{model}", name, tags=tags)
    serve = f"mlflow models serve -m models:/{name}/{made.version} --env-manager local"
    client.update_model_version(name, made.version, f"{card}\n\nServe it: `{serve}`")
    if is_champion:
        client.set_registered_model_alias(name, ALIAS, made.version)
    title = ALIAS if is_champion else f"not {ALIAS}"
    return f"{name} version {made.version}: {title} ({reason})"


def _register_prompts(client: MlflowClient, name: str, outcome: Outcome) -> list[PromptVersion]:
    """Register the prompts, those of the program as given as first versions."""
    versions = []
    for predictor, prompt in outcome.prompts_after.items():
        title = re.sub(r"[^\w.-]+", "-", f"{name}.{predictor}", flags=re.ASCII)
        given = outcome.prompts_before.get(predictor)
        if given is not None and client.get_prompt(title) is None:
            client.register_prompt(title, without_secrets(str(given)), AS_GIVEN)
        message = f"by {outcome.recipe}: {outcome.verdict}"
        versions.append(client.register_prompt(title, without_secrets(str(prompt)), message))
    return versions


def _log_model(outcome: Outcome, packed: dict[str, Path], prompts: list[PromptVersion]) -> str:
    """Log a compiled program as a model of code and JSON, never a pickle; return its id."""
    import mlflow
    from mlflow.models import infer_signature

    # A packed index may need the model that made its vectors.
    extras = "minilm,offline,optimize" if packed else "offline,optimize"
    requirements = [f"ga-dspy[{extras}]=={version('ga-dspy')}"]
    requirements += [f"{library}=={version(library)}" for library in ("dspy", "mlflow")]
    # All files are in one folder of the model; `from_config` finds them by name.
    names = {"artifact": ".", **{part: path.name for part, path in packed.items()}}
    files = [*(outcome.artifact / file for file in FILES), *packed.values()]
    with warnings.catch_warnings(), tempfile.TemporaryDirectory(prefix="ga-dspy-") as folder:
        warnings.simplefilter("ignore")  # hints on schemas and examples
        config = Path(folder, "ga-dspy.toml")
        config.write_text("".join(f"{part} = {json.dumps(at)}\n" for part, at in names.items()))
        # Without an input example: to check it, MLflow would run the program, and so call an LM.
        logged = mlflow.pyfunc.log_model(
            name="program",
            python_model=str(_SERVED),
            artifacts={"config": str(config), **{file.name: str(file) for file in files}},
            signature=infer_signature([{"question": ""}], [_ANSWER]),
            pip_requirements=requirements,
            metadata={"corpus": outcome.after.protocol.corpus},
            model_type="ga-dspy",
            prompts=prompts,
        )
    return str(logged.model_id)


# --- Which of the registered programs is the champion

# Fields in which two protocols may differ if their scores are compared.
_FREE = {
    "dataset", "split", "source", "sha256", "limit", "seed", "versions", "prompts", "digests",
}  # fmt: skip


def decide(outcome: Outcome, champion: Report | None) -> tuple[bool, str]:
    """Return whether a new program becomes the champion, and why.

    It does only if it was measured on test questions, is better than the program it was compiled
    from, and has a higher F1 than the current champion, with p < 0.05 in the paired permutation
    test over both programs' stored answers to the same questions, by the same LM with the same
    settings and passages.

    Args:
        outcome: The result of the compilation.
        champion: The report of the current champion; None if there is none.
    """
    if outcome.held_out != "test":
        return False, "not measured on test questions, which the recipe has not seen"
    failed_before, failed_after = outcome.failures
    if failed_after > failed_before:
        more = f"{failed_after} instead of {failed_before}"
        return False, f"more questions failed than with its own baseline ({more})"
    if not outcome.better:
        gain = f"F1 {outcome.after.f1 - outcome.before.f1:+.1f}, p = {outcome.p_value:.3g}"
        return False, f"not significantly better than its own baseline ({gain})"
    if champion is None:
        return True, "no champion yet; better than its own baseline"
    old, new = _published(champion.protocol), _published(outcome.after.protocol)
    unlike = [d for d in old.differences(new) if d.split()[0].partition(".")[0] not in _FREE]
    if unlike:
        return False, f"the champion was measured under other conditions: {'; '.join(unlike)}"
    paired = paired_test(outcome.after, champion)
    verb = "beats" if paired.better else "does not beat"
    test = f"F1 {paired.difference:+.1f} on {paired.n} questions, p = {paired.p_value:.3g}"
    return paired.better, f"{verb} the champion: {test}"


def _published(protocol: Protocol) -> Protocol:
    """Return a protocol without secrets, as the stored record of a champion has it."""
    return Protocol.model_validate(without_secrets(protocol.model_dump(mode="json")))


def _champion(client: MlflowClient, name: str) -> Report | None:
    """Return the report of the current champion; None if there is none."""
    models = client.search_registered_models(f"name = '{name}'")
    if not any(ALIAS in model.aliases for model in models):
        return None
    run = client.get_model_version_by_alias(name, ALIAS).run_id
    with tempfile.TemporaryDirectory(prefix="ga-dspy-") as folder:
        record = Path(client.download_artifacts(run, REPORT, folder)).read_bytes()
    return TypeAdapter(Report).validate_json(record)


# --- An evaluation as one run


def track_evaluation(report: Report, *, uri: str | None = None, root: Path = ROOT) -> Tracked:
    """Log a finished evaluation as a run: protocol, scores with intervals, predictions.

    An evaluation with the same answers and verdicts is logged only once.

    Args:
        report: The report of the evaluation.
        uri: Any tracking URI; by default `MLFLOW_TRACKING_URI`, else `mlflow.db` in `root`.
        root: The folder of the local store.

    Raises:
        TrackingFailed: The store failed.
        MissingExtra: mlflow is not installed.
    """
    protocol = report.protocol
    answers = [(r.answer, r.error, *([r.judged.right] if r.judged else [])) for r in report.results]

    def log(*_: object) -> str:
        import mlflow

        _log_params(protocol.model_dump(mode="json"))
        _log_metrics(report_metrics(report))
        mlflow.log_table(_table(report), "predictions.json")
        return ""

    name = f"{protocol.program} on {protocol.dataset} with {protocol.lm_names}"
    same = _digest([protocol.hash, *answers])
    return _track_once(store_uri(uri, root), root, name, "eval", same, log)


# --- The content of a run


def _track_once(
    store: str, root: Path, name: str, kind: str, same: str, log: Callable[[MlflowClient, str], str]
) -> Tracked:
    """Log a run, unless a finished one has the same tag; `log` returns its place, if any."""
    with mlflow_client(store) as client:
        experiment = experiment_of(client, store, root)
        where = f"tags.`{_SAME}` = '{same}' and attributes.status = 'FINISHED'"
        if found := client.search_runs([experiment], where, max_results=1):
            return Tracked(store, experiment, str(found[0].info.run_id), is_new=False)
        with _open_run(experiment, name, kind, same) as run:
            place = log(client, experiment)
    return Tracked(store, experiment, run.info.run_id, is_new=True, place=place)


def _open_run(experiment: str, name: str, kind: str, same: str = "") -> ActiveRun:
    """Start a run, which ends with the `with` block."""
    import mlflow

    tags, name = {"ga_dspy.kind": kind, _SAME: same}, without_secrets(name)
    return mlflow.start_run(experiment_id=experiment, run_name=name, nested=True, tags=tags)


def _log_params(values: Mapping[str, Any]) -> None:
    """Log nested values by dotted names."""
    import mlflow
    import pandas as pd

    flat = pd.json_normalize(without_secrets(values)).to_dict("records")[0]
    # Names from a schema may have characters that MLflow refuses.
    mlflow.log_params({re.sub(r"[^/\w.\- :]", "_", name): value for name, value in flat.items()})


def _log_metrics(values: Mapping[str, float | None], **at: Any) -> None:
    """Log values; None is left out."""
    import mlflow

    known = {name: float(value) for name, value in values.items() if value is not None}
    mlflow.log_metrics(known, **at)


def report_metrics(report: Report, questions: str = "test") -> dict[str, float | None]:
    """Return the scores of a report, with the interval of F1 and the cost per question, as metrics.

    If steps have their own LMs, the cost of each step is included. Names begin with `questions`,
    the set measured on, so that one chart shows runs of all kinds.
    """
    summary, n = report.summary(), len(report.results)
    low, high = summary["ci95"]
    shares = ("em", "acc", "support_recall", "supported", "chained", "failures", "degraded")
    values = {
        "f1": report.f1, "f1_low": low, "f1_high": high, "judge": report.judged,
        **{name: summary[name] for name in shares},
        "calls": summary["lm_calls_mean"], "tokens": summary["tokens_mean"],
        "steps": summary["steps_mean"], "seconds": report.seconds / n,
        "money": None if report.usage.cost is None else report.usage.cost / n,
    }  # fmt: skip
    usages = usage_by_step(report.results) if report.protocol.lms else {}
    for step, usage in usages.items():
        values[f"{step}/calls"] = usage.calls / n
        values[f"{step}/tokens"] = usage.tokens / n
        values[f"{step}/money"] = None if usage.cost is None else usage.cost / n
    return {f"{questions}/{name}": value for name, value in values.items()}


def _record(report: Report) -> dict[str, Any]:
    """Return a report as JSON, without rounds and passages."""
    left_out = {"trace", "passages"}
    results = [result.model_dump(mode="json", exclude=left_out) for result in report.results]
    return {"protocol": report.protocol.model_dump(mode="json"), "results": results}


def _table(report: Report) -> Any:
    """Return the answers and scores as a table."""
    import pandas as pd

    rows = []
    for result in report.results:
        row = {column: getattr(result, column) for column in _COLUMNS}
        row["gold"] = " | ".join(result.gold)
        if report.protocol.judge:
            row["judge"] = result.judged.right if result.judged else None
        rows.append(row)
    return pd.DataFrame(without_secrets(rows))


def _digest(value: object) -> str:
    return hashlib.sha256(json.dumps(value, default=str).encode()).hexdigest()
