"""The tables of frontier.md, printed from its two CSV files."""

from pathlib import Path

import pandas

from ga_dspy.eval.statistics import bootstrap_interval, paired_permutation

FILES = ("frontier.csv", "frontier-59b49d9.csv")
HEAD = """
| {} | F1 (95 %) | EM | LM calls | tokens | gold found | ours, linked: by |{}
|---|---|---:|---:|---:|---:|---|{}
"""


def tables(name: str) -> str:
    """A table a dataset, in Markdown: scores, costs, and how much better GraphAnchor is."""
    rows = pandas.read_csv(Path(__file__).with_name(name)).sort_values("question")
    text = ""
    for dataset, of_dataset in rows.groupby("dataset"):
        ways = dict(list(of_dataset.groupby(["retriever", "method"])))
        others = " ours, same index: by |" if of_dataset.retriever.nunique() > 1 else ""
        title = f"{dataset}, {of_dataset.question.nunique()} questions"
        text += HEAD.format(title, others, "---|" if others else "")
        for (retriever, method), own in ways.items():
            mean, f1 = own.mean(numeric_only=True), own.f1.tolist()
            low, high = bootstrap_interval(f1)
            found = mean.all_gold_retrieved
            text += f"| {method}, {retriever} | {mean.f1:.1%} ({low:.0%} to {high:.0%}) | "
            text += f"{mean.exact_match:.1%} | {mean.lm_calls:.1f} | {mean.tokens:,.0f} | "
            text += "|" if pandas.isna(found) else f"{found:.0%} |"
            for index in ("linked", retriever) if others else ("linked",):
                test = paired_permutation(ways[index, "graph-anchor"].f1.tolist(), f1)
                text += f" {test.difference:+.1f} (p {test.p_value:.2g}) |"
            text += "\n"
    return text.replace("%", "").replace("(95 )", "(95 %)")


if __name__ == "__main__":
    print(*map(tables, FILES), sep="\n")  # noqa: T201
