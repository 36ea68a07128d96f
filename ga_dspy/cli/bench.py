"""Measurements: what prompts, replies, retrieval cost and bring."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import dspy
import typer
from dspy.adapters.baml_adapter import BAMLAdapter
from pydantic import BaseModel
from rich import box
from rich.console import Console
from rich.table import Table

from ga_dspy.cli.choices import IndexDir, Limit
from ga_dspy.eval import load
from ga_dspy.eval.grounding import UNCHECKED, check_lines, rates
from ga_dspy.eval.replay import Replayed, cost_now, cost_then, read_back, read_recordings, replay
from ga_dspy.plain_adapter import PlainAdapter
from ga_dspy.programs.calls import prompt_tokens
from ga_dspy.retrieval import Index
from ga_dspy.retrieval.bench import bench
from ga_dspy.signatures import AnswerQuestion, ReadAndJudge
from ga_dspy.text import estimate_tokens


def retrieval(
    dataset: Annotated[str, typer.Option(help="hotpotqa, musique or 2wikimultihopqa.")],
    data: Annotated[Path, typer.Option(help="Questions, in the dataset's official format.")],
    index: IndexDir,
    kinds: Annotated[
        str, typer.Option(help="Comma-separated: sparse, dense, hybrid, linked.")
    ] = "sparse,dense,hybrid,linked",
    limit: Limit = None,
) -> None:
    """How many gold passages are in the top 2, 5, 10, 20, by kind of retrieval."""
    opened = Index.open(index)
    examples = [e for e in load(dataset, data, limit=limit) if e.gold_titles]
    questions = [(e.question, frozenset(e.gold_titles)) for e in examples]
    table = Table(
        title=f"{data.name}: {len(questions)} questions, {len(opened):,} passages "
        "(mean gold recall / all gold in the top k, %)",
        title_justify="left",
    )
    table.add_column("kind")
    rows = {kind: bench(opened.as_kind(kind), questions) for kind in kinds.split(",")}
    for row in next(iter(rows.values())):
        table.add_column(f"@{row.k}", justify="right")
    for kind, depths in rows.items():
        table.add_row(kind, *(f"{row.recall:.1f} / {row.all_gold:.1f}" for row in depths))
    Console().print(table)


def prompts() -> None:
    """What a step's prompt costs by adapter, with our graph type and with a nested one."""
    nested = ReadAndJudge.with_updated_fields("additions", type_=NestedGraph)
    table = Table(
        title="estimated prompt tokens of a step with empty inputs",
        title_justify="left",
        box=box.SIMPLE_HEAD,
    )
    table.add_column("adapter")
    for heading in ("read, graph as lines (ours)", "read, nested type", "answer"):
        table.add_column(heading, justify="right")
    for name, make in ADAPTERS.items():
        costs = [
            prompt_tokens(s, make(), estimate_tokens)
            for s in (ReadAndJudge, nested, AnswerQuestion)
        ]
        table.add_row(name, *map(str, costs))
    Console().print(table)


ADAPTERS = {
    "Plain": PlainAdapter,
    "Chat": dspy.ChatAdapter,
    "JSON": dspy.JSONAdapter,
    "BAML": BAMLAdapter,
    "XML": dspy.XMLAdapter,
}


class NestedEntity(BaseModel):
    """An entity as a nested schema states it."""

    name: str
    type: str
    attributes: list[str]
    passages: list[int]


class NestedRelation(BaseModel):
    """A relation as a nested schema states it."""

    head: str
    relation: str
    tail: str
    time: str | None
    confidence: float | None
    passages: list[int]


class NestedGraph(BaseModel):
    """What GraphProposal holds, as an ordinary Pydantic type."""

    entities: list[NestedEntity]
    relations: list[NestedRelation]


def grounding(
    file: Annotated[
        Path, typer.Argument(help="JSONL: line, passages, holds, and wording or fault.")
    ],
    list_: Annotated[bool, typer.Option("--list", help="Name each line judged wrongly.")] = False,
    json_only: Annotated[bool, typer.Option("--json", help="Print JSON, nothing else.")] = False,
) -> None:
    """How many true graph lines grounding drops, and how many false ones it accepts."""
    checked = check_lines(file)
    wrong = [line for line in checked if not line.is_right]
    if json_only:
        shares = [{**rate._asdict(), "share": round(rate.share, 1)} for rate in rates(checked)]
        found = {"rates": shares, "wrong": [line._asdict() for line in wrong]}
        print(json.dumps(found, ensure_ascii=False, indent=2))  # noqa: T201 - the output itself
        return
    table = Table(title=f"{file.name}: {len(checked)} lines", title_justify="left")
    for heading, side in (("lines", "left"), ("wrong", "right"), ("of", "right"), ("%", "right")):
        table.add_column(heading, justify=side)  # type: ignore[arg-type]
    for rate in rates(checked):
        what = f"{'true, dropped' if rate.holds else 'false, accepted'}: {rate.kind}"
        note = " (not checked)" if not rate.holds and rate.kind.startswith(UNCHECKED) else ""
        table.add_row(what + note, str(rate.wrong), str(rate.lines), f"{rate.share:.1f}")
    console = Console()
    console.print(table)
    for line in wrong if list_ else ():
        verdict = f"dropped ({line.reason})" if line.holds else f"accepted ({line.kind})"
        console.print(f"{line.line}: {verdict}", markup=False, soft_wrap=True)


def replies(
    file: Annotated[Path, typer.Argument(help="JSON lines with prompt and reply.")],
    json_output: Annotated[bool, typer.Option("--json", help="As JSON.")] = False,
) -> None:
    """What recorded replies of an LM to GraphAnchor cost, then and under settings of today."""
    recordings = read_recordings(file)
    costs, replayed = {"recorded": cost_then(recordings)}, list[Replayed]()
    for name, settings in REPLAYED.items():
        replayed = list(replay(recordings, **settings))
        costs[name] = cost_now(replayed)
    found = read_back(replayed)
    if json_output:
        by_name = {name: cost._asdict() for name, cost in costs.items()}
        print(json.dumps({"costs": by_name, "reading": found._asdict()}, indent=2))  # noqa: T201
        return
    table = Table(
        title=f"{len(recordings)} recorded questions: LM calls and estimated tokens a question",
        title_justify="left",
        box=box.SIMPLE_HEAD,
    )
    table.add_column("GraphAnchor", no_wrap=True)
    for heading in ("calls", "reading", "answering", "tokens", "share", "system, read"):
        table.add_column(heading, justify="right")
    for name, cost in costs.items():
        counts = (f"{count:,.0f}" for count in (cost.read, cost.answer, cost.tokens))
        share = f"{cost.tokens / costs['recorded'].tokens:.0%}"
        table.add_row(name, f"{cost.calls:.2f}", *counts, share, f"{cost.system:,.0f}")
    console = Console()
    console.print(table)
    console.print(
        f"{found.replies} replies read, {found.asked_again} asked for again, {found.failures} "
        f"failed; types kept: {found.types[1]} of {found.types[0]}; relations grounded: "
        f"{found.relations[1]} of {found.relations[0]}"
    )
    for lost in found.lost:
        console.print(f"  not grounded: {lost}", markup=False)


REPLAYED: dict[str, dict[str, Any]] = {
    "default": {},
    "cited passages": {"answer_passages": "cited"},
    "unsure call": {"final_call": "when unsure"},
    "both": {"answer_passages": "cited", "final_call": "when unsure"},
}
