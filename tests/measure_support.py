"""Precision of `supported`: how often a chained, a quoted and an unsupported answer is right.

An answer is right at a token F1 of 0.5. The embedded LM is asked the dev questions of each dataset
over the pooled passages of that file; recorded replies of a frontier LM are replayed. Coverage is
the share of the right answers that are chained.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path
from statistics import fmean
from typing import Any, Final, NamedTuple

import dspy
from recorded_replies import read_recordings, replay

from ga_dspy import GraphAnchor, Index, extractive_lm, read_passages
from ga_dspy.eval import load
from ga_dspy.eval.scores import f1

RIGHT: Final = 0.5
_DEV: Final = {
    "hotpotqa": "hotpotqa/dev_distractor.json",
    "musique": "musique/dev.jsonl",
    "2wikimultihopqa": "2wikimultihopqa/dev.json",
}
_TRAIN: Final = {"hotpotqa": "hotpotqa/train.json", "musique": "musique/train.jsonl"}
_RECORDED: Final = ("graph_anchor", "train_hotpotqa", "train_musique")


class Scored(NamedTuple):
    """An answer: where it comes from, what `supported` says of it, and its F1."""

    source: str
    supported: str | None
    f1: float


class Precision(NamedTuple):
    """The answers of one label: how many, percent of them right, their mean F1.

    `covered` is the percent of all right answers of the source that have the label.
    """

    source: str
    label: str
    answers: int
    right: float
    f1: float
    covered: float


def _scored(source: str, found: Any, gold: Iterable[str]) -> Scored:
    return Scored(source, found.supported, f1(found.guess, gold))


def of_recordings(shared: Path) -> Iterator[Scored]:
    """Replay the recorded questions, with the gold answers of the datasets they come from."""
    files = (*_DEV.items(), *_TRAIN.items())
    known = chain.from_iterable(load(name, shared / "data" / file) for name, file in files)
    gold = {example.question: example.answers for example in known}
    for name in _RECORDED:
        for asked in replay(read_recordings(shared / "replies" / f"{name}.jsonl")):
            yield _scored("recorded", asked.prediction, gold[asked.recording.question])


def of_dev(shared: Path, dataset: str) -> Iterator[Scored]:
    """Ask the embedded LM the questions of a dev file; 2Wiki's two halves are told apart."""
    file = shared / "data" / _DEV[dataset]
    program = GraphAnchor(Index.from_passages(read_passages([file])))
    examples = load(dataset, file)
    with dspy.context(lm=extractive_lm()):
        for number, example in enumerate(examples):
            half = f" {1 + (2 * number) // len(examples)}/2" if dataset == "2wikimultihopqa" else ""
            yield _scored(dataset + half, program(question=example.question), example.answers)


def precisions(scored: Iterable[Scored]) -> Iterator[Precision]:
    """For each source a line per label, in the order chained, quoted, none."""
    by_source: dict[str, list[Scored]] = {}
    for each in scored:
        by_source.setdefault(each.source, []).append(each)
    for source, answers in by_source.items():
        right = sum(each.f1 >= RIGHT for each in answers)
        for label in ("chained", "quoted", None):
            f1s = [each.f1 for each in answers if each.supported == label]
            good = sum(each >= RIGHT for each in f1s)
            yield Precision(
                source,
                label or "none",
                len(f1s),
                100 * good / len(f1s) if f1s else 0.0,
                100 * fmean(f1s) if f1s else 0.0,
                100 * good / right if right else 0.0,
            )


if __name__ == "__main__":  # python tests/measure_support.py SHARED_FOLDER
    folder = Path(sys.argv[1])
    measured = list(chain(of_recordings(folder), *(of_dev(folder, name) for name in _DEV)))
    measured += [
        each._replace(source="embedded LM") for each in measured if each.source != "recorded"
    ]
    print(f"{'answers of':20}{'supported':12}{'n':>5}{'right':>8}{'F1':>8}{'covers':>8}")
    for line in precisions(measured):
        print(
            f"{line.source:20}{line.label:12}{line.answers:5}{line.right:7.1f}%{line.f1:8.1f}{line.covered:7.1f}%"
        )
