"""The MLflow store: where runs are kept, what is withheld from it, and in which shapes it takes it.

The one place where errors of a store are caught is `reaching`; what goes into a `Run` has lost its
secrets on the way, since a store is shared with people who may not have your keys.
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
from ga_dspy.eval import Report, Result
from ga_dspy.eval.report import usage_by_step
from ga_dspy.secrets import secrets_in, secrets_of, without_password

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import RunInfo

EXPERIMENT = "ga-dspy"
ROOT = Path("artifacts")

_URI = "MLFLOW_TRACKING_URI"
_DATABASE, _FILES = "mlflow.db", "mlartifacts"
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
_LONGEST, _LONGEST_NAME = 500, 250
_BATCH = 100
_DIGEST = 36  # characters; MLflow takes no longer ones
_COLUMNS = (
    "id", "type", "question", "gold", "answer", "f1", "em", "support_recall", "supported",
    "steps", "calls", "tokens", "error",
)  # fmt: skip


class TrackingFailed(GaDspyError):
    """The tracking store was not reached, or refused what it was sent."""

    def __init__(self, uri: str, cause: BaseException) -> None:
        self.uri = without_password(uri)
        # What happened on the network or the disk, from under the layers that only repeat it.
        innermost = cause
        while (under := innermost.__cause__ or innermost.__context__) is not None:
            innermost = under
        found = innermost if isinstance(innermost, OSError) else cause
        text = " ".join(str(found).replace(uri, self.uri).split())
        super().__init__(
            f"MLflow at {self.uri} failed ({type(found).__name__}: {text[:300]})",
            expected="a store that takes runs",
            remedy="see that the server is up and the address right",
        )


# --- Where runs are kept: which store, in which experiment, and how long to wait for it


def local_uri(root: Path) -> str:
    """The address of the store beside the artifacts in `root`: a SQLite file."""
    return f"sqlite:///{(root.resolve() / _DATABASE).as_posix()}"


def store_uri(uri: str | None, root: Path) -> str:
    """The address given, else that of `MLFLOW_TRACKING_URI`, else the store beside `root`."""
    return uri or os.environ.get(_URI) or local_uri(root)


class Store:
    """An experiment of an MLflow store, made where it does not exist.

    No global state of MLflow is touched: neither its tracking URI nor its active run.

    Args:
        uri: Any tracking URI.
        root: The folder that keeps the files of runs, where the store is a database without a
            server that keeps them.

    Attributes:
        client: MLflow's client of this store and of its model registry.
        experiment_id: Of the experiment.

    Raises:
        TrackingFailed: The store was not reached.
        MissingExtra: mlflow is not installed.
    """

    def __init__(self, uri: str, root: Path) -> None:
        self.uri = uri
        self.client = open_client(uri)
        files = None  # a server or a file store decides
        if uri.startswith("sqlite:///"):
            files = (Path(uri.removeprefix("sqlite:///")).resolve().parent / _FILES).as_uri()
        elif uri.startswith(("postgresql", "mysql", "mssql")):
            files = (root.resolve() / _FILES).as_uri()
        with reaching(uri):
            self.experiment_id = self._experiment(files)

    def find(self, where: str) -> RunInfo | None:
        """The newest run of the experiment that a filter lets through."""
        found = self.client.search_runs([self.experiment_id], where, max_results=1)
        return found[0].info if found else None

    def _experiment(self, files: str | None) -> str:
        from mlflow.exceptions import MlflowException

        try:
            return str(self.client.create_experiment(EXPERIMENT, artifact_location=files))
        except MlflowException:
            if (found := self.client.get_experiment_by_name(EXPERIMENT)) is None:
                raise
            return str(found.experiment_id)


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
    that the user made in the environment stand. MLflow keeps its notes on its own doings (tables
    made, versions counted) to itself.

    Raises:
        TrackingFailed: The store failed: MLflow, the network, the database or the disk.
    """
    from mlflow.exceptions import MlflowException
    from sqlalchemy.exc import SQLAlchemyError

    log = logging.getLogger("mlflow")
    with _environment(_PATIENCE):
        level = log.level
        log.setLevel(max(level, logging.WARNING))
        try:
            yield
        except (MlflowException, SQLAlchemyError, OSError) as error:
            raise TrackingFailed(uri, error) from error
        finally:
            log.setLevel(level)


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


# --- What must not reach it


def publishable(value: object) -> Any:
    """A value as JSON, with everything that looks like a secret replaced by a note of its kind.

    Texts are judged line by line, so that a prompt loses a line and not its whole.

    >>> publishable({"recipe": "gepa", "api_key": "abc", "notes": ["fine", "sk-" + 20 * "x"]})
    {'recipe': 'gepa', 'api_key': '(withheld)', 'notes': ['fine', '(withheld: an API key)']}
    """
    plain = to_jsonable_python(value, inf_nan_mode="null", fallback=str)
    return _clean(plain, secrets_of(addresses=True))


def _clean(value: JsonValue, known: Collection[str]) -> JsonValue:
    if isinstance(value, str):
        return "\n".join(_line(line, known) for line in value.split("\n"))
    if isinstance(value, Mapping):
        return {
            key: "(withheld)" if any(secrets_in({key: None}, "", known)) else _clean(inner, known)
            for key, inner in value.items()
        }
    if isinstance(value, Sequence):
        return [_clean(inner, known) for inner in value]
    return value


def _line(line: str, known: Collection[str]) -> str:
    found = next(secrets_in(line, "", known), None)
    if found is not None:
        return f"(withheld: {found.kind})"
    # Models emit lone surrogates (JSON can spell them); UTF-8 has none.
    return line.encode("utf-8", "replace").decode()


# --- In which shapes it takes the rest


class Run:
    """A run in a store, open until it is ended; times are in milliseconds.

    Args:
        store: Where it is.
        name: Its name.
        kind: "compile", "candidate" or "eval".
        at: When it began.
        tags: More tags.
        begun: A run to go on with, in place of a new one.
    """

    def __init__(
        self,
        store: Store,
        name: str,
        kind: str,
        at: int,
        tags: Mapping[str, str] | None = None,
        begun: RunInfo | None = None,
    ) -> None:
        self.store, self.client = store, store.client
        if begun is not None:
            self.id = str(begun.run_id)
            self.client.update_run(self.id, status="RUNNING")
            return
        ours = {"mlflow.source.name": "ga_dspy", "mlflow.source.type": "LOCAL"}
        made = self.client.create_run(
            store.experiment_id,
            start_time=at,
            tags={**ours, "ga_dspy.kind": kind, **(tags or {})},
            run_name=name,
        )
        self.id = str(made.info.run_id)

    def parameters(self, parameters: Mapping[str, object]) -> None:
        """Log parameters by dotted name; a value that is too long is cut."""
        from mlflow.entities import Param

        params = [
            Param(re.sub(r"[^\w\-. /:]", "_", name)[:_LONGEST_NAME] or "_", _cut(value))
            for name, value in _flat(publishable(parameters))
        ]
        for start in range(0, len(params), _BATCH):
            batch = params[start : start + _BATCH]
            self.client.log_batch(self.id, params=batch, synchronous=True)

    def metrics(
        self, values: Mapping[str, float | None], at: int, step: int = 0, model: str | None = None
    ) -> None:
        """Log metrics, also with a logged model where one is named; None is left out."""
        from mlflow.entities import Metric

        metrics = [
            Metric(name, float(value), at, step, model, run_id=self.id)
            for name, value in values.items()
            if value is not None
        ]
        self.client.log_batch(self.id, metrics=metrics, synchronous=True)

    def data(self, sets: Mapping[str, Mapping[str, Any]]) -> None:
        """Log question sets as datasets, with what is known of each."""
        for role, facts in sets.items():
            profile = json.dumps(publishable(facts), ensure_ascii=False)
            self._input(
                role, facts["name"], facts["sha256"], "local", {"uri": facts["name"]}, profile
            )

    def _input(
        self, role: str, name: str, sha256: str, kind: str, source: Any, profile: str | None = None
    ) -> None:
        from mlflow.entities import Dataset, DatasetInput, InputTag

        dataset = Dataset(name, sha256[:_DIGEST], kind, json.dumps(source), profile=profile)
        tags = [InputTag("mlflow.data.context", role)]
        self.client.log_inputs(self.id, [DatasetInput(dataset, tags)])

    def questions(self, report: Report, role: str) -> None:
        """Keep the questions of a report, with their answers, as an evaluation dataset of MLflow.

        One that holds the same questions already is taken as it is.
        """
        protocol, home = report.protocol, self.store.experiment_id
        # Of how many: a report may lack some that failed.
        digest = f"{protocol.questions_sha256[:24]}-{len(report.results)}"
        found = self.client.search_datasets([home], f"tags.questions = '{digest}'", 1)
        with pointed_at(self.store.uri):  # a dataset looks its records up in the process-wide store
            if found:
                dataset = found[0]
            else:
                name = publishable(f"{protocol.source} {digest[:8]}")
                dataset = self.client.create_dataset(name, home, {"questions": digest})
                for start in range(0, len(report.results), _BATCH):
                    rows: Any = publishable(
                        {
                            "inputs": {"question": result.question},
                            "expectations": {"expected_response": expected(result)},
                        }
                        for result in report.results[start : start + _BATCH]
                    )
                    dataset.merge_records(rows)
        source, kind = {"dataset_id": dataset.dataset_id}, "mlflow_evaluation_dataset"
        self._input(role, dataset.name, digest, kind, source)

    def tag(self, name: str, text: str, longest: int | None = None) -> None:
        """Set a tag."""
        self.client.set_tag(self.id, name, publishable(text)[:longest])

    def text(self, path: str, text: str) -> None:
        """Log a text as a file."""
        self.client.log_text(self.id, publishable(text), path)

    def json(self, path: str, value: object) -> None:
        """Log a value as a JSON file."""
        text = json.dumps(publishable(value), ensure_ascii=False, indent=2)
        self.client.log_text(self.id, text, path)

    def predictions(self, report: Report, before: Report | None = None) -> None:
        """Log a table with a row a question.

        With `before`, a report on the same questions, its answers and scores stand beside them.
        """
        rows = []
        for result, old in zip(report.results, (before or report).results, strict=True):
            row = {column: getattr(result, column) for column in _COLUMNS}
            row["gold"] = " | ".join(result.gold)
            if report.protocol.judge:
                row["judge"] = result.judged.right if result.judged else None
            if before is not None:
                row |= {"answer_before": old.answer, "f1_before": old.f1}
                row["f1_gained"] = result.f1 - old.f1
            rows.append(row)
        clean: Any = publishable(rows)
        columns = {column: [row[column] for row in clean] for column in clean[0]} if clean else {}
        self.client.log_table(self.id, columns, "predictions.json")

    def end(self, at: int, status: str = "FINISHED") -> None:
        """Close it."""
        self.client.set_terminated(self.id, status, end_time=at)


def expected(result: Result) -> str | list[str]:
    """What MLflow calls the expected response: the accepted answer, or all of them."""
    return result.gold[0] if len(result.gold) == 1 else list(result.gold)


def report_metrics(report: Report, questions: str = "test") -> dict[str, float | None]:
    """The scores of a report with its interval, and what a question cost, as metrics.

    Where steps have LMs of their own, also what each step cost. Their names begin with the
    `questions` they are of, so that runs of any kind meet in one chart.
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
    for step, usage in usage_by_step(report.results).items() if report.protocol.lms else ():
        spent = {"calls": usage.calls, "tokens": usage.tokens, "money": usage.cost}
        values |= {f"{step}/{k}": None if v is None else v / n for k, v in spent.items()}
    return {f"{questions}/{name}": value for name, value in values.items()}


def report_record(report: Report) -> dict[str, Any]:
    """A report as JSON, without rounds and the passages' texts."""
    results = [result.model_dump(mode="json", exclude={"trace"}) for result in report.results]
    for result in results:
        result["passages"] = [{**passage, "text": ""} for passage in result["passages"]]
    protocol = report.protocol.model_dump(mode="json")
    return {"protocol": protocol, "seconds": report.seconds, "results": results}


def _flat(value: JsonValue, name: str = "") -> Iterator[tuple[str, JsonValue]]:
    if isinstance(value, dict) and value:
        for key, inner in value.items():
            yield from _flat(inner, f"{name}.{key}" if name else key)
    else:
        yield name, value


def _cut(value: JsonValue) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"
