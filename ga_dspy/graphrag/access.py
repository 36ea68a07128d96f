"""What a caller may see: the records left when those of other labels are taken away.

Nothing is hidden in a finished graph, because a finished graph tells more than its parts: who is
who, how often a thing is linked, what stands near it. A caller's graph is made from the records
that the caller may see, as if the others had never been read.
"""

from __future__ import annotations

from dataclasses import replace

from ga_dspy.graph import Entity, GraphUpdate, normalise
from ga_dspy.graph.records import Confidence, Value
from ga_dspy.graphrag.sources import NO_LABELS, Batch, Labels, Rules, Sources


class Access(Value):
    """A caller's rights and wishes.

    Attributes:
        labels: The labels that the caller holds.
        relations: The only relations wanted; None for all.
        time: First and last year wanted; a relation that states other years alone is left out.
        min_confidence: A relation that states a lower confidence is left out.
    """

    labels: Labels = NO_LABELS
    relations: frozenset[str] | None = None
    time: tuple[int, int] | None = None
    min_confidence: Confidence = 0.0


def seen_with(sources: Sources, labels: Labels) -> Sources:
    """The sources that a caller with these labels may see.

    A batch is seen with all labels of its passage and its own; of what is left, a relation with
    the labels of its name. What only a hidden relation names goes with it: its ends, where no
    other relation of the passage names them, and attributes that mention them.
    """
    open_to = [batch for batch in sources.batches if sources.needs(batch) <= labels]
    seen = tuple(_without_hidden(batch, sources.rules, labels) for batch in open_to)
    return replace(sources, batches=seen)


def withheld(sources: Sources) -> dict[str, Labels]:
    """The labels needed to read each passage that needs any: its own and its relations'."""
    needed = dict(sources.labels)
    for batch in sources.batches:
        stated = (sources.rules.labels_of(r.relation) for r in batch.update.relations)
        labels = batch.labels.union(*stated)
        if batch.passage and labels:
            needed[batch.passage] = needed.get(batch.passage, NO_LABELS) | labels
    return needed


def _without_hidden(batch: Batch, rules: Rules, labels: Labels) -> Batch:
    relations = batch.update.relations
    shown = tuple(r for r in relations if rules.labels_of(r.relation) <= labels)
    if len(shown) == len(relations):
        return batch
    named = {end for r in shown for end in (r.head, r.tail)}
    hidden = {end for r in relations if r not in shown for end in (r.head, r.tail)} - named
    entities = tuple(
        _redacted(entity, hidden) for entity in batch.update.entities if entity.name not in hidden
    )
    update = GraphUpdate(entities=entities, relations=shown)
    return batch.model_copy(update={"update": update})


def _redacted(entity: Entity, hidden: set[str]) -> Entity:
    """The entity without attributes and aliases that mention something hidden."""
    secrets = [normalise(name) for name in hidden]

    def tells(text: str) -> bool:
        return any(f" {secret} " in f" {normalise(text)} " for secret in secrets)

    kept = {
        "attributes": tuple(text for text in entity.attributes if not tells(text)),
        "aliases": tuple(text for text in entity.aliases if not tells(text)),
        "type": "" if tells(entity.type) else entity.type,
    }
    return entity.model_copy(update=kept)
