"""Extraction: one passage in, the grounded records of what it states out; journaled."""

from __future__ import annotations

import hashlib
import inspect
import json
from collections.abc import Callable, Generator, Iterable
from pathlib import Path
from typing import Any, TypeVar

import dspy
from pydantic import BaseModel, ConfigDict

from ga_dspy.errors import InputError, RunAborted
from ga_dspy.graph import GraphUpdate
from ga_dspy.grounding import Dropped
from ga_dspy.lm.adapters import PlainAdapter
from ga_dspy.passage import Passage
from ga_dspy.programs.calls import Ask, Meter, adrive, ask_grounded, drive
from ga_dspy.signatures.graphrag import ExtractFacts
from ga_dspy.signatures.prompt import render_passage
from ga_dspy.storage import Journal

_FORMAT = 3
"""Counts changes of this module that change what is extracted from the same reply."""


class Extraction(BaseModel):
    """What one passage states, and what it cost to find out.

    Attributes:
        update: Entities and relations with evidence spans in the passage.
        dropped: What the LM proposed and the passage does not support, or could not be read.
        calls: LM calls, second attempts among them.
        tokens: Prompt and completion tokens.
    """

    model_config = ConfigDict(frozen=True)

    update: GraphUpdate
    dropped: tuple[Dropped, ...] = ()
    calls: int = 0
    tokens: int = 0


class Extractor(dspy.Module):
    """Read a passage into grounded entities and relations; `extract` is its only predictor."""

    def __init__(self) -> None:
        super().__init__()
        self.extract = dspy.Predict(ExtractFacts)

    def forward(self, passage: Passage) -> dspy.Prediction:
        """Read a passage.

        Returns:
            A prediction whose `extraction` is an `Extraction`.

        Raises:
            StepFailed: The LM gave nothing usable.
        """
        return drive(self._read(passage))

    async def aforward(self, passage: Passage) -> dspy.Prediction:
        """Read a passage from a coroutine."""
        return await adrive(self._read(passage))

    def fingerprint(self, lm: Any = None) -> str:
        """Hash of all that decides what is asked: instructions, fields, demos, settings, the LM."""
        lm = chosen_lm(lm, self.extract)
        kept = ("temperature", "max_tokens", "reasoning_effort")
        sampling = {key: lm.kwargs.get(key) for key in kept} if hasattr(lm, "kwargs") else {}
        return digest_of(
            {
                "format": _FORMAT,
                "state": {k: v for k, v in self.extract.dump_state().items() if k != "lm"},
                "fields": str(self.extract.signature.model_json_schema()["properties"].keys()),
                "lm": getattr(lm, "model", ""),
                "sampling": sampling,
                **unusual(self, Extractor, self.extract, lm),
            }
        )

    def _read(self, passage: Passage) -> Generator[Ask, dspy.Prediction, dspy.Prediction]:
        """Ask; keep what the passage supports."""
        meter = Meter()
        inputs = {"passages": render_passage(1, passage)}
        found = yield from ask_grounded("extract", self.extract, inputs, meter, {1: passage})
        kept = {name: tuple(dict.fromkeys(part)) for name, part in found.update}
        return dspy.Prediction(
            extraction=Extraction(
                update=GraphUpdate(**kept),
                dropped=found.dropped,
                calls=meter.calls,
                tokens=meter.tokens,
            )
        )


# --- What reading passages and summarising communities share: the LM, failures, the journal.


def chosen_lm(lm: Any, predictor: dspy.Predict) -> Any:
    """The LM that a predictor asks: the one given, its own, or the configured one; or None."""
    return lm or predictor.lm or dspy.settings.lm


def unusual(module: dspy.Module, usual: type, predictor: dspy.Predict, lm: Any) -> dict[str, Any]:
    """What decides an answer beside what every fingerprint has; only what is not the default.

    Raises:
        InputError: The source of a subclass cannot be read, so its records could be another's.
    """
    adapter, kind = dspy.settings.adapter, type(module)
    names = ("top_p", "top_k", "min_p", "seed", "max_completion_tokens", "extra_body")
    settings = {name: getattr(lm, "kwargs", {}).get(name) for name in names}
    found = {name: value for name, value in settings.items() if value is not None}
    if predictor.config:
        found["config"] = predictor.config
    if adapter is not None and type(adapter) is not PlainAdapter:
        found["adapter"] = type(adapter).__qualname__
    if kind is not usual:
        try:
            found["source"] = inspect.getsource(kind)
        except OSError as error:
            raise InputError(
                f"the source of {kind.__qualname__} cannot be read",
                expected="a class in a file: its records are told from others' by its source",
                remedy="put the class into a module",
            ) from error
    return {"unusual": found} if found else {}


def no_lm() -> InputError:
    """The error where an LM must be asked and there is none."""
    return InputError(
        "no LM is configured",
        expected="one to read the passages",
        remedy="pass lm=…, or run dspy.configure(lm=ga_dspy.extractive_lm()) for the embedded one",
    )


Outcome = TypeVar("Outcome")


def outcome_of(work: Callable[[], Outcome]) -> Outcome | str:
    """What a step gives; where it fails, the error in words, to be counted and listed."""
    try:
        return work()
    except RunAborted:
        raise
    except Exception as error:  # noqa: BLE001 - a failed step must not end the others
        return f"{type(error).__name__}: {error}"


def digest_of(value: Any, default: Callable[[Any], Any] = str) -> str:
    """SHA-256 of a value as JSON, hexadecimal; `default` turns into JSON what JSON cannot hold."""
    return hashlib.sha256(json.dumps(value, sort_keys=True, default=default).encode()).hexdigest()


def reading_key(passage: Passage, fingerprint: str) -> str:
    """The digest of a passage and of how it is read."""
    return digest_of([fingerprint, passage.id, passage.title, passage.text])


Finished = TypeVar("Finished", bound=BaseModel)


class FinishedSteps(Journal):
    """Finished LM steps, as JSON, by the digest of what was asked, so that none is asked twice.

    A changed passage or another LM has another digest, and is asked for anew.

    Args:
        path: The file.
        shared: Let other processes use the file too; by default there is one writer.
    """

    def __init__(self, path: Path, *, shared: bool = False) -> None:
        create = "CREATE TABLE finished (key TEXT PRIMARY KEY, json TEXT NOT NULL)"
        super().__init__(path, "graph build", {"finished": create}, shared=shared)

    def known(self, kind: type[Finished]) -> dict[str, Finished]:
        """What all finished steps gave; a damaged row counts as not finished."""
        rows = self.rows("SELECT key, json FROM finished")
        return dict(self.readable(rows, kind.model_validate_json))

    def record(self, key: str, found: BaseModel) -> None:
        """Write a finished step."""
        self.write("INSERT OR REPLACE INTO finished VALUES (?, ?)", key, found.model_dump_json())

    def keep_only(self, keys: Iterable[str]) -> None:
        """Forget all other steps: those of passages or communities that are gone or changed."""
        gone = {key for (key,) in self.rows("SELECT key FROM finished")} - set(keys)
        self.transaction([("DELETE FROM finished WHERE key = ?", (key,)) for key in gone])
