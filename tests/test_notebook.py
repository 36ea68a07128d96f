"""The display of values in notebooks and at a prompt."""

from __future__ import annotations

from typing import Any

import dspy
import pytest

from ga_dspy import GraphAnchor, Index, Passage
from ga_dspy.notebook import table
from ga_dspy.programs.prediction import Prediction
from ga_dspy.testing import scripted_lm

HOSTILE = "<img src=x onerror=alert(1)>"
PASSAGE = Passage(id="1", title=HOSTILE, text=f"Lea was born in Bern. {HOSTILE} {'x' * 999}")
READ = {"additions": "Relations:\n1. Lea -> born in -> Bern [1]", "reasoning": "it is there",
        "judgement": "sufficient", "candidate": "Bern", "next_query": ""}  # fmt: skip


@pytest.fixture
def prediction() -> Any:
    answer = {"verdict": "answered", "links": "[1]", "answer": "Bern"}
    with dspy.context(lm=scripted_lm([READ, answer])):
        return GraphAnchor(lambda query, k: [PASSAGE])(question="Where was Lea born?")


def test_notebook_html_is_escaped_and_short(prediction: Any) -> None:
    shown = [value._repr_html_() for value in (prediction, prediction.graph, PASSAGE)]
    shown.append(Index.from_passages([PASSAGE], kind="sparse")._repr_html_())
    for html in shown:
        assert "<img" not in html and "<script" not in html and len(html) < 3000
    assert all("&lt;img" in html for html in (shown[0], *shown[2:]))


def test_a_prediction_shows_its_answer_evidence_and_steps(prediction: Any) -> None:
    html = prediction._repr_html_()
    for part in ("<b>Bern</b>", "chained", "Lea born in Bern", "Where was Lea born?", "sufficient"):
        assert part in html


def test_the_repr_of_a_prediction_and_of_a_graph_is_one_line(prediction: Any) -> None:
    assert repr(prediction.graph) == "KnowledgeGraph(entities=2, relations=1)"
    assert repr(prediction) == (
        "Prediction(answer='Bern', verdict='answered', supported='chained', evidence=1, passages=1,"
        f" steps=1, graph=KnowledgeGraph(entities=2, relations=1), calls=1, "
        f"tokens={prediction.tokens})"
    )
    assert "Lea" in str(prediction.graph)


def test_a_long_table_writes_only_the_rows_it_shows() -> None:
    class Unshown:
        def __str__(self) -> str:
            raise AssertionError

    html = table(("name",), [("Bern",), *[(Unshown(),)] * 5_000], most=1)
    assert "Bern" in html and "5,000 more" in html


def test_a_prediction_without_steps_can_be_displayed() -> None:
    made = Prediction(answer=HOSTILE)
    assert "answer=" in repr(made) and "<img" not in made._repr_html_()
