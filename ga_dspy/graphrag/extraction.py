"""Extraction: read a passage into grounded records, with a journal of finished passages."""

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
from ga_dspy.programs.calls import Ask, adrive, ask_grounded, drive
from ga_dspy.programs.meter import Meter
from ga_dspy.signatures.graphrag import ExtractFacts
from ga_dspy.signatures.prompt import render_passage
from ga_dspy.storage import Journal

_FORMAT = 3
"""Incremented when a change alters what is extracted from the same reply."""


class Extraction(BaseModel):
    """What one passage states, and the cost of reading it.

    Attributes:
        update: Entities and relations with evidence spans in the passage.
        dropped: Proposals that the passage does not support, and unreadable lines.
        calls: LM calls, including retries.
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
            StepFailed: The reply is unusable.
        """
        return drive(self._read(passage))

    async def aforward(self, passage: Passage) -> dspy.Prediction:
        """Read a passage from a coroutine."""
        return await adrive(self._read(passage))

    def fingerprint(self, lm: Any = None) -> str:
        """Return a hash of instructions, fields, demos, settings and LM."""
        lm = chosen_lm(lm, self.extract)
        names = ("temperature", "max_tokens", "reasoning_effort")
        sampling = {key: lm.kwargs.get(key) for key in names} if hasattr(lm, "kwargs") else {}
        return digest_of(
            {
                "format": _FORMAT,
                "state": {k: v for k, v in self.extract.dump_state().items() if k != "lm"},
                "fields": str(self.extract.signature.model_json_schema()["properties"].keys()),
                "lm": getattr(lm, "model", ""),
                "sampling": sampling,
                **nondefault_settings(self, Extractor, self.extract, lm),
            }
        )

    def _read(self, passage: Passage) -> Generator[Ask, dspy.Prediction, dspy.Prediction]:
        """Ask the LM and keep what the passage supports."""
        meter = Meter()
        inputs = {"passages": render_passage(1, passage)}
        found = yield from ask_grounded("extract", self.extract, inputs, meter, {1: passage})
        distinct = {name: tuple(dict.fromkeys(part)) for name, part in found.update}
        return dspy.Prediction(
            extraction=Extraction(
                update=GraphUpdate(**distinct),
                dropped=found.dropped,
                calls=meter.calls,
                tokens=meter.tokens,
            )
        )


# --- Shared by extraction and summaries: the LM, failures, the journal.


def chosen_lm(lm: Any, predictor: dspy.Predict) -> Any:
    """Return the LM of a predictor: the given one, its own, the configured one, or None."""
    return lm or predictor.lm or dspy.settings.lm


def nondefault_settings(
    module: dspy.Module, usual: type, predictor: dspy.Predict, lm: Any
) -> dict[str, Any]:
    """Return the non-default settings that belong in a fingerprint.

    Raises:
        InputError: The source of a subclass cannot be read.
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
                expected="a class in a file: its source is part of the fingerprint of its records",
                remedy="put the class into a module",
            ) from error
    return {"unusual": found} if found else {}


def no_lm() -> InputError:
    """Return the error for a missing LM."""
    return InputError(
        "no LM is configured",
        expected="one to read the passages",
        remedy="pass lm=…, or run dspy.configure(lm=ga_dspy.extractive_lm()) for the embedded one",
    )


Outcome = TypeVar("Outcome")


def outcome_of(work: Callable[[], Outcome]) -> Outcome | str:
    """Return the result of a step, or the error message if it fails."""
    try:
        return work()
    except RunAborted:
        raise
    except Exception as error:  # noqa: BLE001 - a failed step must not end the others
        return f"{type(error).__name__}: {error}"


def digest_of(value: Any, default: Callable[[Any], Any] = str) -> str:
    """Return the SHA-256 of a value as JSON, hexadecimal; `default` converts other types."""
    return hashlib.sha256(json.dumps(value, sort_keys=True, default=default).encode()).hexdigest()


def reading_key(passage: Passage, fingerprint: str) -> str:
    """Return the cache key of a passage under a fingerprint."""
    return digest_of([fingerprint, passage.id, passage.title, passage.text])


Finished = TypeVar("Finished", bound=BaseModel)


class FinishedSteps(Journal):
    """Finished LM steps as JSON, by cache key, so that none is repeated.

    A changed passage or another LM has another key.

    Args:
        path: The file.
        shared: Allow several processes; by default there is one writer.
    """

    def __init__(self, path: Path, *, shared: bool = False) -> None:
        create = "CREATE TABLE finished (key TEXT PRIMARY KEY, json TEXT NOT NULL)"
        super().__init__(path, "graph build", {"finished": create}, shared=shared)

    def known(self, kind: type[Finished]) -> dict[str, Finished]:
        """Return the results of all finished steps; a damaged row counts as unfinished."""
        rows = self.rows("SELECT key, json FROM finished")
        return dict(self.readable(rows, kind.model_validate_json))

    def record(self, key: str, found: BaseModel) -> None:
        """Record a finished step."""
        self.write("INSERT OR REPLACE INTO finished VALUES (?, ?)", key, found.model_dump_json())

    def keep_only(self, keys: Iterable[str]) -> None:
        """Delete all other steps."""
        gone = {key for (key,) in self.rows("SELECT key FROM finished")} - set(keys)
        self.transaction([("DELETE FROM finished WHERE key = ?", (key,)) for key in gone])
