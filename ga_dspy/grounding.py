"""The assertions: what of a draft do these passages support? Pure functions, no LM.

An entity enters the graph only where a passage mentions it, a relation only where one passage
mentions both its ends; spans are computed here. Placeholders ("unknown") and hedged guesses
("possibly a singer") never enter. An attribute that its entity's passages do not carry is taken
off the entity. The passages an item cites are searched first; an item whose citation is wrong
but which another passage supports is kept with the right one. Where a passage says that an entity
is also known by another name, the entity carries it as an alias.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Literal, NamedTuple

from pydantic import BaseModel, ConfigDict

from ga_dspy.graph import (
    Draft,
    DraftEntity,
    DraftRelation,
    Entity,
    Evidence,
    GraphUpdate,
    Relation,
    is_hedged,
    is_placeholder,
    normalise,
    split_qualifier,
    stated_aliases,
)
from ga_dspy.mentions import Mention, mentions, sentences, supports_phrase
from ga_dspy.passage import Passage

MAX_EVIDENCE = 3

Cause = Literal["ungrounded", "placeholder", "hedged", "unreadable"]


class Dropped(BaseModel):
    """A part of a draft that did not enter the graph, and why."""

    model_config = ConfigDict(frozen=True)

    kind: Literal["entity", "relation", "attribute", "line"]
    item: str
    cause: Cause
    reason: str

    def __str__(self) -> str:
        """One sentence, fit for a prompt and for a person.

        >>> str(Dropped(kind="entity", item="Bob", cause="ungrounded", reason="not found in [1]"))
        'entity "Bob": not found in [1]'
        """
        return f'{self.kind} "{self.item}": {self.reason}'


class Grounding(NamedTuple):
    """The supported part of a draft, and what was dropped from it."""

    update: GraphUpdate
    dropped: tuple[Dropped, ...]

    @property
    def ungrounded(self) -> tuple[Dropped, ...]:
        """The entities and relations that no passage supports: worth telling the model."""
        return tuple(d for d in self.dropped if d.cause == "ungrounded" and d.kind != "attribute")

    @property
    def feedback(self) -> str:
        """What to tell the model about its attempt; empty where all of it was grounded."""
        return "\n".join(f"- {dropped}" for dropped in self.ungrounded)


def ground(draft: Draft, passages: Mapping[int, Passage], known: Collection[str] = ()) -> Grounding:
    """Keep what the passages support.

    Args:
        draft: What a model proposed, citing passages by label.
        passages: The passages read so far, by label.
        known: Names that the graph shows already. A name with a qualifier, "Mercury (planet)", is
            kept if it is one of them or a passage carries the qualifier, else without it.

    Returns:
        The grounded update, with evidence spans in `Passage.content`, and what was dropped.
        The ends of a kept relation are entities of the update, proposed as such or not.
    """
    draft = _with_plain_names(draft, passages, known)
    dropped = [_unreadable(line) for line in draft.skipped]
    entities: list[Entity] = []
    relations: list[Relation] = []
    for proposed in draft.entities:
        entity, faults = _ground_entity(proposed, passages)
        dropped += faults
        entities += [entity] if entity else []
    for link in draft.relations:
        relation, fault = _ground_relation(link, passages)
        dropped += [fault] if fault else []
        if relation:
            relations.append(relation)
            entities += _ends(relation, entities, passages)
    update = GraphUpdate(entities=tuple(entities), relations=tuple(relations))
    return Grounding(update, tuple(dict.fromkeys(dropped)))


def _ground_entity(
    draft: DraftEntity, passages: Mapping[int, Passage]
) -> tuple[Entity | None, list[Dropped]]:
    fault = _not_knowledge("entity", draft.name, draft.name)
    if fault:
        return None, [fault]
    evidence = _entity_evidence(draft.name, draft.passages, passages)
    if not evidence:
        where = _where(draft.passages, passages)
        return None, [_ungrounded("entity", draft.name, f"not found in {where}")]
    support = _support(evidence, passages)
    kept: list[str] = []
    faults: list[Dropped] = []
    for attribute in draft.attributes:
        found = _attribute_fault(draft.name, attribute, support)
        faults += [found] if found else []
        kept += [] if found else [attribute]
    kind = "" if is_hedged(draft.type) or is_placeholder(draft.type) else draft.type
    return Entity(
        name=draft.name,
        type=kind,
        attributes=tuple(kept),
        aliases=_aliases(draft.name, evidence, passages),
        evidence=evidence,
    ), faults


def _aliases(
    name: str, evidence: tuple[Evidence, ...], passages: Mapping[int, Passage]
) -> tuple[str, ...]:
    """Other names that the passages of an entity state for it."""
    known, own = _by_id(passages), normalise(name)
    pairs = [pair for e in evidence for pair in stated_aliases(known[e.passage].text)]
    both_ways = [*pairs, *((alias, full) for full, alias in pairs)]
    return tuple(dict.fromkeys(other for one, other in both_ways if normalise(one) == own))


def _attribute_fault(name: str, attribute: str, support: str) -> Dropped | None:
    label = f"{name}: {attribute}"
    if fault := _not_knowledge("attribute", label, attribute):
        return fault
    _, _, value = attribute.partition(": ")
    if supports_phrase(value or attribute, support):
        return None
    return _ungrounded("attribute", label, "its passages do not say so")


def _ground_relation(
    draft: DraftRelation, passages: Mapping[int, Passage]
) -> tuple[Relation | None, Dropped | None]:
    item = f"{draft.head} -> {draft.relation} -> {draft.tail}"
    for part in (draft.head, draft.tail):
        if fault := _not_knowledge("relation", item, part):
            return None, fault
    if is_hedged(draft.relation):
        return None, Dropped(kind="relation", item=item, cause="hedged", reason="a guess")
    evidence = _relation_evidence(draft, passages)
    if not evidence:
        return None, _ungrounded("relation", item, _why_apart(draft, passages))
    said_when = draft.time is not None and any(
        mentions(draft.time, _by_id(passages)[e.passage].content) for e in evidence
    )
    relation = Relation(
        head=draft.head,
        relation=draft.relation,
        tail=draft.tail,
        time=draft.time if said_when else None,
        confidence=draft.confidence,
        evidence=evidence,
    )
    return relation, None


def _entity_evidence(
    name: str, cited: tuple[int, ...], passages: Mapping[int, Passage]
) -> tuple[Evidence, ...]:
    for group in _search_order(cited, passages):
        found = []
        for passage in group:
            spans = _mentions(name, passage)
            found += [_evidence(passage, spans[0])] if spans else []
        if found:
            return tuple(found[:MAX_EVIDENCE])
    return ()


def _relation_evidence(
    draft: DraftRelation, passages: Mapping[int, Passage]
) -> tuple[Evidence, ...]:
    for group in _search_order(draft.passages, passages):
        for passage in group:
            heads, tails = _mentions(draft.head, passage), _mentions(draft.tail, passage)
            if heads and tails:
                return _quote(passage, heads, tails)
    return ()


def _quote(
    passage: Passage, heads: tuple[Mention, ...], tails: tuple[Mention, ...]
) -> tuple[Evidence, ...]:
    """The sentence that mentions both ends; else that of one, where the title names the other.

    Where neither holds, the sentences of the closest two mentions.
    """
    text, title_end = passage.content, len(passage.title)

    def apart(pair: tuple[Mention, Mention]) -> tuple[bool, bool, int, int]:
        head, tail = pair
        together = _sentence(text, head) == _sentence(text, tail) and head.start >= title_end
        titled = min(head.start, tail.start) < title_end
        return not together, not titled, abs(head.start - tail.start), head.start

    head, tail = min(((h, t) for h in heads for t in tails), key=apart)
    spans = {_sentence(text, head), _sentence(text, tail)}
    body = {span for span in spans if span[1] > title_end}
    return tuple(Evidence(passage=passage.id, start=a, end=b) for a, b in sorted(body or spans))


def _sentence(text: str, mention: Mention) -> tuple[int, int]:
    for start, end in sentences(text):
        if start <= mention.start < end:
            return start, max(end, mention.end)
    return mention.start, mention.end


def _ends(
    relation: Relation, entities: list[Entity], passages: Mapping[int, Passage]
) -> Iterable[Entity]:
    listed = {entity.name for entity in entities}
    labels = {passage.id: label for label, passage in passages.items()}
    cited = tuple(labels[evidence.passage] for evidence in relation.evidence)
    for name in dict.fromkeys((relation.head, relation.tail)):
        if name not in listed:
            evidence = _entity_evidence(name, cited, passages)
            yield Entity(name=name, aliases=_aliases(name, evidence, passages), evidence=evidence)


def _with_plain_names(
    draft: Draft, passages: Mapping[int, Passage], known: Collection[str]
) -> Draft:
    def plain(name: str) -> str:
        base, qualifier = split_qualifier(name)
        if not qualifier or name in known:
            return name
        contents = [passage.content for passage in passages.values()]
        held = any(mentions(base, c) and supports_phrase(qualifier, c) for c in contents)
        return name if held else base

    entities = tuple(e.model_copy(update={"name": plain(e.name)}) for e in draft.entities)
    relations = tuple(
        r.model_copy(update={"head": plain(r.head), "tail": plain(r.tail)}) for r in draft.relations
    )
    return draft.model_copy(update={"entities": entities, "relations": relations})


def _mentions(name: str, passage: Passage) -> tuple[Mention, ...]:
    """Mentions of a name as it stands, else without the qualifier that tells namesakes apart."""
    found = mentions(name, passage.content)
    return found or mentions(split_qualifier(name).base, passage.content)


def _search_order(
    cited: tuple[int, ...], passages: Mapping[int, Passage]
) -> tuple[list[Passage], list[Passage]]:
    named = [passages[label] for label in cited if label in passages]
    return named, [passage for label, passage in passages.items() if label not in cited]


def _support(evidence: tuple[Evidence, ...], passages: Mapping[int, Passage]) -> str:
    known = _by_id(passages)
    return "\n".join(known[e.passage].content for e in evidence)


def _by_id(passages: Mapping[int, Passage]) -> dict[str, Passage]:
    return {passage.id: passage for passage in passages.values()}


def _evidence(passage: Passage, mention: Mention) -> Evidence:
    return Evidence(passage=passage.id, start=mention.start, end=mention.end)


def _not_knowledge(
    kind: Literal["entity", "relation", "attribute"], item: str, part: str
) -> Dropped | None:
    if is_placeholder(part):
        return Dropped(kind=kind, item=item, cause="placeholder", reason="a placeholder")
    if is_hedged(part):
        return Dropped(kind=kind, item=item, cause="hedged", reason="a guess")
    return None


def _ungrounded(
    kind: Literal["entity", "relation", "attribute"], item: str, reason: str
) -> Dropped:
    return Dropped(kind=kind, item=item, cause="ungrounded", reason=reason)


def _unreadable(line: str) -> Dropped:
    return Dropped(kind="line", item=line, cause="unreadable", reason="not read as a graph line")


def _where(cited: tuple[int, ...], passages: Mapping[int, Passage]) -> str:
    known = [label for label in cited if label in passages]
    return "".join(f"[{label}]" for label in known) or "any passage"


def _why_apart(draft: DraftRelation, passages: Mapping[int, Passage]) -> str:
    missing = [
        f'"{end}"'
        for end in (draft.head, draft.tail)
        if not any(_mentions(end, passage) for passage in passages.values())
    ]
    if missing:
        return f"{' and '.join(missing)} not found in any passage"
    return "no single passage mentions both ends"
