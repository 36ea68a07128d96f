"""A graph as text: the lines that an LM writes and reads, and the other shapes it may choose.

Three forms, one parser: "compact" (entities with type, attributes and passage labels, then
numbered triples), "paper" (names with attributes, then triples) and "line" (everything in one
line). `draft_from` reads values like those of JSON too, in whichever of the usual shapes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from functools import lru_cache
from itertools import accumulate, pairwise
from typing import Any, Final, Literal, NamedTuple

from pydantic import ValidationError

from ga_dspy.errors import InputError
from ga_dspy.graph.knowledge_graph import KnowledgeGraph
from ga_dspy.graph.records import (
    Draft,
    DraftEntity,
    DraftRelation,
    Entity,
    Evidence,
    GraphUpdate,
    Relation,
    single_line,
)

# --- Writing

Form = Literal["compact", "paper", "line"]
EMPTY: Final = "(empty)"


def linearise(
    graph: KnowledgeGraph | GraphUpdate,
    form: Form = "compact",
    labels: Mapping[str, int] | None = None,
) -> str:
    """Write a graph, or the update of one step, as text.

    Args:
        graph: The graph or update.
        form: "compact" carries everything; "line" the same in one line; "paper" puts the type
            first among the attributes, and leaves out times and confidences.
        labels: The number each passage id is shown under; passages without one go unmentioned.

    Returns:
        The text, which `parse` reads back; "(empty)" for the empty graph.
    """
    numbers = labels or {}
    sections = {
        "Entities": [_entity_text(entity, form, numbers) for entity in graph.entities],
        "Relationships" if form == "paper" else "Relations": [
            _relation_text(relation, form, numbers) for relation in graph.relations
        ],
    }
    if form == "line":
        lists = {title: ", ".join(f"[{i}]" for i in items) for title, items in sections.items()}
        return "; ".join(f"{title}: {items}" for title, items in lists.items() if items) or EMPTY
    lines: list[str] = []
    for title, items in sections.items():
        lines += [f"{title}:"] if items else []
        numbered = enumerate(items, start=1)
        lines += [f"- {item}" if title == "Entities" else f"{n}. {item}" for n, item in numbered]
    return "\n".join(lines) or EMPTY


def _entity_text(entity: Entity, form: Form, labels: Mapping[str, int]) -> str:
    name = escape(entity.name)
    if form == "paper":
        stated = [escape(text, also=",") for text in (entity.type, *entity.attributes) if text]
        details = f"Attributes: {', '.join(stated)}" if stated else ""
    else:
        attributes = (escape(a, also=":" if _KEY.match(a) else "") for a in entity.attributes)
        details = "; ".join([escape(entity.type, also=":"), *attributes])
    marked = f" ({details})" if details or name.endswith(")") or _is_prose(entity.name) else ""
    return name + marked + _labels_text(entity.evidence, labels)


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


# --- Notation: a backslash stands before whatever would be read as a separator. Parentheses that
# balance stay as they are, so "Prism (album)" is written "Prism (album)".

_SPECIAL: Final = re.compile(r"[\\\[\];|→]|->|--|\*\*|`|<(?=/?graph>)", re.I)
_QUALITY_OPENS: Final = re.compile(r"\((?=\s*(?:time|confidence)\s*:)", re.I)
_ESCAPED: Final = re.compile(r"\\(.)")


def escape(text: str, also: str = "") -> str:
    r"""Write a name so that nothing in it is read as a separator.

    Args:
        text: One line.
        also: Further characters to escape.

    >>> print(escape("A -> B; C"), escape("Prism (album)"), escape("smile :)"))
    A \-\> B\; C Prism (album) smile :\)
    """
    escaped = _SPECIAL.sub(lambda match: "\\" + "\\".join(match.group()), text)
    escaped = _QUALITY_OPENS.sub(r"\(", escaped)
    bare = _bare(escaped)
    also += "" if _balances(bare, "()") else "()"
    return "".join(f"\\{c}" if b in also else c for c, b in zip(escaped, bare, strict=True))


def _unescape(text: str) -> str:
    return _ESCAPED.sub(r"\1", text.strip()).strip()


def _bare(text: str) -> str:
    """The text with all that is escaped blanked out, so that separators can be looked for."""
    return _ESCAPED.sub(lambda match: "\0" * len(match.group()), text)


def _split(text: str, separator: str) -> list[str]:
    r"""Cut at a separator where it is not escaped.

    >>> _split(r"a \-> b -> c", "->")
    ['a \\-> b ', ' c']
    """
    parts, start = list[str](), 0
    for part in _bare(text).split(separator):
        parts.append(text[start : start + len(part)])
        start += len(part) + len(separator)
    return parts


def _depths(bare: str, opening: str, closing: str) -> list[int]:
    """How many brackets are open before each character, and behind the last."""
    return [*accumulate(((c in opening) - (c in closing) for c in bare), initial=0)]


def _split_outside(text: str, separator: str) -> list[str]:
    """Cut at a one-character separator outside of any brackets."""
    bare = _bare(text)
    depths = _depths(bare, "([", ")]")
    places = [i for i, char in enumerate(bare) if char == separator and depths[i] == 0]
    return [text[i + 1 : j] for i, j in pairwise([-1, *places, len(text)])]


def _balances(bare: str, brackets: str) -> bool:
    """Whether every bracket that is opened is closed; text that was cut off often is not."""
    depths = _depths(bare, *brackets)
    return min(depths) == depths[-1] == 0


def _last_group(text: str, brackets: str = "()") -> tuple[str, str] | None:
    """What stands before a group in brackets at the end of a text, and what in it.

    None where the text does not end with a closed group.

    >>> _last_group("Prism (album) (work; 2013)")
    ('Prism (album) ', 'work; 2013')
    """
    bare = _bare(text.rstrip())
    depths = _depths(bare, *brackets)
    starts = [i for i in range(len(bare)) if depths[i] == depths[-1]]
    if starts and bare.endswith(brackets[1]):
        return text[: starts[-1]], text[starts[-1] + 1 : len(bare) - 1]
    return None


def _groups(text: str) -> Iterator[str]:
    """The contents of top-level square brackets; one that is not closed keeps its "["."""
    depth, start = 0, 0
    for i, char in enumerate(_bare(text)):
        if char == "[":
            start = start if depth else i + 1
            depth += 1
        elif char == "]" and depth:
            depth -= 1
            if depth == 0:
                yield text[start:i]
    if depth:
        yield f"[{text[start:]}"


# --- Reading text, line by line

_HEADER: Final = re.compile(
    r"[#*_\s]*(?:(?P<entities>entit(?:y|ies)|nodes)|relation(?:ship)?s?|triples?|edges|facts)"
    r"[*_\s]*(?::[*_\s]*(?P<rest>.*)|)",
    re.I,
)
_RELATIONS_FOLLOW: Final = re.compile(r"[;,]?\s*(?=(?:relation(?:ship)?s|triples)\s*:)", re.I)
_BULLET: Final = re.compile(r"\A(?:[-*•–+]\s+|\(?\d+[.)]\s+)")
_TAG: Final = re.compile(r"(?<!\\)<(?P<end>/?)graph>", re.I)
_FENCE: Final = re.compile(r"^\s*```\w*\s*$", re.M)
_BOLD: Final = re.compile(r"(?<!\\)(?:\*\*|`)")
_LABELS: Final = re.compile(r"\s*(?:passages? )?\d+(?:\s*[,;]\s*(?:passages? )?\d+)*\s*", re.I)
_QUALITY: Final = re.compile(r"\s*(?P<key>time|confidence)\s*:(?P<value>.*)", re.I)
_KEY: Final = re.compile(r"\s*(?P<key>type|attributes?)\s*:(?P<value>.*)", re.I)
_ARROWS: Final = ("->", "→", "--", "—", "|")
_MOST_WORDS: Final = 6
"""A longer name that ends like a sentence is prose, unless parentheses follow it."""


class _Read(NamedTuple):
    """What a line or an item states, and the fault to report where not all of it was read."""

    fact: DraftEntity | DraftRelation | None
    fault: str | None = None


def _draft(read: Iterable[_Read]) -> Draft:
    every = list(read)
    return Draft(
        entities=tuple(one.fact for one in every if isinstance(one.fact, DraftEntity)),
        relations=tuple(one.fact for one in every if isinstance(one.fact, DraftRelation)),
        skipped=tuple(one.fault for one in every if one.fault is not None),
    )


@lru_cache(maxsize=256)
def parse(text: str) -> Draft:
    r"""Read the entities and relations that a text states in any of the forms.

    What cannot be read is skipped line by line and listed, so one bad line costs nothing else.
    Where a fence or tag is opened and never closed, the text was cut off: its last line may be
    half a fact, and is skipped as well.

    >>> draft = parse("Entities:\n- Rihanna (singer) [2]\nRelations:\n1. Rihanna -> born in")
    >>> draft.entities[0].type, draft.relations, draft.skipped
    ('singer', (), ('1. Rihanna -> born in',))
    """
    items = list(_items(text))
    tags = [tag["end"] for tag in _TAG.finditer(text)]
    is_cut_off = tags.count("") > tags.count("/") or len(_FENCE.findall(text)) % 2 == 1
    doubtful = [_Read(None, items.pop().line)] if items and is_cut_off else []
    return _draft([*doubtful, *map(_read_line, items)])


class _Item(NamedTuple):
    """A line, or a part of one, that should state one fact.

    `section` is "" before any header; `content` is the line without its bullet.
    """

    line: str
    section: str
    content: str


def _items(text: str) -> Iterator[_Item]:
    section = ""
    for line in _TAG.sub("\n", _FENCE.sub("", text)).splitlines():
        content = line.strip()
        if header := _HEADER.fullmatch(content):
            section = "entities" if header["entities"] else "relations"
            for part in _sections((header["rest"] or "").strip()):
                if inner := _HEADER.fullmatch(part):
                    section, part = "relations", inner["rest"] or ""
                yield from (_Item(item, section, item) for item in _list_items(part, section))
        elif content and content != EMPTY:
            yield _Item(content, section, _BULLET.sub("", content, count=1))


def _sections(content: str) -> list[str]:
    """A line's list of entities, and its list of relations where that stands behind it."""
    bare = _bare(content)
    for match in _RELATIONS_FOLLOW.finditer(bare):
        before = bare[: match.start()]
        if before.count("[") == before.count("]"):
            return [content[: match.start()], content[match.end() :]]
    return [content]


def _list_items(content: str, section: str) -> Iterable[str]:
    """The items of a list in one line: in square brackets, or else between ";" or ","."""
    content = content.strip()
    if content.startswith("["):
        return _groups(content)
    arrows = sum(len(_split(content, arrow)) - 1 for arrow in _ARROWS)
    by_comma = section != "relations" or arrows > 2
    separator = "," if by_comma and ";" not in _bare(content) else ";"
    return (item.strip() for item in _split_outside(content, separator) if item.strip())


def _read_line(item: _Item) -> _Read:
    text, labels, qualities = _BOLD.sub("", item.content), list[int](), dict[str, str]()
    while True:
        marked, quality = _last_group(text, "[]"), _last_group(text)
        if marked and marked[0].strip() and _LABELS.fullmatch(marked[1]):
            text = marked[0]
            labels = [int(number) for number in re.findall(r"\d+", marked[1])] + labels
        elif quality and (stated := _QUALITY.fullmatch(quality[1])):
            text = quality[0]
            qualities[stated["key"].lower()] = _unescape(stated["value"])
        else:
            break
    text, passages = _unwrap(text), tuple(dict.fromkeys(labels))
    if ends := _ends(text, _ARROWS if item.section == "relations" else _ARROWS[:2]):
        stated_as = qualities.get("confidence")
        confidence = _share(stated_as or "")
        fact = DraftRelation(
            head=ends[0],
            relation=ends[1],
            tail=ends[2],
            time=qualities.get("time") or None,
            confidence=confidence,
            passages=passages,
        )
        is_doubtful = confidence is None and stated_as is not None
        return _Read(fact, f"confidence {stated_as!r} of: {item.line}" if is_doubtful else None)
    if item.section == "entities" and _is_whole(text) and "[" not in _bare(text):
        group = _last_group(text)
        name, details = group if group and group[0].strip() else (text, None)
        name = _unescape(name)
        if name and (details is not None or not _is_prose(name)):
            kind, attributes = _details(details or "")
            return _Read(
                DraftEntity(name=name, type=kind, attributes=attributes, passages=passages)
            )
    return _Read(None, item.line)


def _unwrap(text: str) -> str:
    """The text without square brackets around it, unless they hold passage labels."""
    text = text.strip()
    inside = _last_group(text, "[]")
    if inside is None or inside[0].strip() or _LABELS.fullmatch(inside[1]):
        return text
    return inside[1].strip()


def _is_whole(text: str) -> bool:
    bare = _bare(text)
    return _balances(bare, "()") and _balances(bare, "[]")


def _ends(text: str, arrows: Iterable[str]) -> tuple[str, ...]:
    """Head, relation and tail; nothing where there are not three, or a bracket is left open."""
    if _is_whole(text):
        for arrow in arrows:
            parts = tuple(_unescape(_unwrap(part)) for part in _split(text, arrow))
            if len(parts) > 1:
                return parts if len(parts) == 3 and all(parts) else ()
    return ()


def _share(text: str) -> float | None:
    """A number from 0 to 1, also from a percentage; None where the text is neither."""
    try:
        value = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        return None
    return value if 0 <= value <= 1 else None


def _details(details: str) -> tuple[str, tuple[str, ...]]:
    """Type and attributes of an entity from what stands in its parentheses."""
    kind, attributes = "", list[str]()
    for i, part in enumerate(_split(details, ";")):
        if key := _KEY.fullmatch(part):
            values = [_unescape(value) for value in _split(key["value"], ",")]
            if key["key"].lower() == "type":
                kind = ", ".join(values)
            else:
                attributes += values
        elif i == 0 and ":" not in _bare(part):
            kind = _unescape(part)
        else:
            attributes.append(_unescape(part))
    return kind, tuple(attributes)


def _is_prose(name: str) -> bool:
    return len(name.split()) > _MOST_WORDS and name.endswith((".", "!", "?", ":"))


# --- Reading values like those of JSON

_ENTITIES: Final = ("entities", "nodes")
_RELATIONS: Final = ("relations", "relationships", "triples", "edges")


class NotAGraphError(InputError, ValueError):
    """A value was to be read as a graph, and nothing about it is one: Pydantic turns it down."""


def draft_from(value: Any) -> Draft:
    """Read a draft from what an LM returned: a mapping, a list of facts, or text.

    Args:
        value: `{"entities": [...], "relations": [...]}` (also nodes, relationships, triples,
            edges; also inside {"graph": ...}), a list of entities and triples, or text for
            `parse`. An entity is a string or a mapping, a relation a mapping, three items or a
            string. Bad ones are named in `skipped`.

    Raises:
        NotAGraphError: a ValueError; the value is nothing like a graph, such as a list of numbers.

    >>> draft = draft_from({"entities": ["Rihanna"], "triples": [["Rihanna", "born in"]]})
    >>> draft.entities[0].name, draft.skipped
    ('Rihanna', ("['Rihanna', 'born in']",))
    """
    if isinstance(value, Draft):
        return value
    if isinstance(value, str):
        plain = re.sub(r"^```\w*|```$", "", value.strip()).strip()
        if plain.startswith(("{", "[")):
            with suppress(json.JSONDecodeError):
                return draft_from(json.loads(plain))
        return parse(value)
    if isinstance(value, Mapping):
        fields = _fields(value)
        if isinstance(fields.get("graph"), Mapping):
            return draft_from(fields["graph"])
        if not value or fields.keys() & {*_ENTITIES, *_RELATIONS}:
            return _draft(
                _read_value(item, keys is _ENTITIES)
                for keys in (_ENTITIES, _RELATIONS)
                for key in keys
                for item in _values(fields.get(key))
            )
    if isinstance(value, list | tuple):
        draft = _draft(_read_value(item) for item in value)
        if draft.entities or draft.relations or not value:
            return draft
    raise NotAGraphError(
        f"found {type(value).__name__} {str(value)[:80]!r}",
        expected="a mapping with 'entities' and 'relations', a list of triples, or text in one of "
        "the graph forms",
        remedy="ask again, showing the compact form",
    )


def _fields(item: Mapping[Any, Any]) -> dict[str, Any]:
    return {str(key).casefold(): value for key, value in item.items()}


def _values(part: Any) -> list[Any]:
    """The facts in a list, in a mapping from names to details, or in lines of text."""
    if isinstance(part, Mapping):
        return [
            {"name": name, **(about if isinstance(about, Mapping) else {"attributes": about})}
            for name, about in part.items()
        ]
    if isinstance(part, str):
        return part.splitlines()
    return list(part) if isinstance(part, list | tuple) else [] if part is None else [part]


def _read_value(item: Any, is_entity: bool | None = None) -> _Read:
    """Read one fact; `is_entity` is None where entities and relations share a list."""
    line = single_line(str(item))
    if isinstance(item, str):
        draft = parse(f"Entities:\n- {line}" if is_entity else f"Relations:\n1. {line}")
        facts = draft.entities if is_entity else draft.relations
        return _Read(facts[0]) if facts else _Read(None, line)
    if isinstance(item, list | tuple) and len(item) == 3 and not is_entity:
        item = dict(zip(("head", "relation", "tail"), item, strict=True))
    if not isinstance(item, Mapping):
        return _Read(None, line)
    given = _fields(item)
    stated = {
        field: next((given[key] for key in keys if given.get(key) is not None), None)
        for field, (_, *keys) in _FIELDS.items()
    }
    if is_entity is None:
        is_entity = stated["head"] is None
    kind = DraftEntity if is_entity else DraftRelation
    try:
        fact = kind.model_validate(
            {field: _FIELDS[field][0](stated[field]) for field in kind.model_fields}
        )
    except ValidationError:
        return _Read(None, line)
    is_doubtful = isinstance(fact, DraftRelation) and fact.confidence is None
    if is_doubtful and stated["confidence"] is not None:
        return _Read(fact, single_line(f"confidence {stated['confidence']!r} of: {item}"))
    return _Read(fact)


def _text(value: Any) -> str:
    """A name as text; numbers are names too (a year), anything else is none."""
    is_name = isinstance(value, str | int | float) and not isinstance(value, bool)
    return str(value) if is_name else ""


def _texts(value: Any) -> tuple[str, ...]:
    if isinstance(value, Mapping):
        return tuple(f"{key}: {_text(part)}" for key, part in value.items() if _text(part))
    if isinstance(value, list | tuple):
        return tuple(text for part in value for text in _texts(part))
    return (_text(value),)


def _numbers(value: Any) -> tuple[int, ...]:
    """Passage labels from 3, "3", "[2, 6]" or a list of those."""
    parts = value if isinstance(value, list | tuple) else [value]
    numbers = (number for part in parts for number in re.findall(r"\d+", _text(part)))
    return tuple(dict.fromkeys(int(number) for number in numbers))


_FIELDS: Final[Mapping[str, Any]] = {
    "name": (_text, "name", "entity", "label", "id"),
    "type": (_text, "type"),
    "attributes": (_texts, "attributes", "attribute", "description"),
    "head": (_text, "head", "source", "subject", "from"),
    "relation": (_text, "relation", "predicate", "relationship", "type", "label"),
    "tail": (_text, "tail", "target", "object", "to"),
    "time": (lambda value: _text(value) or None, "time", "date"),
    "confidence": (lambda value: _share(_text(value)), "confidence", "score"),
    "passages": (_numbers, "passages", "passage", "sources", "cited", "citations"),
}
"""How each field of a draft is read, and its keys: the first that has a value counts."""
