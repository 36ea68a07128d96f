"""Extract grounded records from passages, journal them, and propose a schema from a sample."""

from __future__ import annotations

import hashlib
import inspect
import json
import logging
from collections import Counter, defaultdict
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from itertools import islice
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
from ga_dspy.graph.clusters import passages_of
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
    """The records of one passage, and what it cost to read it.

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
        """Return the number of LM calls, tokens, stated relations and proposed relations."""
        kinds = ("relation", "line")
        wrong = sum(one.kind in kinds and one.is_unsupported for one in self.dropped)
        stated = len(self.update.relations)
        return Counter(calls=self.calls, tokens=self.tokens, stated=stated, proposed=stated + wrong)


class Extractor(Configured):
    """Extracts grounded entities and relations from passages.

    Its predictors are `extract` and, with `gleanings`, `glean`, which asks for missed facts. Of
    more relations than `max_relations`, the first ones in the reply are kept.
    """

    schema: Schema | None = setting("Types and relations of the graph.", default=None)
    per_call: int = setting("Passages per LM call.", default=1, minimum=1, maximum=100)
    max_relations: int | None = setting("Maximum relations per passage.", default=None, minimum=1)
    gleanings: int = setting("Further LM calls for missed facts.", default=0, minimum=0, maximum=5)

    def __post_init__(self) -> None:
        """Check the settings; make the predictors."""
        super().__post_init__()
        signature = extract_signature(self.schema, self.per_call, self.max_relations)
        self.extract = self._predictor(signature)
        if self.gleanings:
            self.glean = self._predictor(glean_signature(signature))

    def forward(self, passage: Passage | Sequence[Passage]) -> dspy.Prediction:
        """Read a passage, or several in one LM call.

        If the reply for several passages is unusable, they are read one by one.

        Returns:
            For one passage, a prediction with its `extraction`. For several, a prediction with
            `extractions`: an `Extraction` for each, or the error message if it could not be read.

        Raises:
            StepFailed: There is only one passage, and the reply is unusable.
        """
        return drive(self._read(passage))

    async def aforward(self, passage: Passage | Sequence[Passage]) -> dspy.Prediction:
        """Read passages from a coroutine."""
        return await adrive(self._read(passage))

    def nondefault_settings(self) -> dict[str, Any]:
        """Return the settings that differ from the defaults, as JSON values."""
        declared = self.declared()
        return {n: value for n, value in self.settings().items() if value != declared[n].default}

    def fingerprint(self, lm: Any = None) -> str:
        """Return a hash of the instructions, fields, demos, settings and LM."""
        lm, own = resolve_lm(lm, self.extract), self.nondefault_settings()
        if self.gleanings:
            own["glean"] = self.glean.dump_state()
        names = ("temperature", "max_tokens", "reasoning_effort")
        sampling = {key: lm.kwargs.get(key) for key in names} if hasattr(lm, "kwargs") else {}
        content = {
            "format": _FORMAT,
            "state": {k: v for k, v in self.extract.dump_state().items() if k != "lm"},
            "fields": str(self.extract.signature.model_json_schema()["properties"].keys()),
            "lm": getattr(lm, "model", ""),
            "sampling": sampling,
            **nondefault_settings(self.extract, lm, type(self)),
        }
        return digest_of(content | {"settings": own} if own else content)

    def _predictor(self, signature: type[dspy.Signature]) -> dspy.Predict:
        predictor = dspy.Predict(signature)
        predictor.demos = [extraction_example(signature, several=self.per_call > 1)]
        return predictor

    def _read(self, passage: Passage | Sequence[Passage]) -> Conversation[dspy.Prediction]:
        if isinstance(passage, Passage):
            (extraction,) = yield from self._ask([passage], Meter())
            return dspy.Prediction(extraction=extraction)
        meter = Meter()
        try:
            return dspy.Prediction(extractions=(yield from self._ask(passage, meter)))
        except _FAILURES:
            outcomes = list[Extraction | str]()
            for one in passage:
                alone = Meter()
                alone.usage = meter.usage  # the first success also counts the failed calls
                try:
                    outcomes += yield from self._ask([one], alone)
                except _FAILURES as error:
                    outcomes.append(f"{type(error).__name__}: {error}")
            return dspy.Prediction(extractions=outcomes)

    def _ask(self, read: Sequence[Passage], meter: Meter) -> Conversation[list[Extraction]]:
        """Extract the records of passages in one LM call, then glean what the reply missed."""
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
                break  # the records so far are kept
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
        """Return the distinct records of a passage, with at most `max_relations` relations."""
        entities, relations = (tuple(dict.fromkeys(part)) for _, part in update)
        kept = relations[: self.max_relations]
        excess = relations[len(kept) :]
        dropped = [
            Dropped(
                kind="relation",
                item=f"{one.head} -> {one.relation} -> {one.tail}",
                cause="over the maximum",
                reason=f"more than {self.max_relations} relations",
            )
            for one in excess
        ]
        lost_ends = {end for relation in excess for end in relation.ends}
        lost_ends.difference_update(*(relation.ends for relation in kept))
        entities = tuple(entity for entity in entities if entity.name not in lost_ends)
        records = GraphUpdate(entities=entities, relations=kept)
        return Extraction(update=records, dropped=tuple(dropped))


_FAILURES = (StepFailed, dspy.LMError)


def _stated_in(passage: Passage, update: GraphUpdate) -> GraphUpdate:
    """Return the records with evidence in a passage, grounded again in this passage alone."""
    kinds: dict[str, type[BaseModel]] = {"entities": DraftEntity, "relations": DraftRelation}
    drafts = dict[str, list[BaseModel]]()
    for name, records in update:
        kind, drafts[name] = kinds[name], []
        for record in records:
            if passage.id in passages_of(record):
                fields = record.model_dump(include=set(kind.model_fields))
                drafts[name].append(kind(**fields, passages=(1,)))
    return ground(Draft.model_validate(drafts), {1: passage}).update


# --- Shared by extraction and summaries: the LM, fingerprints, failures, the journal.


def resolve_lm(lm: Any, predictor: dspy.Predict) -> Any:
    """Return the given LM, else the predictor's, else the configured one; None if there is none."""
    return lm or predictor.lm or dspy.settings.lm


def require_lm(lm: Any, predictor: dspy.Predict) -> Any:
    """Return the given LM, else the predictor's, else the configured one.

    Raises:
        InputError: There is none.
    """
    lm = resolve_lm(lm, predictor)
    if lm is None:
        raise InputError(
            "no LM is configured",
            expected="an LM to call",
            remedy="pass lm=…, or run dspy.configure(lm=…); ga_dspy.extractive_lm() needs no key",
        )
    return lm


def nondefault_settings(
    predictor: dspy.Predict, lm: Any, kind: type[Extractor] = Extractor
) -> dict[str, Any]:
    """Return the non-default settings of a predictor, an LM and an extractor for a fingerprint.

    Raises:
        InputError: The source of a subclass of `Extractor` cannot be read.
    """
    adapter = dspy.settings.adapter
    names = ("top_p", "top_k", "min_p", "seed", "max_completion_tokens", "extra_body")
    options = getattr(lm, "kwargs", {})
    found = {name: options[name] for name in names if options.get(name) is not None}
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
                expected="a class in a file: its source is part of the fingerprint",
                remedy="put the class into a module",
            ) from error
    return {"unusual": found} if found else {}


Outcome = TypeVar("Outcome")


def outcome_of(work: Callable[[], Outcome]) -> Outcome | str:
    """Return the result of a step, or the error message if it failed."""
    try:
        return work()
    except RunAborted:
        raise
    except Exception as error:  # noqa: BLE001 - a failed step must not stop the others
        return f"{type(error).__name__}: {error}"


def digest_of(value: Any, default: Callable[[Any], Any] = str) -> str:
    """Return the hexadecimal SHA-256 of a value as JSON; `default` converts other types."""
    return hashlib.sha256(json.dumps(value, sort_keys=True, default=default).encode()).hexdigest()


def reading_key(passage: Passage, fingerprint: str) -> str:
    """Return the cache key of a passage under a fingerprint."""
    return digest_of([fingerprint, passage.id, passage.title, passage.text])


RECORDED: Final = "recorded"
"""Used in place of a fingerprint if the facts of a passage were given, so that no LM reads it."""


def finished_key(passage: Passage, fingerprint: str, finished: Container[str]) -> str:
    """Return the key of the finished step of a passage, or of the step that will read it."""
    recorded = reading_key(passage, RECORDED)
    return recorded if recorded in finished else reading_key(passage, fingerprint)


Finished = TypeVar("Finished", bound=BaseModel)

_LISTED: Final = "(SELECT value FROM json_each(?))"


class FinishedSteps(Journal):
    """A journal of the results of finished LM steps, by cache key, so that none is repeated.

    Another passage text or another LM gives another key.

    Args:
        path: The file.
        shared: Allow several processes to write; by default only one can.
    """

    def __init__(self, path: Path, *, shared: bool = False) -> None:
        create = "CREATE TABLE finished (key TEXT PRIMARY KEY, json TEXT NOT NULL)"
        super().__init__(path, "graph build", {"finished": create}, shared=shared)

    def known(self, kind: type[Finished], keys: Iterable[str] | None = None) -> dict[str, Finished]:
        """Return the results of finished steps by key, by default of all.

        A step whose result is damaged counts as unfinished.
        """
        select, parameters = "SELECT key, json FROM finished", list[str]()
        if keys is not None:
            select, parameters = f"{select} WHERE key IN {_LISTED}", [json.dumps([*keys])]
        return dict(self.readable(self.rows(select, parameters), kind.model_validate_json))

    def record(self, results: Mapping[str, BaseModel]) -> None:
        """Record the results of finished steps by key, all or none."""
        insert = "INSERT OR REPLACE INTO finished VALUES (?, ?)"
        self.transaction([(insert, (key, one.model_dump_json())) for key, one in results.items()])

    def keep_only(self, keys: Iterable[str]) -> None:
        """Delete all steps except these."""
        self.write(f"DELETE FROM finished WHERE key NOT IN {_LISTED}", json.dumps([*keys]))

    def forget(self, keys: Iterable[str]) -> None:
        """Delete these steps."""
        self.write(f"DELETE FROM finished WHERE key IN {_LISTED}", json.dumps([*keys]))


# --- Propose a schema for a corpus from a sample of its passages.

_EXAMPLES, _WORDINGS = 3, 60
_TYPES, _RELATIONS = 12, 20


def propose_schema(
    passages: Iterable[Passage], *, lm: Any = None, sample: int = 20, threads: int = 8
) -> Schema:
    """Propose a schema: a draft to edit.

    The LM reads a sample, evenly spread over the passages, as a build would. Then it names types
    and relations for the relations found, the most frequent first. The embedded LM cannot name
    them: its proposal has the most frequent types and wordings of the sample.

    Args:
        passages: The passages, or an index.
        lm: The LM; by default the configured one.
        sample: How many passages to read.
        threads: Number of passages read in parallel.

    Raises:
        InputError: There is no LM, or the embedded LM found no types.
        StepFailed: The LM proposed no usable schema, or found no relation.
    """
    corpus, extractor = list(passages), Extractor()
    lm = require_lm(lm, extractor.extract)
    size = min(sample, len(corpus))
    chosen = [corpus[n * len(corpus) // size] for n in range(size)]
    updates = list[GraphUpdate]()

    def read(passage: Passage) -> Extraction | str:
        return outcome_of(lambda: extractor(passage=passage).extraction)

    with dspy.context(lm=lm):
        for outcome in parallel(read, chosen, threads):
            if isinstance(outcome, str):
                _log.warning("a passage of the sample could not be read: %s", outcome)
            else:
                updates.append(outcome.update)
        groups = _by_wording(updates)
        if not groups:
            raise StepFailed("propose", "no passage of the sample states a relation", "")
        if lm.model == EMBEDDED:
            return _most_frequent(updates, groups)
        inputs = {"facts": "\n".join(map(_line, groups[:_WORDINGS]))}
        reply = drive(ask("propose", dspy.Predict(ProposeSchema), inputs, Meter()))
    distinct = {relation_key(name): (name, ends) for name, ends in reply.relations.items()}
    try:
        return Schema(entities=reply.entities, relations=dict(distinct.values()))
    except ValidationError as error:
        raise StepFailed("propose", error.errors()[0]["msg"], str(reply.toDict())) from error


_Typed = tuple[Relation, str, str]
"""A relation and the types of its head and tail."""


def _by_wording(updates: Sequence[GraphUpdate]) -> list[list[_Typed]]:
    """Group the relations by their wording, the largest group first."""
    groups = defaultdict[str, list[_Typed]](list)
    for update in updates:
        types = {entity.name: entity.type for entity in update.entities if entity.type}
        for one in update.relations:
            head, tail = (types.get(end, OTHER) for end in one.ends)
            groups[relation_key(one.relation)].append((one, head, tail))
    return sorted(groups.values(), key=lambda group: (-len(group), group[0][0].relation))


def _line(group: list[_Typed]) -> str:
    examples = (f"{r.head} ({h}) -> {r.relation} -> {r.tail} ({t})" for r, h, t in group)
    return f"{len(group)}: {'; '.join(islice(examples, _EXAMPLES))}"


def _most_frequent(updates: Sequence[GraphUpdate], groups: list[list[_Typed]]) -> Schema:
    """Return the most frequent types, and the most frequent wordings between typed entities."""
    types = Counter(entity.type for update in updates for entity in update.entities if entity.type)
    if not types:
        found = "the embedded LM found no type of anything in the sample"
        raise InputError(found, remedy="pass --lm, a larger --sample, or write the schema yourself")
    relations = dict[str, tuple[str, str]]()
    for group in groups[:_RELATIONS]:
        if typed := [one for one in group if OTHER not in one[1:]]:
            relation, head, tail = typed[0]
            relations[relation.relation] = (head, tail)
    return Schema(entities=dict.fromkeys(dict(types.most_common(_TYPES)), ""), relations=relations)
