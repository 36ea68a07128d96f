"""`ga-dspy graph communities`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from rich.padding import Padding
from rich.text import Text

from ga_dspy.cli.graph.tell import Opened, columns, facts, opened, plain, rest
from ga_dspy.errors import InputError
from ga_dspy.graphrag import StoredGraph, Summaries
from ga_dspy.graphrag.stats import Listed, listed
from ga_dspy.graphrag.store import SUMMARIES
from ga_dspy.graphrag.summaries import Summary

_NAMED = 5


def run_communities(folder: Path, labels: Sequence[str], level: int | None, most: int) -> None:
    """The communities, coarsest and largest first."""
    stored = opened(folder, labels).stored
    every = listed(stored.graph, stored.communities, _NAMED)
    found = [one for one in every if level is None or one.community.level == level]
    console = plain()
    if not found:
        console.print(_none(every, level))
        return
    summaries = _kept(stored)
    figures = ("no.", "level", "in", "things", "relations")
    table = columns(*figures, "about", right=figures)
    for place, community, names in found[:most]:
        about = _about(summaries.get(community.key), names, len(community.nodes))
        parent = "" if community.parent < 0 else str(community.parent)
        sizes = (f"{len(members):,}" for members in (community.nodes, community.edges))
        table.add_row(str(place), str(community.level), parent, *sizes, about)
    console.print(table)
    rest(console, min(most, len(found)), len(found))


def run_community(folder: Path, labels: Sequence[str], number: int, most: int) -> None:
    """One community: its summary, its things and relations.

    Raises:
        InputError: There is none of that number.
    """
    graph = opened(folder, labels)
    known = len(graph.stored.communities)
    if number >= known:
        raise InputError(
            f"--number {number}",
            expected=f"a number below {known}" if known else "a graph with communities",
            remedy="see ga-dspy graph communities GRAPH for the numbers",
        )
    _say(graph, number, most)


def _say(graph: Opened, number: int, most: int) -> None:
    stored = graph.stored
    one, public = stored.communities[number], stored.graph.public
    console = plain()
    summary = _kept(stored).get(one.key)
    title = summary.title if summary else public.name(one.nodes[0])
    console.print(Text.assemble((title, "bold cyan"), (f"  community {number}", "dim")))
    if summary:
        console.print(Padding(Text(summary.text), (0, 0, 0, 2)))
    inner = [n for n, other in enumerate(stored.communities) if other.parent == number]
    names = [public.name(node) for node in one.nodes]
    console.print(
        facts(
            [
                ("level", str(one.level)),
                ("part of", "" if one.parent < 0 else f"community {one.parent}"),
                ("parts", ", ".join(map(str, inner))),
                ("things", f"{len(names):,}: {', '.join(names[:most])}{_more(names, most)}"),
                ("relations", f"{len(one.edges):,}"),
            ]
        )
    )
    for edge in one.edges[:most]:
        relation = public.edge(edge)
        line = f"{relation.head} → {relation.relation} → {relation.tail}"
        console.print(Padding(Text(line), (0, 0, 0, 2)))
    rest(console, min(most, len(one.edges)), len(one.edges))


def _more(names: Sequence[str], most: int) -> str:
    return ", …" if len(names) > most else ""


def _about(summary: Summary | None, names: Sequence[str], things: int) -> Text:
    listing = Text(", ".join(names) + (", …" if things > len(names) else ""))
    if summary is None:
        return listing
    listing.stylize("dim")
    return Text.assemble((f"{summary.title}\n", "bold"), listing)


def _none(every: Sequence[Listed], level: int | None) -> str:
    if not every:
        return "no community: nowhere do three things or more hang together"
    deepest = max(one.community.level for one in every)
    return f"no community of level {level}: the deepest level is {deepest}"


def _kept(stored: StoredGraph) -> Mapping[str, Summary]:
    return Summaries(stored.path / SUMMARIES).kept(stored.communities)
