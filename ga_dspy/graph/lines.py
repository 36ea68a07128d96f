"""The text format of a graph: the lines that an LM reads and writes.

`linearise` writes entities with attributes, then triples with passage labels; the type of any other
entity follows its first mention. `parse` also reads the paper's form (names with attributes, then
triples), and entities and triples in one line. `draft_from` also reads JSON.
"""

from __future__ import annotations

import ast
import json
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from itertools import accumulate, groupby, pairwise
from typing import Any, Final, NamedTuple

from pydantic import ValidationError

from ga_dspy.graph.identity import says_nothing
from ga_dspy.graph.knowledge_graph import KnowledgeGraph
from ga_dspy.graph.records import (
    TYPES,
    Draft,
    DraftEntity,
    DraftRelation,
    Entity,
    Evidence,
    GraphUpdate,
    Relation,
    single_line,
)
from ga_dspy.text import CONNECTORS, cached_short, normalise, stands_in

# --- Writing

EMPTY: Final = "(empty)"


def linearise(
    graph: KnowledgeGraph | GraphUpdate, *, labels: Mapping[str, int] = {}, question: str = ""
) -> str:
    """Write a graph, or the update of one step, as text.

    An entity gets no separate line if a relation shows its name and its type, one of `TYPES`. An
    alias that shares no word with the shown name is written as "X -> same as -> Y".

    Args:
        graph: The graph or update.
        labels: The number of each passage id; passages without a number are omitted.
        question: The question, whose names for entities are used.

    Returns:
        Text for `parse`; "(empty)" for an empty graph.

    >>> ann, oslo = Entity(name="Ann Lee", type="person"), Entity(name="Oslo", type="place")
    >>> born = Relation(head="Ann Lee", relation="born in", tail="Oslo")
    >>> linearise(GraphUpdate(entities=(ann, oslo), relations=(born,)))
    '- Ann Lee (person) -> born in -> Oslo (place)'
    """
    entities, relations = list(graph.entities), list(graph.relations)
    if any(entity.aliases for entity in entities):
        entities, relations = _in_words_of(question, entities, relations)
    types = _types_of_ends(entities, relations)
    listed = [f"- {_entity_text(e, labels)}" for e in entities if e.name not in types]
    triples = [f"- {_relation_text(relation, labels, types)}" for relation in relations]
    if listed:
        listed = ["Entities:", *listed, *(["Relations:"] if triples else [])]
    return "\n".join([*listed, *triples]) or EMPTY


def _types_of_ends(entities: Sequence[Entity], relations: Sequence[Relation]) -> dict[str, str]:
    """Return the types of the entities that need no separate line, by name."""
    ends = {end for relation in relations for end in relation.ends}
    counts, types = Counter(entity.name for entity in entities), dict[str, str]()
    for entity in entities:
        is_plain = not entity.attributes and (not entity.type or entity.type.casefold() in TYPES)
        if is_plain and entity.name in ends and counts[entity.name] == 1:
            types[entity.name] = entity.type
    return types


def _in_words_of(
    question: str, entities: Sequence[Entity], relations: Sequence[Relation]
) -> tuple[list[Entity], list[Relation]]:
    """Give entities the names that the question uses, and add relations for their other names."""
    asked = normalise(question)
    taken = {normalise(entity.name) for entity in entities}
    renamed = dict[str, str]()
    related, same = list[Relation](), list[Relation]()
    for entity in entities:
        names = (entity.name, *entity.aliases)
        name = next((n for n in names if stands_in(normalise(n), asked)), entity.name)
        if normalise(name) in taken:
            name = entity.name
        renamed[entity.name] = name
        words, stated = set(normalise(name).split()), {"head": name, "evidence": entity.evidence}
        for other in names:
            if words.isdisjoint(normalise(other).split()):
                same.append(Relation(**stated, relation="same as", tail=other))
    shown = [entity.model_copy(update={"name": renamed[entity.name]}) for entity in entities]
    for relation in relations:
        head, tail = (renamed.get(end, end) for end in relation.ends)
        related.append(relation.model_copy(update={"head": head, "tail": tail}))
    return shown, related + same


def _entity_text(entity: Entity, labels: Mapping[str, int]) -> str:
    name = _name_text(entity.name)
    details = "; ".join([escape(entity.type, also=":"), *map(escape, entity.attributes)])
    is_unclear = name.endswith(")") or _VERB.search(entity.name)
    text = f"{name} ({details})" if details or is_unclear else name
    text = f"\\{text}" if says_nothing(text) else text
    return text + _labels_text(entity.evidence, labels)


def _relation_text(relation: Relation, labels: Mapping[str, int], types: dict[str, str]) -> str:
    """Write a relation; the types that it writes after its ends are removed from `types`."""
    ends = []
    for end in relation.ends:
        kind = types.pop(end, "")
        ends.append(f"{_name_text(end)} ({kind})" if kind else _name_text(end))
    text = f"{ends[0]} -> {_name_text(relation.relation)} -> {ends[1]}"
    text += f" (time: {escape(relation.time)})" if relation.time else ""
    text += "" if relation.confidence is None else f" (confidence: {relation.confidence})"
    return text + _labels_text(relation.evidence, labels)


def _labels_text(evidence: Iterable[Evidence], labels: Mapping[str, int]) -> str:
    numbers = sorted({labels[e.passage] for e in evidence if e.passage in labels})
    return f" [{','.join(map(str, numbers))}]" if numbers else ""


# --- Escaping: a backslash precedes whatever would be read as a separator. Balanced parentheses are
# not escaped, as in "Prism (album)".

_ARROW: Final = re.compile(r"(?<![-–—=~])[-–—=~]{1,40}>|[→⟶⇒]")
_DASHES: Final = re.compile(r"--+")
_SPECIAL: Final = re.compile(
    rf"[\\\[\];]|{_ARROW.pattern}|{_DASHES.pattern}|\*\*|`|<(?=/?graph>)", re.IGNORECASE
)
_QUALITY: Final = re.compile(r"\s*(?P<key>time|confidence)\s*:(?P<value>.*)", re.IGNORECASE)
_ESCAPED: Final = re.compile(r"\\(.)")
_FULL_STOP: Final = re.compile(r"(?:\w{4}|[\s)\"”])\.\Z")
"""A full stop that ends a line; the one in "Inc." or "Jr." belongs to the name."""


@lru_cache(maxsize=4096)
def escape(text: str, also: str = "") -> str:
    r"""Escape everything in a name that would be read as a separator.

    Args:
        text: One line of text.
        also: Further characters to escape.

    >>> print(escape("A -> B; C"), escape("Prism (album)"), escape("smile :)"))
    A \-\> B\; C Prism (album) smile :\)
    """
    escaped = _SPECIAL.sub(lambda match: "\\" + "\\".join(match.group()), text)
    escaped = re.sub(r"\((?=\s*(?:time|confidence)\s*:)", r"\(", escaped, flags=re.IGNORECASE)
    bare = _bare(escaped)
    also += "" if _balances(bare, "()") else "()"
    return "".join(f"\\{c}" if b in also else c for c, b in zip(escaped, bare, strict=True))


@cached_short(maxsize=4096, max_length=200)
def _name_text(name: str) -> str:
    """Escape a name, including a beginning or an end that would be read as something else."""
    group = _last_group(_trim(name))
    is_typed = group is not None and _details(group[1])[0].casefold() in TYPES
    text = escape(name, also="()" if is_typed else "")
    if not text.startswith("\\") and _is_ambiguous(text):
        # Escaping one parenthesis alone would leave the other one unbalanced.
        text = escape(name, also="()") if text.startswith("(") else f"\\{text}"
    return text if _trim(text) == text else f"{text[:-1]}\\{text[-1]}"


def _is_ambiguous(text: str) -> bool:
    """Return whether a name alone would be read as a bullet, header, quote, JSON or nothing."""
    return bool(
        _BULLET.match(f"{text} ")
        or _RULE.fullmatch(text)
        or _HEADER.fullmatch(text)
        or _plain(text) != _unescape(text)
        or says_nothing(text)
        or text.startswith(("{", "("))
    )


def _unescape(text: str) -> str:
    return _ESCAPED.sub(r"\1", text.strip()).strip()


def _bare(text: str) -> str:
    """Blank out escaped characters, so a search finds only separators."""
    return _ESCAPED.sub("\0\0", text) if "\\" in text else text


def _cut(text: str, separator: re.Pattern[str] | str) -> list[str]:
    r"""Split a text at unescaped separators.

    >>> _cut(r"a \-> b -> c", _ARROW)
    ['a \\-> b ', ' c']
    """
    spans = (match.span() for match in re.finditer(separator, _bare(text)))
    places = pairwise([(0, 0), *spans, (len(text), 0)])
    return [text[start:end] for (_, start), (end, _) in places]


def _balances(bare: str, brackets: str) -> bool:
    depths = list(accumulate((c == brackets[0]) - (c == brackets[1]) for c in bare))
    return not depths or (min(depths) == depths[-1] == 0)


def _last_group(text: str) -> tuple[str, str] | None:
    """Split a text into what precedes its final parentheses and their content.

    Returns None if the text does not end with balanced parentheses.

    >>> _last_group("Prism (album) (work; 2013)")
    ('Prism (album) ', 'work; 2013')
    """
    bare, depth = _bare(text), 0
    for i in range(len(bare) - 1, -1, -1):
        depth += (bare[i] == ")") - (bare[i] == "(")
        if depth <= 0:
            return (text[:i], text[i + 1 : -1]) if depth == 0 and i < len(bare) - 1 else None
    return None


def _trim(text: str) -> str:
    """Remove commas, colons and a full stop after a name."""
    bare = _bare(text).rstrip(" ,;:")
    if _FULL_STOP.search(bare[-6:]):
        bare = bare[:-1].rstrip()
    return text[: len(bare)]


# --- Reading lines

_BULLET: Final = re.compile(r"[-*+•–]\s+|\(?\d{1,4}[.)]\s+|•")
_TAG: Final = re.compile(r"(?<!\\)<(?P<end>/?)graph>", re.IGNORECASE)
_FENCE: Final = re.compile(r"\s*```[\w+-]*\s*")
_RULE: Final = re.compile(r"[-=_*#~|:+–—\s]+")
_HEADER: Final = re.compile(
    r"[#*\s]*(?:new\s)?(?:(?P<entities>entities|nodes)|(?:relation(?:ship)?|triple|edge|fact)s)"
    r"(?:\s*:[*\s]*(?P<rest>.*)|[*\s]*)",
    re.IGNORECASE,
)
_ONE_LINE: Final = re.compile(r"(?<=\]); (?=Relations: \[)")
_NUMBERS: Final = r"\d{1,6}(?:\s?(?:[,;&\s–-]|and|to)\s?\d{1,6})*"
_CITED: Final = re.compile(rf"\[\s?(?:passages?\s)?(?P<labels>{_NUMBERS})\s?\]", re.IGNORECASE)
_SPAN: Final = re.compile(r"(\d{1,6})(?:\s?(?:[–-]|to)\s?(\d{1,6}))?")
_PAIRS: Final = dict(zip("\"“'‘*_[", "\"”'’*_]", strict=True))
_CLAUSE: Final = re.compile(
    r"(?P<relation>[a-z][\w\s,-]*?)\s+(?:(?:an?|the)\s+|(?=[\"“A-Z\d]))(?P<tail>.+)"
)
"""A relation and a tail with no arrow between them: "is an American drummer (role)"."""
_LONGEST_TAIL: Final = 8
"""How many words a tail of `_CLAUSE` may have; a longer one is likely a sentence."""
_VERB: Final = re.compile(r"\s(?:is|was|are|were|has|had|have|do|does|did|say|says|said|became)\s")


class _Read(NamedTuple):
    """The fact in a line or an item, and the text to report if part of it is unreadable."""

    fact: DraftEntity | DraftRelation | None
    fault: str | None = None


def _draft_of(read: Iterable[_Read]) -> Draft:
    every = list(read)
    entities = (fact for fact, _ in every if isinstance(fact, DraftEntity))
    relations = (fact for fact, _ in every if isinstance(fact, DraftRelation))
    faults = (fault for _, fault in every if fault is not None)
    return Draft(entities=tuple(entities), relations=tuple(relations), skipped=tuple(faults))


@lru_cache(maxsize=256)
def parse(text: str) -> Draft:
    r"""Parse the entities and relations of a text in any of the forms.

    Unreadable lines are skipped and listed. If a fence or tag is never closed, the text was cut
    off: its last line may be incomplete and is skipped too.

    >>> draft = parse("Entities:\n- Rihanna (singer) [2]\nRelations:\n1. Rihanna -> born in")
    >>> draft.entities[0].type, draft.relations, draft.skipped
    ('singer', (), ('1. Rihanna -> born in',))
    """
    if says_nothing(text):
        return Draft()
    found = _ONE_LINE.sub("\n", _TAG.sub("\n", text)).splitlines()
    fences = [line for line in found if _FENCE.fullmatch(line)]
    lines = [line for line in map(single_line, found) if line and not _FENCE.fullmatch(line)]
    tags = [tag["end"] for tag in _TAG.finditer(text)]
    is_cut_off = tags.count("") > tags.count("/") or len(fences) % 2 == 1
    doubtful = [_Read(None, lines.pop())] if lines and is_cut_off else []
    return _draft_of([*doubtful, *_read_lines(lines)])


def _read_lines(lines: Iterable[str], section: str = "") -> Iterator[_Read]:
    """Parse each line, in the section of the last header."""
    for line in lines:
        if _RULE.fullmatch(line):
            continue
        bullet = _BULLET.match(line)
        content = line[bullet.end() :] if bullet else line
        header = _HEADER.fullmatch(content)
        if header is None:
            yield _read_line(line, content, section)
            continue
        section = "entities" if header["entities"] else "relations"
        rest = header["rest"] or ""
        is_list = rest.startswith("[")
        items = _cut(rest[1:].removesuffix("]"), r"\],\s*\[") if is_list else filter(None, [rest])
        yield from (_read_line(item, item, section) for item in items)


def _read_line(line: str, content: str, section: str) -> _Read:
    text = re.sub(r"(?<!\\)(?:\*\*|`)", "", content)
    labels = [match["labels"] for match in _CITED.finditer(_bare(text))]
    cited = {"passages": tuple(dict.fromkeys(numbers_in(", ".join(labels))))}
    text, qualities = _without_qualities("".join(_cut(text, _CITED)))
    bare, unread = _bare(text), _Read(None, None if says_nothing(content) else line)
    if not text or not (_balances(bare, "()") and _balances(bare, "[]")):
        return unread
    parts = _cut(text, _ARROW)
    if len(parts) == 1 and section != "entities":
        parts = _cut(text, _DASHES)
    if len(parts) == 2 and (clause := _CLAUSE.fullmatch(_trim(parts[1].strip()))):
        typed = _typed(clause["tail"])
        if typed and len(typed[0].split()) <= _LONGEST_TAIL:
            parts = [parts[0], clause["relation"], clause["tail"]]
    if len(parts) == 3 and all(map(_plain, parts)):
        fact = {**_end("head", parts[0]), "relation": _plain(parts[1]), **_end("tail", parts[2])}
        return read_value({**fact, **qualities, **cited}, line=line)
    if unread.fault is None or section == "relations" or _ARROW.search(bare):
        return unread
    entity = _entity(text, section or ("entities" if labels and _is_title(text) else ""))
    return _Read(entity.model_copy(update=cited)) if entity else unread


def _without_qualities(text: str) -> tuple[str, dict[str, str]]:
    """Split "(time: …)" and "(confidence: …)" off the end of a line."""
    qualities = dict[str, str]()
    text = _trim(text.strip())
    while (group := _last_group(text)) and (stated := _QUALITY.fullmatch(group[1])):
        qualities[stated["key"].lower()] = _unescape(stated["value"])
        text = _trim(group[0])
    return text, qualities


def _end(end: str, part: str) -> dict[str, Any]:
    """Return the fields of one end, "head" or "tail": "Ann Lee (person; singer)"."""
    name, kind, attributes = _typed(_unquoted(part)) or (part, "", ())
    return {end: _plain(name), f"{end}_type": kind, f"{end}_attributes": attributes}


def _typed(text: str, types: Collection[str] = TYPES) -> tuple[str, str, tuple[str, ...]] | None:
    """Split "name (type; attribute)" if the type is one of these, in lower case; else None."""
    group = _last_group(text)
    if not group or not group[0].strip():
        return None
    kind, attributes = _details(group[1])
    return (group[0].strip(), kind, attributes) if kind.casefold() in types else None


def with_types(draft: Draft, types: Collection[str]) -> Draft:
    """Split further types off the ends of relations: "Aspirin (Drug)".

    Args:
        draft: The draft.
        types: The types, in lower case.

    >>> draft = with_types(parse("- Aspirin (Drug) -> treats -> pain (Disease)"), {"drug"})
    >>> draft.relations[0].head, draft.relations[0].head_type, draft.relations[0].tail
    ('Aspirin', 'Drug', 'pain (Disease)')
    """
    relations = list[DraftRelation]()
    for relation in draft.relations:
        typed = dict[str, Any]()
        for end, entity in zip(("head", "tail"), relation.entities, strict=True):
            if not entity.type and (found := _typed(entity.name, types)):
                typed |= zip((end, f"{end}_type", f"{end}_attributes"), found, strict=True)
        relations.append(relation.model_copy(update=typed))
    return Draft(entities=draft.entities, relations=tuple(relations), skipped=draft.skipped)


def _is_title(text: str) -> bool:
    """Return whether all words are capitalised, except connectors."""
    return all(word in CONNECTORS or not word[:1].islower() for word in text.split())


def _entity(text: str, section: str) -> DraftEntity | None:
    """Read "name (type; attribute; …)"; a bare name only in the section of entities."""
    group = _last_group(text)
    before, details = group if group and group[0].strip() else (text, "")
    name = _plain(before)
    doubts = (before == text, _VERB.search(name) is not None, not section)
    if not name or "[" in _bare(text) or sum(doubts) > 1:
        return None
    kind, attributes = _details(details)
    return DraftEntity(name=name, type=kind, attributes=attributes)


def _details(details: str) -> tuple[str, tuple[str, ...]]:
    """Return the type and the attributes in an entity's parentheses."""
    if listed := re.match(r"\s*attributes\s*:", details, re.IGNORECASE):
        return "", tuple(map(_unescape, _cut(details[listed.end() :], ",")))
    kind, *attributes = map(_unescape, _cut(details, ";"))
    return kind, tuple(attributes)


def _plain(part: str) -> str:
    """Return a name without the quotes, asterisks or brackets around it, and without escapes."""
    return _unescape(_unquoted(part))


def _unquoted(part: str) -> str:
    part = part.strip()
    bare = _bare(part)
    inner = bare[1:-1]
    is_quoted = _PAIRS.get(bare[:1]) == bare[-1:] and inner.strip()
    return part[1:-1] if is_quoted and not {bare[0], bare[-1]} & {*inner} else part


# --- Reading JSON and similar values

_JSON: Final = re.compile(r"^[ \t]*(?=[\[{]\s*[\"'\[{])", re.MULTILINE)
_SPARE_COMMA: Final = re.compile(r",(?=\s*[\]}])")
_SECTIONS: Final = {
    **dict.fromkeys(("entities", "nodes"), "entities"),
    **dict.fromkeys(("relations", "relationships", "triples", "edges", "facts"), "relations"),
}


def draft_from(value: Any) -> Draft:
    """Read a draft from the output of an LM: text, a mapping, or a list of facts.

    It never raises: unreadable parts are listed in `skipped`.

    Args:
        value: Text for `parse`; `{"entities": [...], "relations": [...]}` (the keys may also be
            nodes, relationships, triples, edges or facts, also inside {"graph": ...}); a list of
            entities and triples; or JSON text of these. An entity is a string or a mapping, a
            relation a mapping, three items or a string.

    >>> draft = draft_from({"entities": ["Rihanna"], "triples": [["Rihanna", "born in"]]})
    >>> draft.entities[0].name, draft.skipped
    ('Rihanna', ("['Rihanna', 'born in']",))
    """
    if isinstance(value, Draft):
        return value
    if isinstance(value, str):
        return _from_text(value)
    if value is None or value == {}:
        return Draft()
    if isinstance(value, Mapping):
        fields = _fields_of(value).items()
        sections = [(_SECTIONS[key], part) for key, part in fields if key in _SECTIONS]
        if sections:
            return _draft_of(read for name, part in sections for read in _read_part(part, name))
        if len(value) == 1 and isinstance(inside := next(iter(value.values())), Mapping | list):
            return draft_from(inside)
    return _draft_of(_read_part(value, ""))


def _from_text(text: str) -> Draft:
    """Read lines, or JSON with lines around it."""
    opening = _JSON.search(text)
    start, end = opening.end() if opening else 0, max(text.rfind("}"), text.rfind("]")) + 1
    value = _loads(text[start:end]) if opening else None
    if value is None:
        return parse(text)
    inside, around = draft_from(value), parse(f"{text[:start]}\n{text[end:]}")
    both = {part: getattr(inside, part) + getattr(around, part) for part in Draft.model_fields}
    return Draft(**both)


def _read_part(part: Any, section: str) -> Iterator[_Read]:
    """Read facts; a string is a line. `section` is "" if entities and relations share a list."""
    is_entity = None if not section else section == "entities"
    items = part.splitlines() if isinstance(part, str) else part
    for is_text, group in groupby(_listed(items), lambda item: isinstance(item, str)):
        if is_text:
            yield from _read_lines(filter(None, map(single_line, group)), section)
        else:
            yield from (read_value(item, is_entity) for item in group)


def _listed(items: Any) -> list[Any]:
    if isinstance(items, list | tuple):
        return list(items)
    return [] if items is None else [items]


def read_value(item: Any, is_entity: bool | None = None, line: str = "") -> _Read:
    """Read one fact; `is_entity` is None if entities and relations share a list."""
    line = line or single_line(str(item))
    if isinstance(item, list | tuple) and len(item) in (3, 4) and not is_entity:
        item = dict(zip(("head", "relation", "tail", "passages"), item, strict=False))
    if not isinstance(item, Mapping):
        return _Read(None, line)
    stated = {key: part for key, part in _fields_of(item).items() if part is not None}
    if is_entity is None:
        is_entity = stated.keys().isdisjoint(_FIELDS["head"][1:])
    kind = DraftEntity if is_entity else DraftRelation
    fields = dict[str, Any]()
    for field in kind.model_fields:
        read, *keys = _FIELDS[field]
        fields[field] = read(next((stated[key] for key in keys if key in stated), None))
    try:
        fact = kind.model_validate(fields)
    except ValidationError:
        return _Read(None, line)
    is_lost = isinstance(fact, DraftRelation) and fact.confidence is None and "confidence" in stated
    return _Read(fact, f"confidence {stated['confidence']!r} of: {line}" if is_lost else None)


def _fields_of(item: Mapping[Any, Any]) -> dict[str, Any]:
    return {str(key).casefold(): value for key, value in item.items()}


def _loads(text: str) -> Any:
    """Return the value of JSON, also with trailing commas, or of a Python literal; else None."""
    for read in (json.loads, lambda text: json.loads(_SPARE_COMMA.sub("", text)), ast.literal_eval):
        with suppress(ValueError, SyntaxError, TypeError, RecursionError, MemoryError):
            return read(text)
    return None


def _text(value: Any) -> str:
    """Return a string or a number (such as a year) as text, anything else as an empty string."""
    is_name = isinstance(value, str | int | float) and not isinstance(value, bool)
    return str(value) if is_name else ""


def _texts(value: Any) -> tuple[str, ...]:
    if isinstance(value, Mapping):
        return tuple(f"{key}: {_text(part)}" for key, part in value.items() if _text(part))
    if isinstance(value, list | tuple):
        return tuple(text for part in value for text in _texts(part))
    return (_text(value),)


def _numbers(value: Any) -> tuple[int, ...]:
    """Return passage labels from 3, "3", "[2, 6]" or a list of those."""
    numbers = (number for part in _listed(value) for number in numbers_in(_text(part)))
    return tuple(dict.fromkeys(numbers))


def _share(text: str) -> float | None:
    """Return a number from 0 to 1, also from a percentage; None for any other text."""
    try:
        value = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        return None
    return value if 0 <= value <= 1 else None


def numbers_in(text: str) -> list[int]:
    """Return the labels of a list such as "1, 3-5"."""
    numbers: list[int] = []
    for first, last in _SPAN.findall(text):
        start, end = int(first), int(last or first)
        numbers += range(start, end + 1) if start <= end < start + 50 else (start, end)
    return numbers


_FIELDS: Final[Mapping[str, Any]] = {
    "name": (_text, "name", "entity", "id"),
    "type": (_text, "type"),
    "attributes": (_texts, "attributes", "description"),
    "head": (_text, "head", "source", "subject"),
    "head_type": (_text, "head_type"),
    "head_attributes": (_texts, "head_attributes"),
    "relation": (_text, "relation", "predicate", "relationship", "type"),
    "tail": (_text, "tail", "target", "object"),
    "tail_type": (_text, "tail_type"),
    "tail_attributes": (_texts, "tail_attributes"),
    "time": (lambda value: _text(value) or None, "time", "date"),
    "confidence": (lambda value: _share(_text(value)), "confidence"),
    "passages": (_numbers, "passages", "passage"),
}
"""How each field of a draft is read, then its keys, of which the first with a value counts."""
