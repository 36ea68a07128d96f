"""The paper's tables and those beyond them, each a function of the runs."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import compress
from statistics import fmean
from typing import Any

from ga_dspy.arena import paper
from ga_dspy.arena.methods import METHODS
from ga_dspy.arena.runs import Run, Runs, dataset_label, lm_label, method_label
from ga_dspy.arena.table import (
    AVERAGE,
    CACHED,
    FROM_CACHE,
    Row,
    Table,
    Value,
    f1_with_interval,
    printed_row,
    row,
    table_of,
)
from ga_dspy.eval import Protocol, Result
from ga_dspy.eval.report import by_step, judgements, steps_reached, timing, usage_by_step
from ga_dspy.eval.scores import answer_in
from ga_dspy.programs import Usage

# --- Tables 1, 2 and 4: F1 and EM by dataset, the paper's rows beneath; all scores side by side.


def _group(name: str) -> tuple[str, ...]:
    return tuple(method.name for method in METHODS.values() if method.group == name)


_TABLE_1 = (*_group("methods"), "graph-rag", "graph-rag-hybrid")
_BESIDE = ("vanilla-rag", "graph-anchor")


def table_1(runs: Runs) -> Table:
    """Table 1: methods by dataset, and programs that are no method of ours."""
    return _by_dataset(runs, "table_1", _TABLE_1, paper.TABLE_1)


def table_2(runs: Runs) -> Table:
    """Table 2: ablations by dataset."""
    ablations = _group("ablations")
    return _by_dataset(
        runs,
        "table_2",
        ("vanilla-rag", *ablations[:3], "graph-anchor", *ablations[3:]),
        paper.TABLE_2,
        beside=_BESIDE,
    )


def table_4(runs: Runs) -> Table:
    """Table 4: vanilla RAG by depth."""
    return _by_dataset(
        runs,
        "table_4",
        ("vanilla-rag", *_group("depths"), "graph-anchor"),
        paper.TABLE_4,
        beside=_BESIDE,
        with_k=True,
    )


def _by_dataset(
    runs: Runs,
    name: str,
    methods: Sequence[str],
    printed: Sequence[paper.Scores] = (),
    *,
    beside: Sequence[str] = (),
    with_k: bool = False,
) -> Table:
    """A table of scores.

    Args:
        runs: All runs there are.
        name: Of the table, in tables.json.
        methods: Those in the table, in order.
        printed: The paper's rows.
        beside: Methods that alone do not make the table.
        with_k: Whether vanilla RAG is named with its number of passages.
    """
    found = [
        run
        for run in runs.in_order()
        if run.budget is None
        and (run.method in methods or (run.method not in METHODS and not beside))
    ]
    if all(run.method in beside for run in found):
        found = []
    if beside:
        found.sort(key=lambda run: (runs.lms.index(run.lm), methods.index(run.method)))
    datasets = [name for name in runs.datasets if any(run.dataset == name for run in found)]

    def label(method: str, k: int | None) -> str:
        numbered = with_k and method == "vanilla-rag"
        return f"Vanilla RAG (top {k})" if numbered else method_label(method)

    def rows() -> Iterator[Row]:
        groups: dict[tuple[str, str], list[Run]] = {}
        for run in found:
            groups.setdefault((run.lm, run.method), []).append(run)
            values = {**f1_with_interval(run.report), "EM": run.report.em}
            yield row(run, values, method=label(run.method, run.report.protocol.k))
        for (lm, method), group in groups.items():
            if len(group) == len(datasets) > 1:
                reports = [run.report for run in group]
                yield {
                    "source": "measured",
                    "LM": lm_label(lm),
                    "method": label(method, reports[0].protocol.k),
                    "dataset": AVERAGE,
                    "F1": fmean(report.f1 for report in reports),
                    "EM": fmean(report.em for report in reports),
                    "mark": ", ".join(sorted({run.mark for run in group} - {""})),
                }
        for scores in printed:
            shown = [name for name in datasets if name in {*scores.by_dataset} & runs.printed]
            whole = len(shown) == len(paper.QUESTIONS)
            average = scores.average if whole else shown and scores.mean(shown)
            cells = [(dataset_label(d), scores.by_dataset[d], paper.QUESTIONS[d]) for d in shown]
            averaged = [(AVERAGE, average, None)] if len(shown) == len(datasets) > 1 else []
            for dataset, (f1, em), n in (*cells, *averaged):
                method = label(scores.method, paper.K)
                yield printed_row(scores.lm, method, dataset, {"F1": f1, "EM": em}, n)

    averaged = "Averages are over the datasets shown, each counting the same, where a method has "
    notes = [averaged + "all."] if len(datasets) > 1 else []
    return table_of(runs, name, found, rows(), *notes)


def _per_run(runs: Runs, name: str, found: Sequence[Run], values: Callable[[Run], Row]) -> Table:
    """A table with a row a run, of what a function says of it."""
    return table_of(runs, name, found, (row(run, values(run)) for run in found))


def side_by_side(runs: Runs) -> Table:
    """Every answer score of every run, so that no choice of score can flatter."""

    def scores(run: Run) -> Row:
        return {
            "F1, official": 100 * fmean(result.f1 for result in run.report.results),
            "F1, SQuAD": 100 * fmean(run.report.values("f1_squad")),
            "EM": run.report.em,
            "Acc": run.report.acc,
            **({"Judged": run.report.judged} if run.report.protocol.judge else {}),
        }

    return _per_run(runs, "scores", runs.in_order(points=True), scores)


# --- Table 3: the steps at which questions ended.


def table_3(runs: Runs) -> Table:
    """Table 3: percent of the questions that ended at each step, and of those that failed."""
    found = [run for run in runs.in_order() if (run.report.protocol.steps or 0) > 1]
    ended = [steps_reached(run.report.results) for run in found]
    # Four steps at least, so that the paper's rows fit.
    last = max([4, *(int(name) for counts in ended for name in counts if name.isdigit())])
    steps = {str(step): f"Step {step}" for step in range(1, last + 1)}
    # Questions whose program did not say have a column of their own, where there are some.
    unknown = {"(none)": "Not told"} if any("(none)" in counts for counts in ended) else {}
    names = {**steps, **unknown, "failed": "Failed, %"}

    def share(run: Run, counts: Mapping[str, int], name: str) -> float | None:
        if name.isdigit() and int(name) > (run.report.protocol.steps or 0):
            return None
        return 100.0 * counts.get(name, 0) / len(run.report.results)

    return table_of(
        runs,
        "table_3",
        found,
        (
            *(
                row(run, {heading: share(run, counts, name) for name, heading in names.items()})
                for run, counts in zip(found, ended, strict=True)
            ),
            *(
                printed_row(
                    printed.lm,
                    method_label("graph-anchor"),
                    dataset_label(printed.dataset),
                    dict(zip(steps.values(), printed.steps, strict=False)),
                    paper.QUESTIONS[printed.dataset],
                )
                for printed in paper.TABLE_3
                if printed.dataset in {run.dataset for run in found} & runs.printed
            ),
        ),
    )


def by_step_table(runs: Runs) -> Table:
    """What the paper's Figures 3 and 4 show: the graph, and what was found, after each step."""
    found = [run for run in runs.in_order() if (run.report.protocol.steps or 0) > 1]
    headings = ("Step", "Reached", "Hit", "Overlap", "Entities", "Triples")
    rows = (
        row(run, dict(zip(headings, (str(point.step), *point[1:]), strict=True)))
        for run in found
        for point in by_step(run.report.results, max(len(r.trace) for r in run.report.results))
    )
    return table_of(runs, "by_step", found, rows)


# --- Cost: Table 5, and the token ledger.


def table_5(runs: Runs) -> Table:
    """Table 5: seconds, LM calls, tokens and dollars."""
    found = runs.in_order(points=True)
    rows = [row(run, _cost(run)) for run in found]
    rows += [
        printed_row(
            times.lm, method_label(times.method), dataset_label(dataset), _seconds(seconds),
            paper.TIMED,
        )
        for times in paper.TABLE_5
        for dataset, seconds in times.seconds.items()
        if dataset in runs.printed
    ]  # fmt: skip
    cached = (
        f"{CACHED.strip()} Some of the calls were answered from the cache: these are not the "
        "seconds that the method takes. Tokens and dollars count cached calls at what they cost "
        "when made."
    )
    return table_of(
        runs,
        "table_5",
        found,
        rows,
        *([cached] if any(one.get(FROM_CACHE) for one in rows) else ()),
    )


def ledger(runs: Runs) -> Table:
    """What each step of each program cost, and which LM it asked."""
    found = [run for run in runs.in_order() if _counted(run)]
    rows = (
        row(
            run,
            {
                "LM step": step,
                **_calls_and_tokens(run, usage),
                "Share of tokens, %": 100.0 * usage.tokens / tokens if tokens else None,
            },
            LM=lm_label(run.report.protocol.lm_of(step)),
        )
        for run in found
        for tokens in [_total(run).tokens]
        for step, usage in usage_by_step(run.report.results).items()
    )
    return table_of(runs, "ledger", found, rows)


def _cost(run: Run) -> Row:
    total, questions = _total(run), len(_counted(run))
    dollars: Value = None
    if questions:
        dollars = "unpriced" if total.cost is None else paper.TIMED * total.cost / questions
    return {
        **_seconds(paper.TIMED * run.report.seconds / len(run.report.results)),
        "LM calls": None,
        FROM_CACHE: 100.0 * total.cached / total.calls if total.calls else None,
        **_calls_and_tokens(run, total),
        f"US $ per {paper.TIMED}": dollars,
    }


def _seconds(in_all: float) -> Row:
    return {"Seconds": in_all / paper.TIMED, f"Seconds per {paper.TIMED}": in_all}


def _calls_and_tokens(run: Run, usage: Usage) -> Row:
    """Means over the questions whose cost is known."""
    questions = len(_counted(run))
    sums = {
        "LM calls": usage.calls,
        "Prompt tokens": usage.prompt_tokens,
        "Completion tokens": usage.completion_tokens,
    }
    return {name: total / questions if questions else None for name, total in sums.items()}


def _counted(run: Run) -> list[Result]:
    return [result for result in run.report.results if result.usage]


def _total(run: Run) -> Usage:
    return Usage.total(result.cost for result in _counted(run))


# --- What was read and what the answers rest on; sufficiency as a classifier.


def evidence(runs: Runs) -> Table:
    """Retrieval, supporting facts, the graph and the evidence chain against gold."""
    found = [
        run
        for run in runs.in_order()
        if run.report.protocol.k is not None or any(r.passages for r in run.report.results)
    ]
    return _per_run(runs, "evidence", found, _evidence)


def _evidence(run: Run) -> Row:
    results, measures = run.report.results, run.report.measures()
    # A method that makes no graph has not failed to find the gold triples in one.
    graphed = run.report.protocol.settings.get("index") == "graph"
    if not graphed and not any(result.triples for result in results):
        measures |= {"graph_recall": None, "graph_precision": None}
    if not graphed and not any(result.chain for result in results):
        measures |= {"chain_recall": None, "chain_precision": None}
    steps = by_step(results, max((len(result.trace) for result in results), default=0))
    return {
        "Support recall": run.report.support_recall,
        "Support precision": measures["support_precision"],
        "Hit": steps[-1].hit if steps else None,
        "Fact F1": measures["fact_f1"],
        "Joint F1": measures["joint_f1"],
        "Joint EM": measures["joint_em"],
        "Graph recall": measures["graph_recall"],
        "Graph precision": measures["graph_precision"],
        "Chain recall": measures["chain_recall"],
        "Chain precision": measures["chain_precision"],
        "Grounded": measures["grounded_share"],
        "Supported": measures["supported"],
        "Chained": measures["chained"],
    }


def sufficiency(runs: Runs) -> Table:
    """The judgement "sufficient" against whether all gold passages had been read."""
    found = [run for run in runs.in_order() if judgements(run.report.results).questions]
    return _per_run(runs, "sufficiency", found, _sufficiency)


def _sufficiency(run: Run) -> Row:
    judged = judgements(run.report.results)
    ratios = ("precision", "recall", "f1", "accuracy", "stopped_early", "searched_long")
    values = {name: getattr(judged, name) for name in ratios}
    return {
        **{
            name.replace("_", " ").capitalize(): None if value is None else 100.0 * value
            for name, value in values.items()
        },
        "Wasted steps": judged.wasted_steps,
        "Judged": judged.questions,
        "Left out": judged.left_out,
    }


# --- The graph built ahead of time beside the evolving one: what it finds and cites, and its time.


def graphrag(runs: Runs) -> Table:
    """GraphRAG from passages alone to facts, paths and summaries, beside the paper's methods."""
    built = [name for name, method in METHODS.items() if method.needs_graph]
    found = [r for r in runs.in_order() if r.budget is None and r.method in (*built, *_BESIDE)]
    if not any(run.method in built for run in found):
        found = []
    return _per_run(runs, "graphrag", found, _graphrag)


def _graphrag(run: Run) -> Row:
    results, measures = run.report.results, run.report.measures()
    tokens = [result.tokens for result in results if result.tokens is not None]
    seconds = timing(results)
    parts = ("linking", "expansion", "ranking", "passages", "lm")
    return {
        **f1_with_interval(run.report),
        "Support recall": run.report.support_recall,
        "Coverage": measures["graph_recall"] if any(r.triples for r in results) else None,
        "Chain recall": measures["chain_recall"] if any(r.chain for r in results) else None,
        "Faithful": measures["faithful_share"],
        "Cited edges": sum(result.cited[0] for result in results),
        "Tokens": fmean(tokens) if tokens else None,
        **{
            f"{part.replace('lm', 'LM')}, ms": 1000.0 * seconds[part] if part in seconds else None
            for part in parts
        },
    }


# --- Figure 7's splits: whether the answer was in what was read, and whether it was known before.

CLOSED_BOOK = "closed-book"


def knowledge_use(runs: Runs) -> Table:
    """F1 of each method on each of the paper's three splits."""
    found = [run for run in runs.in_order() if run.method != CLOSED_BOOK]
    return _per_run(runs, "knowledge_use", found, partial(_splits, runs))


def _splits(runs: Runs, run: Run) -> Row:
    """A run's F1 and number of questions by split.

    A failed question has read nothing. What was known before is None where there is no
    closed-book run of that LM.
    """
    closed = runs.get(CLOSED_BOOK, run.dataset, run.lm)
    results = closed.report.results if closed else ()
    known = {(result.id, result.question) for result in results if result.acc == 1.0}
    hits = [_hit(result) for result in run.report.results]

    def split(name: str, belongs: Iterable[bool]) -> Row:
        scores = list(compress(run.report.values(), belongs))
        mean = 100.0 * fmean(scores) if scores else None
        return {f"{name} F1": mean, f"{name} n": len(scores)}

    knew = split("Internal knowledge", ((r.id, r.question) in known for r in run.report.results))
    return {
        **split("Has answer", (hit is True for hit in hits)),
        **split("Miss answer", (hit is False for hit in hits)),
        **(knew if closed else dict.fromkeys(knew)),
    }


def _hit(result: Result) -> bool | None:
    """Whether an accepted answer is in what was read; None for a yes/no question."""
    if result.trace:
        return result.trace[-1].hit
    found = [answer_in(passage.content, result.gold) for passage in result.passages]
    return any(found) if found and None not in found else answer_in("", result.gold)


# --- Under which protocol every number was measured, and every question that failed.


def protocols(runs: Runs) -> Table:
    """The protocol of every run."""
    return _per_run(
        runs, "protocols", runs.in_order(points=True), lambda run: _protocol(run.report.protocol)
    )


def failures(runs: Runs) -> Table:
    """Every question that failed, or was answered though a step failed, of every run."""
    found = [r for r in runs.in_order(points=True) if r.report.failed or r.report.degraded]
    none: Row = {"n": None, "failed": None, "degraded": None}
    return table_of(
        runs,
        "failures",
        found,
        (
            row(run, {"Question": result.id, "Lost": lost, "Error": error}, **none)
            for run in found
            for lost, results in (("question", run.report.failed), ("step", run.report.degraded))
            for result in results
            for error in ([result.error] if result.error else result.step_failures)
        ),
    )


def _protocol(protocol: Protocol) -> Row:
    defaults = {"token_budget": None, **_defaults(protocol)}
    settings = {
        name: value
        for name, value in protocol.settings.items()
        if name not in ("k", "max_steps") and (name not in defaults or defaults[name] != value)
    }
    digits = 12
    return {
        "Protocol": protocol.hash,
        "Split": protocol.split or None,
        "Questions": protocol.questions_sha256[:digits],
        "File": protocol.sha256 and protocol.sha256[:digits],
        "Corpus": protocol.corpus and protocol.corpus[:digits],
        "Retriever": protocol.retriever or None,
        "Encoder": protocol.encoder or None,
        "k": None if protocol.k is None else str(protocol.k),
        "Steps": None if protocol.steps is None else str(protocol.steps),
        "Score": protocol.score,
        "Sampling": _listed(protocol.sampling),
        "Settings": _listed(settings),
        "Versions": _listed(protocol.versions),
    }


def _defaults(protocol: Protocol) -> dict[str, Any]:
    """The settings of its program where none is given; none of an unknown program."""
    # A compiled program has a name of its own; its settings say what it is.
    own = METHODS.get(protocol.program)
    for method in [own] if own else METHODS.values():
        settings = method.program(lambda query, k: []).settings()
        if own or settings.keys() == protocol.settings.keys():
            return settings
    return {}


def _listed(settings: Mapping[str, Any]) -> str | None:
    texts = (
        f"{name}={value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)}"
        for name, value in sorted(settings.items())
    )
    return ", ".join(texts) or None
