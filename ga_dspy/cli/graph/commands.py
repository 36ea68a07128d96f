"""The commands of `ga-dspy graph` and their arguments."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ga_dspy.cli.options import ApiBase, IndexDir, Model, Timeout, Yes

graph_app = typer.Typer(
    help="Extract a knowledge graph from a whole corpus, and look into it.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

Folder = Annotated[Path, typer.Argument(metavar="GRAPH", help="Folder of a built graph.")]
Threads = Annotated[int, typer.Option(min=1, help="Passages read at once.")]
WithSummaries = Annotated[
    bool, typer.Option("--summaries", help="Have the LM summarise every community.")
]
LabelsFile = Annotated[
    Path | None,
    typer.Option(
        help="Who may see what: a .json {passage id: [label]}, or a .csv with passage,labels "
        "(labels separated by ;)."
    ),
]
Labels = Annotated[
    list[str] | None,
    typer.Option("--label", help="A label that you hold; repeatable. Without any: what all see."),
]
Most = Annotated[int, typer.Option(min=1, help="The most lines to list.")]

RULES = """A file for --rules is JSON; each part may be left out:

\b
  {"min_confidence": 0.5,
   "relations": ["born in", "wrote"],
   "critical": ["died in"],
   "single_valued": ["born in"],
   "single_dated": ["founded"],
   "relation_labels": {"salary": ["hr"]},
   "overrides": {
     "same":  [["Bob Dylan", "Robert Zimmerman"]],
     "apart": [["Avon", {"name": "Bristol Avon", "passage": "p7"}]]}}

\b
  min_confidence   leave out relations stated with less
  relations        leave out all other relations
  critical         leave out these unless two passages state them
  single_valued    flag a second one of a thing as a contradiction
  single_dated     flag a second year of one as a contradiction
  relation_labels  labels that a caller needs to see a relation
  overrides        names that are one thing, or two; a name may be
                   meant in one passage alone

single_valued and single_dated replace the lists that count without them. "was born in" is
"born in" throughout."""


@graph_app.command(epilog=RULES)
def build(
    index: IndexDir,
    out: Annotated[Path, typer.Option(help="Folder of the graph.")],
    lm: Model = None,
    api_base: ApiBase = None,
    timeout: Timeout = 120.0,
    threads: Threads = 8,
    rules: Annotated[
        Path | None, typer.Option(help="What may enter, what is flagged or private; see below.")
    ] = None,
    labels: LabelsFile = None,
    bring: Annotated[
        list[Path] | None,
        typer.Option(help="Triples to merge in, .csv or .jsonl: head, relation, tail, …"),
    ] = None,
    summaries: WithSummaries = False,
    yes: Yes = False,
) -> None:
    """Read every passage of an index into one graph.

    Run it again to go on where it stopped: a passage that was read is never asked for again,
    whatever stopped the build. Rules, labels and triples count as this command gives them: with
    other ones, run it again, and no LM is asked.
    """
    from ga_dspy.cli.graph.build import BuildArgs, run_build
    from ga_dspy.cli.models import Choice

    run_build(
        BuildArgs(
            index=index, out=out, choice=Choice(lm=lm, api_base=api_base, timeout=timeout),
            threads=threads, rules=rules, labels=labels, bring=bring or (), summaries=summaries,
            yes=yes,
        )
    )  # fmt: skip


@graph_app.command()
def update(
    index: IndexDir,
    graph: Annotated[Path, typer.Option(help="Folder of the graph.")],
    lm: Model = None,
    api_base: ApiBase = None,
    timeout: Timeout = 120.0,
    threads: Threads = 8,
    labels: LabelsFile = None,
    summaries: WithSummaries = False,
    yes: Yes = False,
) -> None:
    """Bring a graph up to date with its index.

    Only new and changed passages are read. Rules, triples brought along and, unless --labels is
    given, labels stay as they were built.
    """
    from ga_dspy.cli.graph.build import BuildArgs
    from ga_dspy.cli.graph.update import run_update
    from ga_dspy.cli.models import Choice

    run_update(
        BuildArgs(
            index=index, out=graph, choice=Choice(lm=lm, api_base=api_base, timeout=timeout),
            threads=threads, labels=labels, summaries=summaries, yes=yes,
        )
    )  # fmt: skip


@graph_app.command()
def stats(graph: Folder, label: Labels = None) -> None:
    """Size, commonest relations, central things."""
    from ga_dspy.cli.graph.look import run_stats

    run_stats(graph, label or ())


@graph_app.command()
def show(
    graph: Folder,
    entity: Annotated[str, typer.Argument(help="A name or another name of a thing.")],
    label: Labels = None,
    most: Most = 40,
) -> None:
    """All that is known of a thing, and where it is said."""
    from ga_dspy.cli.graph.thing import run_show

    run_show(graph, entity, label or (), most)


@graph_app.command()
def paths(
    graph: Folder,
    one: Annotated[str, typer.Argument(metavar="A", help="A thing.")],
    other: Annotated[str, typer.Argument(metavar="B", help="Another.")],
    k: Annotated[int, typer.Option("--k", min=1, help="The most paths of each kind.")] = 3,
    label: Labels = None,
) -> None:
    """How two things are connected.

    First the shortest ways, then those of highest betweenness: most other ways go through them.
    """
    from ga_dspy.cli.graph.look import run_paths

    run_paths(graph, (one, other), label or (), k)


@graph_app.command()
def communities(
    graph: Folder,
    level: Annotated[
        int | None, typer.Option(min=0, help="Only this level; 0 is the coarsest.")
    ] = None,
    number: Annotated[
        int | None, typer.Option(min=0, help="All about the community of this number.")
    ] = None,
    label: Labels = None,
    most: Most = 40,
) -> None:
    """What of the graph hangs together.

    Communities are those of the part that everybody may see, whatever labels you hold. Their
    summaries are shown where the graph was built with them.
    """
    from ga_dspy.cli.graph.communities import run_communities, run_community

    if number is None:
        run_communities(graph, label or (), level, most)
    else:
        run_community(graph, label or (), number, most)


@graph_app.command()
def picture(
    graph: Folder,
    entity: Annotated[str, typer.Argument(help="The thing in the middle.")],
    out: Annotated[Path, typer.Option(help="A .png file.")],
    hops: Annotated[int, typer.Option(min=1, help="How far to go from the thing.")] = 2,
    label: Labels = None,
) -> None:
    """Draw what surrounds a thing, coloured by community."""
    from ga_dspy.cli.graph.take import run_picture

    run_picture(graph, entity, out, label or (), hops)


@graph_app.command()
def export(
    graph: Folder,
    to: Annotated[str, typer.Option(help="graphml, json-ld or neo4j.")],
    out: Annotated[Path, typer.Option(help="A file; for neo4j a folder.")],
    label: Labels = None,
) -> None:
    """Write the graph for Gephi, RDF tools or Neo4j."""
    from ga_dspy.cli.graph.take import run_export

    run_export(graph, to, out, label or ())


@graph_app.command()
def merges(graph: Folder, label: Labels = None, most: Most = 100) -> None:
    """Spellings that were taken for another name.

    To undo one, put the two names under overrides, apart, in the rules file and build again.
    """
    from ga_dspy.cli.graph.look import run_merges

    run_merges(graph, label or (), most)
