"""How things look on a terminal: answers step by step, tables, progress bars."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from time import monotonic
from typing import Any

import dspy
from rich import box
from rich.console import Console as RichConsole
from rich.console import ConsoleOptions, Group, RenderableType
from rich.markup import escape
from rich.padding import Padding
from rich.panel import Panel
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from ga_dspy.lm.endpoints import EMBEDDED
from ga_dspy.programs import Event, EvidenceLink, Step, Usage, watching
from ga_dspy.text import visible

MAX_LINES = 8
_FIRST = 10
_SUPPORT = {
    "chained": "a chain of stated links",
    "quoted": "quoted in a passage",
    None: "unsupported",
}
EXTRACTIVE_NOTE = (
    "Answered by the embedded extractive LM: a floor for first runs and tests, not a rival to an "
    "LLM. Name yours with --lm."
)


class Console(RichConsole):
    """A terminal on which text of others is text: no markup, no emoji codes, escapes shown."""

    def __init__(self, **options: Any) -> None:
        """Make one, with rich's options."""
        super().__init__(**{"markup": False, "emoji": False, **options})

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        """Render, with what a text hides made visible."""
        if isinstance(renderable, str):
            renderable = visible(renderable)
        elif isinstance(renderable, Text) and visible(renderable.plain) != renderable.plain:
            renderable = renderable.copy()
            renderable.plain = visible(renderable.plain)
        return super().render(renderable, options)


@contextmanager
def steps_shown(console: Console) -> Iterator[None]:
    """Print the steps of a question as they come; on a terminal, a line says what is under way."""
    titles: dict[str, str] = {}
    numbers: dict[str, int] = {}
    with console.status("") if console.is_terminal else nullcontext() as status:

        def show(event: Event) -> None:
            for new in event.data["new"] if event.kind == "passages" else ():
                titles[new["id"]] = new["title"] or new["id"]
                numbers[new["id"]] = new["label"]
            if event.kind == "step":
                console.print(_step(Step.model_validate(event.data), titles, numbers), "")
            elif status and event.kind != "answer":
                reading = "; reading" * (event.kind == "passages")
                status.update(Text(event.message + reading, overflow="ellipsis", no_wrap=True))

        with watching(show):
            yield


def show_answer(
    console: Console,
    prediction: dspy.Prediction,
    before: str = "",
    lms: Mapping[str, str] | None = None,
) -> None:
    """Print the answer, its evidence and its cost, beside what a graph of the corpus would cost.

    Args:
        console: Where to.
        prediction: The answer.
        before: The cost of that graph.
        lms: Names of LMs by step, where there is more than one: the cost of each step is shown.
    """
    console.print(_answer(prediction))
    cost = f"this question: {number(prediction.calls, 'call')}, {prediction.tokens:,} tokens"
    cut = Usage.total(prediction.usage.values()).cuts
    console.print("; ".join(filter(None, (cost, cut, before))), style="dim", soft_wrap=True)
    for step, usage in prediction.usage.items() if lms else ():
        say_spent(console, step, (lms or {}).get(step, ""), usage)


def say_spent(console: Console, step: str, lm: str, usage: Usage) -> None:
    """A line with what a step has cost, and which LM it asked."""
    price = f", ${usage.cost:,.4f}" if usage.cost else ""
    line = f"{step}, by {lm}: {number(usage.calls, 'call')}, {usage.tokens:,} tokens{price}"
    console.print(line, style="dim", markup=False, soft_wrap=True)


def _step(step: Step, titles: dict[str, str], numbers: dict[str, int]) -> RenderableType:
    read = [f"[{numbers[i]}] {titles[i]}" for i in step.passage_ids]
    gained = f"+{len(step.entities)} entities, +{len(step.relations)} relations"
    lines = [f"{r.head} → {r.relation} → {r.tail}" for r in step.relations]
    lines += [f"{name}: {attribute}" for name, attribute in step.attributes]
    judged = "bold green" if step.judgement == "sufficient" else "bold yellow"
    rows = (
        ("query", step.query),
        ("reformulated", step.reformulated),
        ("passages", "  ".join(read) or "nothing new"),
        ("graph", Text(gained if step.entities or step.relations else "", style="green")),
        ("", _listed(lines)),
        ("dropped", _listed([str(dropped) for dropped in step.dropped])),
        ("judgement", Text(step.judgement, style=judged)),
        ("", Text(step.reasoning, style="italic")),
        ("rule", step.rule),
        ("failure", Text(step.failure, style="red")),
    )
    title = Text(f"Step {step.number}", style="bold cyan")
    return Group(title, Padding(facts(rows), (0, 0, 0, 2)))


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
    parts: list[RenderableType] = [answer]
    if prediction.evidence:
        parts.append(Text("\nEvidence", style="dim"))
        parts += [_link(i, link) for i, link in enumerate(prediction.evidence, 1)]
    how = f"{prediction.verdict}; {_SUPPORT[prediction.supported]}"
    return Panel(
        Group(*parts), title="Answer", title_align="left", subtitle=escape(how),
        subtitle_align="left",
    )  # fmt: skip


def _link(number: int, link: EvidenceLink) -> RenderableType:
    triple = f"{link.head} → {link.relation} → {link.tail}" if link.head else link.title
    place = "; ".join(dict.fromkeys(filter(None, (link.title, link.source))))
    quote = Text.assemble(f"“{link.quote}”", ("  " + place, "dim"))
    return Group(Text(f"{number}. {triple}"), Padding(quote, (0, 0, 0, 3)))


def say_embedded(console: Console, *lms: dspy.BaseLM) -> None:
    """Where the embedded LM alone answered: that it is no LLM."""
    if all(lm.model == EMBEDDED for lm in lms):
        console.print(EXTRACTIVE_NOTE, style="dim")


def warn(console: Console, message: str) -> None:
    """A line in yellow."""
    console.print(message, style="yellow", markup=False, soft_wrap=True)


def progress_bar(console: Console, clock: Callable[[], float] = monotonic) -> Progress:
    """A bar with how many are done and how long the rest will take; nothing in a pipe."""
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=console,
        transient=True,
        speed_estimate_period=120,
        disable=not console.is_terminal,
        get_time=clock,
    )


@contextmanager
def minutes_told(console: Console, state: Callable[[], str], every: float = 60.0) -> Iterator[None]:
    """Print how far work is, a line a minute, where no progress bar shows it."""
    if console.is_terminal:
        yield
        return
    is_over = threading.Event()

    def tell() -> None:
        while not is_over.wait(every):
            if line := state():
                console.print(line, markup=False, soft_wrap=True)

    teller = threading.Thread(target=tell, name="ga-dspy-progress", daemon=True)
    teller.start()
    try:
        yield
    finally:
        is_over.set()
        teller.join()


@contextmanager
def building(
    console: Console, clock: Callable[[], float] = monotonic, every: float = 30.0
) -> Iterator[Callable[[str, int, int], None]]:
    """A progress bar, as the callback that a build takes: a stage's name, units done and in all.

    The time left counts what is done from the first call of a stage on, so not what was kept from
    an earlier run. In a pipe it is a line every half minute, also while a unit takes longer.
    """
    with progress_bar(console, clock) as bar:
        task = bar.add_task("", total=None)

        def advance(stage: str, done: int, total: int) -> None:
            if stage.partition(" ")[0] != bar.tasks[0].description.partition(" ")[0]:
                bar.reset(task, description=stage, completed=done, total=total)
            bar.update(task, description=stage, completed=done, total=total)

        def state() -> str:
            now = bar.tasks[0]
            if now.total is None:
                return ""
            more = f", about {now.time_remaining / 60:.0f} min left" if now.time_remaining else ""
            return f"{now.description} {now.completed:,.0f} of {now.total:,.0f}{more}"

        with minutes_told(console, state, every):
            yield advance


def plain() -> Console:
    """A console that colours nothing of its own accord."""
    return Console(highlight=False)


def facts(rows: Iterable[tuple[str, str | Text]]) -> Table:
    """Two columns, what and how much; rows with nothing to say are left out."""
    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in rows:
        if value:
            table.add_row(name, value if isinstance(value, Text) else Text(value))
    return table


def columns(*headings: str, right: Sequence[str] = ()) -> Table:
    """An airy table.

    Args:
        headings: Of its columns.
        right: Those of figures.
    """
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for heading in headings:
        if heading in right:
            table.add_column(heading, justify="right", no_wrap=True)
        else:
            table.add_column(heading, overflow="fold")
    return table


def number(count: int, what: str) -> str:
    """A count with its noun.

    >>> number(1, "passage"), number(1200, "passage")
    ('1 passage', '1,200 passages')
    """
    return f"{count:,} {what}" + ("s" if count != 1 else "")


def some(console: Console, what: str, items: Sequence[str], *, style: str = "") -> None:
    """The first few items, a line each, and how many more there are."""
    for item in items[:_FIRST]:
        console.print(f"{what}: {item}", style=style, markup=False, soft_wrap=True)
    if len(items) > _FIRST:
        console.print(f"{what}: {len(items) - _FIRST:,} more", style=style)


def rest(console: Console, shown: int, whole: int) -> None:
    """How many were not listed, and how to see them."""
    if shown < whole:
        console.print(f"… and {whole - shown:,} more (--most {whole})", style="dim")
