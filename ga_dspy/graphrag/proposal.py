"""A first schema for a corpus, from what a sample of its passages states."""

from __future__ import annotations

import logging
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

import dspy
from pydantic import ValidationError

from ga_dspy.graph import GraphUpdate, Relation, Schema
from ga_dspy.graph.identity import relation_key
from ga_dspy.graph.schema import OTHER
from ga_dspy.graphrag.extraction import Extraction, Extractor, chosen_lm, no_lm, outcome_of
from ga_dspy.lm.endpoints import EMBEDDED
from ga_dspy.passage import Passage
from ga_dspy.programs.calls import StepFailed, ask, drive
from ga_dspy.programs.meter import Meter
from ga_dspy.signatures.graphrag import ProposeSchema
from ga_dspy.storage import parallel

_log = logging.getLogger(__name__)
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
        InputError: There is no LM.
        StepFailed: The LM proposed no usable schema, or found no relation.
    """
    every, extractor = list(passages), Extractor()
    lm = chosen_lm(lm, extractor.extract)
    if lm is None:
        raise no_lm()
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
    return Schema(
        entities=dict.fromkeys(dict(types.most_common(_TYPES)), ""),
        relations={one.relation: ends for (one, *ends), *_ in filter(None, typed[:_RELATIONS])},
    )
