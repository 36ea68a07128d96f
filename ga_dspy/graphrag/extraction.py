"""Extraction: read passages into grounded records, a journal of those, and a schema from them."""

from __future__ import annotations

import hashlib
import inspect
import json
import logging
from collections import Counter, defaultdict
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar

import dspy
from pydantic import BaseModel, ConfigDict, ValidationError

from ga_dspy.errors import InputError, RunAborted
from ga_dspy.graph import (
    Draft,
    DraftEntity,
    DraftRelation,
    GraphUpdate,
    KnowledgeGraph,
    Relation,
    Schema,
    linearise,
)
from ga_dspy.graph.identity import relation_key
from ga_dspy.graph.schema import OTHER
from ga_dspy.grounding import Dropped, ground
from ga_dspy.lm.adapters import PlainAdapter
from ga_dspy.lm.endpoints import EMBEDDED
from ga_dspy.passage import Passage
from ga_dspy.programs.calls import Conversation, StepFailed, adrive, ask, drive, ground_reply
from ga_dspy.programs.meter import Meter
from ga_dspy.programs.settings import Configured, setting
from ga_dspy.signatures.examples import extraction_example
from ga_dspy.signatures.graphrag import ProposeSchema, extract_signature, glean_signature
from ga_dspy.signatures.prompt import render_passages
from ga_dspy.storage import Journal, parallel

_log = logging.getLogger(__name__)

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

    @property
    def counts(self) -> Counter[str]:
        """Return LM calls, tokens, relations that are stated, and those that were proposed."""
        kinds = ("relation", "line")
        wrong = sum(one.kind in kinds and one.is_unsupported for one in self.dropped)
        stated = len(self.update.relations)
        return Counter(calls=self.calls, tokens=self.tokens, stated=stated, proposed=stated + wrong)


class Extractor(Configured):
    """Read passages into grounded entities and relations.

    `extract` is its predictor; `glean` is the one that asks again, if there are `gleanings`.
    """

    schema: Schema | None = setting("Types and relations of the graph.", default=None)
    per_call: int = setting("Passages in one LM call.", default=1, minimum=1, maximum=100)
    max_relations: int | None = setting(
        "Maximum relations of a passage, in the order of the reply.", default=None, minimum=1
    )
    gleanings: int = setting(
        "Further LM calls for what a reply left out.", default=0, minimum=0, maximum=5
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
                **nondefault_settings(self.extract, lm, type(self)),
            }
        )

    def _predictor(self, signature: type[dspy.Signature]) -> dspy.Predict:
        predictor = dspy.Predict(signature)
        predictor.demos = [extraction_example(signature, several=self.per_call > 1)]
        return predictor

    def _read(self, passage: Passage | Sequence[Passage]) -> Conversation[dspy.Prediction]:
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

    def _ask(self, read: Sequence[Passage], meter: Meter) -> Conversation[list[Extraction]]:
        """Ask for what passages state, and as often as set for what is missing."""
        passages, dropped = dict(enumerate(read, 1)), dict[Dropped, None]()
        inputs = {"passages": render_passages(passages.items())}
        labels = {passage.id: label for label, passage in passages.items()}
        update = GraphUpdate()
        for step in ("extract", *["glean"] * self.gleanings):
            inputs["graph"] = linearise(KnowledgeGraph().merge(update), labels=labels)
            asked = ask(step, getattr(self, step), inputs, meter)
            try:
                found = yield from ground_reply(asked, passages, schema=self.schema)
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


def needed_lm(lm: Any, predictor: dspy.Predict) -> Any:
    """Return the LM of a predictor.

    Raises:
        InputError: There is none.
    """
    lm = chosen_lm(lm, predictor)
    if lm is None:
        raise InputError(
            "no LM is configured",
            expected="one to read the passages",
            remedy="pass lm=…, or run dspy.configure(lm=ga_dspy.extractive_lm()) for the embedded "
            "one",
        )
    return lm


def nondefault_settings(
    predictor: dspy.Predict, lm: Any, kind: type[Extractor] = Extractor
) -> dict[str, Any]:
    """Return the non-default settings that belong in a fingerprint.

    Raises:
        InputError: The source of a subclass of `Extractor` cannot be read.
    """
    adapter = dspy.settings.adapter
    names = ("top_p", "top_k", "min_p", "seed", "max_completion_tokens", "extra_body")
    settings = {name: getattr(lm, "kwargs", {}).get(name) for name in names}
    found = {name: value for name, value in settings.items() if value is not None}
    if predictor.config:
        found["config"] = predictor.config
    if adapter is not None and type(adapter) is not PlainAdapter:
        found["adapter"] = type(adapter).__qualname__
    if kind is not Extractor:
        try:
            found["source"] = inspect.getsource(kind)
        except OSError as error:
            raise InputError(
                f"the source of {kind.__qualname__} cannot be read",
                expected="a class in a file: its source is part of the fingerprint of its records",
                remedy="put the class into a module",
            ) from error
    return {"unusual": found} if found else {}


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


_LISTED: Final = "(SELECT value FROM json_each(?))"


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
        select, chosen = "SELECT key, json FROM finished", list[str]()
        if keys is not None:
            select, chosen = f"{select} WHERE key IN {_LISTED}", [json.dumps([*keys])]
        return dict(self.readable(self.rows(select, chosen), kind.model_validate_json))

    def record(self, found: Mapping[str, BaseModel]) -> None:
        """Record finished steps by key, all or none."""
        insert = "INSERT OR REPLACE INTO finished VALUES (?, ?)"
        self.transaction([(insert, (key, one.model_dump_json())) for key, one in found.items()])

    def keep_only(self, keys: Iterable[str]) -> None:
        """Delete all other steps."""
        self.write(f"DELETE FROM finished WHERE key NOT IN {_LISTED}", json.dumps([*keys]))

    def forget(self, gone: Iterable[str]) -> None:
        """Delete steps."""
        self.write(f"DELETE FROM finished WHERE key IN {_LISTED}", json.dumps([*gone]))


# --- A first schema for a corpus, from what a sample of its passages states.

_EXAMPLES, _WORDINGS = 3, 60
_TYPES, _RELATIONS = 12, 20


def propose_schema(
    passages: Iterable[Passage], *, lm: Any = None, sample: int = 20, threads: int = 8
) -> Schema:
    """Propose a schema: a draft to edit, not a finding.

    The LM reads a sample, evenly spread over the passages, as a build would. From the relations
    found there, the most frequent first, it names types and relations. The embedded LM names
    nothing: the proposal is the types it gave, and the wordings that it gave with types.

    Args:
        passages: The passages, or an index.
        lm: The LM; by default the configured one.
        sample: How many passages to read.
        threads: Number of passages read in parallel.

    Raises:
        InputError: There is no LM, or the embedded LM found no types.
        StepFailed: The LM proposed no usable schema, or found no relation.
    """
    every, extractor = list(passages), Extractor()
    lm = needed_lm(lm, extractor.extract)
    size = min(sample, len(every))
    chosen = [every[n * len(every) // size] for n in range(size)]
    updates = list[GraphUpdate]()

    def read(passage: Passage) -> Extraction | str:
        return outcome_of(lambda: extractor(passage=passage).extraction)

    with dspy.context(lm=lm):
        for outcome in parallel(read, chosen, threads):
            if isinstance(outcome, str):
                _log.warning("a passage of the sample could not be read: %s", outcome)
            else:
                updates.append(outcome.update)
        found = _by_wording(updates)
        if not found:
            raise StepFailed("propose", "no passage of the sample states a relation", "")
        if lm.model == EMBEDDED:
            return _counted(updates, found)
        inputs = {"facts": "\n".join(map(_line, found[:_WORDINGS]))}
        reply = drive(ask("propose", dspy.Predict(ProposeSchema), inputs, Meter()))
    distinct = {relation_key(name): (name, ends) for name, ends in reply.relations.items()}
    try:
        return Schema(entities=reply.entities, relations=dict(distinct.values()))
    except ValidationError as error:
        raise StepFailed("propose", error.errors()[0]["msg"], str(reply.toDict())) from error


_Typed = tuple[Relation, str, str]
"""A relation, and the types of its ends."""


def _by_wording(updates: Sequence[GraphUpdate]) -> list[list[_Typed]]:
    """Return the relations in groups of one wording, the largest first."""
    groups = defaultdict[str, list[_Typed]](list)
    for update in updates:
        types = {entity.name: entity.type for entity in update.entities if entity.type}
        for one in update.relations:
            head, tail = (types.get(end, OTHER) for end in one.ends)
            groups[relation_key(one.relation)].append((one, head, tail))
    return sorted(groups.values(), key=lambda group: (-len(group), group[0][0].relation))


def _line(group: list[_Typed]) -> str:
    examples = (f"{r.head} ({h}) -> {r.relation} -> {r.tail} ({t})" for r, h, t in group)
    return f"{len(group)}: {'; '.join(list(examples)[:_EXAMPLES])}"


def _counted(updates: Sequence[GraphUpdate], groups: list[list[_Typed]]) -> Schema:
    """Return the most frequent types, and of the wordings those whose ends have types."""
    types = Counter(entity.type for update in updates for entity in update.entities if entity.type)
    typed = [[one for one in group if OTHER not in one[1:]] for group in groups]
    if not types:
        found = "the embedded LM found no type of anything in the sample"
        raise InputError(found, remedy="pass --lm, a larger --sample, or write the schema yourself")
    return Schema(
        entities=dict.fromkeys(dict(types.most_common(_TYPES)), ""),
        relations={one.relation: ends for (one, *ends), *_ in filter(None, typed[:_RELATIONS])},
    )
