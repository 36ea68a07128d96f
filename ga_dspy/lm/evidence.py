"""What the answerer is given and what it gives back."""

from __future__ import annotations

from typing import NamedTuple


class Doc(NamedTuple):
    """A passage as a prompt shows it: its label `[n]`, its title ("" where none) and its text."""

    label: int
    title: str
    text: str


class Fact(NamedTuple):
    """A relation of the graph found so far, with the labels of the passages it came from."""

    head: str
    relation: str
    tail: str
    labels: tuple[int, ...]


class Demo(NamedTuple):
    """A question answered in the prompt as an example."""

    question: str
    answer: str


class Answer(NamedTuple):
    """An answer, the passages it was read from, and how sure the ranker is.

    `score` is in [0, 1], roughly the probability of being right, comparable across questions.
    `kind` is "span", "yesno", "choice" or, where nothing can be answered, "none" (text "").
    """

    text: str
    score: float
    labels: tuple[int, ...]
    kind: str
