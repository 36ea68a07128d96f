"""`ga-dspy fit-extractive`: the embedded LM's weights from train files, and from nothing else."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rich.console import Console

from ga_dspy.errors import InputError
from ga_dspy.eval import load
from ga_dspy.lm.evidence import Doc
from ga_dspy.lm.fit import Row, fit, save
from ga_dspy.retrieval import Index

DEPTHS = (5, 10)


def run_fit(sources: list[tuple[str, Path, Path]], out: Path) -> None:
    """Fit on what the default retriever finds for train questions; write the weight files.

    Args:
        sources: Name of a dataset, its train file and an index over its passages, each.
        out: Folder for the weights.
    """
    console = Console()
    rows: list[Row] = []
    for dataset, data, folder in sources:
        index = Index.open(folder)
        rows += rows_of(dataset, data, index)
        console.print(f"{data.name}: {len(rows)} rows so far", markup=False)
    out.mkdir(parents=True, exist_ok=True)
    for path in save(fit(rows), out):
        console.print(f"wrote {path}", markup=False)


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
