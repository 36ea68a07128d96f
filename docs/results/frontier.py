"""The tables of frontier.md from frontier.csv: `python docs/results/frontier.py` prints them."""

from __future__ import annotations

from pathlib import Path

import pandas

from ga_dspy.eval.scores import bootstrap_interval, paired_permutation

NAMES = {
    "vanilla-rag, dense": "vanilla RAG, dense",
    "vanilla-rag, linked": "vanilla RAG, linked",
    "reference loop, dense": "the reference's loop, dense (as published)",
    "reference loop, linked": "the reference's loop, linked",
    "no-graph, dense": "GraphAnchor `index=None`, dense",
    "graph-anchor, dense": "GraphAnchor, dense",
    "no-graph, linked": "GraphAnchor `index=None`, linked",
    "graph-anchor, linked": "GraphAnchor, linked",
}
OURS, DENSE = "graph-anchor, linked", "graph-anchor, dense"
PAIRS = [(OURS, other) for other in NAMES if other != OURS]
PAIRS += [(DENSE, "no-graph, dense"), (DENSE, "reference loop, dense")]


def tables() -> str:
    """Two tables in Markdown: scores with 95 % intervals, and paired tests of F1."""
    rows = pandas.read_csv(Path(__file__).with_suffix(".csv")).sort_values("question")
    rows["way"] = rows.method + ", " + rows.retriever
    scores = "| questions | method | F1 | EM | LM calls | tokens | all gold passages found |\n"
    scores += "|---|---|---|---:|---:|---:|---:|\n"
    tests = "| questions | compared | F1 points | p |\n|---|---|---:|---:|\n"
    for dataset, shown in (("musique", "MuSiQue (24)"), ("hotpotqa", "HotpotQA (16)")):
        ways = dict(list(rows[rows.dataset == dataset].groupby("way")))
        for way in [way for way in NAMES if way in ways]:
            mean = ways[way].mean(numeric_only=True)
            low, high = bootstrap_interval(list(ways[way].f1))
            scores += f"| {shown} | {NAMES[way]} | {mean.f1:.1%} ({low:.0%} to {high:.0%}) | "
            scores += f"{mean.exact_match:.1%} | {mean.lm_calls:.1f} | {mean.tokens:,.0f} | "
            scores += f"{mean.all_gold_retrieved:.0%} |\n"
        for one, other in [pair for pair in PAIRS if pair[1] in ways]:
            test = paired_permutation(list(ways[one].f1), list(ways[other].f1))
            p = "< 0.001" if test.p_value < 0.001 else f"{test.p_value:.3f}"
            tests += f"| {shown} | {NAMES[one]}, against {NAMES[other]} | "
            tests += f"{test.difference:+.1f} | {p} |\n"
    return f"{scores}\n{tests}"


if __name__ == "__main__":
    print(tables())  # noqa: T201
