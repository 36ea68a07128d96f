"""How an answer looks on a terminal: step by step, then the answer and its evidence chain."""

from __future__ import annotations

import dspy
from rich.console import Console, Group, RenderableType
from rich.markup import escape
from rich.padding import Padding
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from ga_dspy.programs import EvidenceLink, Step

MAX_LINES = 8
EXTRACTIVE_NOTE = (
    "Answered by the embedded extractive LM: a floor for first runs and tests, not a rival to an "
    "LLM. Name yours with --lm."
)


def show_prediction(console: Console, question: str, prediction: dspy.Prediction) -> None:
    """Print every step, then the answer."""
    console.print(Text.assemble(("Question  ", "bold"), question))
    titles = {passage.id: passage.title or passage.id for passage in prediction.passages}
    numbers = {passage.id: i for i, passage in enumerate(prediction.passages, 1)}
    for step in prediction.steps:
        console.print()
        console.print(_step(step, titles, numbers))
    console.print()
    console.print(_answer(prediction))


def _step(step: Step, titles: dict[str, str], numbers: dict[str, int]) -> RenderableType:
    rows = Table.grid(padding=(0, 2))
    rows.add_column(style="dim", no_wrap=True)
    rows.add_column(overflow="fold")
    rows.add_row("query", Text(step.query))
    if step.reformulated:
        rows.add_row("reformulated", Text(step.reformulated))
    read = [f"[{numbers[i]}] {titles[i]}" for i in step.passage_ids]
    rows.add_row("passages", Text("  ".join(read) or "nothing new"))
    if step.entities or step.relations:
        gained = f"+{len(step.entities)} entities, +{len(step.relations)} relations"
        rows.add_row("graph", Text(gained, style="green"))
        lines = [f"{r.head} → {r.relation} → {r.tail}" for r in step.relations]
        lines += [f"{name}: {attribute}" for name, attribute in step.attributes]
        rows.add_row("", _listed(lines))
    if step.dropped:
        rows.add_row("dropped", _listed([str(dropped) for dropped in step.dropped]))
    if step.judgement:
        style = "bold green" if step.judgement == "sufficient" else "bold yellow"
        rows.add_row("judgement", Text(step.judgement, style=style))
        rows.add_row("", Text(step.reasoning, style="italic"))
    if step.rule:
        rows.add_row("rule", Text(step.rule))
    if step.failure:
        rows.add_row("failure", Text(step.failure, style="red"))
    return Group(Text(f"Step {step.number}", style="bold cyan"), Padding(rows, (0, 0, 0, 2)))


def _listed(lines: list[str]) -> Text:
    shown = lines[:MAX_LINES]
    if len(lines) > len(shown):
        shown.append(f"… and {len(lines) - len(shown)} more")
    return Text("\n".join(shown))


def _answer(prediction: dspy.Prediction) -> RenderableType:
    if prediction.answer:
        answer = Text(prediction.answer, style="bold")
    else:
        answer = Text("(no answer)", style="bold red")
    notes = [
        prediction.verdict,
        "supported by a passage" if prediction.supported else "unsupported",
    ]
    parts: list[RenderableType] = [answer]
    if prediction.evidence:
        parts.append(Text("\nEvidence", style="dim"))
        parts += [_link(i, link) for i, link in enumerate(prediction.evidence, 1)]
    cost = f"{prediction.calls} LM calls, {prediction.tokens:,} tokens"
    return Panel(
        Group(*parts), title="Answer", title_align="left",
        subtitle=escape(f"{'; '.join(notes)}; {cost}"), subtitle_align="left",
    )  # fmt: skip


def _link(number: int, link: EvidenceLink) -> RenderableType:
    triple = f"{link.head} → {link.relation} → {link.tail}" if link.head else link.title
    quote = Text.assemble(f"“{link.quote}”", ("  " + link.title, "dim"))
    return Group(Text(f"{number}. {triple}"), Padding(quote, (0, 0, 0, 3)))
