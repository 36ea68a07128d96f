"""Extraction: read a passage into grounded records, with a journal of finished passages."""

from __future__ import annotations

import hashlib
import inspect
import json
from collections.abc import Callable, Container, Generator, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar

import dspy
from pydantic import BaseModel, ConfigDict

from ga_dspy.errors import InputError, RunAborted
from ga_dspy.graph import (
    Draft,
    DraftEntity,
    DraftRelation,
    GraphUpdate,
    KnowledgeGraph,
    Schema,
    linearise,
)
from ga_dspy.grounding import Dropped, ground
from ga_dspy.lm.adapters import PlainAdapter
from ga_dspy.passage import Passage
from ga_dspy.programs.calls import Ask, StepFailed, adrive, ask_grounded, drive
from ga_dspy.programs.meter import Meter
from ga_dspy.programs.settings import Configured, setting
from ga_dspy.signatures.examples import extraction_example
from ga_dspy.signatures.graphrag import extract_signature, glean_signature
from ga_dspy.signatures.prompt import render_passages
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


class Extractor(Configured):
    """Read passages into grounded entities and relations.

    `extract` is its predictor; `glean` is the one that asks again, if there are `gleanings`.
    """

    schema: Schema | None = setting(
        "The types and relations that the graph should have (`Schema`); None for any.", default=None
    )
    per_call: int = setting("Passages in one LM call.", default=1, minimum=1, maximum=100)
    max_relations: int | None = setting(
        "The most relations of a passage, in the order of the reply; None for no limit.",
        default=None,
        minimum=1,
    )
    gleanings: int = setting(
        "How often the LM is asked once more for what it left out.", default=0, minimum=0, maximum=5
    )

    def __post_init__(self) -> None:
        """Check the settings; make the predictors."""
        super().__post_init__()
        signature = extract_signature(self.schema, self.per_call, self.max_relations)
        self.extract = self._predictor(signature)
        if self.gleanings:
            self.glean = self._predictor(glean_signature(signature))

    def forward(self, passage: Passage | Sequence[Passage]) -> dspy.Prediction:
        """Read a passage, or several in one LM call.

        Several are read one by one if the reply to the call is unusable.

        Returns:
            A prediction with the `extraction` of the passage. Of several passages, it has
            `extractions`: an `Extraction` for each, or the error message if it could not be read.

        Raises:
            StepFailed: The reply for the only passage is unusable.
        """
        return drive(self._read(passage))

    async def aforward(self, passage: Passage | Sequence[Passage]) -> dspy.Prediction:
        """Read passages from a coroutine."""
        return await adrive(self._read(passage))

    def own_settings(self) -> dict[str, Any]:
        """Return the settings that are not the defaults, as JSON values."""
        usual = self.declared()
        return {n: value for n, value in self.settings().items() if value != usual[n].default}

    def fingerprint(self, lm: Any = None) -> str:
        """Return a hash of instructions, fields, demos, settings and LM."""
        lm, own = chosen_lm(lm, self.extract), self.own_settings()
        if self.gleanings:
            own["glean"] = self.glean.dump_state()
        names = ("temperature", "max_tokens", "reasoning_effort")
        sampling = {key: lm.kwargs.get(key) for key in names} if hasattr(lm, "kwargs") else {}
        return digest_of(
            {
                "format": _FORMAT,
                "state": {k: v for k, v in self.extract.dump_state().items() if k != "lm"},
                "fields": str(self.extract.signature.model_json_schema()["properties"].keys()),
                "lm": getattr(lm, "model", ""),
                "sampling": sampling,
                **({"settings": own} if own else {}),
                **nondefault_settings(self, Extractor, self.extract, lm),
            }
        )

    def _predictor(self, signature: type[dspy.Signature]) -> dspy.Predict:
        predictor = dspy.Predict(signature)
        predictor.demos = [extraction_example(signature, several=self.per_call > 1)]
        return predictor

    def _read(self, passage: Passage | Sequence[Passage]) -> _Reading[dspy.Prediction]:
        """Ask the LM about passages, and keep of the reply what each of them supports."""
        if isinstance(passage, Passage):
            found = yield from self._ask([passage], Meter())
            return dspy.Prediction(extraction=found[0])
        meter = Meter()
        try:
            return dspy.Prediction(extractions=(yield from self._ask(passage, meter)))
        except _FAILURES:
            outcomes = list[Extraction | str]()
            for one in passage:
                alone = Meter()
                alone.usage = meter.usage  # the first that succeeds is charged for what failed
                try:
                    outcomes += yield from self._ask([one], alone)
                except _FAILURES as error:
                    outcomes.append(f"{type(error).__name__}: {error}")
            return dspy.Prediction(extractions=outcomes)

    def _ask(self, read: Sequence[Passage], meter: Meter) -> _Reading[list[Extraction]]:
        """Ask for what passages state, and as often as set for what is missing."""
        passages, dropped = dict(enumerate(read, 1)), dict[Dropped, None]()
        inputs = {"passages": render_passages(passages.items())}
        labels = {passage.id: label for label, passage in passages.items()}
        update = GraphUpdate()
        for step in ("extract", *["glean"] * self.gleanings):
            inputs["graph"] = linearise(KnowledgeGraph().merge(update), labels=labels)
            asked = step, getattr(self, step), inputs, meter, passages
            try:
                found = yield from ask_grounded(*asked, schema=self.schema)
            except _FAILURES:
                if step == "extract":
                    raise
                break  # what was found before stands
            parts = {name: getattr(update, name) + part for name, part in found.update}
            update, dropped = GraphUpdate(**parts), dropped | dict.fromkeys(found.dropped)
            if step == "glean" and not found.update.relations:
                break
        records = [update] if len(read) == 1 else [_stated_in(passage, update) for passage in read]
        extractions = [self._extraction(record) for record in records]
        more = {"dropped": (*dropped, *extractions[0].dropped), "calls": meter.calls}
        extractions[0] = extractions[0].model_copy(update={**more, "tokens": meter.tokens})
        meter.usage.clear()
        return extractions

    def _extraction(self, update: GraphUpdate) -> Extraction:
        """Return the distinct records of a passage, no more relations than the maximum."""
        entities, relations = (tuple(dict.fromkeys(part)) for _, part in update)
        kept = relations[: self.max_relations]
        over = relations[len(kept) :]
        gone = {end for one in over for end in one.ends} - {end for one in kept for end in one.ends}
        dropped = [
            Dropped(
                kind="relation",
                item=f"{one.head} -> {one.relation} -> {one.tail}",
                cause="over the maximum",
                reason=f"more than {self.max_relations} relations",
            )
            for one in over
        ]
        entities = tuple(entity for entity in entities if entity.name not in gone)
        records = GraphUpdate(entities=entities, relations=kept)
        return Extraction(update=records, dropped=tuple(dropped))


Found = TypeVar("Found")
_Reading = Generator[Ask, Any, Found]
_FAILURES = (StepFailed, dspy.LMError)


def _stated_in(passage: Passage, update: GraphUpdate) -> GraphUpdate:
    """Return what an update quotes from a passage, grounded in that passage alone."""
    kinds: dict[str, type[BaseModel]] = {"entities": DraftEntity, "relations": DraftRelation}
    parts = dict[str, Any]()
    for name, items in update:
        own = (i for i in items if any(quote.passage == passage.id for quote in i.evidence))
        fields = set(kinds[name].model_fields)
        parts[name] = tuple(kinds[name](**i.model_dump(include=fields), passages=(1,)) for i in own)
    return ground(Draft(**parts), {1: passage}).update


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


RECORDED: Final = "recorded"
"""In place of a fingerprint: the facts of the passage were given, and no LM reads it."""


def finished_key(passage: Passage, fingerprint: str, finished: Container[str]) -> str:
    """Return the key under which a passage is finished, or will be under a fingerprint."""
    given = reading_key(passage, RECORDED)
    return given if given in finished else reading_key(passage, fingerprint)


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

    def known(self, kind: type[Finished], keys: Iterable[str] | None = None) -> dict[str, Finished]:
        """Return the results of finished steps, by default of all; a damaged one is unfinished."""
        select = "SELECT key, json FROM finished"
        if keys is None:
            rows = self.rows(select)
        else:
            rows = [row for key in keys for row in self.rows(f"{select} WHERE key = ?", (key,))]
        return dict(self.readable(rows, kind.model_validate_json))

    def record(self, key: str, found: BaseModel) -> None:
        """Record a finished step."""
        self.record_all({key: found})

    def record_all(self, found: Mapping[str, BaseModel]) -> None:
        """Record finished steps by key, all or none."""
        insert = "INSERT OR REPLACE INTO finished VALUES (?, ?)"
        self.transaction([(insert, (key, one.model_dump_json())) for key, one in found.items()])

    def keep_only(self, keys: Iterable[str]) -> None:
        """Delete all other steps."""
        self.forget({key for (key,) in self.rows("SELECT key FROM finished")} - set(keys))

    def forget(self, gone: Iterable[str]) -> None:
        """Delete steps."""
        self.transaction([("DELETE FROM finished WHERE key = ?", (key,)) for key in gone])
