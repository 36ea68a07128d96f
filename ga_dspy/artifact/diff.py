"""Two artifacts side by side: what optimization changed, as a person reads it."""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterator
from pathlib import Path

from pydantic import JsonValue

from ga_dspy.artifact.loading import ArtifactInfo, show
from ga_dspy.artifact.manifest import Score, Scores
from ga_dspy.artifact.state import PredictorState


def diff(a: Path | str, b: Path | str) -> str:
    """A unified diff of two artifacts; empty where nothing that matters differs.

    It shows the program and its settings, the instructions, field wording and demos of every
    predictor, the recipe, the LMs and the scores; not digests, versions and times.

    Raises:
        ArtifactError: One of the two cannot be read.
    """
    before, after = show(a), show(b)
    lines = difflib.unified_diff(
        list(_lines(before)), list(_lines(after)), str(a), str(b), lineterm=""
    )
    return "\n".join(lines)


def _lines(info: ArtifactInfo) -> Iterator[str]:
    manifest = info.manifest
    yield f"program: {manifest.program}"
    yield from _mapping("settings", manifest.settings)
    for name, state in info.predictors.items():
        yield from _predictor(name, state)
    if manifest.recipe:
        yield from _mapping(f"recipe {manifest.recipe.name}", manifest.recipe.parameters)
    yield from _mapping("LMs", dict(manifest.lms))
    if manifest.scores:
        yield from _scores(manifest.scores)


def _predictor(name: str, state: PredictorState) -> Iterator[str]:
    yield f"predictor {name}, instructions:"
    yield from _indented(state.signature.instructions)
    yield f"predictor {name}, fields:"
    for field in state.signature.fields:
        yield from _indented(f"{field.prefix} {field.description}")
    for number, demo in enumerate(state.demos, 1):
        yield f"predictor {name}, demo {number}:"
        for key, value in demo.items():
            yield f"  {key}:"
            yield from _indented(_text(value), "    ")


def _scores(scores: Scores) -> Iterator[str]:
    yield f"scores on {scores.n} {scores.held_out} questions:".replace("  ", " ")
    for when, values in (("before", scores.before), ("after", scores.after)):
        for metric, score in values.items():
            yield f"  {metric} {when}: {_score(score)}"
    if scores.p_value is not None:
        yield f"  p-value: {scores.p_value:.4g}"
    if scores.verdict:
        yield f"  verdict: {scores.verdict}"


def _score(score: Score) -> str:
    if score.low is None or score.high is None:
        return f"{score.value:.1f}"
    return f"{score.value:.1f} (95 %: {score.low:.1f} to {score.high:.1f})"


def _mapping(title: str, values: dict[str, JsonValue] | dict[str, str]) -> Iterator[str]:
    yield f"{title}:"
    for key, value in sorted(values.items()):
        yield from _indented(f"{key} = {json.dumps(value, ensure_ascii=False)}")


def _indented(text: str, margin: str = "  ") -> Iterator[str]:
    for line in text.splitlines() or [""]:
        yield f"{margin}{line}".rstrip()


def _text(value: JsonValue) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, indent=1)
