"""`ga-dspy graph`: build the graph of a corpus, inspect it, export it."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Annotated, Any, Final

import dspy
from rich.text import Text
from typer import Argument, Exit, Option

from ga_dspy import graphrag
from ga_dspy.cli import choices
from ga_dspy.cli.choices import BatchOptions, IndexDir, LMOptions, LMs
from ga_dspy.cli.console import Console, key_values, number, show_progress
from ga_dspy.cli.index import Redaction, importable
from ga_dspy.errors import InputError, listed
from ga_dspy.graph import to_graphml
from ga_dspy.graph.paths import MAX_HOPS
from ga_dspy.graph.traits import ids_in
from ga_dspy.graphrag import Access, CorpusGraph, Extractor, Rules, Schema, StoredGraph, Summaries
from ga_dspy.graphrag.build import Estimate, extractor_of
from ga_dspy.graphrag.communities import Community, Summary, find_communities, topics_of
from ga_dspy.graphrag.linking import fact_text
from ga_dspy.graphrag.records import FIELDS, Conditions, relation_key, split_conditions
from ga_dspy.graphrag.stored import SUMMARIES, GraphManifest, manifest_to_change, read_manifest
from ga_dspy.graphrag.walk import central_nodes, find_named, paths_between
from ga_dspy.lm.endpoints import EMBEDDED
from ga_dspy.lm.store import Caps
from ga_dspy.programs.settings import read_pairs
from ga_dspy.retrieval import Index
from ga_dspy.storage import read_as, write_atomically
from ga_dspy.viewer import graph_page

_LABEL = "Access label of the caller; without any, only public items are shown. Repeatable."
_WHERE = "Filter on relations, such as relation.time=2015. Repeatable."
_LABELS = 'JSON or YAML file of access labels by passage id, such as {"p1": ["hr"]}.'
_RULES = "JSON or YAML file of relations to keep, flag or restrict; see below."

Out = Annotated[Path, Option(help="Folder of the graph.")]
LabelFile = Annotated[Path | None, Option(help=_LABELS)]
Most = Annotated[int, Option(min=1, help="Maximum number of rows.")]


# --- Build and update

_HELP: Final = "see ga-dspy graph build --help"
_SIZES: Final = ("passages", "entities", "relations")


@dataclass(frozen=True)
class ReadOptions:
    """The options that `build` and `update` share."""

    threads: Annotated[int, Option(min=1, help="Number of LM calls in parallel.")] = 8
    labels: LabelFile = None
    summaries: Annotated[bool, Option("--summaries", help="Also summarise communities.")] = False
    max_calls: Annotated[int | None, Option(min=1, help="Maximum number of LM calls.")] = None
    max_tokens: Annotated[int | None, Option(min=1, help="Maximum number of tokens.")] = None
    yes: choices.Yes = False

    @property
    def caps(self) -> Caps:
        """The caps on LM calls and tokens."""
        return Caps(self.max_calls, self.max_tokens)


@dataclass(frozen=True)
class ExtractionOptions:
    """The options of the extraction; an update uses those of the build."""

    schema: Annotated[Path | None, Option(help="File of types and relations; see below.")] = None
    per_call: Annotated[int, Option(min=1, help="Passages per LM call.")] = 1
    max_relations: Annotated[int | None, Option(min=1, help="Cap on relations per passage.")] = None
    gleanings: Annotated[int, Option(min=0, help="Further LM calls for missed relations.")] = 0

    @property
    def extractor(self) -> Extractor:
        """The extractor with these settings."""
        schema = Schema.read(self.schema) if self.schema else None
        return Extractor(**{**vars(self), "schema": schema})


def build(
    models: Annotated[LMs, BatchOptions], index: IndexDir, out: Out,
    extraction: ExtractionOptions, options: ReadOptions,
    rules: Annotated[Path | None, Option(help=_RULES)] = None,
) -> None:  # fmt: skip
    r"""Build the graph of an index; the LM reads every passage.

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
       "relation_weights": {"capital of": 2},
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
      relation_weights how much a relation counts in searches; others 1
      overrides        names of the same entity, or of different ones; a name
                       may be limited to one passage

    The lists starting with single_ replace the default ones.
    "was born in" counts as "born in" everywhere.
    """
    own = read_as(rules, Rules, expected="rules", remedy=_HELP) if rules else None
    before = manifest_to_change(out)
    make = partial(graphrag.build_graph, rules=own)
    _read_graph(make, index, out, models, before, extraction.extractor, options)


def update(
    models: Annotated[LMs, BatchOptions], index: IndexDir, graph: Out, options: ReadOptions
) -> None:
    """Bring a graph up to date with its index.

    The LM reads only new and changed passages, with the schema and settings of the build. The rules
    stay those of the build, and so do the labels unless you pass --labels.

    Examples:
        ga-dspy graph update --index my-index --graph my-graph
    """
    before = read_manifest(graph)
    _read_graph(graphrag.update_graph, index, graph, models, before, extractor_of(before), options)


def propose(
    models: Annotated[LMs, LMOptions],
    index: IndexDir,
    out: Annotated[Path, Option(help="YAML file to write; it must not exist.")],
    sample: Annotated[int, Option(min=1, help="Number of passages to read.")] = 20,
) -> None:
    """Propose a schema from a sample of passages, to edit and pass to `graph build --schema`.

    The LM reads the sample as in a build, one call per passage, then names types and relations.

    Examples:
        ga-dspy graph schema propose --index my-index --out schema.yaml --sample 20
    """
    if out.exists():
        raise InputError(f"{out} exists", expected="a new file", remedy="name another")
    console, lm = Console(), _one_lm(models)
    schema = graphrag.propose_schema(Index.open(index), lm=lm, sample=sample).yaml
    write_atomically(out, schema)
    console.print(Text(schema.rstrip()), soft_wrap=True)
    console.print(f"wrote {out}", style="dim", soft_wrap=True)
    console.note_embedded_lm(lm)


def import_files(
    files: Annotated[list[Path], Argument(help="CSV, TSV, JSON lines, GraphML or RDF.")],
    index: Annotated[Path, Option(help="Folder of the index; built if it does not exist.")],
    out: Out,
    columns: Annotated[str, Option(help="Columns by field: head=subject,tail=object.")] = "",
    name: Annotated[str | None, Option(help="Name of the rows; by default the file's.")] = None,
    labels: LabelFile = None,
    skip_bad_rows: Annotated[bool, Option("--skip-bad-rows", help="Skip invalid rows.")] = False,
    redact: Redaction = None,
) -> None:
    """Import an existing graph into an index and its graph; no LM is called.

    Each row becomes a passage: its text, or the row as a sentence. If you import a file with the
    same name again, its rows are replaced.

    Examples:
        ga-dspy graph import facts.csv --index my-index --out my-graph

    Columns of a .csv or .tsv, keys of a .jsonl:

      head, relation, tail              required
      head_type, tail_type              such as person
      head_id, tail_id                  such as wikidata:Q42 (equal ids mean one
                                        entity, two ids of a namespace never do)
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
        made = graphrag.import_graph(
            files, index=index, out=out, columns=pairs, name=name, labels=_read_labels(labels),
            skip_bad_rows=skip_bad_rows, redact=importable(redact), progress=progress,
        )  # fmt: skip
    about = made.graph.manifest
    rows = [(what, f"{len(ids):,}") for what, ids in made.changes._asdict().items()]
    rows += [(what, f"{getattr(about, what):,}") for what in _SIZES]
    rows += [("kept out", counted(about.left_out)), ("skipped", f"{len(made.skipped):,}")]
    console.print(key_values([*rows, ("graph", str(made.graph.path))]))
    console.print_first("skipped", made.skipped, style="yellow")
    if about.unread:
        command = f"ga-dspy graph update --index {index} --graph {out}"  # keeps the labels
        console.print(f"to read {number(about.unread, 'passage')}: {command}", soft_wrap=True)


def _read_graph(
    make: Callable[..., StoredGraph], index_dir: Path, folder: Path, models: LMs,
    before: GraphManifest | None, extractor: Extractor, options: ReadOptions,
) -> None:  # fmt: skip
    """Confirm the cost, build the graph, and print its sizes and its problems."""
    console, lm, index = Console(), _one_lm(models), Index.open(index_dir)
    labels = _read_labels(options.labels)
    unknown = sorted((labels or {}).keys() - index.ids)
    console.print_first("has labels, but is not in the index", unknown, style="yellow")
    cost = graphrag.estimate_build(index, folder, lm=lm, extractor=extractor)
    _confirm(console, cost, lm, options)
    began, written = time.perf_counter(), dict[str, Summary | str]()
    console.print("you can interrupt this: run the same command again to resume", style="dim")
    with show_progress(console) as progress:
        reading: dict[str, Any] = {"lm": lm, "threads": options.threads, "progress": progress}
        settings = {"extractor": extractor, "caps": options.caps}
        stored = make(index, folder, labels=labels, **settings, **reading)
        communities = stored.communities
        if options.summaries:
            summaries = Summaries(stored.path / SUMMARIES)
            calls, tokens = summaries.estimate(stored.graph, communities, lm=lm)
            new = f"{calls:,} of {len(communities):,} communities"
            console.print(f"to summarise: {new}, about {tokens:,} prompt tokens")
            written = summaries.of(stored.graph, communities, **reading)
    about = stored.manifest
    failed = {key: error for key, error in written.items() if isinstance(error, str)}
    rows = [("read", number(cost.passages, "passage"))]
    for what in _SIZES:
        earlier = f", before {getattr(before, what):,}" if before else ""
        rows.append((what, f"{getattr(about, what):,}{earlier}"))
    rows.append(("communities", f"{len(communities):,}"))
    if options.summaries:
        rows.append(("summaries", f"{len(written) - len(failed):,} of {len(communities):,}"))
    rows += [
        ("labels", ", ".join(about.labels)),
        ("kept out", counted(about.left_out)),
        ("dropped", counted(about.dropped)),
        *_cost(about),
        ("failed", f"{len(about.failed):,} of {about.passages:,} passages"),
        ("seconds", f"{time.perf_counter() - began:.1f}"),
        ("graph", str(stored.path)),
    ]
    console.print(key_values(rows))
    console.print_first("failed", [f"{f.passage}: {f.error}" for f in about.failed], style="red")
    if about.failed:
        console.print("run the same command again to retry the failed passages")
    place = {community.key: n for n, community in enumerate(communities)}
    lines = [f"community {place[key]}: {error}" for key, error in failed.items()]
    console.print_first("not summarised", lines, style="red")
    console.print_first("unused override", about.unused_overrides, style="yellow")
    unused = sorted({*before.labels} - {*about.labels}) if before else []
    console.print_first("label that no longer restricts anything", unused, style="yellow")
    console.note_embedded_lm(lm)


def _one_lm(models: LMs) -> dspy.LM:
    """Return the only LM.

    Raises:
        InputError: An LM is named for a step; only programs have steps.
    """
    if models.steps:
        raise InputError("LMs for single steps", expected="one LM", remedy="pass --lm NAME")
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
        earlier = f"; {cost.finished:,} were read before" if cost.finished else ""
        calls = f"{number(cost.passages, 'passage')}, about {number(cost.calls, 'LM call')}"
        tokens = f"{cost.tokens:,} tokens ({cost.completion_tokens:,} of them completion)"
        console.print(f"to read: {calls} and {tokens}{earlier}")
    else:
        console.print(f"to read: nothing, all {cost.finished:,} passages were read before")
    if options.summaries:
        console.print("summaries: one or two more calls for each community without one")
    is_free = lm.model == EMBEDDED or not (cost.calls or options.summaries)
    if not (is_free or options.yes or console.confirm(f"call {lm.model}?", options.caps)):
        raise Exit(1)


def _cost(graph: GraphManifest) -> list[tuple[str, str]]:
    """Return rows on the cost of reading the passages and on the share of grounded relations."""
    if not graph.proposed:
        return []
    share, each = 100 * graph.stated / graph.proposed, graph.stated / graph.passages
    stated = f"{graph.stated:,} of {number(graph.proposed, 'relation')} ({share:.1f} %)"
    return [
        ("cost", f"{number(graph.calls, 'LM call')}, {graph.tokens:,} tokens"),
        ("grounded", f"{stated}, {each:.1f} per passage"),
    ]


def counted(causes: Mapping[str, int]) -> str:
    """Return counts by cause as text, the largest first.

    >>> counted({"too little evidence": 2, "low confidence": 3})
    '3 low confidence, 2 too little evidence'
    """
    ranked = sorted(causes.items(), key=lambda pair: (-pair[1], pair[0]))
    return ", ".join(f"{n:,} {cause}" for cause, n in ranked)


# --- Inspect a graph

_TOP, _NAMES_PER_COMMUNITY = 10, 5


@dataclass(frozen=True)
class GraphOptions:
    """A graph, and the access labels and conditions that restrict what the caller sees."""

    graph: Annotated[Path, Argument(metavar="GRAPH", help="Folder of a graph.")]
    label: Annotated[list[str] | None, Option(help=_LABEL)] = None
    where: Annotated[list[str] | None, Option(help=_WHERE)] = None

    @cached_property
    def passages(self) -> Index | None:
        """The index of the passages, for commands with the option `--index`."""
        index = getattr(self, "index", None)
        return Index.open(index) if index else None

    @property
    def access(self) -> Access:
        """The labels as an access scope."""
        return Access(labels=frozenset(self.label or ()))

    @cached_property
    def stored(self) -> StoredGraph:
        """The graph; opening it warns of labels that restrict nothing in it."""
        stored = graphrag.open_graph(self.graph, self.passages)
        if unknown := sorted(self.access.labels - stored.graph.labels_in_use):
            Console(stderr=True).warn(f"nothing in {self.graph} needs the label {listed(unknown)}")
        return stored

    @cached_property
    def part(self) -> CorpusGraph:
        """The part that meets the conditions, regardless of labels.

        Raises:
            InputError: A condition is on metadata, which a graph does not store.
        """
        part = self.stored.graph
        for where in choices.choose_where(self.where):
            on_passages, on_relations = split_conditions(where)
            for field in on_passages:
                expected = f"{', '.join(FIELDS)}, because a graph stores no metadata"
                remedy = "restrict a program instead: ga-dspy ask … --graph … --where …"
                raise InputError(f"--where with {field}", expected=expected, remedy=remedy)
            part = part.part(conditions=Conditions.of(on_relations))
        return part

    @cached_property
    def visible(self) -> CorpusGraph:
        """The part that the caller sees."""
        return self.part.visible(self.access).graph

    @cached_property
    def communities(self) -> Sequence[Community]:
        """The communities of the public part, regardless of labels."""
        is_whole = self.part is self.stored.graph
        return self.stored.communities if is_whole else find_communities(self.part)

    @property
    def summaries(self) -> Mapping[str, Summary]:
        """The stored summaries of communities, by key."""
        return Summaries(self.stored.path / SUMMARIES).cached(self.communities)


@dataclass(frozen=True)
class QuotedGraphOptions(GraphOptions):
    """A graph, and optionally the index of its passages."""

    index: Annotated[Path | None, Option(help="Folder of the index, to quote passages.")] = None


def stats(seen: GraphOptions) -> None:
    """Show the size of a graph, its most common relations and its most central entities.

    Examples:
        ga-dspy graph stats my-graph
    """
    visible, about = seen.visible, seen.stored.manifest
    edges = visible.tables.edges
    sizes = visible.network.connected_components().sizes()
    wordings = Counter(map(relation_key, edges["relation"].to_pylist()))
    contradicted = len(visible.contradictions)
    common = (f"{wording} ({n:,})" for wording, n in wordings.most_common(_TOP))
    unnamed = "an LM without a name" if about.extraction else "no LM"
    rows = [
        ("graph", f"{seen.graph}, extracted by {about.lm or unnamed}"),
        ("entities", f"{len(visible):,}, {visible.plain_values.sum():,} dates, numbers or amounts"),
        ("relations", f"{edges.num_rows:,} in {len(wordings):,} wordings"),
        ("passages", f"{len(visible.passages):,} state something"),
        *_cost(about),
        ("components", f"{len(sizes):,}, the largest of {max(sizes, default=0):,} entities"),
        ("isolated", f"{sizes.count(1):,} entities without a relation"),
        ("merged", f"{visible.tables.merges.num_rows:,} spellings"),
        ("contradicted", f"{contradicted:,} relations"),
        ("most common", ", ".join(common)),
        ("most central", ", ".join(map(visible.name, central_nodes(visible)[:_TOP]))),
    ]
    Console().print(key_values(rows))


def show(
    seen: GraphOptions,
    entity: Annotated[str, Argument(help="Name or alias of an entity.")],
    most: Most = 40,
) -> None:
    """Show an entity with its names, relations and passages.

    Examples:
        ga-dspy graph show my-graph "Isambard Brunel"
        ga-dspy graph show my-graph "Isambard Brunel" --where relation.time=1843
    """
    for place, node in enumerate(find_named(seen.visible, entity)):
        if place:
            Console().print()
        _show_entity(Console(), seen.visible, node, most)


def _show_entity(console: Console, graph: CorpusGraph, node: int, most: int) -> None:
    entity = graph.node(node)
    kind = f"  {entity.type}" if entity.type else ""
    console.print(Text.assemble((entity.name, "bold cyan"), (kind, "dim")))
    merged = {m.spelling: f"{m.spelling} ({m.rule})" for m in graph.merges if m.node == node}
    names = [*merged.values(), *(alias for alias in entity.aliases if alias not in merged)]
    about = [
        ("ids", ", ".join(ids_in(entity.about))),
        ("also", "; ".join(names)),
        ("attributes", "; ".join(entity.attributes)),
        ("passages", ", ".join(graph.passages_of(node))),
    ]
    console.print(key_values(about))
    edges = sorted(graph.network.incident(node))
    edges.sort(key=lambda edge: graph.heads[edge] != node)
    rows = [(_relation(graph, edge, node), _stated(graph, edge)) for edge in edges]
    console.print_table(rows, "relation", "passages", most=most)


def _stated(graph: CorpusGraph, *edges: int) -> str:
    """Return the passages that state relations."""
    return ", ".join(dict.fromkeys(p for edge in edges for p in graph.passages_of_edge(edge)))


def _relation(graph: CorpusGraph, edge: int, node: int) -> Text:
    """Return a relation seen from one of its entities, with its flags."""
    relation = graph.edge(edge)
    is_outgoing = graph.heads[edge] == node
    arrow, other = ("→", relation.tail) if is_outgoing else ("←", relation.head)
    text = Text.assemble((f"{arrow} {relation.relation} {arrow} ", "dim"), other)
    if relation.time:
        text.append(f" ({relation.time})")
    if relation.confidence is not None:
        text.append(f" (confidence {relation.confidence:g})")
    if graph.rules.is_critical(relation.relation):
        text.append("  critical", style="yellow")
    for against in graph.contradictions.get(edge, ()):
        text.append(f"\n  contradicts: {fact_text(graph.edge(against))}", style="red")
    return text


def paths(
    seen: GraphOptions,
    one: Annotated[str, Argument(metavar="A", help="Name or alias of an entity.")],
    other: Annotated[str, Argument(metavar="B", help="Name or alias of another entity.")],
    k: Annotated[int, Option("--k", min=1, help="Maximum number of paths.")] = 3,
) -> None:
    """Show the shortest paths between two entities.

    Examples:
        ga-dspy graph paths my-graph "Isambard Brunel" "River Avon"
    """
    console, visible = Console(), seen.visible
    if set(find_named(visible, one)) & set(find_named(visible, other)):
        same = f"{one!r} and {other!r} are the same entity"
        raise InputError(same, expected="two entities", remedy="name another")
    found = paths_between(visible, one, other, k)
    if not found:
        console.print(f"no path of at most {MAX_HOPS} relations connects them")
    for path in found:
        console.print(Text(path.text))
        stated = _stated(visible, *path.edges)
        console.print(Text(f"  cost {path.cost:.1f}; passages {stated}", "dim"))


def communities(
    seen: GraphOptions,
    level: Annotated[int | None, Option(min=0, help="Only this level; 0 is the coarsest.")] = None,
    most: Most = 40,
) -> None:
    """List the communities of a graph, with the summaries of `graph build --summaries`.

    The communities are those of the public part of the graph, regardless of labels.

    Examples:
        ga-dspy graph communities my-graph
    """
    rows, summaries = list[Sequence[str | Text]](), seen.summaries
    for place, community in enumerate(seen.communities):
        if level not in (None, community.level):
            continue
        names = listed(map(seen.part.public.name, community.nodes), _NAMES_PER_COMMUNITY)
        about = Text(names)
        if summary := summaries.get(community.key):
            title = (f"{summary.title}\n", "bold")
            about = Text.assemble(title, f"{summary.text}\n", (names, "dim"))
        parent = "" if community.parent < 0 else str(community.parent)
        sizes = f"{len(community.nodes):,}", f"{len(community.edges):,}"
        rows.append((str(place), str(community.level), parent, *sizes, about))
    figures, none = "no. level parent entities relations".split(), "no community at this level"
    Console().print_table(rows, *figures, "about", most=most, right=figures, none=none)


def conflicts(seen: GraphOptions, most: Most = 40) -> None:
    """List the relations that contradict each other, with their passages.

    A relation that a later one replaced is no conflict; --where relation.time=DATE excludes it.

    Examples:
        ga-dspy graph conflicts my-graph
    """
    visible, rows = seen.visible, list[tuple[str, ...]]()
    for one, others in visible.contradictions.items():
        for pair in ((one, other) for other in others if one < other):
            facts = (fact_text(visible.edge(edge)) for edge in pair)
            rows.append((*facts, _stated(visible, *pair)))
    none = "no relations contradict each other"
    Console().print_table(rows, "one", "other", "passages", most=most, none=none)


def merges(seen: GraphOptions, most: Most = 100) -> None:
    """List the spellings that were merged into another name.

    To undo a merge, add the two names to overrides.apart in the rules file and build again.

    Examples:
        ga-dspy graph merges my-graph
    """
    merged = seen.visible.merges
    rows = [(one.spelling, one.name, one.rule, ", ".join(one.passages)) for one in merged]
    headings, none = ("spelling", "merged into", "rule", "passages"), "no spelling was merged"
    Console().print_table(rows, *headings, most=most, none=none)


def view(
    seen: QuotedGraphOptions,
    out: Annotated[Path, Option(help="HTML file to write.")] = Path("graph.html"),
) -> None:
    """Write a page to search and explore a graph: one HTML file that works offline.

    The file contains only what the labels allow the caller to see.

    Examples:
        ga-dspy graph view my-graph --index my-index --out graph.html
    """
    page = graph_page(
        seen.part, seen.passages, access=seen.access, communities=seen.communities,
        topics=topics_of(seen.communities, seen.summaries),
        title=f"Knowledge graph: {seen.graph.resolve().name}",
    )  # fmt: skip
    _write(out, page, seen.visible, ": open it in a browser")


def export(
    seen: QuotedGraphOptions, out: Annotated[Path, Option(help="GraphML file to write.")]
) -> None:
    """Write a graph as GraphML, for Gephi, yEd, Neo4j (with APOC) and `graph import`.

    Examples:
        ga-dspy graph export my-graph --out my-graph.graphml --index my-index
    """
    visible, readable = seen.visible, seen.stored.graph.visible(seen.access).readable
    whole = visible.subgraph(range(len(visible)), range(len(visible.heads)))
    shown = {passage.id: passage for passage in seen.passages or () if readable(passage.id)}
    _write(out, to_graphml(whole, shown), visible)


def _write(out: Path, content: str, shown: CorpusGraph, note: str = "") -> None:
    write_atomically(out, content)
    Console().print(f"wrote {out}{note}", soft_wrap=True)
    Console().print(f"{len(shown):,} entities, {len(shown.heads):,} relations")
