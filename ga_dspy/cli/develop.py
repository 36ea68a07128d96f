"""`ga-dspy data rename` and `fit-extractive`: what the library itself is developed with."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from extractive_lm import Doc
from extractive_lm.fit import Row, fit, save
from ga_dspy.cli.console import Console, facts
from ga_dspy.errors import InputError
from ga_dspy.eval import load
from ga_dspy.eval.renaming import rename_file
from ga_dspy.retrieval import Index


def rename_data(
    file: Annotated[Path, typer.Argument(help="A file of questions with their paragraphs.")],
    out: Annotated[Path, typer.Option(help="The renamed copy.")],
    seed: Annotated[int, typer.Option(help="Another seed, other names.")] = 0,
    dataset: Annotated[str | None, typer.Option(help="Told from its fields if left out.")] = None,
    mapping: Annotated[
        Path | None, typer.Option(help="A CSV of old and new names, to look at.")
    ] = None,
    listed: Annotated[
        bool, typer.Option("--list", help="Name questions that got lost and answers that stayed.")
    ] = False,
) -> None:
    """Copy a dataset under invented names, so that only reading helps."""
    console = Console()
    report = rename_file(file, out, seed, dataset=dataset, mapping=mapping)
    before, after = 100 * report.derivable_in_source, 100 * report.derivable_in_copy
    rows = [
        ("questions", f"{report.questions:,} of {report.dataset}, seed {report.seed}"),
        ("renamed", _counts(report.renamed) or "none"),
        ("answers left as they are", _counts(report.unchanged) or "none"),
        (
            "answers that can be read",
            f"{after:.1f} % of the questions, {before:.1f} % in the source",
        ),
        (
            "questions that can be followed",
            f"{100 * report.followed_in_copy:.1f} %, {100 * report.followed_in_source:.1f} % in "
            f"the source; lost {len(report.lost)}",
        ),
        ("rows that still show an old name", str(report.leaks)),
        ("words left alone for an answer's sake", str(report.kept)),
    ]
    console.print(facts(rows))
    for name in report.lost if listed else ():
        console.print(f"  lost  {name}", markup=False)
    for reason, answers in report.stayed.items() if listed else ():
        for name, answer in answers:
            console.print(f"  {reason}  {name}  {answer}", markup=False)
    console.print(f"\nwrote {out}; index its passages anew:", markup=False)
    console.print(f"  ga-dspy index build {out} --out …", style="bold", markup=False)


def _counts(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{n:,} {name}" for name, n in counts.items() if n)


def fit_extractive(
    hotpotqa: Annotated[Path, typer.Option(help="HotpotQA train file.")],
    hotpotqa_index: Annotated[Path, typer.Option(help="Index over its passages.")],
    musique: Annotated[Path, typer.Option(help="MuSiQue train file.")],
    musique_index: Annotated[Path, typer.Option(help="Index over its passages.")],
    out: Annotated[Path, typer.Option(help="Folder for the weights.")],
) -> None:
    """Fit the embedded LM's answer ranker on train files."""
    console = Console()
    rows: list[Row] = []
    for dataset, data, folder in (
        ("hotpotqa", hotpotqa, hotpotqa_index),
        ("musique", musique, musique_index),
    ):
        rows += rows_of(dataset, data, Index.open(folder))
        console.print(f"{data.name}: {len(rows)} rows so far", markup=False)
    out.mkdir(parents=True, exist_ok=True)
    for path in save(fit(rows), out):
        console.print(f"wrote {path}", markup=False)


DEPTHS = (5, 10)


def rows_of(dataset: str, data: Path, index: Index) -> Iterator[Row]:
    """Each question with its top passages at each depth, then its sub-questions where it has any.

    Passages are taken exactly as retrieved: a ranker that is shown appended gold passages learns
    where they were put.
    """
    for example in load(dataset, data):
        answers = tuple(example.answers)
        if {answer.lower() for answer in answers} & {"yes", "no"}:
            continue
        for depth in DEPTHS:
            yield Row(example.question, _docs(index, example.question, depth), answers)
        for question, answer in _parts(example.id, data) if dataset == "musique" else ():
            yield Row(question, _docs(index, question, DEPTHS[0]), (answer,))


def _docs(index: Index, question: str, depth: int) -> tuple[Doc, ...]:
    found = index(question, depth)
    return tuple(Doc(i, passage.title, passage.text) for i, passage in enumerate(found, 1))


def _parts(id: str, data: Path) -> Iterator[tuple[str, str]]:
    """MuSiQue's own single-hop parts of a question, "#1" replaced by the first part's answer."""
    answers: list[str] = []
    for part in _decompositions(data)[id]:
        question = re.sub(r"#(\d+)", lambda m: answers[int(m.group(1)) - 1], part["question"])
        answers.append(part["answer"])
        yield question, part["answer"]


def _decompositions(data: Path) -> dict[str, list[dict[str, Any]]]:
    lines = data.read_text(encoding="utf-8").splitlines()
    rows = [json.loads(line) for line in lines if line.strip()]
    if not all("question_decomposition" in row for row in rows):
        raise InputError(
            f"{data} has rows without question_decomposition",
            expected="MuSiQue's official train file",
            remedy="pass --musique musique_ans_v1.0_train.jsonl",
        )
    return {row["id"]: row["question_decomposition"] for row in rows}
