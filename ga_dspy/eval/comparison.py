"""Compare finished runs: which method is best, a table and figures per group, CSV files.

Runs are in one group if they have the same LM, questions, corpus, retriever and score. `run_table`
returns a data frame with a row per run and unrounded numbers: tables/runs.csv has all of it, the
tables in report.md have parts of it.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from hashlib import sha256
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ga_dspy.errors import InputError, require
from ga_dspy.eval.methods import METHODS, method
from ga_dspy.eval.plots import Point, plot_costs, plot_scores, save_plot
from ga_dspy.eval.protocol import Protocol
from ga_dspy.eval.report import JOURNAL, Report, load_report, paired_test
from ga_dspy.eval.result import Result
from ga_dspy.eval.statistics import holm, mean_of_known
from ga_dspy.lm.endpoints import EMBEDDED
from ga_dspy.storage import write_atomically
from ga_dspy.text import csv_cell, defuse_markup, visible

if TYPE_CHECKING:
    from pandas import DataFrame

BASELINE = "vanilla-rag"
"""The method that the others are compared with by default."""

_DATASETS = {
    "musique": "MuSiQue",
    "hotpotqa": "HotpotQA",
    "2wikimultihopqa": "2WikiMultiHopQA",
    "bamboogle": "Bamboogle",
}
"""Labels of the datasets, in the paper's order."""


# --- Finished runs


class Run(NamedTuple):
    """A finished run.

    Attributes:
        report: Its results and protocol.
        group: The heading of its table: dataset and LM, and how its questions, passages or score
            differ from those of the first run on its dataset.
    """

    report: Report
    group: str

    @property
    def budget(self) -> int | None:
        """The token budget per question; None at equal k."""
        budget = self.report.protocol.settings.get("token_budget")
        return budget if isinstance(budget, int) else None

    @property
    def line(self) -> str:
        """The method's label with the LMs of its steps; one line of the plot of costs."""
        protocol = self.report.protocol
        method = METHODS.get(protocol.program)
        lms = [f"{step}: {lm}" for step, lm in protocol.lms.items()]
        return ", ".join((method.label if method else protocol.program, *lms))

    @property
    def label(self) -> str:
        """The line's label with the token budget, for tables and figures."""
        return f"{self.line} within {self.budget:,} tokens" if self.budget else self.line


def collect(folders: Iterable[Path]) -> list[Run]:
    """Return all finished runs in or below the folders, in the order of `arrange`.

    Raises:
        InputError: A folder holds no run, a run is not finished, or two runs of a group have the
            same method and token budget.
    """
    paths: list[Path] = []
    for folder in folders:
        runs_in = [journal.parent for journal in sorted(folder.rglob(JOURNAL))]
        if not runs_in:
            remedy = "pass a folder that ga-dspy eval or arena wrote"
            raise InputError(f"{folder} holds no run", remedy=remedy)
        paths += runs_in
    # One of the folders may contain another.
    runs = arrange(map(load_report, {path.resolve(): path for path in paths}.values()))
    for (group, label), count in Counter((run.group, run.label) for run in runs).items():
        if count > 1:
            expected = "one run per method, token budget, dataset and LM"
            raise InputError(f"{count} runs of {label} on {group}", expected=expected)
    return runs


def arrange(reports: Iterable[Report]) -> list[Run]:
    """Return runs in the order of the paper's tables: by LM, dataset, token budget and method."""
    placed, lms, first_bases = [], list[str](), dict[str, dict[str, Any]]()
    for report in reports:
        protocol, basis = report.protocol, report.protocol.basis
        is_own = protocol.dataset == "qa"
        dataset = Path(protocol.source).stem if is_own else protocol.dataset
        first = first_bases.setdefault(dataset, basis)
        unlike = [f"{k} {basis[k]} (not {first[k]})" for k in basis if basis[k] != first[k]]
        lm = "embedded extractive LM (no LLM)" if protocol.lm == EMBEDDED else protocol.lm
        run = Run(report, ", ".join((_DATASETS.get(dataset, dataset), lm, *unlike)))
        lms.append(lm)
        within = run.budget or 0, _place(protocol.program, METHODS)
        placed.append((lms.index(lm), _place(dataset, _DATASETS), run.group, *within, run))
    return [run for *_, run in sorted(placed, key=lambda place: place[:-1])]


def _place(name: str, order: Iterable[str]) -> tuple[int, str]:
    """Return a sort key: names in the given order, then all others by name."""
    return [*order, name].index(name), name


# --- Data frames


def run_table(runs: Iterable[Run], baseline: str = BASELINE) -> DataFrame:
    """Return a row per run with every measure; None if a measure does not apply.

    The runs of each group and token budget are compared with the baseline, or with the best run
    if the baseline was not run. Runs that only limit the steps of another method (the paper's
    Figure 3) are not compared.

    Args:
        runs: The runs, in the order of `arrange`.
        baseline: The method to compare with.

    Raises:
        InputError: There is no method `baseline`.
        MissingExtra: pandas is not installed.
    """
    method(baseline)
    limited = {name for name, method in METHODS.items() if method.group == "steps"}
    pairs = [(run, _row(run)) for run in runs]
    compared = (pair for pair in pairs if pair[1]["Program"] not in limited)
    for _, family in groupby(compared, lambda pair: (pair[1]["Group"], pair[1]["Token budget"])):
        ranked = sorted(family, key=lambda pair: -pair[1]["F1"])
        other = next((pair for pair in ranked if pair[1]["Program"] == baseline), ranked[0])
        rest = [pair for pair in ranked if pair is not other]
        tests = [paired_test(run.report, other[0].report) for run, _ in rest]
        corrected = holm([test.p_value for test in tests])
        for (_, row), test, p in zip(rest, tests, corrected, strict=True):
            row |= {
                "Baseline": other[0].label, "Comparisons": len(rest), "p": p,
                "Difference": test.difference, "p, uncorrected": test.p_value,
            }  # fmt: skip
    return _frame([row for _, row in pairs])


def _frame(rows: list[dict[str, Any]], columns: Sequence[str] | None = None) -> DataFrame:
    pandas = require("pandas", "report")
    # As objects, because a column of integers and None would become floats.
    frame: DataFrame = pandas.DataFrame(rows, dtype=object, columns=columns)
    return frame.where(frame.notna(), None)


def _row(run: Run) -> dict[str, Any]:
    report, results, usage = run.report, run.report.results, run.report.usage
    costs = [result.cost for result in results if result.usage]
    measures = report.measures()
    sufficiency = {f"sufficiency {name}": share for name, share in measures["sufficiency"].items()}
    shares = {name: value for name, value in measures.items() if not isinstance(value, dict | list)}
    return {
        "Group": run.group,
        "Method": run.label,
        "Line": run.line,
        "n": len(results),
        "Failed": len(report.failed),
        "Degraded": len(report.degraded),
        **_f1_columns(report),
        "EM": report.em,
        "Acc": report.acc,
        "Judged right": report.judged,
        "Recall": report.support_recall,
        **dict.fromkeys(("Baseline", "Comparisons", "Difference", "p", "p, uncorrected")),
        "Calls": _mean(results, "calls"),
        "Tokens": _mean(results, "tokens"),
        "Prompt tokens": _mean(costs, "prompt_tokens"),
        "Completion tokens": _mean(costs, "completion_tokens"),
        "US $ per 100": 100 * usage.cost / len(costs) if costs and usage.cost is not None else None,
        "From cache, %": 100 * usage.cached / usage.calls if usage.calls else None,
        "Seconds": report.seconds / len(results),
        **shares,
        **sufficiency,
        "Dataset": report.protocol.dataset,
        "Program": report.protocol.program,
        "Token budget": run.budget,
        "LM": report.protocol.lm_names,
        "Protocol": report.protocol.hash,
    }


def _mean(records: Iterable[Any], field: str) -> float | None:
    return mean_of_known(getattr(record, field) for record in records)


def _f1_columns(report: Report) -> dict[str, float]:
    low, high = report.ci95
    return {"F1": report.f1, "F1 low": low, "F1 high": high}


def verdicts(table: DataFrame) -> list[str]:
    """Return a sentence per comparison: the best run, its lead, the p-value and the cost.

    Args:
        table: From `run_table`.
    """
    rows = table.to_dict("records")
    by_label = {(row["Group"], row["Method"]): row for row in rows}
    best: dict[tuple[str, str], Any] = {}
    for row in sorted(rows, key=lambda row: -row["F1"]):
        if row["Baseline"]:
            best.setdefault((row["Group"], row["Baseline"]), row)
    return [_verdict(best[key], row) for key, row in by_label.items() if key in best]


def _verdict(run: Mapping[str, Any], other: Mapping[str, Any]) -> str:
    """Return the sentence on a run and the baseline that it was compared with."""
    difference, p, comparisons = run["Difference"], run["p"], run["Comparisons"]
    best, other = (run, other) if difference >= 0 else (other, run)
    has = f"F1 {best['F1']:.1f}"
    ahead = f"{has}, {abs(difference):.1f} points above {other['Method']}"
    if not difference:
        lead = f"**no difference**: {best['Method']} has {has}, as has {other['Method']}"
    elif p < 0.05:
        lead = f"**{best['Method']} is best**: {ahead}"
    else:
        lead = f"**no significant difference**: {best['Method']} has {ahead}"
    tokens, others = best["Tokens"] or 0.0, other["Tokens"] or 0.0
    times = f", at {tokens / others:.1f} times the tokens" if tokens and others else ""
    judged = [row["Judged right"] for row in (best, other) if row["Judged right"] is not None]
    right = "; judged right: " + " and ".join(f"{share:.1f} %" for share in judged)
    return (
        f"{best['Group']}, {best['n']:,} questions: {lead} (p {_number('p', p)}, Holm-corrected "
        f"for {comparisons} comparison{'s' if comparisons > 1 else ''}){times} ({tokens:,.0f} and "
        f"{others:,.0f} per question){right if judged else ''}."
    )


def part_table(runs: Iterable[Run]) -> DataFrame:
    """Return a row per run and number of hops, and per run and number of steps taken.

    MuSiQue states the number of hops; for other datasets it is the number of passages that a
    question needs. A failed question is in no row of steps.

    Raises:
        MissingExtra: pandas is not installed.
    """
    rows = []
    for run in runs:
        parts: dict[tuple[str, str], list[Result]] = {}
        for result in run.report.results:
            for by, number in (("hops", _hops(result)), ("steps", result.steps)):
                if number:
                    value = "5 or more" if number > 4 else str(number)
                    parts.setdefault((by, value), []).append(result)
        about = {"Group": run.group, "Method": run.label, "Program": run.report.protocol.program}
        for (by, value), results in parts.items():
            scores = _f1_columns(run.report.part(results))
            rows.append({**about, "By": by, "Value": value, "n": len(results), **scores})
    return _frame(rows, None if rows else ("Group", "By", "Value"))


def _hops(result: Result) -> int:
    named = re.match(r"(\d+)hop", result.type)
    return int(named[1]) if named else len(set(result.gold_titles))


def failure_table(runs: Iterable[Run]) -> DataFrame:
    """Return a row per failed question, and per failed step of a question that was answered.

    Raises:
        MissingExtra: pandas is not installed.
    """
    rows = []
    for run in runs:
        for result in (*run.report.failed, *run.report.degraded):
            lost = "question" if result.error else "step"
            about = {"Group": run.group, "Method": run.label, "Question": result.id, "Lost": lost}
            errors = [result.error] if result.error else result.step_failures
            rows += [{**about, "Error": error} for error in errors]
    return _frame(rows)


# --- Figures of each group

_LEFT_OUT = ("graph-rag-passages", "graph-rag-facts", "graph-rag-graph", "graph-rag-global")
"""GraphRAG's ablations, and its mode that reads every summary: its cost would be off the axis."""

_LONGEST_NAME = 70  # characters of a file's name, which may have 255 bytes
_BY_PART = {
    "hops": "F1 by hops, the passages that a question needs",
    "steps": "F1 by steps that a question took",
}


class Drawn(NamedTuple):
    """A figure of a group, or why there is none.

    Attributes:
        group: The group.
        caption: What the figure shows; without a figure, the reason.
        path: The image; None without a figure.
        alt: The methods with their F1, as text.
    """

    group: str
    caption: str
    path: Path | None = None
    alt: str = ""


def draw_figures(runs: DataFrame, parts: DataFrame, out: Path) -> list[Drawn]:
    """Draw the figures of each group; the same tables give the same bytes.

    Args:
        runs: From `run_table`.
        parts: From `part_table`.
        out: The folder of the report; the images in figures/ replace earlier ones.

    Raises:
        MissingExtra: matplotlib is not installed.
    """
    for path in (out / "figures").glob("f1-*.png"):
        path.unlink()
    drawn = []
    for group, table in runs.groupby("Group", sort=False):
        about = f"{group}, {table['n'].iloc[0]:,} questions"
        table = table.sort_values("F1", ascending=False, kind="stable")
        others = _baselines(table)
        heading = f"F1 (difference from {others}; * p < 0.05)" if others else "F1"
        for stem, title, panels in _panels(table, parts[parts["Group"] == group]):
            if not panels:
                why = "the number is unknown, or the same for all questions"
                drawn.append(Drawn(group, f"No figure of {title}: {why}."))
                continue
            if stem == "f1-by-tokens":
                figure = plot_costs(panels[""], title, about)
            else:
                above = heading if "" in panels else ""
                figure = plot_scores(panels, title, about, above, list(table["Method"]))
            name = re.sub(r"[^\w.]+", "-", f"{stem} {group}".lower()).strip("-")
            if len(name) > _LONGEST_NAME:
                name = f"{name[:_LONGEST_NAME]}-{sha256(group.encode()).hexdigest()[:8]}"
            path = out / "figures" / f"{name}.png"
            save_plot(figure, path)
            drawn.append(Drawn(group, title, path, _alt(title, panels)))
    return drawn


def _baselines(table: DataFrame) -> str:
    return ", ".join(dict.fromkeys(filter(None, table["Baseline"])))


def _panels(
    table: DataFrame, parts: DataFrame
) -> Iterator[tuple[str, str, dict[str, list[Point]]]]:
    """Yield the file name and the title of each figure, and its points by panel title."""
    rows = table.to_dict("records")
    yield "f1-by-method", "F1 by method", {"": [_point(row, _note(row)) for row in rows]}
    costs = [
        _point(row)._replace(label=row["Line"])
        for row in rows
        if row["Tokens"] is not None and row["Program"] not in _LEFT_OUT
    ]
    yield "f1-by-tokens", "F1 against tokens per question", {"": costs} if costs else {}
    for by, title in _BY_PART.items():
        panels: dict[str, list[Point]] = {}
        for value, part in parts[parts["By"] == by].groupby("Value"):
            name = f"{value} {by[:-1] if value == '1' else by}"
            panels[name] = [_point(row, f"n = {row['n']:,}") for row in part.to_dict("records")]
        yield f"f1-by-{by}", title, panels if len(panels) > 1 else {}


def _point(row: Mapping[str, Any], note: str = "") -> Point:
    return Point(
        label=row["Method"],
        f1=row["F1"],
        interval=(row["F1 low"], row["F1 high"]),
        tokens=row.get("Tokens") or 0.0,
        stands_out=row["Program"] == "graph-anchor",
        note=note,
    )


def _note(row: Mapping[str, Any]) -> str:
    """Return F1 and the difference from the baseline, with a star if it is significant."""
    f1, difference, p = (_number(name, row[name]) for name in ("F1", "Difference", "p"))
    if row["p"] is None:
        return f1
    return f"{f1} ({difference}, p {p}){' *' if row['p'] < 0.05 else ''}"


def _alt(title: str, panels: Mapping[str, Sequence[Point]]) -> str:
    scores = []
    for panel, points in panels.items():
        part = f" ({panel})" if panel else ""
        scores += [f"{point.label} {point.f1:.1f}{part}" for point in points]
    return f"{title}: {'; '.join(scores)}"


# --- Files

_INTRODUCTION = (
    "F1 with its 95 % bootstrap interval, EM and Acc (an accepted answer occurs in the answer) in "
    "percent; a failed question scores 0. Recall: percent of the gold passages that were read. "
    "Difference: of the mean F1 from the method named above the table, with the p-value of a "
    "paired permutation test, Holm-corrected over the table. Calls, tokens and seconds are means "
    "per question, without failed questions for calls and tokens; seconds are shown only if no "
    "call was answered from the cache. tables/runs.csv has these and all other measures, "
    "protocol.json the protocol of each run."
)


def write_report(
    runs: Sequence[Run], out: Path, baseline: str = BASELINE
) -> tuple[list[str], list[Drawn]]:
    """Write report.md, protocol.json, tables and figures: the same bytes for the same runs.

    Args:
        runs: The runs.
        out: The folder; these files in it are replaced, report.md last.
        baseline: The method to compare with.

    Returns:
        The verdicts, and the figures or the reasons why they are missing.

    Raises:
        InputError: There is no method `baseline`.
        MissingExtra: pandas or matplotlib is not installed.
    """
    table, parts, failures = run_table(runs, baseline), part_table(runs), failure_table(runs)
    for name, frame in {"runs": table, "parts": parts, "failures": failures}.items():
        path = out / "tables" / f"{name}.csv"
        path.unlink(missing_ok=True)  # of an earlier report
        if len(frame):
            write_atomically(path, frame.map(_csv_value).to_csv(index=False, lineterminator="\n"))
    protocols = [run.report.protocol for run in runs]
    entries = [{"hash": one.hash, **one.model_dump(mode="json")} for one in protocols]
    write_atomically(
        out / "protocol.json", json.dumps(entries, ensure_ascii=False, indent=2) + "\n"
    )
    conclusions, figures = verdicts(table), draw_figures(table, parts, out)
    sections = ["# Report"]
    if conclusions:
        sections += [
            "## Verdict",
            "\n".join(f"- {defuse_markup(verdict)}" for verdict in conclusions),
        ]
    sections += ["## Scores and cost", _INTRODUCTION]
    for group, members in groupby(runs, lambda run: run.group):
        rows = table[table["Group"] == group]
        sections += [f"### {escaped(group)}", _about(next(members).report.protocol, rows)]
        sections.append(markdown(_shown(rows)))
        for figure in figures:
            if figure.group == group and figure.path:
                sections.append(f"![{escaped(figure.alt)}](<figures/{figure.path.name}>)")
            if figure.group == group:
                sections.append(escaped(figure.caption))
    if len(failures):
        sections += ["## Failed questions", markdown(failures)]
    write_atomically(out / "report.md", "\n\n".join(sections) + "\n")
    return conclusions, figures


def _csv_value(value: Any) -> Any:
    if isinstance(value, str):
        return csv_cell(value)
    return round(value, 4) if isinstance(value, float) else value


def _about(protocol: Protocol, rows: DataFrame) -> str:
    """Return the line above a table: its questions, score and baseline."""
    rule = {"official": "HotpotQA's official rule", "squad": "SQuAD's rule"}[protocol.score]
    parts = [f"{protocol.n:,} questions; F1 by {rule}"]
    if others := _baselines(rows):
        parts.append(f"differences from {escaped(others)}")
    if "closed-book" not in set(rows["Program"]):
        parts.append("no closed-book run: what the LM knows without reading is not measured")
    return "; ".join(parts) + "."


_NONE = "–"
_FORMATS = {
    "Method": "", "Failed": ",", "Degraded": ",", "F1": ".1f", "EM": ".1f", "Acc": ".1f",
    "Judged right": ".1f", "Recall": ".1f", "Difference": "+.1f", "p": ".3f", "Calls": ",.1f",
    "Tokens": ",.0f", "US $ per 100": ",.4f", "Seconds": ",.2f",
}  # fmt: skip
"""The columns of report.md, with the formats of their values."""


def _shown(table: DataFrame) -> DataFrame:
    """Return the columns for report.md as texts, without those that have no values."""
    rows = []
    for one in table.to_dict("records"):
        row = {name: _number(name, one[name]) for name in _FORMATS}
        row["F1"] += f" [{one['F1 low']:.1f}, {one['F1 high']:.1f}]"
        row["Seconds"] = _NONE if one["From cache, %"] else row["Seconds"]
        rows.append(row)
    texts = _frame(rows)
    none = {"Failed": {"0"}, "Degraded": {"0"}}
    return texts[[name for name in texts if set(texts[name]) != none.get(name, {_NONE})]]


def _number(column: str, value: Any) -> str:
    if value is None:
        return _NONE
    if column == "p" and value < 0.0005:
        return "<0.001"
    return format(value, _FORMATS[column]).replace("-", "−" if column == "Difference" else "-")


_TEXT_COLUMNS = {"Group", "Method", "Question", "Lost", "Error"}


def markdown(table: DataFrame) -> str:
    """Return a Markdown table of texts with aligned columns, numbers to the right."""
    columns = []
    for name in table:
        is_text = name in _TEXT_COLUMNS
        cells = [escaped(cell) if is_text else cell for cell in table[name]]
        width = max(3, len(name), *map(len, cells))
        side, end = ("<", "-") if is_text else (">", ":")
        rule = "-" * (width - 1) + end
        columns.append([f"{text:{side}{width}}" for text in (name, rule, *cells)])
    return "\n".join(f"| {' | '.join(line)} |" for line in zip(*columns, strict=True))


def escaped(text: str) -> str:
    r"""Escape a text for a cell of a Markdown table.

    >>> escaped("a|b\n*c*")
    'a\\|b \\*c\\*'
    """
    sign = r"([\\|*<`\[\]]|(?<=:)/(?=/)|(?<=\bwww)\.)"  # an address must not become a link
    plain = re.sub(sign, r"\\\1", " ".join(visible(text).split()))
    # Underscores inside a word are not emphasis.
    emphasis = r"(?<![A-Za-z0-9_])_++|_++(?![A-Za-z0-9])"
    return re.sub(emphasis, lambda match: r"\_" * len(match[0]), plain)
