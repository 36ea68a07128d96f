"""Grounding: keep the parts of a draft that the passages support, without an LM.

An entity enters the graph only if a passage mentions it, a relation only if one passage mentions
both its ends; this module locates the spans. Placeholders ("unknown") and hedged guesses ("possibly
a singer") never enter. An attribute that the entity's passages do not support is dropped. The cited
passages are searched first; an item that only another passage supports is kept, and cites that
passage. If a passage states another name of an entity, the name becomes an alias.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from itertools import chain, islice, product
from textwrap import dedent
from typing import Any, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict

from ga_dspy.errors import InputError
from ga_dspy.graph import Draft, DraftEntity, DraftRelation, Entity, Evidence, GraphUpdate, Relation
from ga_dspy.graph.identity import (
    is_hedged,
    is_placeholder,
    is_unstated,
    split_qualifier,
    split_title,
    stated_aliases,
)
from ga_dspy.graph.lines import draft_from
from ga_dspy.graph.schema import Schema
from ga_dspy.graph.traits import Traits, about, contradict, long_title, traits
from ga_dspy.passage import Passage
from ga_dspy.text import Mention, mentions, normalise, sentences, supports_phrase

MAX_EVIDENCE = 3
"""How many passages an item quotes at most."""

ItemKind = Literal["entity", "relation", "attribute", "line"]
Cause = Literal[
    "ungrounded", "placeholder", "hedged", "unreadable", "outside the schema", "over the maximum"
]


class Dropped(BaseModel):
    """A part of a draft that did not enter the graph, and the reason."""

    model_config = ConfigDict(frozen=True)

    kind: ItemKind
    item: str
    cause: Cause
    reason: str

    @property
    def is_unsupported(self) -> bool:
        """Return whether the passages or the reply are at fault, not the schema or a maximum."""
        return self.cause not in ("outside the schema", "over the maximum")

    def __str__(self) -> str:
        """Return one line for a prompt or a reader.

        >>> str(Dropped(kind="entity", item="Bob", cause="ungrounded", reason="not found in [1]"))
        'entity "Bob": not found in [1]'
        """
        return f'{self.kind} "{self.item}": {self.reason}'


class Grounding(NamedTuple):
    """The supported part of a draft, and what was dropped from it."""

    update: GraphUpdate
    dropped: tuple[Dropped, ...]


def ground(
    draft: Draft,
    passages: Mapping[int, Passage],
    known: Collection[str] = (),
    schema: Schema | None = None,
) -> Grounding:
    """Return the part of a draft that the passages support.

    Args:
        draft: The LM's proposal, which cites passages by label.
        passages: The passages read so far, by label.
        known: Names already shown in the graph. A qualifier, as in "Mercury (planet)", is kept if
            the name is one of them or a passage supports the qualifier; otherwise it is removed.
            A mapping from names to types also gives the schema their types.
        schema: The types and relations to keep; None for all.

    Returns:
        The grounded update, with evidence spans in `Passage.content`, and the dropped items. The
        update has an entity for each end of its relations, and for each end of a dropped relation
        that has a type or attributes and that a passage mentions.
    """
    check = _Check(passages, known)
    if schema is not None:
        drop = partial(check.drop, cause="outside the schema")
        draft = schema.fit(draft, drop, known if isinstance(known, Mapping) else {})
    for line in draft.skipped:
        check.drop("line", line, "not read as a graph line", "unreadable")
    nodes = [node.model_copy(update={"name": check.plain_name(node.name)}) for node in draft.nodes]
    listed, ends = nodes[: len(draft.entities)], nodes[len(draft.entities) :]
    entities = [*chain(*map(check.entity, listed), *map(check.described_end, ends))]
    relations = [relation for link in draft.relations if (relation := check.relation(link))]
    recorded = {(e.name, each.passage) for e in entities for each in e.evidence}
    labels = {passage.id: label for label, passage in passages.items()}
    for relation in relations:
        stating = dict.fromkeys(evidence.passage for evidence in relation.evidence)
        for name in dict.fromkeys(relation.ends):
            if missing := tuple(labels[id] for id in stating if (name, id) not in recorded):
                recorded |= {(name, id) for id in stating}
                entities += check.records(DraftEntity(name=name, passages=missing))
    update = GraphUpdate(entities=tuple(entities), relations=tuple(relations))
    return Grounding(update, tuple(check.dropped))


class _Check:
    """Checks the items of a draft against the passages, and collects those that it drops."""

    def __init__(self, passages: Mapping[int, Passage], known: Collection[str]) -> None:
        self.passages, self.known = passages, known
        self.by_id = {passage.id: passage for passage in passages.values()}
        self.contents = {id: passage.content for id, passage in self.by_id.items()}
        self.titles = {split_title(passage.title).base for passage in passages.values()}
        self.found: dict[tuple[str, str], tuple[Mention, ...]] = {}
        self.dropped: dict[Dropped, None] = {}

    def drop(self, kind: ItemKind, item: str, reason: str, cause: Cause = "ungrounded") -> None:
        self.dropped[Dropped(kind=kind, item=item, cause=cause, reason=reason)] = None

    def mentions(self, name: str, passage: Passage) -> tuple[Mention, ...]:
        """Return the mentions of a name, else of the name without its qualifier.

        A region after a comma is a qualifier if the passage mentions it: "Tampa, Florida" matches
        "Tampa" in a passage that mentions Florida.
        """
        key = name, passage.id
        if key not in self.found:
            text, base = self.contents[passage.id], split_qualifier(name).base
            found, title_end = mentions(name, text), len(passage.title)
            if base != name and all(each.start < title_end for each in found):
                # The title may have the qualifier, and the text the name without it.
                start = title_end if found else 0
                found += tuple(each for each in mentions(base, text) if each.start >= start)
            place, _, region = name.partition(", ")
            if not found and region and supports_phrase(region, text):
                found = mentions(place, text)
            self.found[key] = found
        return self.found[key]

    def drop_if_unknown(self, kind: ItemKind, item: str, part: str) -> bool:
        """Drop an item if a part of it is a placeholder or a guess; return whether it is."""
        fault = self.why_unknown(part, kind)
        if fault:
            self.drop(kind, item, *fault)
        return fault is not None

    def why_unknown(self, part: str, kind: ItemKind = "entity") -> tuple[str, Cause] | None:
        """Return the reason and cause if a part of an item is a placeholder or a guess."""
        if part in self.titles:
            return None
        if is_unstated(part) if kind == "attribute" else is_placeholder(part):
            return "a placeholder", "placeholder"
        return ("a guess", "hedged") if is_hedged(part) else None

    def described_end(self, draft: DraftEntity) -> list[Entity]:
        """Return the records of a described end; faults are reported with its relation."""
        is_described = draft.type or draft.attributes
        return self.records(draft) if is_described and not self.why_unknown(draft.name) else []

    def entity(self, draft: DraftEntity) -> list[Entity]:
        if self.drop_if_unknown("entity", draft.name, draft.name):
            return []
        records = self.records(draft)
        if not records:
            cited = "".join(f"[{label}]" for label in draft.passages if label in self.passages)
            self.drop("entity", draft.name, f"not found in {cited or 'any passage'}")
        return records

    def records(self, draft: DraftEntity) -> list[Entity]:
        """Return a record of an entity, or several if its passages mean different namesakes."""
        groups: list[list[Evidence]] = []
        for each in self.evidence(draft.passages, draft.name):
            ours = self.traits(draft, [each])
            fitting = (g for g in groups if not contradict(ours, self.traits(draft, g)))
            if group := next(fitting, None):
                group.append(each)
            else:
                groups.append([each])
        return [self.record(draft, group, len(groups) > 1) for group in groups]

    def record(self, draft: DraftEntity, evidence: Sequence[Evidence], is_one_of: bool) -> Entity:
        support = "\n".join(self.contents[each.passage] for each in evidence)
        stated = [a for a in draft.attributes if self.is_supported(draft.name, a, support)]
        is_foreign = is_one_of and not supports_phrase(draft.type, support)
        is_untyped = is_foreign or is_hedged(draft.type) or is_unstated(draft.type)
        return Entity(
            name=draft.name,
            type="" if is_untyped else draft.type,
            attributes=tuple(stated),
            aliases=self.aliases(draft.name, evidence),
            about=self.about(draft.name, evidence),
            evidence=tuple(evidence),
        )

    def traits(self, draft: DraftEntity, evidence: Sequence[Evidence]) -> Traits:
        return traits(draft.type, (), "", self.about(draft.name, evidence))

    def about(self, name: str, evidence: Sequence[Evidence]) -> tuple[str, ...]:
        """Return the lines that distinguish a name from its namesakes (see `traits.about`)."""
        base = split_qualifier(name).base
        lines = dict[str, None]()
        for each in evidence:
            passage = self.by_id[each.passage]
            start = len(passage.content) - len(passage.text)
            found = self.mentions(name, passage)
            at = [(m.start - start, m.end - start) for m in found if m.start >= start]
            lines.update(dict.fromkeys(about(base, passage.title, passage.text, at)))
        return tuple(lines)

    def is_supported(self, name: str, attribute: str, support: str) -> bool:
        item = f"{name}: {attribute}"
        if self.drop_if_unknown("attribute", item, attribute):
            return False
        if not supports_phrase(attribute.partition(": ")[2] or attribute, support, name):
            self.drop("attribute", item, "its passages do not say so")
            return False
        return True

    def aliases(self, name: str, evidence: Sequence[Evidence]) -> tuple[str, ...]:
        """Return the other names that an entity's passages and their titles state for it."""
        plain, read = normalise(name), [self.by_id[each.passage] for each in evidence]
        pairs = [pair for passage in read for pair in stated_aliases(passage.text)]
        pairs += [(alias, full) for full, alias in pairs]
        pairs += [(long_title(p.title, p.text[:300]), split_title(p.title).base) for p in read]
        return tuple(dict.fromkeys(alias for full, alias in pairs if normalise(full) == plain))

    def relation(self, draft: DraftRelation) -> Relation | None:
        head, tail = self.plain_name(draft.head), self.plain_name(draft.tail)
        item = f"{head} -> {draft.relation} -> {tail}"
        if any(self.drop_if_unknown("relation", item, end) for end in (head, tail)):
            return None
        if is_hedged(draft.relation):
            self.drop("relation", item, "a guess", "hedged")
            return None
        evidence = self.evidence(draft.passages, head, tail)
        if not evidence:
            missing = [f'"{end}"' for end in (head, tail) if not self.evidence((), end)]
            reason = f"{' and '.join(missing)} not found in any passage" if missing else ""
            self.drop("relation", item, reason or "no single passage mentions both ends")
            return None
        texts = (self.contents[each.passage] for each in evidence)
        is_dated = draft.time is not None and any(mentions(draft.time, text) for text in texts)
        return Relation(
            head=head,
            relation=draft.relation,
            tail=tail,
            time=draft.time if is_dated else None,
            confidence=draft.confidence,
            evidence=evidence,
        )

    def evidence(self, labels: Sequence[int], *names: str) -> tuple[Evidence, ...]:
        """Quote up to `MAX_EVIDENCE` passages that mention all names: cited ones, else others."""
        cited = [self.passages[label] for label in labels if label in self.passages]
        others = [passage for label, passage in self.passages.items() if label not in labels]
        for group in (cited, others):
            quotes = filter(None, (self.quote(passage, names) for passage in group))
            if evidence := tuple(chain(*islice(quotes, MAX_EVIDENCE))):
                return evidence
        return ()

    def quote(self, passage: Passage, names: Sequence[str]) -> tuple[Evidence, ...]:
        """Quote a passage that mentions all names, one or two; empty if it does not."""
        found = [self.mentions(name, passage) for name in names]
        if not all(found):
            return ()
        return quote_ends(passage, *found) if len(found) > 1 else quote_first(passage, *found)

    def plain_name(self, name: str) -> str:
        """Remove the qualifier of a name unless the graph or a passage has it."""
        base, qualifier = split_qualifier(name)
        if not qualifier or name in self.known:
            return name
        texts = self.contents.values()
        is_stated = any(mentions(base, text) and supports_phrase(qualifier, text) for text in texts)
        return name if is_stated else base


def quote_first(passage: Passage, places: tuple[Mention, ...]) -> tuple[Evidence, ...]:
    """Quote the first mention of a name."""
    return (Evidence(passage=passage.id, start=places[0].start, end=places[0].end),)


def quote_ends(
    passage: Passage, heads: tuple[Mention, ...], tails: tuple[Mention, ...]
) -> tuple[Evidence, ...]:
    """Quote the sentence that mentions both ends, or one end if the title names the other.

    If there is no such sentence, quote the sentences of the two closest mentions.
    """
    text, title_end = passage.content, len(passage.title)

    def rank(pair: tuple[Mention, Mention]) -> tuple[bool, bool, int, int]:
        head, tail = pair
        together = _sentence(text, head) == _sentence(text, tail) and head.start >= title_end
        titled = min(head.start, tail.start) < title_end
        return not together, not titled, abs(head.start - tail.start), head.start

    spans = {_sentence(text, end) for end in min(product(heads, tails), key=rank)}
    body = {span for span in spans if span[1] > title_end}
    return tuple(Evidence(passage=passage.id, start=a, end=b) for a, b in sorted(body or spans))


def _sentence(text: str, mention: Mention) -> tuple[int, int]:
    for start, end in sentences(text):
        if start <= mention.start < end:
            return start, max(end, mention.end)
    return mention.start, mention.end


# --- A claim check and a reward function for dspy.Refine and dspy.BestOfN


def supports(passage: Passage, claim: str | tuple[str, str, str]) -> bool:
    """Return whether a passage supports a phrase, or mentions both ends of a triple.

    The relation and the direction of a triple are not checked.

    >>> lodge = Passage(id="1", title="Red Lodge", text="Red Lodge is a city in Montana.")
    >>> supports(lodge, "a city"), supports(lodge, ("Red Lodge", "lies in", "Idaho"))
    (True, False)
    """
    if isinstance(claim, str):
        return supports_phrase(claim, passage.content)
    head, relation, tail = claim
    draft = Draft(relations=(DraftRelation(head=head, relation=relation, tail=tail),))
    return bool(ground(draft, {1: passage}).update.relations)


def reward(args: Mapping[str, Any], prediction: Any, trace: Any = None) -> float:
    """Return the share of the proposed entities and relations that the passages support.

    As the `reward_fn` of `dspy.Refine` or `dspy.BestOfN`, it scores a read step, such as
    `program.read`, or a whole program. It is also a metric for whole programs. A reply that
    proposes nothing scores 1.

    Args:
        args: The inputs. For a step: `passages` as in its prompt, and optionally `graph`.
        prediction: The output: a step with `additions`, or the prediction of a program.
        trace: Ignored; DSPy passes it to metrics.

    Raises:
        InputError: There are neither additions with passages, nor the steps of a program.
    """
    if "steps" in prediction:
        grounded = [item for step in prediction.steps for item in (*step.entities, *step.relations)]
        faults = [dropped for step in prediction.steps for dropped in step.dropped]
        wrong = sum(dropped.kind != "attribute" for dropped in faults)
        return len(grounded) / (len(grounded) + wrong) if wrong else 1.0
    if "additions" not in prediction or "passages" not in args:
        raise InputError(
            f"the inputs are {', '.join(args)}, the outputs {', '.join(prediction.keys())}",
            expected="the additions of a step that reads passages, or a program's prediction",
            remedy="wrap program.read, or the whole program",
        )
    draft = draft_from(getattr(prediction.additions, "text", prediction.additions))
    known = {node.name for node in draft_from(args.get("graph") or "").nodes}
    found = ground(draft, shown_passages(args["passages"]), known)
    proposed = len(draft.entities) + len(draft.relations) + len(draft.skipped)
    wrong = sum(dropped.kind != "attribute" for dropped in found.dropped)
    return 1 - wrong / proposed if proposed else 1.0


_SHOWN = re.compile(r"^\[(\d+)\] (.*)\n((?:(?!\[\d+\] ).+(?:\n|\Z))+)", re.MULTILINE)


def shown_passages(text: str) -> dict[int, Passage]:
    r"""Read the passages of a prompt, by label.

    >>> shown_passages("[3] Red Lodge\n  A city\n  in Montana.")[3].text
    'A city\nin Montana.'
    """
    return {
        int(label): Passage(id=label, title=title, text=dedent(body).strip())
        for label, title, body in _SHOWN.findall(text)
        if body.strip()
    }
