"""The report of an arena: which method is best, a table and figures per dataset and LM, CSV files.

`run_table` makes a data frame with a row per run and every number unrounded. The tables in
report.md are parts of it, and tables/runs.csv is all of it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any, NamedTuple

from ga_dspy.arena.methods import METHODS, method
from ga_dspy.arena.runs import DATASETS, Run, Runs
from ga_dspy.errors import require
from ga_dspy.eval import Paired, Result, paired_test
from ga_dspy.eval.plots import Point, plot_costs, plot_scores, save_plot
from ga_dspy.eval.scores import holm
from ga_dspy.programs import Usage
from ga_dspy.storage import write_whole
from ga_dspy.text import csv_cell, inert, visible

if TYPE_CHECKING:
    from pandas import DataFrame

BASELINE = "vanilla-rag"
"""The method that the others are compared with by default."""

_NONE = "–"
_INTRODUCTION = (
    "F1 with its 95 % bootstrap interval, EM and Acc (an accepted answer occurs in the answer) in "
    "percent; a failed question scores 0. Recall: percent of the gold passages that were read. "
    "Difference: of the mean F1 from the method named above the table, with the p-value of a "
    "paired permutation test, Holm-corrected over the table. Calls, tokens and seconds are means "
    "per question, without failed questions for calls and tokens; seconds are shown only if no "
    "call was answered from the cache. tables/runs.csv has these and all other measures, "
    "protocol.json the protocol of each run."
)
_PAPER = (
    "From the tables of the paper, in percent, for the methods and datasets above. They are not "
    "comparable with the runs above: the paper asked 500 questions per dataset (125 of Bamboogle) "
    "and searched another corpus, with bge-large-en-v1.5. In a small corpus that is pooled from "
    "the questions' own paragraphs, everything is easier to find."
)


# --- Comparisons within a dataset, LM and token budget.


class Comparison(NamedTuple):
    """A run compared with another one.

    Attributes:
        run: The run.
        other: The baseline, or the best run if the baseline was not run.
        test: The paired test between the two.
        p: Its p-value after Holm's correction.
        comparisons: The number of comparisons with `other` that the correction is for.
    """

    run: Run
    other: Run
    test: Paired
    p: float
    comparisons: int

    @property
    def verdict(self) -> str:
        """Which of the two is better, by how much, how sure it is and at what cost."""
        best, other, difference = self.run, self.other, self.test.difference
        if difference < 0:
            best, other, difference = other, best, -difference
        about = f"{best.group_label}, {self.test.n:,} questions"
        f1, tokens, others = best.report.f1, mean_tokens(best), mean_tokens(other)
        if self.p < 0.05 and difference:
            lead = f"**{best.label} is best**: F1 {f1:.1f}, {difference:.1f} points above"
        elif difference:
            lead = f"**no significant difference**: {best.label} has F1 {f1:.1f}, "
            lead += f"{difference:.1f} points above"
        else:
            lead = f"**no difference**: {best.label} has F1 {f1:.1f}, as has"
        times = f", at {tokens / others:.1f} times the tokens" if tokens and others else ""
        corrected = f"p {_number('p', self.p)}, Holm-corrected for {self.comparisons} comparison"
        corrected += "s" if self.comparisons > 1 else ""
        judged = [run.report.judged for run in (best, other)]
        right = " and ".join(f"{value:.1f} %" for value in judged if value is not None)
        return (
            f"{about}: {lead} {other.label} ({corrected}){times} ({tokens:,.0f} and {others:,.0f} "
            f"per question){f'; judged right: {right}' if right else ''}."
        )


def compare(runs: Runs, baseline: str = BASELINE) -> list[list[Comparison]]:
    """Compare the runs of each dataset, LM and token budget with the baseline, the best first.

    Runs that only limit another method's steps, share no question with the baseline or count
    another F1 are not compared.

    Raises:
        InputError: There is no method `baseline`.
    """
    method(baseline)
    found = []
    compared = [run for run in runs if not run.is_shorter]
    for _, group in groupby(compared, lambda run: (run.lm, run.dataset, run.budget)):
        ranked = sorted(group, key=lambda run: -run.report.f1)
        other = next((run for run in ranked if run.method == baseline), ranked[0])
        tests = [(run, _test(run, other)) for run in ranked if run is not other]
        made = [(run, test) for run, test in tests if test]
        adjusted = holm([test.p_value for _, test in made])
        family = [
            Comparison(run, other, test, p, len(made))
            for (run, test), p in zip(made, adjusted, strict=True)
        ]
        if family:
            found.append(family)
    return found


def _test(run: Run, other: Run) -> Paired | None:
    asked, shared = ({(r.id, r.question) for r in one.report.results} for one in (run, other))
    is_alike = run.report.protocol.score == other.report.protocol.score
    return paired_test(run.report, other.report) if asked & shared and is_alike else None


def mean_tokens(run: Run) -> float:
    """Return the mean tokens per question."""
    return fmean(result.tokens or 0 for result in run.report.results)


# --- Data frames.


def run_table(runs: Runs, families: Iterable[list[Comparison]]) -> DataFrame:
    """Return a row per run with every measure; None where it does not apply.

    Args:
        runs: The runs.
        families: Their comparisons, from `compare`.

    Raises:
        MissingExtra: pandas is not installed.
    """
    compared = {id(one.run): one for family in families for one in family}
    return _frame([_row(run, compared.get(id(run)), runs.mark(run)) for run in runs])


def _frame(rows: list[dict[str, Any]], columns: Sequence[str] | None = None) -> DataFrame:
    pandas = require("pandas", "report")
    # Of objects, because a whole number beside None would become a float.
    frame: DataFrame = pandas.DataFrame(rows, dtype=object, columns=columns)
    return frame.where(frame.notna(), None)


def _row(run: Run, compared: Comparison | None, mark: str) -> dict[str, Any]:
    report, results = run.report, run.report.results
    counted = [result for result in results if result.usage]
    total = Usage.total(result.cost for result in counted)
    tokens = [result.tokens for result in results if result.tokens is not None]

    def mean(value: float | None) -> float | None:
        return None if value is None or not counted else value / len(counted)

    measures = report.measures()
    return {
        "Group": run.group_label,
        "Method": run.label,
        "Mark": mark.strip(),
        "n": len(results),
        "Failed": len(report.failed),
        "Degraded": len(report.degraded),
        "F1": report.f1,
        "F1 low": report.ci95[0],
        "F1 high": report.ci95[1],
        "EM": report.em,
        "Acc": report.acc,
        "Judged right": report.judged,
        "Recall": report.support_recall,
        "Difference": compared and compared.test.difference,
        "p": compared and compared.p,
        "p, uncorrected": compared and compared.test.p_value,
        "Calls": mean(total.calls),
        "Tokens": fmean(tokens) if tokens and not counted else mean(total.tokens),
        "Prompt tokens": mean(total.prompt_tokens),
        "Completion tokens": mean(total.completion_tokens),
        "US $ per 100": mean(total.cost and 100 * total.cost),
        "From cache, %": 100.0 * total.cached / total.calls if total.calls else None,
        "Seconds": report.seconds / len(results),
        **{name: value for name, value in measures.items() if not isinstance(value, dict | list)},
        **{f"sufficiency {name}": value for name, value in measures["sufficiency"].items()},
        "Dataset": report.protocol.dataset,
        "Program": report.protocol.program,
        "Token budget": run.budget,
        "LM": run.lm,
        "Protocol": report.protocol.hash,
    }


_PART = ("Group", "Method", "Mark", "Program", "By", "Value", "n", "F1", "F1 low", "F1 high")


def part_table(runs: Runs) -> DataFrame:
    """Return a row per run and number of hops, and per run and number of steps taken.

    Hops are those that MuSiQue names, elsewhere the passages that a question needs. A question
    that failed took an unknown number of steps.

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
        for key, results in parts.items():
            part = run.report._replace(results=tuple(results))
            scores = len(results), part.f1, *part.ci95
            about = run.group_label, run.label, runs.mark(run).strip(), run.method
            rows.append(dict(zip(_PART, (*about, *key, *scores), strict=True)))
    return _frame(rows, _PART)


def _hops(result: Result) -> int:
    named = re.match(r"(\d+)hop", result.type)
    return int(named[1]) if named else len(set(result.gold_titles))


def failure_table(runs: Runs) -> DataFrame:
    """Return a row per failed question, and per step that failed though its question was answered.

    Raises:
        MissingExtra: pandas is not installed.
    """
    rows = []
    for run in runs:
        for result in (*run.report.failed, *run.report.degraded):
            about = {"Group": run.group_label, "Method": run.label, "Question": result.id}
            if result.error:
                rows.append({**about, "Lost": "question", "Error": result.error})
            else:
                rows += [{**about, "Lost": "step", "Error": text} for text in result.step_failures]
    return _frame(rows)


# --- The paper's own scores, to show beside measured ones.


class PaperRow(NamedTuple):
    """A row of Table 1 (methods), 2 (ablations) or 4 (vanilla RAG by depth), as printed.

    500 questions per dataset (125 of Bamboogle), bge-large-en-v1.5, five passages per query, at
    most four steps. `f1` and `em` have a value in percent per dataset, then the average.
    """

    table: str
    lm: str
    method: str
    f1: dict[str, float]
    em: dict[str, float]


_PRINTED = json.loads(Path(__file__).with_name("paper.json").read_text("utf-8"))
_PRINTED_COLUMNS = (*DATASETS, "average")

PAPER_ROWS = tuple(
    PaperRow(
        table,
        lm,
        method,
        dict(zip(_PRINTED_COLUMNS, values[::2], strict=True)),
        dict(zip(_PRINTED_COLUMNS, values[1::2], strict=True)),
    )
    for table, by_lm in _PRINTED["scores"].items()
    for lm, by_method in by_lm.items()
    for method, values in by_method.items()
)

CONTRADICTIONS: tuple[str, ...] = tuple(_PRINTED["contradictions"])
"""Cells that two tables print differently, and averages further from the columns' than rounding."""


def paper_table(runs: Runs) -> DataFrame:
    """Return the paper's rows for the methods and datasets of the runs.

    Raises:
        MissingExtra: pandas is not installed.
    """
    measured = {run.method for run in runs}
    rows = []
    for printed in PAPER_ROWS if runs.paper_datasets else ():
        if printed.method in measured:
            row: dict[str, Any] = {
                "Table": printed.table,
                "LM": printed.lm,
                "Method": METHODS[printed.method].label,
            }
            for name in runs.paper_datasets:
                row[f"{DATASETS[name]} F1"] = printed.f1[name]
                row[f"{DATASETS[name]} EM"] = printed.em[name]
            rows.append(row)
    frame = _frame(rows)
    # Tables 2 and 4 repeat rows of Table 1.
    return frame.drop_duplicates([name for name in frame if name != "Table"])


# --- Figures: F1 by method, against tokens, by hops and by steps, for each dataset and LM.

_LEFT_OUT = ("graph-rag-passages", "graph-rag-facts", "graph-rag-graph", "graph-rag-global")
"""GraphRAG's ablations, and its mode that reads every summary at a cost beyond the axis."""

_FIGURES = {
    "f1-by-method": "F1 by method",
    "f1-by-tokens": "F1 against tokens per question",
    "f1-at-equal-tokens": "F1 at equal tokens per question",
    "f1-by-hops": "F1 by hops, the passages that a question needs",
    "f1-by-steps": "F1 by steps that a question took",
}
_BY_COST = ("f1-by-tokens", "f1-at-equal-tokens")
_BY_PART = {"f1-by-hops": "hops", "f1-by-steps": "steps"}


class Drawn(NamedTuple):
    """A figure for a dataset and LM, or why there is none.

    Attributes:
        group: The dataset and LM.
        caption: What the figure shows; without a figure, the reason.
        path: The image; None without a figure.
        alt: The methods with their F1, as text.
    """

    group: str
    caption: str
    path: Path | None = None
    alt: str = ""


def draw_figures(
    runs: DataFrame, parts: DataFrame, out: Path, families: Sequence[list[Comparison]] = ()
) -> list[Drawn]:
    """Draw the figures of each dataset and LM; the same tables give the same bytes.

    Args:
        runs: From `run_table`.
        parts: From `part_table`.
        out: The folder of the report; the images are in figures/.
        families: The comparisons of the runs, from `compare`.

    Raises:
        MissingExtra: matplotlib is not installed.
    """
    drawn = []
    for group, table in runs.groupby("Group", sort=False):
        about = f"{group}, {' or '.join(dict.fromkeys(f'{n:,}' for n in table['n']))} questions"
        others = _baselines(families, group)
        heading = f"F1 (difference from {others}; * p < 0.05)" if others else "F1"
        ranked = table.sort_values("F1", ascending=False, kind="stable")
        order = [_point(row).label for row in ranked.to_dict("records")]
        panels = _panels(ranked, parts[parts["Group"] == group])
        for stem, title in _FIGURES.items():
            name = re.sub(r"[^\w.]+", "-", f"{stem} {group}".lower()).strip("-")
            path, shown = out / "figures" / f"{name}.png", panels.get(stem)
            if shown:
                if stem in _BY_COST:
                    figure = plot_costs(shown[""], title, about)
                else:
                    above = heading if "" in shown else ""
                    figure = plot_scores(shown, title, about, above, order)
                save_plot(figure, path)
                drawn.append(Drawn(group, title, path, _alt(title, shown)))
                continue
            path.unlink(missing_ok=True)  # of an earlier report
            if stem in _BY_PART:
                why = "the number is unknown, or the same for all questions"
                drawn.append(Drawn(group, f"No figure of {title}: {why}."))
    return drawn


def _panels(table: DataFrame, parts: DataFrame) -> dict[str, dict[str, list[Point]]]:
    """Return the points of each figure that has any, by the title of their panel."""
    rows = table.to_dict("records")
    panels = {"f1-by-method": {"": [_point(row)._replace(note=_note(row)) for row in rows]}}
    for is_budgeted, stem in enumerate(_BY_COST):
        shown = [
            _point(row)._replace(label=_line(row))
            for row in rows
            if row["Tokens"] is not None
            and row["Program"] not in _LEFT_OUT
            and (row["Token budget"] is not None) == is_budgeted
        ]
        if shown:
            panels[stem] = {"": shown}
    for stem, by in _BY_PART.items():
        found: dict[str, list[Point]] = {}
        for value, part in parts[parts["By"] == by].groupby("Value"):
            sizes = set(part["n"])
            title = f"{value} {by[:-1] if value == '1' else by}"
            title += f", n = {sizes.pop():,}" if len(sizes) == 1 else ""
            found[title] = [
                _point(row)._replace(note=f"n = {row['n']:,}" if sizes else "")
                for row in part.to_dict("records")
            ]
        if len(found) > 1:
            panels[stem] = found
    return panels


def _point(row: Mapping[str, Any]) -> Point:
    return Point(
        label=" ".join(filter(None, (row["Method"], row["Mark"]))),
        f1=row["F1"],
        interval=(row["F1 low"], row["F1 high"]),
        tokens=row.get("Tokens") or 0.0,
        stands_out=row["Program"] == "graph-anchor",
    )


def _line(row: Mapping[str, Any]) -> str:
    """Return the name of a line: the same for all token budgets of a method."""
    known = METHODS.get(row["Program"])
    return " ".join(filter(None, (known.label if known else row["Program"], row["Mark"])))


def _note(row: Mapping[str, Any]) -> str:
    """Return F1 and the difference from the baseline, with a star if it is significant."""
    if row["p"] is None:
        return _number("F1", row["F1"])
    difference, p = (_number(name, row[name]) for name in ("Difference", "p"))
    return f"{_number('F1', row['F1'])} ({difference}, p {p}){' *' if row['p'] < 0.05 else ''}"


def _alt(title: str, panels: Mapping[str, Sequence[Point]]) -> str:
    scores: dict[str, list[str]] = {}
    for panel, points in panels.items():
        for point in points:
            part = f" ({panel.partition(',')[0]})" if panel else ""
            scores.setdefault(point.label, []).append(f"{point.f1:.1f}{part}")
    return f"{title}: " + "; ".join(f"{label} {', '.join(of)}" for label, of in scores.items())


# --- Files.


def write_report(runs: Runs, out: Path, families: Sequence[list[Comparison]]) -> list[Drawn]:
    """Write report.md, protocol.json, tables and figures: the same bytes for the same runs.

    Args:
        runs: The runs.
        out: The folder; these files in it are replaced, report.md last.
        families: The comparisons of the runs, from `compare`.

    Returns:
        The figures, and the reasons for those that are missing.

    Raises:
        MissingExtra: pandas or matplotlib is not installed.
    """
    tables = {
        "runs": run_table(runs, families),
        "parts": part_table(runs),
        "failures": failure_table(runs),
        "paper": paper_table(runs),
    }
    for name, table in tables.items():
        path = out / "tables" / f"{name}.csv"
        if len(table):
            write_whole(path, table.map(_csv_value).to_csv(index=False, lineterminator="\n"))
        else:
            path.unlink(missing_ok=True)  # of an earlier report
    protocols = [run.report.protocol for run in runs]
    entries = [{"hash": one.hash, **one.model_dump(mode="json")} for one in protocols]
    write_whole(out / "protocol.json", json.dumps(entries, ensure_ascii=False, indent=2) + "\n")
    figures = draw_figures(tables["runs"], tables["parts"], out, families)
    sections = _sections(runs, tables, figures, families)
    write_whole(out / "report.md", "\n\n".join(sections) + "\n")
    return figures


def _csv_value(value: Any) -> Any:
    if isinstance(value, str):
        return csv_cell(value)
    return round(value, 4) if isinstance(value, float) else value


def _sections(
    runs: Runs,
    tables: Mapping[str, DataFrame],
    figures: Sequence[Drawn],
    families: Sequence[list[Comparison]],
) -> Iterator[str]:
    yield "# Arena"
    if families:
        yield "## Verdict"
        yield "\n".join(f"- {inert(family[0].verdict)}" for family in families)
    yield "## Scores and cost"
    yield _INTRODUCTION
    for heading, table in tables["runs"].groupby("Group", sort=False):
        yield f"### {escaped(heading)}"
        others = escaped(_baselines(families, heading))
        yield _about([run for run in runs if run.group_label == heading], others)
        yield markdown(_shown(table))
        for figure in figures:
            if figure.group == heading and figure.path:
                yield f"![{escaped(figure.alt)}](<figures/{figure.path.name}>)"
            if figure.group == heading:
                yield escaped(figure.caption)
    if runs.differences:
        yield "\n".join(
            f"- ({number}) {escaped(text)}." for number, text in enumerate(runs.differences, 1)
        )
    if len(tables["failures"]):
        yield "## Failed questions"
        yield markdown(tables["failures"])
    if len(tables["paper"]):
        yield "## The paper's scores"
        yield _PAPER
        yield markdown(tables["paper"])
        yield "The paper contradicts itself; its scores are shown as each table prints them."
        yield "\n".join(f"- {text}." for text in CONTRADICTIONS)


def _baselines(families: Sequence[list[Comparison]], group: str) -> str:
    others = [family[0].other for family in families]
    return ", ".join(dict.fromkeys(one.label for one in others if one.group_label == group))


def _about(shown: Sequence[Run], others: str) -> str:
    """Return what the rows of a table have in common."""
    rules = {"official": "HotpotQA's official rule", "squad": "SQuAD's rule"}
    asked = " or ".join(dict.fromkeys(f"{len(run.report.results):,}" for run in shown))
    rule = " or ".join(dict.fromkeys(rules[run.report.protocol.score] for run in shown))
    parts = [f"{asked} questions; F1 by {rule}"]
    if others:
        parts.append(f"differences from {others}")
    if not any(run.method == "closed-book" for run in shown):
        parts.append("no closed-book run: what the LM knows without reading is not measured")
    return "; ".join(parts) + "."


_COLUMNS = (
    "Method", "Failed", "Degraded", "F1", "EM", "Acc", "Judged right", "Recall", "Difference", "p",
    "Calls", "Tokens", "US $ per 100", "Seconds",
)  # fmt: skip


def _shown(table: DataFrame) -> DataFrame:
    """Return the columns for report.md, as texts; those without a value are left out."""
    rows = []
    for one in table.to_dict("records"):
        interval = f" [{_number('F1', one['F1 low'])}, {_number('F1', one['F1 high'])}]"
        row = {name: _number(name, one[name]) for name in _COLUMNS}
        row["Method"] = " ".join(filter(None, (one["Method"], one["Mark"])))
        row["F1"] += interval
        row["Seconds"] = _NONE if one["From cache, %"] else row["Seconds"]
        rows.append(row)
    texts = _frame(rows)
    none = {"Failed": {"0"}, "Degraded": {"0"}}
    return texts[[name for name in texts if set(texts[name]) != none.get(name, {_NONE})]]


def _number(column: str, value: Any) -> str:
    """Format a value by the name of its column."""
    if value is None:
        return _NONE
    if isinstance(value, str):
        return value
    if column == "p":
        return "<0.001" if value < 0.0005 else f"{value:.3f}"
    if isinstance(value, int) or column == "Tokens":
        return f"{value:,.0f}"
    if column == "Difference":
        return f"{value:+.1f}".replace("-", "−")
    if column.endswith((" F1", " EM")):  # the paper's, as printed
        return f"{value:.2f}"
    if column == "US $ per 100":
        return f"{value:.4f}" if value < 0.1 else f"{value:,.2f}"
    return f"{value:,.2f}" if column == "Seconds" else f"{value:,.1f}"


_TEXT_COLUMNS = {"Group", "Method", "LM", "Question", "Lost", "Error"}


def markdown(table: DataFrame) -> str:
    """Return a Markdown table that reads well as text: columns aligned, numbers to the right."""
    columns = []
    for name in table:
        cells = [_number(name, value) for value in table[name]]
        if name in _TEXT_COLUMNS:
            cells = [escaped(cell) for cell in cells]
        width = max(3, len(name), *map(len, cells))
        side, end = ("<", "-") if name in _TEXT_COLUMNS else (">", ":")
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
    # Underscores inside a word are no emphasis.
    emphasis = r"(?<![A-Za-z0-9_])_++|_++(?![A-Za-z0-9])"
    return re.sub(emphasis, lambda found: r"\_" * len(found[0]), plain)
