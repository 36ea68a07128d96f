"""The tables of frontier.md from frontier.csv: `python docs/results/frontier.py` prints them."""

from pathlib import Path

import pandas

from ga_dspy.eval.scores import bootstrap_interval, paired_permutation

HEAD = """
| {} | F1 (95 %) | EM | LM calls | tokens | gold found | ours, linked: by | ours, same index: by |
|---|---|---:|---:|---:|---:|---|---|
"""


def tables() -> str:
    """A table a dataset, in Markdown: scores, costs, and how much better GraphAnchor is."""
    rows, text = pandas.read_csv(Path(__file__).with_suffix(".csv")).sort_values("question"), ""
    for dataset, of_dataset in rows.groupby("dataset"):
        ways = dict(list(of_dataset.groupby(["retriever", "method"])))
        text += HEAD.format(f"{dataset}, {of_dataset.question.nunique()} questions")
        for (retriever, method), own in ways.items():
            mean, f1 = own.mean(numeric_only=True), own.f1.tolist()
            low, high = bootstrap_interval(f1)
            text += f"| {method}, {retriever} | {mean.f1:.1%} ({low:.0%} to {high:.0%}) | "
            text += f"{mean.exact_match:.1%} | {mean.lm_calls:.1f} | {mean.tokens:,.0f} | "
            text += f"{mean.all_gold_retrieved:.0%} |"
            for index in ("linked", retriever):
                test = paired_permutation(ways[index, "graph-anchor"].f1.tolist(), f1)
                text += f" {test.difference:+.1f} (p {test.p_value:.2g}) |"
            text += "\n"
    return text.replace("%", "").replace("(95 )", "(95 %)")


if __name__ == "__main__":
    print(tables())  # noqa: T201
