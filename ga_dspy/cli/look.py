"""`ga-dspy graph stats`, `show`, `paths`, `communities`, `export` and `merges`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated, NamedTuple

import typer
from rich.table import Table
from rich.text import Text

from ga_dspy.cli.console import Console, columns, facts, plain, rest
from ga_dspy.errors import InputError
from ga_dspy.graph import to_graphml
from ga_dspy.graph.paths import MAX_HOPS
from ga_dspy.graphrag import Access, CorpusGraph, StoredGraph, Summaries, open_graph
from ga_dspy.graphrag.linking import fact_text
from ga_dspy.graphrag.records import relation_key
from ga_dspy.graphrag.store import SUMMARIES
from ga_dspy.graphrag.walk import GraphPath, find_named, paths_between
from ga_dspy.storage import write_whole

Folder = Annotated[Path, typer.Argument(metavar="GRAPH", help="Folder of a built graph.")]
Labels = Annotated[
    list[str] | None,
    typer.Option("--label", help="A label that you hold; repeatable. Without any: what all see."),
]
Most = Annotated[int, typer.Option(min=1, help="The most lines to list.")]

_TOP = 10


class Opened(NamedTuple):
    """A stored graph, and the graph of what a caller may see of it."""

    stored: StoredGraph
    known: CorpusGraph


def opened(folder: Path, labels: Iterable[str] | None) -> Opened:
    """Open a graph as a caller with labels sees it; labels that hide nothing are named."""
    stored = open_graph(folder)
    held = frozenset(labels or ())
    unknown = sorted(held - stored.graph.labels_in_use)
    if unknown:
        note = f"nothing in {folder} needs the label {', '.join(unknown)}"
        Console(stderr=True).print(note, style="yellow", markup=False, soft_wrap=True)
    return Opened(stored, stored.graph.visible(Access(labels=held)).graph)


def stats(graph: Folder, label: Labels = None) -> None:
    """Size, commonest relations, central entities.

    Examples:
        ga-dspy graph stats my-graph
    """
    stored, known = opened(graph, label)
    edges = known.tables.edges
    sizes = known.network.connected_components().sizes()
    wordings = Counter(map(relation_key, edges["relation"].to_pylist()))
    values, contradicted = sum(known.plain_values), sum(map(bool, edges["contradicts"].to_pylist()))
    mass = known.network.pagerank()
    ranked = sorted(range(len(known)), key=lambda node: (known.plain_values[node], -mass[node]))
    commonest = (f"{wording} ({n:,})" for wording, n in wordings.most_common(_TOP))
    plain().print(
        facts(
            [
                ("graph", f"{graph}, read by {stored.manifest.lm or 'an LM without a name'}"),
                ("entities", f"{len(known):,}, {values:,} dates, numbers or amounts"),
                ("relations", f"{edges.num_rows:,} in {len(wordings):,} wordings"),
                ("passages", f"{len(known.passages):,} state something"),
                ("parts", f"{len(sizes):,}, the largest of {max(sizes, default=0):,} entities"),
                ("isolated", f"{sizes.count(1):,} entities without a relation"),
                ("merged", f"{known.tables.merges.num_rows:,} spellings"),
                ("contradicted", f"{contradicted:,} relations"),
                ("commonest", ", ".join(commonest)),
                ("central", ", ".join(map(known.name, ranked[:_TOP]))),
            ]
        )
    )


def paths(
    graph: Folder,
    one: Annotated[str, typer.Argument(metavar="A", help="An entity.")],
    other: Annotated[str, typer.Argument(metavar="B", help="Another.")],
    k: Annotated[int, typer.Option("--k", min=1, help="The most paths.")] = 3,
    label: Labels = None,
) -> None:
    """The shortest ways between two entities.

    Examples:
        ga-dspy graph paths my-graph "Isambard Brunel" "River Avon"
    """
    known = opened(graph, label).known
    if set(find_named(known, one)) & set(find_named(known, other)):
        raise InputError(
            f"{one!r} and {other!r} are the same entity",
            expected="two entities",
            remedy="name another",
        )
    console = plain()
    found = paths_between(known, one, other, k)
    if not found:
        console.print(f"no way of at most {MAX_HOPS} relations connects the two")
        return
    console.print(_chains(known, found))


def _chains(graph: CorpusGraph, found: Sequence[GraphPath]) -> Table:
    """Paths, each over its cost and the passages that state it."""
    table = Table.grid(padding=(0, 1))
    table.add_column(justify="right", no_wrap=True)
    table.add_column(overflow="fold")
    for number, path in enumerate(found, 1):
        stated = dict.fromkeys(p for edge in path.edges for p in graph.passages_of_edge(edge))
        passages = f"; passages {', '.join(stated)}" if stated else ""
        table.add_row(
            f"{number}.",
            Text.assemble(f"{path.text}\n", (f"cost {path.cost:.1f}{passages}", "dim")),
        )
    return table


def merges(graph: Folder, label: Labels = None, most: Most = 100) -> None:
    """Spellings that were merged into another name.

    To undo one, put the two names under overrides, apart, in the rules file and build again.

    Examples:
        ga-dspy graph merges my-graph
    """
    found = list(opened(graph, label).known.merges)
    console = plain()
    if not found:
        console.print("no spelling was merged into another name")
        return
    table = columns("spelling", "merged into", "rule", "passages")
    for merge in found[:most]:
        passages = ", ".join(merge.passages)
        table.add_row(Text(merge.spelling), Text(merge.name), merge.rule, Text(passages))
    console.print(table)
    rest(console, min(most, len(found)), len(found))


def show(
    graph: Folder,
    entity: Annotated[str, typer.Argument(help="A name or another name of an entity.")],
    label: Labels = None,
    most: Most = 40,
) -> None:
    """All that is known of an entity, and where it is said.

    Examples:
        ga-dspy graph show my-graph "Isambard Brunel"
    """
    known, console = opened(graph, label).known, plain()
    for number, node in enumerate(find_named(known, entity)):
        if number:
            console.print()
        _print_entity(console, known, node, most)


def _print_entity(console: Console, graph: CorpusGraph, node: int, most: int) -> None:
    entity = graph.node(node)
    kind = f"  {entity.type}" if entity.type else ""
    console.print(Text.assemble((entity.name, "bold cyan"), (kind, "dim")))
    merged = {m.spelling: f"{m.spelling} ({m.rule})" for m in graph.merges if m.node == node}
    names = [*merged.values(), *(alias for alias in entity.aliases if alias not in merged)]
    console.print(
        facts(
            [
                ("also", "; ".join(names)),
                ("attributes", "; ".join(entity.attributes)),
                ("passages", ", ".join(graph.passages_of(node))),
            ]
        )
    )
    edges = sorted(graph.network.incident(node))
    edges.sort(key=lambda j: int(graph.heads[j]) != node)
    table = Table.grid(padding=(0, 2))
    table.add_column(overflow="fold")
    table.add_column(style="dim", overflow="fold")
    for edge in edges[:most]:
        passages = ", ".join(graph.passages_of_edge(edge))
        table.add_row(_worded(graph, edge, away=int(graph.heads[edge]) == node), passages)
    console.print(table)
    rest(console, min(most, len(edges)), len(edges))


def _worded(graph: CorpusGraph, edge: int, *, away: bool) -> Text:
    """A relation seen from one end, with what is noted of it."""
    relation, flags = graph.edge(edge), graph.flags(edge)
    arrow, other = ("→", relation.tail) if away else ("←", relation.head)
    text = Text.assemble((f"{arrow} {relation.relation} {arrow} ", "dim"), other)
    if relation.time:
        text.append(f" ({relation.time})")
    if relation.confidence is not None:
        text.append(f" (confidence {relation.confidence:g})")
    if flags.critical:
        text.append("  critical", style="yellow")
    for against in flags.contradicts:
        text.append(f"\n  against: {fact_text(graph.edge(against))}", style="red")
    return text


_NAMED = 5


def communities(
    graph: Folder,
    level: Annotated[
        int | None, typer.Option(min=0, help="Only this level; 0 is the coarsest.")
    ] = None,
    label: Labels = None,
    most: Most = 40,
) -> None:
    """What of the graph hangs together.

    Communities are those of the part that everybody may see, whatever labels you hold. Their
    summaries are shown where the graph was built with them.

    Examples:
        ga-dspy graph communities my-graph
    """
    stored, console = opened(graph, label).stored, plain()
    every, public = stored.communities, stored.graph.public
    summaries = Summaries(stored.path / SUMMARIES).cached(every)
    found = [(n, one) for n, one in enumerate(every) if level is None or one.level == level]
    if not found:
        console.print("no community: nowhere do three entities or more hang together so far down")
        return
    figures = ("no.", "level", "in", "entities", "relations")
    table = columns(*figures, "about", right=figures)
    for place, one in found[:most]:
        names = ", ".join(map(public.name, one.nodes[:_NAMED]))
        names += ", …" if len(one.nodes) > _NAMED else ""
        summary = summaries.get(one.key)
        about = Text(names)
        if summary:
            title = (f"{summary.title}\n", "bold")
            about = Text.assemble(title, f"{summary.text}\n", (names, "dim"))
        parent = "" if one.parent < 0 else str(one.parent)
        sizes = f"{len(one.nodes):,}", f"{len(one.edges):,}"
        table.add_row(str(place), str(one.level), parent, *sizes, about)
    console.print(table)
    rest(console, min(most, len(found)), len(found))


def export(
    graph: Folder,
    out: Annotated[Path, typer.Option(help="A .graphml file.")],
    label: Labels = None,
) -> None:
    """Write the graph as GraphML, which Gephi, yEd and (with APOC) Neo4j read.

    Examples:
        ga-dspy graph export my-graph --out my-graph.graphml
    """
    if out.is_dir():
        raise InputError(f"--out {out} is a folder", expected="a file", remedy="name a file in it")
    known, console = opened(graph, label).known, plain()
    nodes, edges = range(len(known)), range(len(known.heads))
    write_whole(out, to_graphml(known.subgraph(nodes, edges)))
    console.print(f"wrote {out}", markup=False, soft_wrap=True)
    console.print(f"{len(nodes):,} entities, {len(edges):,} relations")
