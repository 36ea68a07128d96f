"""A graph as text: the lines that an LM writes and reads, and the other shapes it may choose.

Three forms, one parser: "compact" (triples with passage labels, the type of an entity behind its
first mention; before them the entities of which more is known), "paper" (names with attributes,
then triples) and "line" (entities and triples in one line). `draft_from` reads values like those
of JSON too, in whichever of the usual shapes.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import accumulate, chain, groupby, pairwise
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple

from ga_dspy.graph.knowledge_graph import KnowledgeGraph
from ga_dspy.graph.records import (
    TYPES,
    Draft,
    DraftEntity,
    Entity,
    Evidence,
    GraphUpdate,
    Relation,
    printable,
    single_line,
)
from ga_dspy.graph.traits import kind_of
from ga_dspy.graph.values import (
    FIELDS,
    Read,
    draft_of,
    fields_of,
    loads,
    numbers_in,
    read_value,
)
from ga_dspy.graph.wording import says_nothing
from ga_dspy.text import CONNECTORS, LONGEST_NAME, normalise, remembered, stands_in

_WORDS: Final = json.loads(Path(__file__).with_name("lines.json").read_text("utf-8"))

# --- Writing

Form = Literal["compact", "paper", "line"]
EMPTY: Final = "(empty)"


def linearise(
    graph: KnowledgeGraph | GraphUpdate,
    form: Form = "compact",
    labels: Mapping[str, int] | None = None,
    question: str = "",
) -> str:
    """Write a graph, or the update of one step, as text.

    A name that shares no word with the one an entity is shown under is written too, as
    "X -> same as -> Y".

    Args:
        graph: The graph or update.
        form: "compact" carries everything, but the passages and the line of an entity of which
            relations say all: that it is there, and its type, if it is one of `TYPES`. "line" has
            each entity, in one line; "paper" puts the type first among the attributes, and leaves
            out times and confidences.
        labels: The number each passage id is shown under; passages without one go unmentioned.
        question: An entity that it calls by another name than the one shown is written by it.

    Returns:
        The text, which `parse` reads back; "(empty)" for the empty graph.

    >>> ann, oslo = Entity(name="Ann Lee", type="person"), Entity(name="Oslo", type="place")
    >>> born = Relation(head="Ann Lee", relation="born in", tail="Oslo")
    >>> linearise(GraphUpdate(entities=(ann, oslo), relations=(born,)))
    '- Ann Lee (person) -> born in -> Oslo (place)'
    """
    numbers = labels or {}
    entities, relations = list(graph.entities), list(graph.relations)
    if any(entity.aliases for entity in entities):
        entities, relations = _in_words_of(question, entities, relations)
    types = _types_of_ends(entities, relations) if form == "compact" else {}
    listed = [_entity_text(e, form, numbers) for e in entities if e.name not in types]
    triples = list[str]()
    for relation in relations:
        head, tail = (types.pop(end, "") for end in (relation.head, relation.tail))
        triples.append(_relation_text(relation, form, numbers, head, tail))
    if form == "compact" and not listed:
        return "\n".join(f"- {triple}" for triple in triples) or EMPTY
    related = "Relationships" if form == "paper" else "Relations"
    sections = {"Entities": listed, related: triples}
    if form == "line":
        lists = {title: ", ".join(f"[{i}]" for i in items) for title, items in sections.items()}
        return "; ".join(f"{title}: {items}" for title, items in lists.items() if items) or EMPTY
    lines: list[str] = []
    for title, items in sections.items():
        lines += [f"{title}:"] if items else []
        is_numbered = form == "paper" and title == related
        lines += [f"{n}. {item}" if is_numbered else f"- {item}" for n, item in enumerate(items, 1)]
    return "\n".join(lines) or EMPTY


def _types_of_ends(entities: Sequence[Entity], relations: Sequence[Relation]) -> dict[str, str]:
    """The types of the entities that need no line of their own, by name."""
    ends = {end for relation in relations for end in (relation.head, relation.tail)}
    times = Counter(entity.name for entity in entities)
    return {
        entity.name: entity.type
        for entity in entities
        if entity.name in ends and times[entity.name] == 1 and not entity.attributes
        and (not entity.type or entity.type.casefold() in TYPES)
    }  # fmt: skip


def _in_words_of(
    question: str, entities: Sequence[Entity], relations: Sequence[Relation]
) -> tuple[list[Entity], list[Relation]]:
    """Entities by the names a question has for them, and relations for their unlike names."""
    asked = normalise(question)
    taken = {normalise(entity.name) for entity in entities}
    called: dict[str, str] = {}
    others: list[Relation] = []
    for entity in entities:
        names = (entity.name, *entity.aliases)
        in_question = (n for n in names if stands_in(normalise(n), asked))
        name = next(in_question, entity.name)
        if normalise(name) in taken - {normalise(entity.name)}:
            name = entity.name
        called[entity.name] = name
        words = set(normalise(name).split())
        for other in names:
            if words.isdisjoint(normalise(other).split()):
                others.append(
                    Relation(head=name, relation="same as", tail=other, evidence=entity.evidence)
                )
    shown = [entity.model_copy(update={"name": called[entity.name]}) for entity in entities]
    renamed = [
        relation.model_copy(
            update={
                "head": called.get(relation.head, relation.head),
                "tail": called.get(relation.tail, relation.tail),
            }
        )
        for relation in relations
    ]
    return shown, renamed + others


def _entity_text(entity: Entity, form: Form, labels: Mapping[str, int]) -> str:
    name = _name_text(entity.name)
    if form == "paper":
        both = (text for text in (entity.type, *entity.attributes) if text)
        stated = [escape(text, also=",:" if _KEY.match(text) else ",") for text in both]
        details = f"Attributes: {', '.join(stated)}" if stated else ""
    else:
        attributes = (escape(a, also=":" if _KEY_IN.search(a) else "") for a in entity.attributes)
        details = "; ".join([escape(entity.type, also=":"), *attributes])
        details = f"\\{details}" if _PAREN_LABELS.fullmatch(details) else details
    is_unclear = name.endswith(")") or _is_prose(entity.name) or _described(name)
    text = f"{name} ({details})" if details or is_unclear else name
    text = f"\\{text}" if says_nothing(text) else text
    return text + _labels_text(entity.evidence, labels)


def _relation_text(
    relation: Relation, form: Form, labels: Mapping[str, int], head_type: str, tail_type: str
) -> str:
    arrow = " -- " if form == "line" else " -> "
    head, link, tail = map(_name_text, (relation.head, relation.relation, relation.tail))
    head, tail = (f"{e} ({t})" if t else e for e, t in ((head, head_type), (tail, tail_type)))
    text = arrow.join((head, link, tail))
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

_STRONG: Final = re.compile(r"<?(?<![-–—=~])[-–—=~]{1,40}>|-&gt;|&rarr;|[→⟶➔➜➝➞⇒⟹⇨↦↔]")
_LATEX: Final = re.compile(r"\$?(?<!\\)\\(?:long)?[rR]ightarrow\$?")
_BACK: Final = re.compile(r"<[-–—=]{1,40}(?![-–—=>])|[←⟵⇐⟸]")
_SPECIAL: Final = re.compile(
    rf"[\\\[\]【】［］;|]|{_STRONG.pattern}|{_BACK.pattern}|--+|\*\*|`|<(?=/?graph>)|\^(?=\d)", re.I
)
_QUALITY_OPENS: Final = re.compile(r"\((?=\s*(?:time|confidence)\s*:)", re.I)
_ESCAPED: Final = re.compile(r"\\(.)")
_FULL_STOP: Final = re.compile(r"(?:[^\W\d_]{4}|\d\d|[)\"”])\.\Z")
"""A full stop that ends a line; that of "Inc." or "Jr." belongs to the name."""


@lru_cache(maxsize=4096)
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


@remembered(most=4096, longest=200)
def _name_text(name: str) -> str:
    """A name so that neither its beginning nor its end is taken for something else."""
    group = _last_group(name.rstrip(" .,;"))
    is_read = group and (_PAREN_LABELS.fullmatch(group[1]) or _states_type(group[1]))
    text = escape(name, also="()" if is_read else "")
    if not text.startswith("\\") and _is_odd(text):
        # A parenthesis that is escaped alone would leave its other half unbalanced.
        text = escape(name, also="()") if text.startswith("(") else f"\\{text}"
    if _name_end(_bare(text)) < len(text):
        text = f"{text[:-1]}\\{text[-1]}"
    return text


def _is_odd(text: str) -> bool:
    """Whether a name by itself would be read as a bullet, a header, quotes, a key or as nothing."""
    return bool(
        _BULLET.match(f"{text} ")
        or _RULE.fullmatch(text)
        or _KEYED.match(text)
        or _header(text, is_bulleted=True)
        or _plain(text) != _unescape(text)
        or says_nothing(text)
        or text.startswith("{")
    )


def _unescape(text: str) -> str:
    return _ESCAPED.sub(r"\1", text.strip()).strip()


def _bare(text: str) -> str:
    """The text with all that is escaped blanked out, so that separators can be looked for."""
    return _ESCAPED.sub(lambda match: "\0" * len(match.group()), text) if "\\" in text else text


def _cut(text: str, separator: re.Pattern[str]) -> list[str]:
    r"""Cut at a separator where it is not escaped.

    >>> _cut(r"a \-> b -> c", _STRONG)
    ['a \\-> b ', ' c']
    """
    return _between(text, (match.span() for match in separator.finditer(_bare(text))))


def _between(text: str, spans: Iterable[tuple[int, int]]) -> list[str]:
    """What stands before, between and behind parts of a text, which are given by their spans."""
    places = pairwise([(0, 0), *spans, (len(text), 0)])
    return [text[start:end] for (_, start), (end, _) in places]


def _depths(bare: str, opening: str, closing: str) -> list[int]:
    """How many brackets are open before each character, and behind the last."""
    steps = dict.fromkeys(opening, 1) | dict.fromkeys(closing, -1)
    return [*accumulate((steps.get(c, 0) for c in bare), initial=0)]


def _split_outside(text: str, separator: str) -> list[str]:
    """Cut at a one-character separator outside of any brackets."""
    bare = _bare(text)
    depths = _depths(bare, "([", ")]")
    places = (i for i, char in enumerate(bare) if char == separator and depths[i] == 0)
    return _between(text, ((i, i + 1) for i in places))


def _balances(bare: str, brackets: str) -> bool:
    """Whether every bracket that is opened is closed; text that was cut off often is not."""
    if brackets[0] not in bare and brackets[1] not in bare:
        return True
    depths = _depths(bare, *brackets)
    return min(depths) == depths[-1] == 0


def _is_whole(bare: str) -> bool:
    return _balances(bare, "()") and _balances(bare, "[]")


def _opening(bare: str, end: int, brackets: str = "()") -> int:
    """Where the group opens that closes before `end`; -1 where none does."""
    depth, start = 0, bare.rfind(brackets[0], 0, end)
    if end and bare[end - 1] == brackets[1]:
        if start > bare.rfind(brackets[1], 0, end - 1):
            return start
        for i in range(end - 1, -1, -1):
            depth += (bare[i] == brackets[1]) - (bare[i] == brackets[0])
            if depth == 0:
                return i
    return -1


def _last_group(text: str, brackets: str = "()") -> tuple[str, str] | None:
    """What stands before a group in brackets at the end of a text, and what in it.

    None where the text does not end with a closed group.

    >>> _last_group("Prism (album) (work; 2013)")
    ('Prism (album) ', 'work; 2013')
    """
    text = text.rstrip()
    start = _opening(_bare(text), len(text), brackets)
    return None if start < 0 else (text[:start], text[start + 1 : -1])


def _name_end(bare: str) -> int:
    """Where a name ends that commas, colons, a dash or a full stop may follow."""
    end = len(bare)
    while end:
        char, before = bare[end - 1], bare[max(0, end - 6) : end]
        is_dash = char in "-–—" and before[-2:-1] in (" ", "")
        if not (char in " \t,;:" or is_dash or _FULL_STOP.search(before)):
            break
        end -= 1
    return end or len(bare)


# --- Reading text, line by line

_NOUNS: Final = {word: name for name, words in _WORDS["sections"].items() for word in words}
_AROUND_NOUNS: Final = frozenset(_WORDS["around_headers"])
_RELATIONS_FOLLOW: Final = re.compile(r"[;,]?\s*(?=(?:relation(?:ship)?s|triples)\s*:)", re.I)
_SYMBOL: Final = r"[-*•‣◦▪▫●○■□►▶➢➤✓✔·–—+]"
_BULLET: Final = re.compile(
    rf"(?P<symbol>{_SYMBOL}\s+(?:\[[ xX]\]\s+)?|[•‣◦▪●►▶➢➤✓✔]|-(?=[^\W\d_]))"
    r"|\(?(?P<number>\d{1,4})[.)](?:\s+|(?=[^\W\d_]))"
    r"|\(?[a-zA-Z]\)\s+|\(?[ivx]{1,4}[.)]\s+|#\d{1,3}[.:)]?\s+|[ERNT]\d{1,3}[.:)]\s+"
)
_TAG: Final = re.compile(r"(?<!\\)<(?P<end>/?)graph>", re.I)
_FENCE: Final = re.compile(r"\s*(?:```|~~~)[\w+-]*\s*")
_RULE: Final = re.compile(r"[-=_*#~|:+–—\s]+")
_BOLD: Final = re.compile(r"(?<!\\)(?:\*\*|`)")
_BLANKS: Final = re.compile(r"[^\S\t]+")

_SOURCE: Final = (
    r"(?:(?:see|from|in|cf\.?|stated|based|on|per|according|to|as)\s)*"
    r"(?:passages?|paragraphs?|documents?|docs?|sources?|references?|refs?|texts?|contexts?|"
    r"snippets?|pp?|nos?|cited?|citations?|label)\b\.?\s?[:#]?\s?\[?"
)
_NUMBER: Final = r"#?\^?\d{1,6}(?:†[^,;\]]*)?\]?"
_NUMBERS: Final = (
    rf"{_NUMBER}(?:\s?(?:[,;&/+–-]|and|to|or|\s)\s?(?:(?:and|or)\s)?(?:{_SOURCE})?{_NUMBER})*"
)
_LABELS: Final = re.compile(rf"\s?(?:{_SOURCE})?{_NUMBERS}\s?", re.I)
_PAREN_LABELS: Final = re.compile(
    rf"\s?(?:{_SOURCE}{_NUMBERS}|\d{{1,3}}(?:[,;\s-]+\d{{1,3}})*)\s?", re.I
)
_CITED: Final = re.compile(
    r"[\[【［](?P<labels>[^\[\]【】［］]{1,80})[\]】］]|(?<!\d)\^(?P<raised>\d{1,3})\b"
)
_QUALITY: Final = re.compile(r"\s*(?P<key>time|confidence)\s*:(?P<value>.*)", re.I)
_KEY: Final = re.compile(r"\s*(?P<key>type|attributes?)\s*:(?P<value>.*)", re.I)
_KEY_IN: Final = re.compile(r"(?:\A|,)\s*(?:type|attributes?)\s*:", re.I)
_DETAIL: Final = re.compile(r";|,\s*(?=attributes?\s*:)", re.I)
_KEYED: Final = re.compile(
    r"(?:(?<=[,;|\s])|\A)(?P<key>head|subject|relation(?:ship)?|predicate|tail|object|name|entity|"
    r"type|attributes?|passages?|time|confidence)(?:\s(?:entity|numbers?))?\s?[:=]\s?",
    re.I,
)
_OPENING: Final = re.compile(r"(?:(?<=\s)|\A)[-–—=~]{1,40}\s?(?=\S)|[-–—=]{1,40}(?=[\[(])")
_MIXED: Final = re.compile(f"{_STRONG.pattern}|{_OPENING.pattern}")
_BAR: Final = re.compile(r"\|")
_WEAK: Final = (
    re.compile(r"--+"),
    _BAR,
    *map(re.compile, ("—", r"\s–\s", r"\s-\s", "::", r"\s>\s", "»", r"\t")),
)
_COMMA: Final = re.compile(",")
_BRACKETED: Final = (
    re.compile(r"<(?P<head>[^<>]+)>[\s,;]*<(?P<relation>[^<>]+)>[\s,;]*<(?P<tail>[^<>]+)>"),
    re.compile(r"(?P<relation>[a-z][\w ]{0,60}\w)\((?P<head>[^(),]+), ?(?P<tail>[^(),]+)\)"),
)
_PAIRS: Final = dict(zip("[(<{\"“'‘*_«", "])>}\"”'’*_»", strict=True))
_BETWEEN_QUOTES: Final = re.compile(r"[\"'”’]\s?[,;]\s?(?:[\"'“‘]|(?=\d+\Z))")
_DESCRIBED: Final = re.compile(r":\s|\s[-–—=]\s")
_VERB: Final = re.compile(r"\s(?:is|was|are|were|has|had|have|do|does|did|say|says|said|became)\s")
_MOST_WORDS: Final = 6
"""A longer name that ends like a sentence is prose, unless parentheses follow it."""


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
    if says_nothing(text):
        return Draft()
    lines = _TAG.sub("\n", text).splitlines()
    items = _items(lines)
    tags = [tag["end"] for tag in _TAG.finditer(text)]
    fences = sum(1 for line in lines if _FENCE.fullmatch(line))
    is_cut_off = tags.count("") > tags.count("/") or fences % 2 == 1
    doubtful = [Read(None, items.pop().line)] if items and is_cut_off else []
    return draft_of([*doubtful, *map(_read_item, items)])


class _Item(NamedTuple):
    """A line, or a part of one, that should state one fact.

    `section` is "" before any header; `content` is the line without its bullet; `columns` are the
    fields of a table's row; `details` are the lines of a list that is set in below an entity.
    """

    line: str
    section: str
    content: str
    columns: tuple[str, ...] = ()
    details: tuple[str, ...] = ()


def _items(lines: Iterable[str], section: str = "", bullet: str = "") -> list[_Item]:
    """The items of a text; `bullet` is what stands before each line and is no part of it."""
    items, columns, record, outer = list[_Item](), tuple[str, ...](), set[str](), -1
    written = [
        printable(line).expandtabs(4) if line[:1] == "\t" else printable(line) for line in lines
    ]
    plain = [_LATEX.sub("->", _BLANKS.sub(" ", line).strip()) for line in written]
    is_numbered = _is_numbered([bullet + line for line in plain])
    for line, source in zip(plain, written, strict=True):
        if not line or _FENCE.fullmatch(line) or _RULE.fullmatch(line):
            continue
        content = _without_bullets(bullet + line, is_numbered)
        is_bulleted = content != bullet + line
        indent = len(source) - len(source.lstrip())
        found = _KEYED.match(_bare(content))
        key = found["key"].lower() if found else ""
        if key in record or not key:
            record.clear()
        if is_bulleted and -1 < outer < indent and not _STRONG.search(content):
            items[-1] = items[-1]._replace(details=(*items[-1].details, content))
        elif record:
            record.add(key)
            content = f"{items[-1].content}; {content}"
            items[-1] = _Item(content, section, content)
        elif key in ("head", "subject", "name"):
            record, outer = {key}, -1
            items.append(_Item(content, section, content))
        elif header := _header(content, is_bulleted=is_bulleted):
            section, columns, outer = header[0] or section, (), -1
            for place, part in enumerate(_sections(header[1])):
                if place and (inner := _header(part)):
                    section, part = inner[0] or section, inner[1]
                items += (_Item(item, section, item) for item in _list_items(part, section))
        elif heads := _columns(content):
            columns = heads
        else:
            items.append(_Item(line, section, content, columns))
            is_entity = section != "relations" and not _STRONG.search(content)
            outer = indent if is_entity and is_bulleted and not _bare(content).endswith(":") else -1
    return items


def _is_numbered(lines: Sequence[str]) -> bool:
    """Whether numbers that follow a bullet count the items: "- 1. FC Köln" may be a name."""
    starts = [match for line in lines if (match := _BULLET.match(line)) and match["symbol"]]
    inner = [_BULLET.match(start.string, start.end()) for start in starts]
    numbers = [match["number"] for match in inner if match and match["number"]]
    return "2" in numbers or len(numbers) == len(inner) == 1


def _without_bullets(line: str, is_numbered: bool) -> str:
    bullet = _BULLET.match(line)
    content = line[bullet.end() :] if bullet else line
    for _ in range(2 if bullet and bullet["symbol"] else 0):
        inner = _BULLET.match(content)
        if not inner or inner.end() == len(content) or (inner["number"] and not is_numbered):
            break
        content = content[inner.end() :]
    return content


def _header(content: str, *, is_bulleted: bool = False) -> tuple[str, str] | None:
    """The section that a header opens ("" for no one section), and what follows it in its line."""
    bare = _bare(content)
    head, colon, _ = bare.partition(":")
    if len(head) > 80 or (is_bulleted and not colon):
        return None
    words = re.findall(r"[^\W_]+", head.casefold())
    nouns = {_NOUNS[word] for word in words if word in _NOUNS}
    rest = content[len(head) + 1 :].strip("*_ \t")
    known = all(word in _NOUNS or word in _AROUND_NOUNS or word.isdigit() for word in words)
    if not words or not known or re.search(r"[^\w\s#*()\[\].,&/'’-]", head):
        return None
    if not nouns and (rest or not colon):
        return None
    if not colon and (any(word.isdigit() for word in words[1:]) or head.endswith(".")):
        return None
    return (nouns.pop() if len(nouns) == 1 else ""), rest


def _sections(content: str) -> list[str]:
    """A line's list of entities, and its list of relations where that stands behind it."""
    bare = _bare(content)
    depths = _depths(bare, "[", "]")
    for match in _RELATIONS_FOLLOW.finditer(bare):
        if depths[match.start()] == 0:
            return [content[: match.start()], content[match.end() :]]
    return [content]


def _list_items(content: str, section: str) -> Iterator[str]:
    """The items of a list in one line, between ";" or ","; each may be in square brackets."""
    items = _split_outside(content, ";")
    arrows = sum(len(_cut(content, arrow)) - 1 for arrow in (_STRONG, *_WEAK[:3]))
    if len(items) == 1 and (section != "relations" or arrows > 2):
        items = _split_outside(content, ",")
    for item in filter(None, map(str.strip, items)):
        inside = _last_group(item, "[]")
        yield inside[1] if inside and not inside[0] else item


def _columns(content: str) -> tuple[str, ...]:
    """The fields that the head of a table names; none where a line is no such head."""
    if "|" not in content:
        return ()
    heads = tuple(
        re.sub(r"\b(?:entity|numbers?|no)\b(?= |$)(?<!^entity)|[^a-z ]", "", cell.lower()).strip()
        for cell in _cells(content)
    )
    known = {key for _, *keys in FIELDS.values() for key in keys}
    ends = ({*heads} & {*FIELDS["head"][1:]}, {*heads} & {*FIELDS["tail"][1:]})
    is_head = all(ends) or (len(heads) > 1 and heads[0] in FIELDS["name"])
    return heads if is_head and known.issuperset(filter(None, heads)) else ()


def _cells(content: str) -> list[str]:
    """The cells of a table's row, without the bars around it."""
    return [_plain(cell) for cell in _row(_BOLD.sub("", content))]


def _row(content: str) -> list[str]:
    cells = _cut(content, _BAR)
    last = len(cells) - (len(cells) > 1 and not cells[-1].strip())
    return cells[not cells[0].strip() : last] or [""]


class _Marked(NamedTuple):
    """What a line states, what is remarked behind it, its labels, its time and confidence."""

    text: str
    remark: str
    passages: tuple[int, ...]
    qualities: dict[str, str]


def _marks(content: str) -> _Marked:
    """Take labels, qualities and remarks off a line."""
    text, qualities = _unwrap(_BOLD.sub("", content)), dict[str, str]()
    cited = _CITED.finditer(_bare(text))
    found = [match for match in cited if _LABELS.fullmatch(match["labels"] or match["raised"])]
    labels = [number for match in found for number in numbers_in(match[0])]
    *parts, behind = _between(text, (match.span() for match in found))
    before = "".join(parts)
    if not before.strip(" -–—:.,"):
        before, behind = behind, ""
    elif _STRONG.search(_bare(behind)) or "|" in _bare(behind):
        before, behind = before + behind, ""
    before = _without_qualities(before, qualities, labels)
    behind = _without_qualities(behind, qualities, labels)
    before = before.strip()
    before = before[: _name_end(_bare(before))].rstrip()
    passages = tuple(dict.fromkeys(labels))
    return _Marked(_unwrap(before), behind.strip(" .,;!"), passages, qualities)


def _without_qualities(text: str, qualities: dict[str, str], labels: list[int]) -> str:
    """The text without "(time: …)", "(confidence: …)" and "(passage 2)" at its end."""
    bare, end, cited = _bare(text), len(text), list[list[int]]()
    while True:
        closed = end
        while closed and bare[closed - 1] in " \t.,;":
            closed -= 1
        start = _opening(bare, closed)
        group = text[start + 1 : closed - 1] if start >= 0 else ""
        if stated := _QUALITY.fullmatch(group):
            qualities[stated["key"].lower()] = _unescape(stated["value"])
        elif bare[:1] and start > 0 and len(group) < 100 and _PAREN_LABELS.fullmatch(group):
            cited.append(numbers_in(group))
        else:
            break
        end = start
    labels += chain.from_iterable(reversed(cited))
    return text[:end]


def _unwrap(text: str) -> str:
    """The text without square brackets around it, unless they hold passage labels."""
    text = text.strip()
    inside = _last_group(text, "[]") if text.startswith("[") else None
    if inside is None or inside[0].strip() or _LABELS.fullmatch(inside[1][:100]):
        return text
    return inside[1].strip()


def _read_item(item: _Item) -> Read:
    if _OPENS_JSON.match(item.content) and isinstance(loads(item.content), Mapping | list):
        return read_value(loads(item.content), line=item.line)
    marked = _marks(item.content)
    text, bare = marked.text, _bare(marked.text)
    if item.columns and "|" in bare:
        row = dict(zip(item.columns, _cells(item.content), strict=False))
        return read_value(row, line=item.line)
    if fields := _keyed(text, bare):
        cited = {"passages": list(marked.passages)} if marked.passages else {}
        return read_value({**fields, **cited}, line=item.line)
    if not text or not _is_whole(bare):
        return Read(None, None if says_nothing(item.content) else item.line)
    if parts := _parts(text, bare, item.section):
        fact = {**_end("head", parts[0]), "relation": _plain(parts[1]), **_end("tail", parts[2])}
        passages = [*marked.passages, *map(_plain, parts[3:])]
        return read_value({**fact, **marked.qualities, "passages": passages}, line=item.line)
    if says_nothing(item.content):
        return Read(None)
    is_heading = _bare(item.content).endswith(":")
    is_none = item.section == "relations" or _STRONG.search(bare) or is_heading
    entity = None if is_none else _entity(marked, item)
    return Read(entity, None if entity else " ".join((item.line, *item.details)))


# --- A line that states a relation


def _parts(text: str, bare: str, section: str) -> list[str]:
    """Head, relation and tail, and a label where one stands like a fourth; else nothing."""
    parts = _cut(text, _STRONG)
    if len(parts) == 2:
        parts = _around_one_arrow(text)
    elif len(parts) == 1 and len(_BACK.findall(bare)) == 2:
        parts = _cut(text, _BACK)[::-1]
    elif len(parts) == 1:
        parts = _without_arrow(text, bare, section) if section != "entities" else []
    names = list(map(_plain, parts))
    is_cited = len(names) == 4 and (not names[3] or _PAREN_LABELS.fullmatch(names[3]))
    is_fact = (len(names) == 3 or is_cited) and all(names[:3])
    return parts if is_fact else []


def _end(end: str, part: str) -> dict[str, Any]:
    """The fields of one end, "head" or "tail", also those of "Ann Lee (person; singer)"."""
    text = _unquoted(part)
    group = _last_group(text)
    kind, attributes = "", tuple[str, ...]()
    if group and group[0].strip() and _states_type(group[1]):
        text, (kind, attributes) = _unquoted(group[0]), _details(group[1])
    return {end: _unescape(text), f"{end}_type": kind, f"{end}_attributes": attributes}


def _states_type(group: str) -> bool:
    """Whether parentheses hold one of our types, alone or with attributes behind it."""
    return _details(group)[0].casefold() in TYPES


def _around_one_arrow(text: str) -> list[str]:
    """The parts of "A -[r]-> B", "A --r--> B" and "A -> r: B"."""
    parts = _cut(text, _MIXED)
    if len(parts) == 3:
        return parts
    head, rest = _cut(text, _STRONG)
    relation, colon, tail = rest.partition(": ")
    is_phrase = relation.islower() and len(relation.split()) <= _MOST_WORDS
    return [head, relation, tail] if colon and is_phrase else []


def _without_arrow(text: str, bare: str, section: str) -> list[str]:
    """The parts of "A - r - B", "A | r | B", "(A, r, B)", "<A> <r> <B>" and "r(A, B)"."""
    for separator in _WEAK:
        is_table = separator is _BAR
        parts = _row(text) if is_table else _cut(text, separator)
        if is_table and not section and len(parts) < 4 and _PAREN_LABELS.fullmatch(parts[-1]):
            return []
        if len(parts) == 3 or (len(parts) == 4 and is_table):
            break
    else:
        for pattern in _BRACKETED:
            if match := pattern.fullmatch(bare):
                return [text[slice(*match.span(end))] for end in ("head", "relation", "tail")]
        parts = _listed_parts(text, bare)
        if len(parts) == 4 and not parts[3].strip(" \"'").isdigit():
            return []
        is_wrapped = text[0] in "(<{\"'“‘"
        if not is_wrapped and not (len(parts) == 3 and _is_phrase(parts[1], parts[2])):
            return []
    is_named = not section and any(part.strip()[:1].islower() for part in (parts[0], parts[-1]))
    return [] if is_named else parts


def _is_phrase(relation: str, tail: str) -> bool:
    """Whether what stands between two commas reads like a relation between names."""
    is_lower = relation.strip().islower() and not tail.strip()[:1].islower()
    return is_lower and relation.split()[0] not in {"a", "an", "the", "and", "or"}


def _listed_parts(text: str, bare: str) -> list[str]:
    """The parts of "(A, r, B)" and of "'A', 'r', 'B'", with or without brackets."""
    is_wrapped = bare[:1] in ("(", "<", "{") and _PAIRS[bare[0]] == bare[-1]
    if is_wrapped and (bare[0] != "(" or _opening(bare, len(bare)) == 0):
        text = text[1:-1].strip()
    if text[:1] in "\"'“‘":
        parts = _cut(text, _BETWEEN_QUOTES)
        return [part.strip(" \"'“”‘’") for part in parts]
    parts = _split_outside(text, ";")
    return parts if len(parts) > 1 else _split_outside(text, ",")


def _plain(part: str) -> str:
    """A name without the quotes, asterisks or brackets around it, and without escapes."""
    return _unescape(_unquoted(part))


def _unquoted(part: str) -> str:
    for _ in range(3):
        part = part.strip()
        bare = _bare(part)
        inner = bare[1:-1]
        if _PAIRS.get(bare[:1]) != bare[-1:] or not inner.strip():
            break
        if bare[0] in inner or bare[-1] in inner:
            break
        part = part[1:-1].lstrip(":") if bare[0] == "[" else part[1:-1]
    return part


# --- A line that states an entity


def _entity(marked: _Marked, item: _Item) -> DraftEntity | None:
    text, remark, passages = marked.text, marked.remark, marked.passages
    if remark and (_opening(_bare(remark), len(remark)) == 0 or remark[0] in ":-–—"):
        text, remark = f"{text}{' ' * (remark[0] != ':')}{remark}", ""
    name, details = _name_and_details(text)
    name = _plain(name)
    if details and "|" in _bare(details):
        cells = _row(details)
        if _PAREN_LABELS.fullmatch(cells[-1]):
            passages += tuple(numbers_in(cells.pop()))
        details = "; ".join(filter(str.strip, cells))
    if not name or "[" in _bare(text) or (details is None and _is_prose(name)):
        return None
    is_bare = details is None and not item.details
    if not item.section and (remark or not _is_title(name, is_bare, bool(passages))):
        return None
    details = "; ".join([details or "", *(_marks(below).text for below in item.details)])
    kind, attributes = _details(details)
    return DraftEntity(name=name, type=kind, attributes=attributes, passages=passages)


def _is_title(name: str, is_bare: bool, is_cited: bool) -> bool:
    """Whether a line that no header announces may begin with a name.

    One with nothing behind it but a label must be spelled as one, word for word.
    """
    words = name.split()
    if _VERB.search(name) or len(words) > LONGEST_NAME or words[0][:1].islower():
        return False
    spelled = all(not word[:1].islower() or word in CONNECTORS for word in words)
    return spelled and is_cited if is_bare else True


def _name_and_details(text: str) -> tuple[str, str | None]:
    """The name in a line, and what the line says of it; None where it says nothing."""
    bare = _bare(text)
    start = _opening(bare, len(bare))
    if start > 0 and bare[:start].strip():
        return text[:start], text[start + 1 : -1]
    if start == 0 and len(parts := _listed_parts(text, bare)) > 1:
        is_pair = len(parts) == 2 or kind_of(parts[1])
        return (parts[0], "; ".join(parts[1:])) if is_pair else (text, None)
    if "|" in bare:
        name, *cells = _row(text)
        return name, "|".join((*cells, "")) if cells else None
    return _described(text) or (text, None)


def _described(text: str) -> tuple[str, str] | None:
    """The name and the description in "Rush: rock band", "Rush - band", "Rush, a rock band"."""
    bare = _bare(text)
    for match in (_DESCRIBED.search(bare), re.search(r",\s", bare)):
        if match is None or not match.start():
            continue
        if match[0] in bare[match.end() :]:
            break
        name, rest = text[: match.start()], text[match.end() :].strip()
        last = rest.split()[-1] if rest else ""
        if last.islower() and last.isalpha() and (match[0] != ", " or kind_of(rest)):
            kind = _last_group(name)
            return (kind[0], f"{kind[1]}; {rest}") if kind and kind[0].strip() else (name, rest)
        if ":" in match[0] and " " not in name and rest[:1].isupper() and kind_of(name):
            return rest, name
    return None


def _details(details: str) -> tuple[str, tuple[str, ...]]:
    """Type and attributes of an entity from what stands in its parentheses."""
    kind, attributes = "", list[str]()
    for i, part in enumerate(_cut(details, _DETAIL)):
        key = _KEY.fullmatch(part)
        values = [_unescape(value) for value in (_cut(key["value"], _COMMA) if key else [part])]
        is_kind = key["key"].lower() == "type" if key else i == 0 and ":" not in _bare(part)
        if is_kind:
            kind = ", ".join(values)
        else:
            attributes += values
    return kind, tuple(attributes)


def _is_prose(name: str) -> bool:
    """Whether a text is no name but a sentence: it is long, and ends like one or says "is"."""
    words = len(name.split())
    ends = words > _MOST_WORDS and name.endswith((".", "!", "?", ":"))
    return ends or (words > 4 and _VERB.search(name) is not None)


def _keyed(text: str, bare: str) -> dict[str, str]:
    """The fields of "Head: A, Relation: r, Tail: B"; none where the line is not of this form."""
    found = list(_KEYED.finditer(bare))
    if not found or found[0].start():
        return {}
    values = _between(text, (match.span() for match in found))[1:]
    fields = {
        match["key"].lower(): _plain(value.strip(" ,;|"))
        for match, value in zip(found, values, strict=True)
    }
    is_fact = {"head", "tail"} <= fields.keys() or {"subject", "object"} <= fields.keys()
    return fields if is_fact or (len(fields) > 1 and {"name", "entity"} & fields.keys()) else {}


# --- Reading values like those of JSON

_OPENS_JSON: Final = re.compile(r"^[ \t]*(?=[\[{]\s*[\"'\[{])", re.M)
_FLAT: Final = re.compile(r"\{[^{}]*\}|\[[^\[\]{}]*\]")
_LAYERS: Final = 4
"""So many mappings that hold nothing but the graph may lie around it."""


def draft_from(value: Any) -> Draft:
    """Read a draft from what an LM returned: text, a mapping, or a list of facts.

    Whatever the value is, there is no exception: what cannot be read is named in `skipped`.

    Args:
        value: Text for `parse`, or text of JSON; `{"entities": [...], "relations": [...]}` (also
            nodes, relationships, triples, edges; also inside {"graph": ...}); a list of entities
            and triples. An entity is a string or a mapping, a relation a mapping, three items or
            a string.

    >>> draft = draft_from({"entities": ["Rihanna"], "triples": [["Rihanna", "born in"]]})
    >>> draft.entities[0].name, draft.skipped
    ('Rihanna', ("['Rihanna', 'born in']",))
    """
    for _ in range(_LAYERS):
        if not isinstance(value, Mapping) or len(value) != 1 or _sections_of(value):
            break
        (value,) = value.values()
    if isinstance(value, Draft):
        return value
    if isinstance(value, str):
        return _from_text(value)
    if value is None or value == {}:
        return Draft()
    if isinstance(value, Mapping) and (sections := _sections_of(value)):
        return draft_of(
            read for section, part in sections for read in _read_values(_values(part), section)
        )
    items = list(value) if isinstance(value, list | tuple) else [value]
    if len(items) in (3, 4) and isinstance(items[1], str) and _is_phrase(items[1], ""):
        return draft_of([read_value(items)])
    return draft_of(_read_values(items, ""))


def _sections_of(value: Mapping[Any, Any]) -> list[tuple[str, Any]]:
    """The parts of a mapping whose keys are the plural of a noun for entities or relations."""
    parts = fields_of(value).items()
    return [(_NOUNS[key], part) for key, part in parts if key in _NOUNS and key.endswith("s")]


def _from_text(text: str) -> Draft:
    """Read lines, or JSON with any words around it; of JSON that is cut off, what is whole."""
    opens = _OPENS_JSON.search(text)
    if opens is None:
        return parse(text)
    start, end = opens.end(), max(text.rfind("}"), text.rfind("]")) + 1
    value = loads(text[start:end])
    if isinstance(value, Mapping | list | tuple):
        inside, around = draft_from(value), parse(f"{text[:start]}\n{text[end:]}")
    else:
        parts = (loads(match[0]) for match in _FLAT.finditer(text, start))
        read = (read_value(part) for part in parts if isinstance(part, Mapping | list))
        inside, around = draft_of(one for one in read if one.fact), Draft(skipped=(text[start:],))
        if not (inside.entities or inside.relations):
            return parse(text)
    both = {part: getattr(inside, part) + getattr(around, part) for part in Draft.model_fields}
    return Draft(**both)


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


def _read_values(items: list[Any], section: str) -> Iterator[Read]:
    """Read facts; strings are lines, in a section "" where entities and relations share a list."""
    is_entity = None if not section else section == "entities"
    for is_text, group in groupby(items, lambda item: isinstance(item, str)):
        if is_text:
            lines = [single_line(line) for line in group]
            yield from map(_read_item, _items(lines, section, bullet="- "))
        else:
            yield from (read_value(item, is_entity) for item in group)
