"""Namesakes and single things among real passages: how many come out right, in a table.

`namesakes.txt` holds the cases. A line with a number opens one: how many things the name means.
A line with "@" is a mention: the passage's title (its text is looked up in the datasets; behind a
"+" stands an invented one, with its text), the name if it is another one, what a model writes of
it, and its relations, in which "~" stands for the name. Each case is written in every form:
attributes, relations or both, in one step or two, in either order.

    python tests/namesakes.py ../shared/data
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator
from hashlib import sha256
from itertools import product
from pathlib import Path
from typing import NamedTuple

from ga_dspy.errors import InputError
from ga_dspy.graph import Entity, KnowledgeGraph, normalise, parse
from ga_dspy.graph.identity import split_qualifier
from ga_dspy.graphrag.records import Rules, Sources
from ga_dspy.graphrag.resolution import resolve
from ga_dspy.grounding import ground
from ga_dspy.passage import Passage

FORMS = ("attributes", "relations", "both")


class Mention(NamedTuple):
    """A name in a passage, and what a model writes of it there."""

    title: str
    text: str
    name: str
    stated: str
    relations: tuple[str, ...]

    def lines(self, form: str, label: int) -> str:
        """The graph lines of a form, citing the passage by a label."""
        kind, *attributes = (part.strip() for part in self.stated.split(";"))
        relations = [text.replace("~", self.name) for text in self.relations]
        if form == "relations" and relations:
            return "Relations:\n" + "\n".join(f"1. {text} [{label}]" for text in relations)
        if form == "attributes":
            opening = f"{self.name} -> "
            own = (text for text in relations if text.startswith(opening))
            attributes += [text.removeprefix(opening).replace(" ->", "") for text in own]
            relations = [text for text in relations if not text.startswith(opening)]
        entity = f"Entities:\n- {self.name} ({'; '.join([kind, *attributes])}) [{label}]"
        return "\n".join([entity, "Relations:", *(f"1. {text} [{label}]" for text in relations)])


class Case(NamedTuple):
    """Mentions of what has one name, and how many things they mean."""

    things: int
    name: str
    mentions: tuple[Mention, ...]

    @property
    def digest(self) -> int:
        """What decides which half and which form a case belongs to."""
        return int(sha256(f"{self.things} {self.name}".encode()).hexdigest(), 16)

    @property
    def passages(self) -> dict[int, Passage]:
        """The passages by label."""
        return {
            label: Passage(id=f"p{label}", title=mention.title, text=mention.text)
            for label, mention in enumerate(self.mentions, 1)
        }

    def graph(self, form: str, in_steps: bool, reverse: bool) -> tuple[Entity, ...]:
        """The entities of a graph that read all mentions."""
        order = sorted(self.passages, reverse=reverse)
        lines = {label: self.mentions[label - 1].lines(form, label) for label in order}
        steps = [[label] for label in order] if in_steps else [order]
        graph = KnowledgeGraph()
        for i, step in enumerate(steps, 1):
            read = {label: self.passages[label] for known in steps[:i] for label in known}
            known = [entity.name for entity in graph.entities]
            draft = parse("\n".join(lines[label] for label in step))
            graph = graph.merge(ground(draft, read, known).update)
        return graph.entities

    def corpus(self, form: str) -> tuple[Entity, ...]:
        """The entities of a corpus graph, whose passages are read one at a time."""
        read = {}
        for label, passage in self.passages.items():
            draft = parse(self.mentions[label - 1].lines(form, 1))
            read[passage.id] = ground(draft, {1: passage}).update
        return tuple(node.entity for node in resolve(Sources.of(read, {}, Rules())).nodes)

    def is_right(self, entities: Iterable[Entity]) -> bool:
        """Whether the mentions are as many entities as they mean things."""
        found = []
        for label, mention in enumerate(self.mentions, 1):
            names = {normalise(mention.name), normalise(split_qualifier(mention.name).base)}
            found.append(
                {
                    entity.name
                    for entity in entities
                    if any(each.passage == f"p{label}" for each in entity.evidence)
                    and not names.isdisjoint(_names(entity))
                }
            )
        return all(len(each) == 1 for each in found) and len(set().union(*found)) == self.things


def _names(entity: Entity) -> set[str]:
    names = (entity.name, *entity.aliases)
    return {normalise(text) for name in names for text in (name, split_qualifier(name).base)}


def read_cases(written: str, texts: dict[str, str]) -> Iterator[Case]:
    """The cases all of whose passages are there; what follows "#" in an opening line is a title."""
    blocks = written.replace("\n1 ", "\n\n1 ").replace("\n2 ", "\n\n2 ")
    for block in blocks.strip().split("\n\n"):
        opening, *lines = block.strip().split("\n")
        things, _, name = opening.partition(" #")[0].partition(" ")
        mentions = [_mention(line, name, texts) for line in lines]
        if all(mention.text for mention in mentions):
            yield Case(int(things), name, tuple(mentions))


def _mention(line: str, name: str, texts: dict[str, str]) -> Mention:
    title, own, stated, relations = line.removeprefix("@").split("|")
    text = texts.get(title, "")
    if title.startswith("+"):
        title, _, text = title.removeprefix("+").partition(": ")
    parts = tuple(part.strip() for part in relations.split(";") if part.strip())
    return Mention(title, text, name if own == "-" else own, stated, parts)


def passage_texts(data: Path) -> dict[str, str]:
    """The text of each title in the datasets."""
    texts: dict[str, str] = {}
    for path in (*sorted(data.glob("hotpotqa/*.json")), data / "2wikimultihopqa" / "dev.json"):
        for row in json.loads(path.read_text("utf-8")):
            for title, sentences in row["context"]:
                texts.setdefault(title, " ".join(sentences))
    for row in json.loads((data / "2wikimultihopqa" / "corpus.json").read_text("utf-8")):
        texts.setdefault(row["title"], row["text"])
    for path in sorted(data.glob("musique/*.jsonl")):
        for line in path.read_text("utf-8").split("\n"):
            for each in json.loads(line)["paragraphs"] if line else ():
                texts.setdefault(each["title"], each["paragraph_text"])
    return texts


def main(data: Path, shown: str = "") -> None:
    """Print how many cases come out right, by half and direction; `shown` names wrong ones too."""
    if not data.is_dir():
        raise InputError(f"{data} is no folder", expected="the datasets", remedy="name the folder")
    written = Path(__file__).with_name("namesakes.txt").read_text("utf-8")
    cases = list(read_cases(written, passage_texts(data)))
    print(f"{'half':<8}{'things':<8}{'cases':>6}{'one form':>10}{'all forms':>11}{'GraphRAG':>10}")
    for half, things in product(("rules", "aside"), (2, 1)):
        chosen = [
            case
            for case in cases
            if case.things == things and ("rules", "aside")[case.digest % 2] == half
        ]
        by_form, in_one, in_corpus = 0, 0, 0
        for case in chosen:
            ways = list(product(FORMS, (False, True), (False, True)))
            right = [case.is_right(case.graph(*way)) for way in ways]
            corpus = [case.is_right(case.corpus(form)) for form in FORMS]
            by_form += sum(right)
            in_one += right[case.digest // 2 % len(ways)]
            in_corpus += sum(corpus)
            if shown == half and not all([*right, *corpus]):
                print(" ", things, case.name, [*map(int, right)], [*map(int, corpus)])
        size = len(chosen)
        print(
            f"{half:<8}{things:<8}{size:>6}{in_one:>10}{by_form / 12:>11.1f}{in_corpus / 3:>10.1f}"
        )


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
