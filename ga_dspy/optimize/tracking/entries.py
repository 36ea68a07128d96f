"""What is told of a run, in the shapes that MLflow takes."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from pydantic import JsonValue

from ga_dspy.eval import Report, Result
from ga_dspy.optimize.tracking.withheld import publishable

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import DatasetInput

_LONGEST = 500
_BATCH = 100
_DIGEST = 36  # characters; MLflow takes no longer ones
_DIGESTS = ("sha256", "questions_sha256", "fingerprint", "digest")
_SOURCES = ("source", "file", "path", "name")


def log_parameters(client: MlflowClient, run: str, parameters: Mapping[str, object]) -> None:
    """Parameters by dotted name; a value that is too long is cut."""
    from mlflow.entities import Param

    flat = _flat(publishable(parameters))
    params = [Param(_key(name), _text(value)) for name, value in flat]
    for start in range(0, len(params), _BATCH):
        client.log_batch(run, params=params[start : start + _BATCH], synchronous=True)


def log_metrics(
    client: MlflowClient,
    run: str,
    values: Mapping[str, float | int | bool | None],
    at: int,
    step: int = 0,
) -> None:
    """Metrics at a time in milliseconds; a value of None is left out."""
    from mlflow.entities import Metric

    told = {name: float(value) for name, value in values.items() if value is not None}
    metrics = [Metric(name, value, at, step) for name, value in told.items()]
    client.log_batch(run, metrics=metrics, synchronous=True)


def log_data(client: MlflowClient, run: str, data: Mapping[str, Mapping[str, Any]]) -> None:
    """Each question set as a dataset: its fingerprint, its source and what else is known of it."""
    client.log_inputs(run, [_dataset(role, facts) for role, facts in data.items()])


def report_metrics(report: Report, suffix: str = "") -> dict[str, float | None]:
    """The scores of a report with its interval, and what a question cost, as metrics."""
    summary = report.summary()
    low, high = summary["ci95"]
    named = {
        "f1": report.f1, "f1_ci95_low": low, "f1_ci95_high": high, "em": report.em,
        "acc": report.acc, "support_recall": report.support_recall,
        "failures": float(len(report.failed)),
        "calls_per_question": summary["lm_calls_mean"],
        "tokens_per_question": summary["tokens_mean"],
        "steps_per_question": summary["steps_mean"],
    }  # fmt: skip
    return {f"{name}{suffix}": value for name, value in named.items()}


def predictions(report: Report, before: Report | None = None) -> dict[str, list[JsonValue]]:
    """A table with a row a question, column by column.

    With `before`, the answers and scores of that report stand beside those of `report`.
    """
    rows = [_row(result) for result in report.results]
    if before is not None:
        earlier = {(old.id, old.question): old for old in before.results}
        for row, result in zip(rows, report.results, strict=True):
            old = earlier.get((result.id, result.question))
            row["answer_before"] = old.answer if old else None
            row["f1_before"] = old.f1 if old else None
            row["f1_gained"] = result.f1 - old.f1 if old else None
    clean = [row for row in _listed(publishable(rows)) if isinstance(row, dict)]
    return {column: [row[column] for row in clean] for column in clean[0]} if clean else {}


def _row(result: Result) -> dict[str, JsonValue]:
    return {
        "id": result.id, "type": result.type, "question": result.question,
        "gold": " | ".join(result.gold), "answer": result.answer, "f1": result.f1,
        "em": result.em, "support_recall": result.support_recall, "supported": result.supported,
        "steps": result.steps, "calls": result.calls, "tokens": result.tokens,
        "error": result.error,
    }  # fmt: skip


def _listed(value: JsonValue) -> list[JsonValue]:
    return value if isinstance(value, list) else []


def report_record(report: Report) -> dict[str, Any]:
    """A report as JSON; `report_of` makes it again, without rounds and the passages' texts."""
    results = [result.model_dump(mode="json", exclude={"trace"}) for result in report.results]
    for result in results:
        result["passages"] = [{**passage, "text": ""} for passage in result["passages"]]
    protocol = report.protocol.model_dump(mode="json")
    return {"protocol": protocol, "seconds": report.seconds, "results": results}


def _dataset(role: str, facts: Mapping[str, Any]) -> DatasetInput:
    from mlflow.entities import Dataset, DatasetInput, InputTag

    told = publishable(facts)
    profile = json.dumps(told, ensure_ascii=False)
    source = next((str(facts[name]) for name in _SOURCES if facts.get(name)), role)
    digest = next((str(facts[name]) for name in _DIGESTS if facts.get(name)), None)
    dataset = Dataset(
        name=source,
        digest=(digest or _digest(profile))[:_DIGEST],
        source_type="local",
        source=json.dumps({"uri": source}),
        profile=profile,
    )
    return DatasetInput(dataset, [InputTag("mlflow.data.context", role)])


def _digest(text: str) -> str:
    import hashlib

    return hashlib.sha256(text.encode()).hexdigest()


def _flat(value: JsonValue, name: str = "") -> Iterator[tuple[str, JsonValue]]:
    if isinstance(value, dict) and value:
        for key, inner in value.items():
            yield from _flat(inner, f"{name}.{key}" if name else key)
    else:
        yield name, value


def _key(name: str) -> str:
    return re.sub(r"[^\w\-. /:]", "_", name)[:250] or "_"


def _text(value: JsonValue) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"
