"""Read a graph from what an LM wrote, line by line, and write one for an LM to read.

Three forms, one parser: "compact" (entities with type, attributes and passage labels, then
numbered triples), "paper" (names with attributes, then triples) and "line" (everything in one
line). `ga_dspy.graph.notation` says how names that contain separators are written.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, Literal, NamedTuple, Protocol

from ga_dspy.graph.draft import Draft, DraftEntity, DraftRelation
from ga_dspy.graph.notation import (
    bare,
    escape,
    groups,
    is_whole,
    last_group,
    split,
    split_outside,
    unescape,
)
from ga_dspy.graph.records import Entity, Evidence, Relation

Form = Literal["compact", "paper", "line"]
EMPTY: Final = "(empty)"

_HEADER: Final = re.compile(
    r"[#*_\s]*(?:(?P<entities>entit(?:y|ies)|nodes)|relation(?:ship)?s?|triples?|edges|facts)"
    r"[*_\s]*(?::[*_\s]*(?P<rest>.*)|)",
    re.I,
)
_RELATIONS: Final = re.compile(r"[;,]?\s*(?=(?:relation(?:ship)?s|triples)\s*:)", re.I)
_BULLET: Final = re.compile(r"\A(?:[-*•–+]\s+|\(?\d+[.)]\s+)")
_TAG: Final = re.compile(r"(?<!\\)<(?P<end>/?)graph>", re.I)
_FENCE: Final = re.compile(r"^\s*```\w*\s*$", re.M)
_BOLD: Final = re.compile(r"(?<!\\)(?:\*\*|`)")
_LABELS: Final = re.compile(r"\s*(?:passages? )?\d+(?:\s*[,;]\s*(?:passages? )?\d+)*\s*", re.I)
_QUALITY: Final = re.compile(r"\s*(?P<key>time|confidence)\s*:(?P<value>.*)", re.I)
_KEY: Final = re.compile(r"\s*(?P<key>type|attributes?)\s*:(?P<value>.*)", re.I)
_ARROWS: Final = ("->", "→", "--", "—", "|")
_MOST_WORDS: Final = 6
"""A longer name that ends like a sentence is taken for prose, unless parentheses follow it."""


def linearise(
    graph: GraphLike, form: Form = "compact", labels: Mapping[str, int] | None = None
) -> str:
    """Write a graph as text.

    Args:
        graph: what has `entities` and `relations`.
        form: "compact" carries everything; "line" the same in one line; "paper" puts the type
            first among the attributes, and leaves out times and confidences.
        labels: the number each passage id is shown under; passages without one go unmentioned.

    Returns:
        The text, which `parse` reads back; "(empty)" for the empty graph.
    """
    if not graph.entities and not graph.relations:
        return EMPTY
    numbers = labels or {}
    entities = [_entity_text(entity, form, numbers) for entity in graph.entities]
    relations = [_relation_text(relation, form, numbers) for relation in graph.relations]
    sections = {
        "Entities": entities,
        "Relationships" if form == "paper" else "Relations": relations,
    }
    if form == "line":
        listed = {title: ", ".join(f"[{i}]" for i in items) for title, items in sections.items()}
        return "; ".join(f"{title}: {items}" for title, items in listed.items() if items)
    lines: list[str] = []
    for title, items in sections.items():
        numbered = (f"- {i}" if items is entities else f"{n}. {i}" for n, i in enumerate(items, 1))
        lines += [f"{title}:", *numbered] if items else []
    return "\n".join(lines)


class GraphLike(Protocol):
    """What can be written: a graph, or the update of one step."""

    @property
    def entities(self) -> tuple[Entity, ...]:
        """The entities."""

    @property
    def relations(self) -> tuple[Relation, ...]:
        """The relations."""


def _entity_text(entity: Entity, form: Form, labels: Mapping[str, int]) -> str:
    name = escape(entity.name)
    if form == "paper":
        stated = [escape(text, also=",") for text in (entity.type, *entity.attributes) if text]
        details = f"Attributes: {', '.join(stated)}" if stated else ""
    else:
        details = "; ".join(
            [escape(entity.type, also=":"), *map(_attribute_text, entity.attributes)]
        )
    marked = f" ({details})" if details or name.endswith(")") or _is_prose(entity.name) else ""
    return name + marked + _labels_text(entity.evidence, labels)


def _attribute_text(attribute: str) -> str:
    return escape(attribute, also=":" if _KEY.match(attribute) else "")


def _relation_text(relation: Relation, form: Form, labels: Mapping[str, int]) -> str:
    arrow = " -- " if form == "line" else " -> "
    text = arrow.join(map(escape, (relation.head, relation.relation, relation.tail)))
    if form != "paper":
        text += f" (time: {escape(relation.time)})" if relation.time else ""
        stated = relation.confidence is not None
        text += f" (confidence: {relation.confidence})" if stated else ""
    return text + _labels_text(relation.evidence, labels)


def _labels_text(evidence: Iterable[Evidence], labels: Mapping[str, int]) -> str:
    numbers = sorted({labels[e.passage] for e in evidence if e.passage in labels})
    return f" [{','.join(map(str, numbers))}]" if numbers else ""


def parse(text: str) -> Draft:
    r"""Read the entities and relations that a text states in any of the forms.

    What cannot be read is skipped line by line and listed, so one bad line costs nothing else.
    Where a fence or tag is opened and never closed, the text was cut off: its last line may be
    half a fact, and is skipped as well.

    >>> draft = parse("Entities:\n- Rihanna (singer) [2]\nRelations:\n1. Rihanna -> born in")
    >>> draft.entities[0].type, draft.relations, draft.skipped
    ('singer', (), ('1. Rihanna -> born in',))
    """
    entities: list[DraftEntity] = []
    relations: list[DraftRelation] = []
    skipped: list[str] = []
    items = list(_items(text))
    if _is_cut_off(text):
        skipped += [item.line for item in items[-1:]]
        items = items[:-1]
    for item in items:
        read = _relation(item, skipped) or _entity(item)
        if isinstance(read, DraftRelation):
            relations.append(read)
        elif read:
            entities.append(read)
        else:
            skipped.append(item.line)
    return Draft(entities=tuple(entities), relations=tuple(relations), skipped=tuple(skipped))


class _Item(NamedTuple):
    """A line, or a part of one, that should state one fact.

    `section` is "" before any header; `content` is the line without its bullet.
    """

    line: str
    section: str
    content: str


def _is_cut_off(text: str) -> bool:
    tags = [tag["end"] for tag in _TAG.finditer(text)]
    return tags.count("") > tags.count("/") or len(_FENCE.findall(text)) % 2 == 1


def _items(text: str) -> Iterator[_Item]:
    section = ""
    for line in _TAG.sub("\n", _FENCE.sub("", text)).splitlines():
        content = line.strip()
        if header := _HEADER.fullmatch(content):
            section = "entities" if header["entities"] else "relations"
            content = (header["rest"] or "").strip()
            for part in _parts(content):
                if inner := _HEADER.fullmatch(part):
                    section, part = "relations", inner["rest"] or ""
                yield from (_Item(item, section, item) for item in _listed(part, section))
        elif content and content != EMPTY:
            yield _Item(content, section, _BULLET.sub("", content, count=1))


def _parts(content: str) -> Iterator[str]:
    """A line's list of entities, and its list of relations where that stands behind it."""
    depth = 0
    for i, char in bare(content):
        depth += (char == "[") - (char == "]")
        if depth == 0 and (start := _RELATIONS.match(content, i)):
            yield content[:i]
            yield content[start.end() :]
            return
    yield content


def _listed(content: str, section: str) -> Iterator[str]:
    """The items of a list in one line: in square brackets, or else between ";" or ","."""
    content = content.strip()
    if content.startswith("["):
        yield from (item if closed else f"[{item}" for item, closed in groups(content))
        return
    arrows = sum(len(split(content, arrow)) - 1 for arrow in _ARROWS)
    separator = ";" if section == "relations" or len(split(content, ";")) > 1 else ","
    if section == "relations" and arrows > 2 and len(split(content, ";")) == 1:
        separator = ","
    yield from (item.strip() for item in split_outside(content, separator) if item.strip())


class _Body(NamedTuple):
    """A fact without what stands around it: bullet, passage labels, time and confidence."""

    text: str
    passages: tuple[int, ...]
    qualities: dict[str, str]


def _body(content: str) -> _Body:
    text = _BOLD.sub("", content)
    labels: list[int] = []
    qualities: dict[str, str] = {}
    while True:
        marked, quality = last_group(text, "[", "]"), last_group(text)
        if marked and marked[0].strip() and _LABELS.fullmatch(marked[1]):
            text = marked[0]
            labels = [int(number) for number in re.findall(r"\d+", marked[1])] + labels
        elif quality and (stated := _QUALITY.fullmatch(quality[1])):
            text = quality[0]
            qualities[stated["key"].lower()] = unescape(stated["value"])
        else:
            return _Body(_unwrapped(text.strip()), tuple(dict.fromkeys(labels)), qualities)


def _unwrapped(text: str) -> str:
    inside = last_group(text, "[", "]")
    if inside is None or inside[0].strip() or _LABELS.fullmatch(inside[1]):
        return text
    return inside[1].strip()


def _relation(item: _Item, skipped: list[str]) -> DraftRelation | None:
    body = _body(item.content)
    ends = _ends(body.text, _ARROWS if item.section == "relations" else _ARROWS[:2])
    if ends is None:
        return None
    confidence = share(body.qualities.get("confidence", ""))
    if confidence is None and "confidence" in body.qualities:
        skipped.append(f"confidence {body.qualities['confidence']!r} of: {item.line}")
    head, relation, tail = ends
    return DraftRelation(
        head=head,
        relation=relation,
        tail=tail,
        time=body.qualities.get("time") or None,
        confidence=confidence,
        passages=body.passages,
    )


def _ends(text: str, arrows: Iterable[str]) -> tuple[str, str, str] | None:
    """Head, relation and tail; None where there are not three, or a bracket is left open."""
    if not is_whole(text):
        return None
    for arrow in arrows:
        parts = [unescape(_unwrapped(part.strip())) for part in split(text, arrow)]
        if len(parts) > 1:
            head, relation, tail = parts if len(parts) == 3 and all(parts) else ("", "", "")
            return (head, relation, tail) if head else None
    return None


def share(text: str) -> float | None:
    """A number from 0 to 1, also from a percentage; None where the text is neither."""
    try:
        value = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        return None
    return value if 0 <= value <= 1 else None


def _entity(item: _Item) -> DraftEntity | None:
    body = _body(item.content)
    if (
        item.section != "entities"
        or not is_whole(body.text)
        or "[" in dict(bare(body.text)).values()
    ):
        return None
    group = last_group(body.text)
    name, details = group if group and group[0].strip() else (body.text, None)
    name = unescape(name)
    if not name or (details is None and _is_prose(name)):
        return None
    kind, attributes = _details(details or "")
    return DraftEntity(name=name, type=kind, attributes=attributes, passages=body.passages)


def _details(details: str) -> tuple[str, tuple[str, ...]]:
    kind, attributes = "", list[str]()
    for i, part in enumerate(split(details, ";")):
        if key := _KEY.fullmatch(part):
            values = [unescape(value) for value in split(key["value"], ",")]
            if key["key"].lower() == "type":
                kind = ", ".join(values)
            else:
                attributes += values
        elif i == 0 and not any(char == ":" for _, char in bare(part)):
            kind = unescape(part)
        else:
            attributes.append(unescape(part))
    return kind, tuple(attributes)


def _is_prose(name: str) -> bool:
    return len(name.split()) > _MOST_WORDS and name.endswith((".", "!", "?", ":"))
