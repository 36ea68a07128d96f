"""The static graph beside the evolving one: what it finds, what of it is cited, where time goes."""

from __future__ import annotations

from statistics import fmean

from ga_dspy.arena.labels import ordered
from ga_dspy.arena.methods import METHODS
from ga_dspy.arena.runs import Run, Runs
from ga_dspy.arena.tables.table import (
    Column,
    Missing,
    Table,
    Value,
    equal_k,
    f1_estimate,
    mark_notes,
    row,
    rule,
)
from ga_dspy.eval.measures import timing

STATIC = tuple(name for name, method in METHODS.items() if method.needs_graph)
BESIDE = ("vanilla-rag", "graph-anchor")
_PARTS = ("linking", "expansion", "ranking", "passages", "lm")


def graphrag(runs: Runs) -> Table | Missing:
    """GraphRAG from passages alone to facts, paths and summaries, beside the paper's methods."""
    title = "GraphRAG: a graph built ahead of time"
    found = [run for run in equal_k(ordered(runs)) if run.method in (*STATIC, *BESIDE)]
    if not any(run.method in STATIC for run in found):
        needs = "an arena with the graph of each index: `--graph DIR --programs graphrag`"
        return Missing("graphrag", title, needs)
    return Table(
        name="graphrag",
        title=title,
        about="What each part of the graph adds: passages ranked by it, then facts, then paths "
        "(local), then summaries (hybrid); global reads summaries alone. Coverage: gold triples "
        "in the part of the graph that was used, by their two ends; chain: in the evidence "
        "chain; faithful: cited edges that exist and whose quote stands in the passage. The "
        "medians of a question's parts in milliseconds.",
        columns=(
            Column("F1"),
            Column("Support recall"),
            Column("Coverage"),
            Column("Chain recall"),
            Column("Faithful"),
            Column("Cited edges", "count"),
            Column("Tokens", "count"),
            *(Column(f"{part.replace('lm', 'LM')}, ms") for part in _PARTS),
        ),
        rows=tuple(row(run, *_values(run)) for run in found),
        notes=(
            *mark_notes(runs, found),
            "The tokens that building the graph took are not among these: GraphAnchor and vanilla "
            "RAG need none.",
            "Ranking encodes each fact once in a process: a run that comes after another over the "
            "same graph finds most of them kept.",
        ),
        score=rule(found),
    )


def _values(run: Run) -> list[Value]:
    results, told = run.report.results, run.report.measures()
    parts = timing(results)
    answered = [result.tokens for result in results if result.tokens is not None]
    return [
        f1_estimate(run.report),
        run.report.support_recall,
        told["graph_recall"] if any(result.triples for result in results) else None,
        told["chain_recall"] if any(result.chain for result in results) else None,
        told["faithful_share"],
        sum(result.cited[0] for result in results),
        fmean(answered) if answered else None,
        *(1000.0 * parts[part] if part in parts else None for part in _PARTS),
    ]
