"""`ga-dspy ask`."""

from __future__ import annotations

import json
from pathlib import Path

import dspy
from rich.console import Console

from ga_dspy.cli.models import Choice, choose_corpus, choose_lm, choose_program
from ga_dspy.cli.show import EXTRACTIVE_NOTE, show_prediction
from ga_dspy.graphrag import Access, called_by
from ga_dspy.programs.prediction import as_json


def run_ask(
    question: str,
    index: Path,
    choice: Choice,
    *,
    json_only: bool,
) -> None:
    """Answer one question over an index."""
    chosen = choose_lm(choice)
    with dspy.context(lm=chosen.lm), called_by(Access(labels=frozenset(choice.labels))):
        answerer = choose_program(choice, choose_corpus(index, choice))
        prediction = answerer(question=question)
    if json_only:
        record = {"question": question, "lm": chosen.name, **as_json(prediction)}
        print(json.dumps(record, ensure_ascii=False, indent=2))  # noqa: T201 - the output itself
        return
    console = Console()
    show_prediction(console, question, prediction)
    if chosen.is_embedded:
        console.print(EXTRACTIVE_NOTE, style="dim")
