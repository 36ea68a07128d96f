"""`ga-dspy graph show`: all that is known of one thing."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from ga_dspy.cli.graph.tell import Opened, facts, opened, plain, rest
from ga_dspy.graph import Relation
from ga_dspy.graphrag.communities import members
from ga_dspy.graphrag.pathfinding import things_named
from ga_dspy.graphrag.stats import Link, Shown, show


def run_show(folder: Path, name: str, labels: Sequence[str], most: int) -> None:
    """Every thing that goes by a name."""
    graph = opened(folder, labels)
    things_named(graph.view.graph, name)
    console = plain()
    for number, thing in enumerate(show(graph.view, name)):
        if number:
            console.print()
        _say(console, graph, thing, most)


def _say(console: Console, graph: Opened, thing: Shown, most: int) -> None:
    entity = thing.entity
    kind = f"  {entity.type}" if entity.type else ""
    console.print(Text.assemble((entity.name, "bold cyan"), (kind, "dim")))
    merged = {spelling: f"{spelling} ({rule})" for spelling, rule in thing.merged}
    names = [*merged.values(), *(alias for alias in entity.aliases if alias not in merged)]
    console.print(
        facts(
            [
                ("also", "; ".join(names)),
                ("wikidata", thing.wikidata),
                ("attributes", "; ".join(entity.attributes)),
                ("communities", _communities(graph, entity.name)),
                ("passages", ", ".join(thing.passages)),
            ]
        )
    )
    links = sorted(thing.links, key=lambda link: link.relation.head != entity.name)
    table = Table.grid(padding=(0, 2))
    table.add_column(overflow="fold")
    table.add_column(style="dim", overflow="fold")
    for link in links[:most]:
        table.add_row(_worded(link, entity.name), ", ".join(link.passages) or "brought")
    console.print(table)
    rest(console, min(most, len(links)), len(links))


def _worded(link: Link, name: str) -> Text:
    """A relation seen from a thing, with what is noted of it."""
    relation = link.relation
    away = relation.head == name
    arrow, other = ("→", relation.tail) if away else ("←", relation.head)
    text = Text.assemble((f"{arrow} {relation.relation} {arrow} ", "dim"), other)
    if relation.time:
        text.append(f" ({relation.time})")
    if relation.confidence is not None:
        text.append(f" (confidence {relation.confidence:g})")
    if link.critical:
        text.append("  critical", style="yellow")
    for against in link.contradicts:
        text.append(f"\n  against: {_sentence(against)}", style="red")
    return text


def _sentence(relation: Relation) -> str:
    when = f" ({relation.time})" if relation.time else ""
    return f"{relation.head} {relation.relation} {relation.tail}{when}"


def _communities(graph: Opened, name: str) -> str:
    """The numbers of the communities that hold a thing, coarsest first."""
    places = members(graph.stored.communities)
    found = (p for node in graph.stored.graph.public.find(name) for p in places.get(node, ()))
    return ", ".join(map(str, dict.fromkeys(found)))
