"""What was read and what the answers rest on; sufficiency as a classifier."""

from __future__ import annotations

from ga_dspy.arena.labels import held_up
from ga_dspy.arena.runs import Run, Runs
from ga_dspy.arena.tables.table import Column, Missing, Table, Value, mark_notes, row
from ga_dspy.eval.measures import by_step, judgements

_FACTS = ("fact_f1", "joint_f1", "joint_em")
_GRAPH = ("graph_recall", "graph_precision")
_CHAIN = ("chain_recall", "chain_precision")


def evidence(runs: Runs) -> Table | Missing:
    """Retrieval, supporting facts, the graph and the evidence chain against gold."""
    title = "Retrieval and evidence"
    found = [run for run in held_up(runs) if _reads(run)]
    if not found:
        return Missing("evidence", title, "a method that retrieves")
    return Table(
        name="evidence",
        title=title,
        about="In percent, a failed question counting 0. Support: titles of the passages read "
        "against gold titles; hit: an accepted answer occurs in what was read by the last step "
        "(yes/no questions left out); fact and joint: supporting sentences by HotpotQA's official "
        "rule, joint with the answer; graph and chain: against gold triples by their two ends; "
        "grounded: proposed graph items that a passage states; supported: answers that the "
        "program says a passage carries.",
        columns=tuple(
            Column(name)
            for name in (
                *("Support recall", "Support precision", "Hit"),
                *("Fact F1", "Joint F1", "Joint EM"),
                *("Graph recall", "Graph precision", "Chain recall", "Chain precision"),
                *("Grounded", "Supported"),
            )
        ),
        rows=tuple(row(run, *_evidence(run)) for run in found),
        notes=(
            *mark_notes(runs, found),
            "–: the dataset names no gold of that kind, or the method makes nothing of that kind.",
        ),
    )


def sufficiency(runs: Runs) -> Table | Missing:
    """The judgement "sufficient" against whether all gold passages had been read."""
    title = "Sufficiency as a classifier"
    found = [run for run in held_up(runs) if judgements(run.report.results).questions]
    if not found:
        needs = "a method that judges (graph-anchor), on a dataset with gold titles"
        return Missing("sufficiency", title, needs)
    return Table(
        name="sufficiency",
        title=title,
        about='Steps judged "sufficient" against whether passages of all gold titles had been '
        "read, in percent of steps; stopped early and searched long in percent of questions.",
        columns=(
            *(Column(name) for name in ("Precision", "Recall", "F1", "Accuracy")),
            *(Column(name) for name in ("Stopped early", "Searched long", "Wasted steps")),
            Column("Judged", "count"),
            Column("Left out", "count"),
        ),
        rows=tuple(row(run, *_sufficiency(run)) for run in found),
        notes=(
            *mark_notes(runs, found),
            "Judged: questions counted; left out: those that failed, or without a judged step or "
            "gold titles. Wasted steps: a mean count over the questions counted.",
        ),
    )


def _reads(run: Run) -> bool:
    return run.report.protocol.k is not None or any(r.passages for r in run.report.results)


def _evidence(run: Run) -> list[Value]:
    results, told = run.report.results, run.report.measures()
    graphed = run.report.protocol.settings.get("index") == "graph"
    # A method that makes no graph has not failed to find the gold triples in one.
    has_graph = graphed or any(result.triples for result in results)
    has_chain = graphed or any(result.chain for result in results)
    steps = by_step(results, max((len(result.trace) for result in results), default=0))
    return [
        run.report.support_recall,
        told["support_precision"],
        steps[-1].hit if steps else None,
        *(told[name] for name in _FACTS),
        *(told[name] if has_graph else None for name in _GRAPH),
        *(told[name] if has_chain else None for name in _CHAIN),
        told["grounded_share"],
        told["supported"],
    ]


def _sufficiency(run: Run) -> list[Value]:
    judged = judgements(run.report.results)
    ratios = (judged.precision, judged.recall, judged.f1, judged.accuracy)
    shares = (judged.stopped_early, judged.searched_long)
    percent = [None if ratio is None else 100.0 * ratio for ratio in (*ratios, *shares)]
    return [*percent, judged.wasted_steps, judged.questions, judged.left_out]
