"""Reading an artifact: checked file by file, then predictor by predictor, then applied."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from ga_dspy.artifact.errors import ArtifactError
from ga_dspy.artifact.folder import MANIFEST, PROGRAM, read_file
from ga_dspy.artifact.known import build
from ga_dspy.artifact.manifest import Manifest, read_manifest
from ga_dspy.artifact.secrets import secrets_in
from ga_dspy.artifact.source import located
from ga_dspy.artifact.state import (
    PredictorState,
    apply,
    as_json,
    entries,
    mismatches,
    read_states,
)
from ga_dspy.passage import Passage
from ga_dspy.programs import MultiHopProgram


class Tampered(ArtifactError):
    """program.json is not the file that the manifest was written for."""

    def __init__(self, where: str, found: str, expected: str) -> None:
        super().__init__(
            f"{where} has sha256 {found[:12]}…; expected {expected[:12]}…, as manifest.json says; "
            "copy the artifact again; to change a prompt by hand, load the program, change it "
            "and save it anew"
        )
        self.where, self.found, self.expected = where, found, expected


class ChangesPredictors(ArtifactError):
    """A setting was overridden on which the predictors depend, so the state does not fit."""

    def __init__(self, overrides: tuple[str, ...]) -> None:
        super().__init__(
            f"overriding {', '.join(overrides)} gives other predictors than those compiled; "
            "expected overrides that leave the predictors as they are, such as k; "
            "leave the setting as saved, or compile a program with the other one"
        )
        self.overrides = overrides


class ArtifactInfo(NamedTuple):
    """What an artifact holds.

    Attributes:
        path: Its folder.
        manifest: Which program, its settings, and where it comes from.
        predictors: Instructions, field wording and demos by predictor.
    """

    path: Path
    manifest: Manifest
    predictors: dict[str, PredictorState]


def load(source: Path | str, *, retriever: Any, **overrides: Any) -> MultiHopProgram:
    """Make a compiled program from an artifact; it uses the LM that the app configures.

    Safe to call from several threads; each call gives a program of its own.

    Args:
        source: The folder, or "models:/name@champion", "models:/name/3", "runs:/id/artifact"
            (these need the extra "optimize").
        retriever: Anything `ga_dspy.retrieval.as_retriever` takes.
        **overrides: Settings to use in place of the saved ones, such as `k=10`, and arguments
            that are never saved, such as `count`.

    Raises:
        ArtifactError: One of its children names what is wrong and what to do.
        MissingExtra: The source needs a package that is not installed.
    """
    info = show(source)
    program = _built(info.manifest, retriever, overrides)
    for mismatch in mismatches(info.manifest.predictors, info.predictors, program):
        raise mismatch
    apply(info.predictors, program)
    return program


def show(source: Path | str) -> ArtifactInfo:
    """Read an artifact without making a program of it.

    Raises:
        MissingFile, NotJSON, UnknownKeys, WrongShape, NewerFormat, Tampered: It is damaged, or
            not an artifact that this version reads.
        UnknownScheme, MissingExtra: The source cannot be fetched.
    """
    path = located(source)
    manifest = read_manifest(read_file(path, MANIFEST), str(path / MANIFEST))
    data = read_file(path, PROGRAM)
    where, digest = str(path / PROGRAM), sha256(data)
    if digest != manifest.sha256:
        raise Tampered(where, digest, manifest.sha256)
    return ArtifactInfo(path, manifest, read_states(data, where))


def verify(source: Path | str) -> tuple[str, ...]:
    """All that is wrong with an artifact, one sentence each; empty where it loads and is clean.

    A damaged file is the only problem told, since nothing can be said of what is in it.

    Raises:
        UnknownScheme, MissingExtra: The source cannot be fetched.
    """
    path = located(source)
    try:
        info = show(path)
        problems = [*_leaks(info), *_misfits(info)]
    except ArtifactError as error:
        return (str(error),)
    return tuple(map(str, problems))


def sha256(data: bytes) -> str:
    """The digest by which a manifest names its program.json."""
    return hashlib.sha256(data).hexdigest()


def _built(manifest: Manifest, retriever: Any, overrides: Mapping[str, Any]) -> MultiHopProgram:
    saved = manifest.settings
    program = build(manifest.program, {**saved, **overrides}, retriever)
    changed = tuple(name for name in overrides if name in saved and overrides[name] != saved[name])
    if changed:
        # Overrides without a saved value stay: they may stand in for a missing setting.
        compiled = build(manifest.program, {**overrides, **saved}, retriever)
        if _prompted(compiled) != _prompted(program):
            raise ChangesPredictors(changed)
    return program


def _prompted(program: MultiHopProgram) -> tuple[Any, ...]:
    told = [predictor.signature.instructions for _, predictor in program.named_predictors()]
    return entries(program), told


def _leaks(info: ArtifactInfo) -> Iterator[ArtifactError]:
    yield from secrets_in(info.manifest.model_dump(mode="json"), MANIFEST)
    yield from secrets_in(as_json(info.predictors), PROGRAM)


def _misfits(info: ArtifactInfo) -> Iterator[ArtifactError]:
    try:
        program = build(info.manifest.program, info.manifest.settings, nothing)
    except ArtifactError as error:
        yield error
    else:
        yield from mismatches(info.manifest.predictors, info.predictors, program)


def nothing(query: str, k: int) -> list[Passage]:
    """A retriever for a program that is only looked at, never asked."""
    return []
