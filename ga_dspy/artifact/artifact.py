"""Saving, loading and comparing artifacts."""

from __future__ import annotations

import difflib
import hashlib
import importlib
import json
import logging
import shutil
import uuid
from collections.abc import Collection, Iterator, Mapping
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import dspy
from pydantic_core import to_jsonable_python

from ga_dspy import __version__
from ga_dspy.artifact.state import (
    FORMAT,
    Cost,
    Manifest,
    PredictorState,
    Recipe,
    Scores,
    apply,
    as_json,
    build,
    dump,
    mismatches,
    name_of,
    parsed,
    read_manifest,
    read_states,
    rendered,
)
from ga_dspy.errors import ArtifactError, listed, need_package
from ga_dspy.passage import Passage
from ga_dspy.programs import MultiHopProgram
from ga_dspy.secrets import secrets_in, secrets_of
from ga_dspy.storage import write_whole

_log = logging.getLogger(__name__)

# --- The folder

MANIFEST = "manifest.json"
PROGRAM = "program.json"
FILES = (MANIFEST, PROGRAM)

LARGEST = 32 * 2**20
"""The maximum size of a file of an artifact in bytes."""


def read_file(folder: Path, name: str) -> bytes:
    """Read a file of an artifact.

    Raises:
        ArtifactError: It is not there, or larger than any artifact.
    """
    path = folder / name
    if not path.is_file():
        raise ArtifactError(
            f"there is no {path if folder.is_dir() else folder}",
            expected=f"a folder with {' and '.join(FILES)}",
            remedy="check the path, or copy the artifact again",
        )
    with path.open("rb") as file:
        return check_size(file.read(LARGEST + 1), str(path))


def check_size(data: bytes, where: str) -> bytes:
    """Check that a file of an artifact is not too large.

    Raises:
        ArtifactError: It is.
    """
    if len(data) > LARGEST:
        raise ArtifactError(
            f"{where} has more than {LARGEST // 2**20} MB",
            expected="instructions and demos",
            remedy="remove demos, or shorten them",
        )
    return data


def check_free(path: Path, *, overwrite: bool) -> None:
    """Check that an artifact may be written to a path.

    Raises:
        ArtifactError: There is one and it may not be replaced, or something else is there.
    """
    if not path.exists() and not path.is_symlink():
        return
    is_folder = path.is_dir() and not path.is_symlink()
    names = sorted(entry.name for entry in path.iterdir()) if is_folder else []
    foreign = listed(name for name in names if name not in FILES)
    if foreign or not is_folder:
        other = "a link" if path.is_symlink() else "a file"
        raise ArtifactError(
            f"{path} is {f'a folder with other content ({foreign})' if foreign else other}",
            expected="a free path or an artifact to replace",
            remedy="choose another path, or move what is there",
        )
    if names and not overwrite:
        raise ArtifactError(
            f"there is an artifact at {path}",
            expected="a free path",
            remedy="pass overwrite=True to replace it, or choose another path",
        )


def write(path: Path, files: Mapping[str, bytes], *, overwrite: bool) -> None:
    """Write an artifact beside its path, then move it there in one step.

    A crash at any point leaves what was there before, or nothing, or the whole new artifact. If it
    hits the moment between the two renames of a replacement, the old one is beside the path under
    a hidden name.

    Raises:
        ArtifactError: See `check_free`.
    """
    path = path.absolute()
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.parent / f".{path.name}.{uuid.uuid4().hex}.new"
    try:
        fresh.mkdir()
        for name, content in files.items():
            write_whole(fresh / name, content)
        # Again: another process may have written here in the meantime.
        check_free(path, overwrite=overwrite)
        _move(fresh, path)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)


def _move(fresh: Path, path: Path) -> None:
    if not path.exists():
        fresh.rename(path)
        return
    old = fresh.with_suffix(".old")
    path.rename(old)
    try:
        fresh.rename(path)
    except BaseException:
        old.rename(path)
        raise
    shutil.rmtree(old)


# --- Loading

_REGISTRY = "ga_dspy.optimize.registry"
"""The module that downloads an artifact from MLflow; imported only for its addresses."""


def located(source: Path | str) -> Path:
    """Return the local folder of a source.

    Args:
        source: A path, or an address such as "models:/name@champion" or "runs:/id/artifact".

    Raises:
        MissingExtra: mlflow is not installed.
    """
    if isinstance(source, str) and source.startswith(("models:/", "runs:/")):
        need_package("mlflow", "optimize")
        return Path(importlib.import_module(_REGISTRY).resolve(source))
    return Path(source)


class ArtifactInfo(NamedTuple):
    """The content of an artifact.

    Attributes:
        path: Its folder.
        manifest: The program, its settings, and its provenance.
        predictors: Instructions, field wording and demos by predictor.
    """

    path: Path
    manifest: Manifest
    predictors: dict[str, PredictorState]


def load(
    source: Path | str,
    *,
    retriever: Any,
    lms: Mapping[str, dspy.BaseLM | None] | None = None,
    **overrides: Any,
) -> MultiHopProgram:
    """Load a compiled program; it uses the LM that the app configures.

    Thread-safe; each call returns a new program.

    Args:
        source: The folder, or "models:/name@champion", "models:/name/3", "runs:/id/artifact"
            (these need the extra "optimize").
        retriever: Anything `ga_dspy.retrieval.as_retriever` takes.
        lms: LMs of predictors, by the predictor's name. A predictor that was saved with an LM of
            its own and gets none here uses the configured LM, with a warning; pass None to use it
            without one.
        **overrides: Settings that replace saved ones, such as `k=10`, and arguments that are never
            saved, such as `count`.

    Raises:
        ArtifactError: It is damaged, of another version, or does not fit the program; or it
            contains a key, an address or a header (`SecretFound`).
        InputError: `lms` names a predictor that the program does not have.
        MissingExtra: The source needs a package that is not installed.
    """
    info = show(source)
    for leak in _leaks(info.manifest, info.predictors):
        raise leak
    program = _built(info.manifest, retriever, overrides)
    for mismatch in mismatches(info.predictors, program):
        raise mismatch
    apply(info.predictors, program)
    _assign(lms or {}, info.manifest, program)
    return program


def _assign(
    lms: Mapping[str, dspy.BaseLM | None], manifest: Manifest, program: MultiHopProgram
) -> None:
    """Set the LMs of predictors, and warn about those that lack the one they were saved with."""
    program.set_step_lms(lms)
    for name, wanted in manifest.predictor_lms.items():
        if name not in lms:
            _log.warning(
                "predictor %r was saved with an LM of its own (%s) and now uses the configured "
                "one; pass load(…, lms={%r: dspy.LM(%r, …)}), or --lm %s=%s",
                *(name, wanted, name, wanted.model, name, wanted.model),
            )


def show(source: Path | str) -> ArtifactInfo:
    """Read an artifact without making a program.

    Raises:
        ArtifactError: It is damaged, or not an artifact that this version reads.
        MissingExtra: The source needs a package that is not installed.
    """
    path = located(source)
    manifest = read_manifest(read_file(path, MANIFEST), str(path / MANIFEST))
    data = read_file(path, PROGRAM)
    where, digest = str(path / PROGRAM), hashlib.sha256(data).hexdigest()
    if digest != manifest.sha256:
        raise ArtifactError(
            f"{where} has sha256 {digest[:12]}…",
            expected=f"{manifest.sha256[:12]}…, as manifest.json says",
            remedy="copy the artifact again; to change a prompt by hand, load the program, change "
            "it and save it again",
        )
    return ArtifactInfo(path, manifest, read_states(data, where))


def compiled_for(info: ArtifactInfo) -> dict[str, str]:
    """Return the LM that each predictor's prompt was compiled for, by predictor.

    Empty if nothing is known, or if the prompts are those of the program as it ships.

    Raises:
        ArtifactError: The manifest does not fit the program.
    """
    manifest, task = info.manifest, info.manifest.lms.get("task")
    if task is None or dump(build(manifest.program, manifest.settings, nothing)) == info.predictors:
        return {}
    own = {name: lm.model for name, lm in manifest.predictor_lms.items()}
    return {**dict.fromkeys(info.predictors, task), **own}


def verify(source: Path | str) -> tuple[str, ...]:
    """Return the problems of an artifact, one sentence each; empty if it loads and is clean.

    A damaged file is reported alone, because its content cannot be checked.

    Raises:
        MissingExtra: The source needs a package that is not installed.
    """
    path = located(source)
    try:
        info = show(path)
        problems = [*_leaks(info.manifest, info.predictors), *_misfits(info)]
    except ArtifactError as error:
        return (str(error),)
    return tuple(map(str, problems))


def _built(manifest: Manifest, retriever: Any, overrides: Mapping[str, Any]) -> MultiHopProgram:
    saved = manifest.settings
    program = build(manifest.program, {**saved, **overrides}, retriever)
    changed = tuple(name for name in overrides if name in saved and overrides[name] != saved[name])
    if changed:
        # Overrides without a saved value stay: they may stand in for a missing setting.
        compiled = build(manifest.program, {**overrides, **saved}, retriever)
        if _signatures(compiled) != _signatures(program):
            raise ArtifactError(
                f"overriding {', '.join(changed)} gives other predictors than those compiled",
                expected="overrides that leave the predictors as they are, such as k",
                remedy="leave the setting as saved, or compile a program with the other one",
            )
    return program


def _signatures(program: MultiHopProgram) -> dict[str, str]:
    return {name: repr(predictor.signature) for name, predictor in program.named_predictors()}


def _leaks(
    manifest: Manifest, states: Mapping[str, PredictorState], known: Collection[str] = ()
) -> Iterator[ArtifactError]:
    yield from secrets_in(manifest.model_dump(mode="json"), MANIFEST, known)
    yield from secrets_in(as_json(states), PROGRAM, known, digests=False)


def _misfits(info: ArtifactInfo) -> Iterator[ArtifactError]:
    try:
        program = build(info.manifest.program, info.manifest.settings, nothing)
    except ArtifactError as error:
        yield error
    else:
        yield from mismatches(info.predictors, program)


def nothing(query: str, k: int) -> list[Passage]:
    """Find nothing: the retriever of a program that is compared, not run."""
    return []


# --- Saving


def _cannot_save(what: str, remedy: str) -> ArtifactError:
    return ArtifactError(
        f"{what} cannot be saved",
        expected="a program that JSON can hold and that loads as the same one",
        remedy=remedy,
    )


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
    """Save a compiled program as an artifact; the program is not changed.

    It is checked to be free of secrets and the same program after loading. LMs, retriever and token
    counter are not saved: an app brings its own. Of a predictor's own LM the name and the sampling
    settings are saved, which `load` asks for. Of the demos, the values of the predictor's fields
    are saved and other columns of a training row are not.

    Args:
        program: A registered program, compiled or not.
        path: The folder to write; its parents are created.
        recipe: How it was compiled, or only the recipe's name. Mappings, here and below, have the
            keys of the records.
        lms: Model name, or LM (only its name is saved), by role.
        data: What is known of each question set by role, as JSON values.
        scores: Scores before and after compiling.
        cost: The cost of compiling.
        created: The time, with a time zone; by default now.
        overwrite: Replace an artifact at `path`. Anything else is never replaced.

    Returns:
        The folder.

    Raises:
        SecretFound: A key, an address or a header would be written.
        ArtifactError: The program would load as another one, its class is not registered (see
            `register`), an argument does not have the shape of the records, or something is at
            the path already.
    """
    path = Path(path)
    check_free(path, overwrite=overwrite)
    name, states = name_of(program), _dumped(program)
    state = _encoded(as_json(states), PROGRAM)
    if isinstance(recipe, str):
        recipe = Recipe(name=recipe)
    about = {
        "format": FORMAT,
        "program": name,
        "settings": program.settings(),
        "versions": {"ga_dspy": __version__, "dspy": version("dspy")},
        "sha256": hashlib.sha256(state).hexdigest(),
        "created": created or datetime.now(UTC),
        "lms": {role: _model_name(lm) for role, lm in (lms or {}).items()},
        "predictor_lms": {
            name: {"model": _model_name(lm), "settings": _sampling(lm)}
            for name, lm in program.step_lms().items()
        },
        "recipe": recipe,
        "data": data or {},
        "scores": scores,
        "cost": cost,
    }
    manifest = parsed(Manifest, _encoded(about, MANIFEST), "what was passed to save")
    known = secrets_of([*program.step_lms().values(), *(lms or {}).values()], addresses=True)
    for found in _leaks(manifest, states, known):
        raise found
    _check_same(program, manifest, states)
    # Omitted if it is empty, because earlier versions reject the key.
    unused = set() if manifest.predictor_lms else {"predictor_lms"}
    told = _encoded(manifest.model_dump(mode="json", exclude=unused), MANIFEST)
    files = {PROGRAM: state, MANIFEST: told}
    write(path, files, overwrite=overwrite)
    return path


def _dumped(program: MultiHopProgram) -> dict[str, PredictorState]:
    for name, predictor in program.named_predictors():
        if predictor.config or predictor.fields:
            raise _cannot_save(
                f"the LM settings of predictor {name!r} ({sorted(predictor.config)})"
                if predictor.config
                else f"the decision criteria of predictor {name!r}",
                "give them to the LM that the app configures, and clear them on the predictor",
            )
    try:
        return dump(program)
    except ValueError as error:
        raise _cannot_save(
            f"a demo ({error})", "drop that demo, or make its values text"
        ) from error


def _encoded(content: dict[str, Any], where: str) -> bytes:
    try:
        plain = to_jsonable_python(content)
        text = json.dumps(plain, ensure_ascii=False, allow_nan=False, indent=2)
        return check_size(f"{text}\n".encode(), where)
    except ValueError as error:  # of another type, NaN, or a lone surrogate, which has no bytes
        remedy = "pass JSON values, or drop the demo it is in"
        raise _cannot_save(f"a value for {where} ({error})", remedy) from error


def _model_name(lm: str | dspy.BaseLM) -> str:
    name = lm if isinstance(lm, str) else lm.model
    if "://" in name:
        raise _cannot_save("an address as the name of an LM", "pass the model name alone")
    return name


_SAMPLING = ("temperature", "max_tokens", "max_completion_tokens", "top_p", "seed",
             "reasoning_effort")  # fmt: skip


def _sampling(lm: dspy.BaseLM) -> dict[str, Any]:
    """Return the sampling settings of an LM that are plain numbers and words."""
    found = {name: lm.kwargs.get(name) for name in _SAMPLING}
    return {name: part for name, part in found.items() if isinstance(part, int | float | str)}


def _check_same(
    program: MultiHopProgram, manifest: Manifest, states: Mapping[str, PredictorState]
) -> None:
    """Load what would be written, and compare what an LM would be sent."""
    beside = {
        name: getattr(program, name)
        for name, one in program.declared().items()
        if not one.metadata["saved"] and getattr(program, name) != one.default
    }
    again = build(manifest.program, {**manifest.settings, **beside}, nothing)
    for mismatch in mismatches(states, again):
        raise mismatch
    apply(states, again)
    before, after = rendered(program), rendered(again)
    for (predictor, adapter), prompt in before.items():
        if after[predictor, adapter] != prompt:
            raise _cannot_save(
                f"predictor {predictor!r}, whose prompt under {adapter} changes by saving,",
                "make the values of its demos text, numbers, or lists and mappings of these",
            )


# --- Comparing


def diff(a: Path | str, b: Path | str) -> str:
    """Return a unified diff of two artifacts.

    It compares the program and its settings, the instructions, field wording and demos of every
    predictor, the recipe, the LMs and the scores; not digests, versions and times.

    Raises:
        ArtifactError: One of the two cannot be read.
    """
    ours, theirs = (list(outline(show(one), _COMPARED)) for one in (a, b))
    return "\n".join(difflib.unified_diff(ours, theirs, str(a), str(b), lineterm=""))


_COMPARED = {"program", "settings", "recipe", "lms", "predictor_lms", "scores"}


def outline(info: ArtifactInfo, of_manifest: set[str] | None = None) -> Iterator[str]:
    """Yield an artifact as lines: its manifest, or these keys of it, and its predictors."""
    about = info.manifest.model_dump(mode="json", include=of_manifest)
    states = {name: state.model_dump(mode="json") for name, state in info.predictors.items()}
    return _outline({**about, "predictors": states})


def _outline(value: Any, margin: str = "") -> Iterator[str]:
    """Yield a JSON value, one entry per line, without empty ones."""
    entries = dict(enumerate(value, 1)) if isinstance(value, list) else value
    for key, part in entries.items() if isinstance(entries, dict) else ():
        if isinstance(part, dict | list) or "\n" in str(part):
            if inner := [*_outline(part, f"{margin}  ")]:
                yield from (f"{margin}{key}:", *inner)
        elif part not in ("", None):
            yield f"{margin}{key}: {part}"
    if isinstance(value, str):
        yield from (f"{margin}{line}".rstrip() for line in value.splitlines())
