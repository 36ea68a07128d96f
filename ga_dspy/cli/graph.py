"""`ga-dspy graph`: build the graph of a corpus, look into it, export it."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Final

import dspy
import typer
from rich.table import Table
from rich.text import Text

from ga_dspy.cli.choices import IndexDir, LMs, Yes, choose_where, read_pairs
from ga_dspy.cli.console import Console, columns, key_values, number, show_progress
from ga_dspy.cli.index import Redaction, importable
from ga_dspy.errors import InputError
from ga_dspy.graph import to_graphml
from ga_dspy.graph.paths import MAX_HOPS
from ga_dspy.graph.traits import ids_in
from ga_dspy.graphrag import (
    Access,
    CorpusGraph,
    Extractor,
    Rules,
    Schema,
    StoredGraph,
    Summaries,
    build_graph,
    estimate_build,
    import_graph,
    open_graph,
    propose_schema,
    update_graph,
)
from ga_dspy.graphrag.build import Estimate, extractor_of
from ga_dspy.graphrag.communities import Summary, find_communities, topics_of
from ga_dspy.graphrag.linking import fact_text
from ga_dspy.graphrag.records import FIELDS, Conditions, relation_key, split_conditions
from ga_dspy.graphrag.stored import SUMMARIES, GraphManifest, read_manifest
from ga_dspy.graphrag.walk import central_nodes, find_named, paths_between
from ga_dspy.lm.budget import Caps
from ga_dspy.lm.endpoints import EMBEDDED
from ga_dspy.retrieval import Index
from ga_dspy.storage import MANIFEST, read_as, write_whole
from ga_dspy.viewer import graph_page

Folder = Annotated[Path, typer.Argument(metavar="GRAPH", help="Folder of a graph.")]
Labels = Annotated[
    list[str] | None,
    typer.Option("--label", help="Access label to read with; by default only public items."),
]
Wanted = Annotated[
    list[str] | None,
    typer.Option("--where", help="Condition on relations: relation.time=2015; repeatable."),
]
Most = Annotated[int, typer.Option(min=1, help="Maximum number of lines.")]
LabelFile = Annotated[
    Path | None,
    typer.Option(help="Access labels: JSON or YAML of passage ids with lists of labels."),
]


# --- Build and update

_HELP: Final = "see ga-dspy graph build --help"


@dataclass(frozen=True)
class ReadOptions:
    """The options that `build` and `update` share."""

    threads: Annotated[int, typer.Option(min=1, help="Passages to read in parallel.")] = 8
    labels: LabelFile = None
    summaries: Annotated[
        bool, typer.Option("--summaries", help="Also summarise every community with the LM.")
    ] = False
    max_calls: Annotated[
        int | None, typer.Option(min=1, help="Stop reading after this many LM calls.")
    ] = None
    max_tokens: Annotated[
        int | None, typer.Option(min=1, help="Stop reading after this many tokens.")
    ] = None
    yes: Yes = False

    @property
    def caps(self) -> Caps:
        """The caps of LM calls and tokens."""
        return Caps(self.max_calls, self.max_tokens)


@dataclass(frozen=True)
class ExtractionOptions:
    """The options of what the LM is asked to read; an update takes those of the build."""

    schema: Annotated[Path | None, typer.Option(help="File of types and relations; see below.")] = (
        None
    )
    per_call: Annotated[int, typer.Option(min=1, help="Passages in one LM call.")] = 1
    max_relations: Annotated[
        int | None, typer.Option(min=1, help="Maximum number of relations per passage.")
    ] = None
    gleanings: Annotated[
        int, typer.Option(min=0, help="Further LM calls for what a reply left out.")
    ] = 0

    @property
    def extractor(self) -> Extractor:
        """The extractor with these settings."""
        given = {**vars(self), "schema": Schema.read(self.schema) if self.schema else None}
        return Extractor(**given)


def build(
    models: LMs,
    index: IndexDir,
    out: Annotated[Path, typer.Option(help="Folder of the graph.")],
    extraction: ExtractionOptions,
    options: ReadOptions,
    rules: Annotated[
        Path | None,
        typer.Option(help="JSON or YAML file of what to keep, flag or restrict; see below."),
    ] = None,
) -> None:
    """Build the graph of an index: the LM reads every passage.

    Run the same command again to resume: no passage is read twice, however the build was stopped.
    To change rules or labels, run it again with the new files; this calls no LM.

    Examples:
        ga-dspy graph build --index my-index --out my-graph --rules rules.json
        ga-dspy graph build --index my-index --out my-graph --schema schema.yaml \
            --per-call 4 --max-tokens 500000

    A file for --schema is YAML or JSON; see `ga-dspy graph schema propose`:

      entities:
        Drug: a medicine
        Disease: an illness
      relations:
        treats: [Drug, Disease]
        interacts with: [Drug, Drug, changes its effect]
      other: drop        # or keep, the default

    A file for --rules is JSON or YAML; each part is optional:

      {"min_confidence": 0.5,
       "relations": ["born in", "wrote"],
       "critical": ["died in"],
       "single_valued": ["born in"],
       "single_dated": ["founded"],
       "single_held": ["capital of"],
       "relation_labels": {"salary": ["hr"]},
       "overrides": {
         "same":  [["Bob Dylan", "Robert Zimmerman"]],
         "apart": [["Avon", {"name": "Bristol Avon", "passage": "p7"}]]}}

      min_confidence   drop relations with a lower confidence
      relations        drop all other relations
      critical         drop these unless two passages state them
      single_valued    flag a second value of an entity as a contradiction
      single_dated     flag a second year of an entity as a contradiction
      single_held      flag a second entity with this relation to another
      relation_labels  access labels needed to see a relation
      overrides        names of the same entity, or of different ones; a name
                       may be limited to one passage

    The lists starting with single_ replace the default ones.
    "was born in" counts as "born in" everywhere.
    """
    own = read_as(rules, Rules, expected="rules", remedy=_HELP) if rules else Rules()
    before = read_manifest(out) if (out / MANIFEST).is_file() else None
    make = partial(build_graph, rules=own)
    _read_graph(make, index, out, models, before, extraction.extractor, options)


def update(
    models: LMs,
    index: IndexDir,
    graph: Annotated[Path, typer.Option(help="Folder of the graph.")],
    options: ReadOptions,
) -> None:
    """Bring a graph up to date with its index.

    Only new and changed passages are read, under the schema and settings of the build. The rules
    stay as they were built, and the labels too unless --labels is given.

    Examples:
        ga-dspy graph update --index my-index --graph my-graph
    """
    before = read_manifest(graph)
    _read_graph(update_graph, index, graph, models, before, extractor_of(before), options)


def propose(
    models: LMs,
    index: IndexDir,
    out: Annotated[Path, typer.Option(help="YAML file to write; it must not exist.")],
    sample: Annotated[int, typer.Option(min=1, help="Passages to read.")] = 20,
) -> None:
    """Propose a schema from a sample of the passages, to edit and pass to graph build --schema.

    The LM reads the sample as a build would, one call a passage, then names types and relations.

    Examples:
        ga-dspy graph schema propose --index my-index --out schema.yaml --sample 20
    """
    if out.exists():
        raise InputError(
            f"{out} exists", expected="a new file", remedy="remove it, or name another"
        )
    lm = _one_lm(models)
    write_whole(out, propose_schema(Index.open(index), lm=lm, sample=sample).yaml)
    console = Console()
    console.print(Text(out.read_text("utf-8").rstrip()), soft_wrap=True)
    console.print(f"wrote {out}", style="dim", soft_wrap=True)
    console.note_embedded_lm(lm)


def import_files(
    files: Annotated[
        list[Path], typer.Argument(help="CSV, TSV, JSON lines, GraphML or RDF; one fact per row.")
    ],
    index: Annotated[Path, typer.Option(help="Folder of the index; built if there is none.")],
    out: Annotated[Path, typer.Option(help="Folder of the graph.")],
    columns: Annotated[
        str, typer.Option(help="Names of columns by field: head=subject,tail=object.")
    ] = "",
    name: Annotated[
        str | None, typer.Option(help="Name to store the rows under; by default the file's.")
    ] = None,
    labels: LabelFile = None,
    skip_bad_rows: Annotated[
        bool, typer.Option("--skip-bad-rows", help="Leave out bad rows, and list them.")
    ] = False,
    redact: Redaction = None,
) -> None:
    """Import a graph of your own into an index and its graph; no LM is called.

    Each row becomes a passage: its text, or the row as a sentence. Importing a file of the same
    name again replaces its rows.

    Examples:
        ga-dspy graph import facts.csv --index my-index --out my-graph

    Columns of a .csv or .tsv, keys of a .jsonl:

      head, relation, tail              required
      head_type, tail_type              such as person
      head_id, tail_id                  such as wikidata:Q42 (equal ids are one
                                        entity, two of a namespace never)
      head_aliases, tail_aliases        other names, separated by ;
      head_attributes, tail_attributes  descriptions, separated by ;
      time                              when it holds, such as since 1958
      confidence                        from 0 to 1
      text (or evidence), title         a text that states the fact
      source                            by default the file
      id                                names the passage, for --labels

    Other columns are metadata, for --where.
    """
    console, pairs = Console(), read_pairs([*filter(None, columns.split(","))], "--columns")
    with show_progress(console) as progress:
        made = import_graph(
            files, index=index, out=out, columns=pairs, name=name, labels=_read_labels(labels),
            skip_bad_rows=skip_bad_rows, redact=importable(redact), progress=progress,
        )  # fmt: skip
    now = made.graph.manifest
    rows = [(what, f"{len(ids):,}") for what, ids in made.changes._asdict().items()]
    rows += [(what, f"{getattr(now, what):,}") for what in ("passages", "entities", "relations")]
    rows += [("kept out", counted(now.left_out)), ("skipped", f"{len(made.skipped):,}")]
    console.print(key_values([*rows, ("graph", str(made.graph.path))]))
    console.print_first("skipped", made.skipped, style="yellow")
    if now.unread:
        command = f"ga-dspy graph build --index {index} --out {out}"
        console.print(f"to read {number(now.unread, 'passage')}: {command}", soft_wrap=True)


def _read_graph(
    make: Callable[..., StoredGraph],
    index_dir: Path,
    folder: Path,
    models: LMs,
    before: GraphManifest | None,
    extractor: Extractor,
    options: ReadOptions,
) -> None:
    """Confirm the cost, build the graph, and print its sizes and what went wrong."""
    console, lm, index = Console(), _one_lm(models), Index.open(index_dir)
    labels = _read_labels(options.labels)
    unknown = sorted((labels or {}).keys() - {passage.id for passage in index})
    console.print_first("labelled, but not in the index", unknown, style="yellow")
    cost = estimate_build(index, folder, lm=lm, extractor=extractor)
    _confirm(console, cost, lm, options)
    began, written = time.perf_counter(), dict[str, Summary | str]()
    console.print("you can interrupt this: run the same command again to resume", style="dim")
    with show_progress(console) as progress:
        reading: dict[str, Any] = {"lm": lm, "threads": options.threads, "progress": progress}
        asked = {"extractor": extractor, "caps": options.caps}
        stored = make(index, folder, labels=labels, **asked, **reading)
        if options.summaries:
            summaries = Summaries(stored.path / SUMMARIES)
            calls, tokens = summaries.estimate(stored.graph, stored.communities, lm=lm)
            new = f"{calls:,} of {len(stored.communities):,} communities"
            console.print(f"to summarise: {new}, about {tokens:,} prompt tokens")
            written = summaries.of(stored.graph, stored.communities, **reading)
    now = stored.manifest
    failed = {key: error for key, error in written.items() if isinstance(error, str)}
    rows = [("read", number(cost.passages, "passage"))]
    sizes = {what: getattr(now, what) for what in ("passages", "entities", "relations")}
    for what, size in (*sizes.items(), ("communities", len(stored.communities))):
        known = getattr(before, what, None)  # communities may not have been found again
        rows.append((what, f"{size:,}" + (f", before {known:,}" if known is not None else "")))
    if options.summaries:
        count = f"{len(written) - len(failed):,} of {len(stored.communities):,} communities"
        rows.append(("summaries", count))
    rows += [
        ("labels", ", ".join(now.labels)),
        ("kept out", counted(now.left_out)),
        ("dropped", counted(now.dropped)),
        *_cost(now),
        ("failed", f"{len(now.failed):,} of {now.passages:,} passages"),
        ("seconds", f"{time.perf_counter() - began:.1f}"),
        ("graph", str(stored.path)),
    ]
    console.print(key_values(rows))
    console.print_first("failed", [f"{f.passage}: {f.error}" for f in now.failed], style="red")
    if now.failed:
        console.print("run the same command again to retry the failed passages")
    place = {community.key: n for n, community in enumerate(stored.communities)}
    lines = [f"community {place[key]}: {error}" for key, error in failed.items()]
    console.print_first("not summarised", lines, style="red")
    console.print_first("unused override", now.unused_overrides, style="yellow")
    unused = sorted({*(before.labels if before else ())} - {*now.labels})
    console.print_first("label that no longer restricts anything", unused, style="yellow")
    console.note_embedded_lm(lm)


def _one_lm(models: LMs) -> dspy.LM:
    """Return the LM that reads.

    Raises:
        InputError: An LM is named for a step; only programs have steps.
    """
    if models.steps:
        raise InputError(
            f"--lm or --api-base for the step {next(iter(models.steps))}",
            expected="one LM, which reads every passage",
            remedy="pass --lm NAME",
        )
    return models.lm


def _read_labels(path: Path | None) -> dict[str, frozenset[str]] | None:
    kind, expected = dict[str, frozenset[str]], 'labels such as {"p1": ["hr"]}'
    return read_as(path, kind, expected=expected, remedy=_HELP) if path else None


def _confirm(console: Console, cost: Estimate, lm: dspy.LM, options: ReadOptions) -> None:
    """Print the estimate, and ask for confirmation if an LLM will be called.

    Raises:
        InputError: There is no terminal to ask at, and `--yes` was not given.
        Exit: The answer was no.
    """
    if cost.passages:
        known = f"; {cost.finished:,} were read before" if cost.finished else ""
        calls = f"{number(cost.passages, 'passage')}, about {number(cost.calls, 'LM call')}"
        tokens = f"{cost.tokens:,} tokens ({cost.completion_tokens:,} of them completion)"
        console.print(f"to read: {calls} and {tokens}{known}")
    else:
        console.print(f"to read: nothing, all {cost.finished:,} passages were read before")
    if options.summaries:
        console.print("summaries: one or two more calls for each community without one")
    if lm.model == EMBEDDED or options.yes or not (cost.calls or options.summaries):
        return
    if any(options.caps) and not console.can_ask:
        return  # a cap stands for a confirmation
    if not console.confirm(f"call {lm.model}?"):
        raise typer.Exit(1)


def _cost(graph: GraphManifest) -> list[tuple[str, str]]:
    """Return what it cost to read the passages of a graph, and what of the replies is grounded."""
    if not graph.proposed:
        return []
    share, each = 100 * graph.stated / graph.proposed, graph.stated / graph.passages
    return [
        ("cost", f"{number(graph.calls, 'LM call')}, {graph.tokens:,} tokens"),
        (
            "grounded",
            f"{graph.stated:,} of {number(graph.proposed, 'relation')} ({share:.1f} %), "
            f"{each:.1f} per passage",
        ),
    ]


def counted(causes: Mapping[str, int]) -> str:
    """Return counts by cause as text, the largest first.

    >>> counted({"too little evidence": 2, "low confidence": 3})
    '3 low confidence, 2 too little evidence'
    """
    ranked = sorted(causes.items(), key=lambda pair: (-pair[1], pair[0]))
    return ", ".join(f"{n:,} {cause}" for cause, n in ranked)


# --- Look into a graph

_TOP, _NAMES_PER_COMMUNITY = 10, 5


def _open(
    folder: Path, labels: Iterable[str] | None, wanted: Sequence[str] | None = None
) -> tuple[StoredGraph, CorpusGraph]:
    """Open a graph, and the part of it that is visible with these labels and conditions."""
    stored, part = _open_part(folder, labels, wanted)
    return stored, part.visible(Access(labels=frozenset(labels or ()))).graph


def _open_part(
    folder: Path,
    labels: Iterable[str] | None,
    wanted: Sequence[str] | None,
    index: Index | None = None,
) -> tuple[StoredGraph, CorpusGraph]:
    """Open a graph, and the part of it that meets the conditions, whoever may see it.

    Raises:
        InputError: A condition is on metadata, which a graph has not.
    """
    stored, allowed = open_graph(folder, index), frozenset(labels or ())
    unknown = sorted(allowed - stored.graph.labels_in_use)
    if unknown:
        note = f"nothing in {folder} needs the label {', '.join(unknown)}"
        Console(stderr=True).print(note, style="yellow", soft_wrap=True)
    whole = stored.graph
    for where in choose_where(wanted):
        on_passages, on_relations = split_conditions(where)
        if on_passages:
            raise InputError(
                f"--where with {', '.join(on_passages)}, a field of passages",
                expected=f"{', '.join(FIELDS)}, since a graph holds no metadata",
                remedy="restrict a program instead: ga-dspy ask … --graph … --where …",
            )
        whole = whole.part(conditions=Conditions.of(on_relations))
    return stored, whole


def stats(graph: Folder, label: Labels = None, where: Wanted = None) -> None:
    """Show the size of a graph, its most common relations and most central entities.

    Examples:
        ga-dspy graph stats my-graph
    """
    stored, visible = _open(graph, label, where)
    edges = visible.tables.edges
    sizes = visible.network.connected_components().sizes()
    wordings = Counter(map(relation_key, edges["relation"].to_pylist()))
    contradicted = sum(map(bool, edges["contradicts"].to_pylist()))
    common = (f"{wording} ({n:,})" for wording, n in wordings.most_common(_TOP))
    unnamed = "an LM without a name" if stored.manifest.extraction else "no LM"
    rows = [
        ("graph", f"{graph}, read by {stored.manifest.lm or unnamed}"),
        ("entities", f"{len(visible):,}, {visible.plain_values.sum():,} dates, numbers or amounts"),
        ("relations", f"{edges.num_rows:,} in {len(wordings):,} wordings"),
        ("passages", f"{len(visible.passages):,} state something"),
        *_cost(stored.manifest),
        ("components", f"{len(sizes):,}, the largest of {max(sizes, default=0):,} entities"),
        ("isolated", f"{sizes.count(1):,} entities without a relation"),
        ("merged", f"{visible.tables.merges.num_rows:,} spellings"),
        ("contradicted", f"{contradicted:,} relations"),
        ("most common", ", ".join(common)),
        ("most central", ", ".join(map(visible.name, central_nodes(visible)[:_TOP]))),
    ]
    Console().print(key_values(rows))


def show(
    graph: Folder,
    entity: Annotated[str, typer.Argument(help="Name or alias of an entity.")],
    label: Labels = None,
    where: Wanted = None,
    most: Most = 40,
) -> None:
    """Show an entity: its names, relations and passages.

    Examples:
        ga-dspy graph show my-graph "Isambard Brunel"
        ga-dspy graph show my-graph "Isambard Brunel" --where relation.time=1843
    """
    _, visible = _open(graph, label, where)
    console = Console()
    for place, node in enumerate(find_named(visible, entity)):
        if place:
            console.print()
        _show_entity(console, visible, node, most)


def _show_entity(console: Console, graph: CorpusGraph, node: int, most: int) -> None:
    entity = graph.node(node)
    kind = f"  {entity.type}" if entity.type else ""
    console.print(Text.assemble((entity.name, "bold cyan"), (kind, "dim")))
    merged = {m.spelling: f"{m.spelling} ({m.rule})" for m in graph.merges if m.node == node}
    names = [*merged.values(), *(alias for alias in entity.aliases if alias not in merged)]
    rows = [
        ("ids", ", ".join(ids_in(entity.about))),
        ("also", "; ".join(names)),
        ("attributes", "; ".join(entity.attributes)),
        ("passages", ", ".join(graph.passages_of(node))),
    ]
    console.print(key_values(rows))
    edges = sorted(graph.network.incident(node))
    edges.sort(key=lambda edge: int(graph.heads[edge]) != node)
    table = Table.grid(padding=(0, 2))
    table.add_column(overflow="fold")
    table.add_column(style="dim", overflow="fold")
    for edge in edges[:most]:
        passages = ", ".join(graph.passages_of_edge(edge))
        table.add_row(_relation(graph, edge, outgoing=int(graph.heads[edge]) == node), passages)
    console.print(table)
    console.print_rest(len(edges), most)


def _relation(graph: CorpusGraph, edge: int, *, outgoing: bool) -> Text:
    """Return a relation as seen from one end, with its flags."""
    relation, flags = graph.edge(edge), graph.flags(edge)
    arrow, other = ("→", relation.tail) if outgoing else ("←", relation.head)
    text = Text.assemble((f"{arrow} {relation.relation} {arrow} ", "dim"), other)
    if relation.time:
        text.append(f" ({relation.time})")
    if relation.confidence is not None:
        text.append(f" (confidence {relation.confidence:g})")
    if flags.critical:
        text.append("  critical", style="yellow")
    for against in flags.contradicts:
        text.append(f"\n  contradicts: {fact_text(graph.edge(against))}", style="red")
    return text


def paths(
    graph: Folder,
    one: Annotated[str, typer.Argument(metavar="A", help="Name or alias of an entity.")],
    other: Annotated[str, typer.Argument(metavar="B", help="Name or alias of another.")],
    k: Annotated[int, typer.Option("--k", min=1, help="Maximum number of paths.")] = 3,
    label: Labels = None,
    where: Wanted = None,
) -> None:
    """Show the shortest paths between two entities.

    Examples:
        ga-dspy graph paths my-graph "Isambard Brunel" "River Avon"
    """
    _, visible = _open(graph, label, where)
    if set(find_named(visible, one)) & set(find_named(visible, other)):
        raise InputError(
            f"{one!r} and {other!r} are the same entity",
            expected="two entities",
            remedy="name another",
        )
    console, found = Console(), paths_between(visible, one, other, k)
    if not found:
        console.print(f"no path of at most {MAX_HOPS} relations connects them")
        return
    for path in found:
        stated = dict.fromkeys(p for edge in path.edges for p in visible.passages_of_edge(edge))
        console.print(Text(path.text))
        console.print(Text(f"  cost {path.cost:.1f}; passages {', '.join(stated)}", "dim"))


def communities(
    graph: Folder,
    level: Annotated[
        int | None, typer.Option(min=0, help="Only this level; 0 is the coarsest.")
    ] = None,
    label: Labels = None,
    most: Most = 40,
) -> None:
    """List the communities of a graph, with their summaries if it was built with them.

    Communities are those of the public part of the graph, regardless of labels.

    Examples:
        ga-dspy graph communities my-graph
    """
    stored, _ = _open(graph, label)
    console, public = Console(), stored.graph.public
    summaries = Summaries(stored.path / SUMMARIES).cached(stored.communities)
    found = [
        (number, one)
        for number, one in enumerate(stored.communities)
        if level is None or one.level == level
    ]
    if not found:
        console.print("no community of three entities or more at this level")
        return
    figures = ("no.", "level", "parent", "entities", "relations")
    table = columns(*figures, "about", right=figures)
    for place, one in found[:most]:
        names = ", ".join(map(public.name, one.nodes[:_NAMES_PER_COMMUNITY]))
        if len(one.nodes) > _NAMES_PER_COMMUNITY:
            names += ", …"
        about, summary = Text(names), summaries.get(one.key)
        if summary:
            title = (f"{summary.title}\n", "bold")
            about = Text.assemble(title, f"{summary.text}\n", (names, "dim"))
        parent = "" if one.parent < 0 else str(one.parent)
        sizes = f"{len(one.nodes):,}", f"{len(one.edges):,}"
        table.add_row(str(place), str(one.level), parent, *sizes, about)
    console.print(table)
    console.print_rest(len(found), most)


def conflicts(graph: Folder, label: Labels = None, where: Wanted = None, most: Most = 40) -> None:
    """List the relations that contradict each other, with their passages.

    A relation that a later one replaced is no conflict; --where relation.time=DATE drops it.

    Examples:
        ga-dspy graph conflicts my-graph
    """
    _, visible = _open(graph, label, where)
    against = enumerate(visible.tables.edges["contradicts"].to_pylist())
    pairs = [(one, other) for one, others in against for other in others if one < other]
    if not pairs:
        Console().print("no relations contradict each other")
        return
    table = columns("one", "other", "passages")
    for pair in pairs[:most]:
        stated = dict.fromkeys(p for edge in pair for p in visible.passages_of_edge(edge))
        table.add_row(*(Text(fact_text(visible.edge(e))) for e in pair), Text(", ".join(stated)))
    Console().print(table)
    Console().print_rest(len(pairs), most)


def view(
    graph: Folder,
    index: Annotated[
        Path | None, typer.Option(help="Folder of the index, for quotes, titles and sources.")
    ] = None,
    out: Annotated[Path, typer.Option(help="HTML file to write.")] = Path("graph.html"),
    label: Labels = None,
    where: Wanted = None,
) -> None:
    """Write a page to search, draw and read a graph: one HTML file that works offline.

    The file has only what the labels allow to see.

    Examples:
        ga-dspy graph view my-graph --index my-index --out graph.html
    """
    passages, access = Index.open(index) if index else None, Access(labels=frozenset(label or ()))
    stored, part = _open_part(graph, label, where, passages)
    communities = stored.communities if part is stored.graph else find_communities(part)
    summaries = Summaries(stored.path / SUMMARIES).cached(communities)
    topics = topics_of(communities, summaries)
    title = f"Knowledge graph: {graph.resolve().name}"
    page = graph_page(
        part, passages, access=access, communities=communities, topics=topics, title=title
    )
    write_whole(out, page)
    visible = part.visible(access).graph
    Console().print(f"wrote {out}: open it in a browser", soft_wrap=True)
    Console().print(f"{len(visible):,} entities, {len(visible.heads):,} relations")


def merges(graph: Folder, label: Labels = None, most: Most = 100) -> None:
    """List the spellings that were merged into another name.

    To undo a merge, list the two names under overrides, apart, in the rules file and build again.

    Examples:
        ga-dspy graph merges my-graph
    """
    _, visible = _open(graph, label)
    found, console = list(visible.merges), Console()
    if not found:
        console.print("no spelling was merged into another name")
        return
    table = columns("spelling", "merged into", "rule", "passages")
    for merge in found[:most]:
        passages = Text(", ".join(merge.passages))
        table.add_row(Text(merge.spelling), Text(merge.name), merge.rule, passages)
    console.print(table)
    console.print_rest(len(found), most)


def export(
    graph: Folder,
    out: Annotated[Path, typer.Option(help="GraphML file to write.")],
    index: Annotated[
        Path | None, typer.Option(help="Folder of the index, to quote the evidence.")
    ] = None,
    label: Labels = None,
    where: Wanted = None,
) -> None:
    """Write a graph as GraphML, for Gephi, yEd, Neo4j (with APOC) and `graph import`.

    Examples:
        ga-dspy graph export my-graph --out my-graph.graphml --index my-index
    """
    stored, visible = _open(graph, label, where)
    nodes, edges = range(len(visible)), range(len(visible.heads))
    view = stored.graph.visible(Access(labels=frozenset(label or ())))
    passages = filter(lambda each: view.readable(each.id), Index.open(index) if index else ())
    shown = {passage.id: passage for passage in passages}
    write_whole(out, to_graphml(visible.subgraph(nodes, edges), shown))
    Console().print(f"wrote {out}", soft_wrap=True)
    Console().print(f"{len(nodes):,} entities, {len(edges):,} relations")
