"""Writing an artifact: only what was checked to be clean, whole and the same after loading."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import dspy
from pydantic import TypeAdapter
from pydantic_core import PydanticSerializationError, to_jsonable_python

from ga_dspy import __version__
from ga_dspy.artifact.errors import ArtifactError
from ga_dspy.artifact.folder import MANIFEST, PROGRAM, check_free, write
from ga_dspy.artifact.known import build, name_of
from ga_dspy.artifact.loading import nothing, sha256
from ga_dspy.artifact.manifest import FORMAT, Cost, Manifest, Recipe, Scores
from ga_dspy.artifact.records import parsed
from ga_dspy.artifact.secrets import secrets_in, secrets_of
from ga_dspy.artifact.state import (
    PredictorState,
    apply,
    as_json,
    dump,
    entries,
    mismatches,
    rendered,
)
from ga_dspy.programs import MultiHopProgram

_MANIFEST = TypeAdapter(Manifest)


class CannotSave(ArtifactError):
    """The program has something that an artifact cannot hold, so it would load as another one."""

    def __init__(self, what: str, remedy: str) -> None:
        super().__init__(
            f"{what} cannot be saved; expected a program that JSON can hold and that loads as the "
            f"same one; {remedy}"
        )
        self.what, self.remedy = what, remedy


def save(
    program: MultiHopProgram,
    path: Path | str,
    *,
    recipe: Recipe | Mapping[str, Any] | str | None = None,
    lms: Mapping[str, str | dspy.BaseLM] | None = None,
    data: Mapping[str, Mapping[str, Any]] | None = None,
    scores: Scores | Mapping[str, Any] | None = None,
    cost: Cost | Mapping[str, Any] | None = None,
    created: datetime | None = None,
    overwrite: bool = False,
) -> Path:
    """Save a compiled program as an artifact; the program is left as it is.

    LMs, retriever and token counter are not part of it: an app brings its own. Of the demos, the
    values of the predictor's fields are kept and other columns of a training row are not.

    Args:
        program: One of the known programs, compiled or not.
        path: The folder to write; its parents are made.
        recipe: How it was compiled, or just the recipe's name. Mappings, here and below, have the
            keys of the records.
        lms: Model name, or LM (of which only the name is kept), by role.
        data: What is known of each question set by role, as JSON values.
        scores: What compiling changed.
        cost: What it cost.
        created: When, with a time zone; now by default.
        overwrite: Replace an artifact at `path`. Anything else is never replaced.

    Returns:
        The folder.

    Raises:
        SecretFound: A key, an address or a header would be written.
        CannotSave: The program would load as another one.
        UnknownProgram: Its class is not known; see `register`.
        UnknownKeys, WrongShape: What is told about it does not have the shape of the records.
        AlreadyThere, NotAnArtifact: The path is taken.
    """
    path = Path(path)
    check_free(path, overwrite=overwrite)
    name, states = name_of(program), _dumped(program)
    state = _encoded(as_json(states), PROGRAM)
    if isinstance(recipe, str):
        recipe = Recipe(name=recipe)
    told = {"recipe": recipe, "data": data or {}, "scores": scores, "cost": cost}
    manifest = _manifest(
        {
            "format": FORMAT,
            "program": name,
            "settings": program.settings(),
            "predictors": entries(program),
            "versions": {"ga_dspy": __version__, "dspy": version("dspy")},
            "sha256": sha256(state),
            "created": created or datetime.now(UTC),
            "lms": {role: _model_name(lm) for role, lm in (lms or {}).items()},
            **told,
        }
    )
    _check_clean(program, manifest, states)
    _check_same(program, manifest, states)
    files = {PROGRAM: state, MANIFEST: _encoded(manifest.model_dump(mode="json"), MANIFEST)}
    write(path, files, overwrite=overwrite)
    return path


def _dumped(program: MultiHopProgram) -> dict[str, PredictorState]:
    for name, predictor in program.named_predictors():
        if predictor.config or predictor.fields:
            raise CannotSave(
                f"the LM settings of predictor {name!r} ({sorted(predictor.config)})"
                if predictor.config
                else f"the decision criteria of predictor {name!r}",
                "give them to the LM that the app configures, and clear them on the predictor",
            )
    try:
        return dump(program)
    except (PydanticSerializationError, ValueError) as error:
        raise CannotSave(f"a demo ({error})", "drop that demo, or make its values text") from error


def _encoded(content: dict[str, Any], where: str) -> bytes:
    try:
        text = json.dumps(content, ensure_ascii=False, allow_nan=False, indent=2)
        return f"{text}\n".encode()
    except ValueError as error:  # NaN, or a lone surrogate, which UTF-8 cannot hold
        raise CannotSave(f"a value for {where} ({error})", "drop the demo it is in") from error


def _manifest(content: dict[str, Any]) -> Manifest:
    try:
        plain = to_jsonable_python(content)
    except PydanticSerializationError as error:
        raise CannotSave(f"a value for {MANIFEST} ({error})", "pass JSON values") from error
    return parsed(_MANIFEST, _encoded(plain, MANIFEST), "what was passed to save")


def _model_name(lm: str | dspy.BaseLM) -> str:
    name = lm if isinstance(lm, str) else lm.model
    if "://" in name:
        raise CannotSave("an address as the name of an LM", "pass the model name alone")
    return name


def _check_clean(
    program: MultiHopProgram, manifest: Manifest, states: Mapping[str, PredictorState]
) -> None:
    lms = [predictor.lm for predictor in program.predictors()]
    known = secrets_of([*lms, dspy.settings.lm])
    for found in secrets_in(manifest.model_dump(mode="json"), MANIFEST, known):
        raise found
    for found in secrets_in(as_json(states), PROGRAM, known):
        raise found


def _check_same(
    program: MultiHopProgram, manifest: Manifest, states: Mapping[str, PredictorState]
) -> None:
    """Load what would be written, and compare what an LM would be sent."""
    again = build(manifest.program, manifest.settings, nothing)
    for mismatch in mismatches(manifest.predictors, states, again):
        raise mismatch
    apply(states, again)
    before, after = rendered(program), rendered(again)
    for (predictor, adapter), prompt in before.items():
        if after[predictor, adapter] != prompt:
            raise CannotSave(
                f"predictor {predictor!r}, whose prompt under {adapter} changes by saving,",
                "make the values of its demos text, numbers, or lists and mappings of these",
            )
