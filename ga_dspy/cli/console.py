"""Terminal output: answers step by step, tables, progress bars."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from time import monotonic
from typing import Any, Protocol

import dspy
from rich import box
from rich.console import Console as RichConsole
from rich.console import ConsoleOptions, Group, RenderableType
from rich.markup import escape
from rich.padding import Padding
from rich.panel import Panel
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.prompt import Confirm
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from ga_dspy.errors import InputError
from ga_dspy.lm.endpoints import EMBEDDED
from ga_dspy.programs import Event, EvidenceLink, Step, Usage, watching
from ga_dspy.programs.prediction import SUPPORT
from ga_dspy.text import visible

MAX_LINES = 8
_FIRST = 10
EXTRACTIVE_NOTE = (
    "Answered by the embedded extractive LM, which is for first runs and tests and no substitute "
    "for an LLM. Choose yours with --lm."
)


class Console(RichConsole):
    """A terminal that prints any text literally, and makes hidden characters visible.

    Markup, emoji codes and highlighting are off.
    """

    def __init__(self, **options: Any) -> None:
        """Create a console with Rich's options."""
        super().__init__(**{"markup": False, "emoji": False, "highlight": False, **options})

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        """Render with hidden characters made visible."""
        if isinstance(renderable, str):
            renderable = visible(renderable)
        elif isinstance(renderable, Text) and visible(renderable.plain) != renderable.plain:
            renderable = renderable.copy()
            renderable.plain = visible(renderable.plain)
        return super().render(renderable, options)

    @property
    def can_ask(self) -> bool:
        """Whether there is a terminal where a user can answer."""
        return self.is_terminal and os.isatty(0)

    def confirm(
        self, question: str, caps: Iterable[object] = (), *, remedy: str = "add --yes"
    ) -> bool:
        """Ask for confirmation; without a terminal, a cap counts as confirmation.

        Raises:
            InputError: There is neither a terminal nor a cap.
        """
        if self.can_ask:
            return Confirm.ask(question, console=self)
        if not any(caps):
            raise InputError(f"there is no terminal to confirm: {question}", remedy=remedy)
        return True

    def warn(self, message: str) -> None:
        """Print a warning in yellow."""
        self.print(message, style="yellow", soft_wrap=True)

    def note_embedded_lm(self, *lms: dspy.BaseLM) -> None:
        """Print a note if all of the LMs are the embedded one."""
        if all(lm.model == EMBEDDED for lm in lms):
            self.print(EXTRACTIVE_NOTE, style="dim")

    def print_usage(self, step: str, lm: str, usage: Usage) -> None:
        """Print the cost of a step and the LM that it called."""
        price = f", ${usage.cost:,.4f}" if usage.cost else ""
        line = f"{step}, by {lm}: {number(usage.calls, 'call')}, {usage.tokens:,} tokens{price}"
        self.print(line, style="dim", soft_wrap=True)

    def print_first(self, what: str, items: Sequence[str], *, style: str = "") -> None:
        """Print the first few items, one per line, and how many more there are."""
        for item in items[:_FIRST]:
            self.print(f"{what}: {item}", style=style, soft_wrap=True)
        if len(items) > _FIRST:
            self.print(f"{what}: {len(items) - _FIRST:,} more", style=style)

    def print_table(
        self, rows: Sequence[Sequence[str | Text]], *headings: str, most: int,
        right: Sequence[str] = (), none: str = "",
    ) -> None:  # fmt: skip
        """Print the first rows as a table, and how many more there are.

        Args:
            rows: The cells of each row.
            headings: The column headings.
            most: Maximum number of rows (`--most`).
            right: Headings of right-aligned columns.
            none: Text to print instead of an empty table.
        """
        if not rows:
            self.print(none)
            return
        table = columns(*headings, right=right)
        for row in rows[:most]:
            table.add_row(*(cell if isinstance(cell, Text) else Text(cell) for cell in row))
        self.print(table)
        if len(rows) > most:
            self.print(f"… and {len(rows) - most:,} more (--most {len(rows)})", style="dim")


# --- A question and its answer


@contextmanager
def show_steps(console: Console) -> Iterator[None]:
    """Print each step of a question as it finishes; a terminal also shows the current activity."""
    labels = dict[str, str]()
    with console.status("") if console.is_terminal else nullcontext() as status:

        def show(event: Event) -> None:
            if event.kind == "passages":
                for new in event.data["new"]:
                    labels[new["id"]] = f"[{new['label']}] {new['title'] or new['id']}"
            if event.kind == "step":
                console.print(_render_step(Step.model_validate(event.data), labels), "")
            elif status and event.kind != "answer":
                reading = "; reading" if event.kind == "passages" else ""
                status.update(Text(event.message + reading, overflow="ellipsis", no_wrap=True))

        with watching(show):
            yield


def _render_step(step: Step, labels: Mapping[str, str]) -> RenderableType:
    lines = [f"{r.head} → {r.relation} → {r.tail}" for r in step.relations]
    lines += [f"{name}: {attribute}" for name, attribute in step.attributes]
    color = "green" if step.judgement == "sufficient" else "yellow"
    rows = (
        ("query", step.query),
        ("reformulated", step.reformulated),
        ("passages", "  ".join(labels[id] for id in step.passage_ids) or "nothing new"),
        ("graph", Text(step.gained, style="green")),
        ("", _first_lines(lines)),
        ("dropped", _first_lines(list(map(str, step.dropped)))),
        ("judgement", Text(step.judgement, style=f"bold {color}")),
        ("", Text(step.reasoning, style="italic")),
        ("rule", step.rule),
        ("failure", Text(step.failure, style="red")),
    )
    title = Text(f"Step {step.number}", style="bold cyan")
    return Group(title, Padding(key_values(rows), (0, 0, 0, 2)))


def _first_lines(lines: list[str]) -> Text:
    shown = lines[:MAX_LINES]
    if len(lines) > len(shown):
        shown.append(f"… and {len(lines) - len(shown)} more")
    return Text("\n".join(shown))


def show_answer(
    console: Console, prediction: dspy.Prediction, note: str = "", lms: Mapping[str, str] = {}
) -> None:
    """Print the answer, its evidence and its cost.

    Args:
        console: Where to print.
        prediction: The answer.
        note: Text to print after the cost.
        lms: Names of the LMs by step; with them, the cost of each step is printed, too.
    """
    style = "bold" if prediction.answer else "bold red"
    parts: list[RenderableType] = [Text(prediction.answer or "(no answer)", style=style)]
    if prediction.evidence:
        parts.append(Text("\nEvidence", style="dim"))
        parts += [_render_link(place, link) for place, link in enumerate(prediction.evidence, 1)]
    support = f"{prediction.verdict}; {SUPPORT.get(prediction.supported, 'unsupported')}"
    if prediction.steps and prediction.steps[-1].judgement == "insufficient":
        support += "; the evidence was judged insufficient"
    console.print(
        Panel(Group(*parts), title="Answer", title_align="left", subtitle=escape(support),
              subtitle_align="left")
    )  # fmt: skip
    cost = f"this question: {number(prediction.calls, 'call')}, {prediction.tokens:,} tokens"
    cut = Usage.total(prediction.usage.values()).cuts
    console.print("; ".join(filter(None, (cost, cut, note))), style="dim", soft_wrap=True)
    if lms:
        for step, usage in prediction.usage.items():
            console.print_usage(step, lms.get(step, ""), usage)


def _render_link(place: int, link: EvidenceLink) -> RenderableType:
    triple = f"{link.head} → {link.relation} → {link.tail}" if link.head else link.title
    source = "; ".join(dict.fromkeys(filter(None, (link.title, link.source))))
    quote = Text.assemble(f"“{link.quote}”", ("  " + source, "dim"))
    return Group(Text(f"{place}. {triple}"), Padding(quote, (0, 0, 0, 3)))


# --- Progress


class Advance(Protocol):
    """Updates a progress bar."""

    def __call__(self, stage: str, done: int, total: int, details: object = "", /) -> None:
        """Update the bar; without a terminal, `details` is printed instead of the numbers."""


@contextmanager
def show_progress(
    console: Console, clock: Callable[[], float] = monotonic, every: float = 60.0
) -> Iterator[Advance]:
    """Yield a function that updates a progress bar; without a terminal, print a line per minute.

    The bar appears at the first call. The remaining time is estimated from the items done since the
    stage began, without those of an earlier run. Lines are printed even during one long item.
    """
    bar = Progress(
        TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(),
        console=console, transient=True, speed_estimate_period=120,
        disable=not console.is_terminal, get_time=clock,
    )  # fmt: skip
    task, latest, is_over = bar.add_task("", total=None), object(), threading.Event()

    def advance(stage: str, done: int, total: int, details: object = "", /) -> None:
        nonlocal latest
        latest, state = details, bar.tasks[0]
        is_same_stage = stage.partition(" ")[0] == state.description.partition(" ")[0]
        if not is_same_stage or done < state.completed:
            bar.reset(task, description=stage, completed=done, total=total)
        bar.update(task, description=stage, completed=done, total=total)
        bar.start()

    def log() -> None:
        while not is_over.wait(every):
            state = bar.tasks[0]
            if state.total is None:
                continue
            count = f": {latest}" if latest else f" {state.completed:,.0f} of {state.total:,.0f}"
            left = state.time_remaining
            end = f", about {left / 60:.0f} min left" if left else ""
            console.print(f"{state.description}{count}{end}", soft_wrap=True)

    logger = threading.Thread(target=log, name="ga-dspy-progress", daemon=True)
    if not console.is_terminal:
        logger.start()
    try:
        yield advance
    finally:
        bar.stop()
        is_over.set()
        if not console.is_terminal:
            logger.join()


# --- Tables and lists


def key_values(rows: Iterable[tuple[str, str | Text]]) -> Table:
    """Return a table of names and values; rows with an empty value are omitted."""
    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in rows:
        if value:
            table.add_row(name, value if isinstance(value, Text) else Text(value))
    return table


def columns(*headings: str, right: Sequence[str] = ()) -> Table:
    """Return a table without borders.

    Args:
        headings: The column headings.
        right: Headings of right-aligned columns.
    """
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for heading in headings:
        if heading in right:
            table.add_column(heading, justify="right", no_wrap=True)
        else:
            table.add_column(heading, overflow="fold")
    return table


def number(count: int, what: str) -> str:
    """Return a count with its noun.

    >>> number(1, "passage"), number(1200, "passage")
    ('1 passage', '1,200 passages')
    """
    return f"{count:,} {what}" + ("s" if count != 1 else "")


def relative(path: Path) -> Path:
    """Return a path relative to the working directory if it is below that."""
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path
