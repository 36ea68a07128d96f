"""Fitting the ranker's weights, and the minimum score of the shipped ones."""

from __future__ import annotations

import json
import re
from importlib import resources
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("lightgbm")

from fit_ranker import Row, fit, plain_question

from extractive_lm import ExtractiveError
from extractive_lm.english import analyse
from extractive_lm.prompt import Doc
from extractive_lm.ranker import rank
from extractive_lm.trees import Trees
from ga_dspy.eval.scores import f1

DATA = Path(__file__).parents[2] / "shared" / "data" / "hotpotqa" / "dev_distractor.json"
TOWNS = ("Alder", "Birch", "Cedar", "Damson", "Elder", "Fir", "Gorse", "Hazel", "Ivy", "Juniper")


def _rows() -> list[Row]:
    rows = []
    for i, town in enumerate(TOWNS):
        name = f"{town} Band"
        text = f"{name} is a rock band formed in {1960 + i} in {town}ville by Max {town}son."
        docs = (Doc(1, name, text), Doc(2, f"{town}ville", f"{town}ville is a quiet city."))
        rows.append(Row(f"In what city was {name} formed?", docs, (f"{town}ville",)))
        rows.append(Row(f"Who formed {name}?", docs, (f"Max {town}son",)))
    return rows


def test_the_same_rows_give_the_same_bytes() -> None:
    assert fit(_rows(), trees=3) == fit(_rows(), trees=3)


def test_different_answers_give_different_weights() -> None:
    turned = [r._replace(answers=("1960",)) if "city" in r.question else r for r in _rows()]
    assert fit(_rows(), trees=3) != fit(turned, trees=3)


def test_rows_without_their_answer_in_a_passage_are_refused_with_a_remedy() -> None:
    row = Row("Who formed it?", (Doc(1, "A", "Nothing is told here."),), ("Zeno",))
    with pytest.raises(ExtractiveError, match="retrieve more passages"):
        fit([row])


def test_a_decomposition_step_becomes_a_question() -> None:
    assert plain_question("Rust Belt >> country") == "What is the country of Rust Belt?"
    assert plain_question("Who won?") == "Who won?"


def test_the_trees_score_like_lightgbm_to_the_last_bit() -> None:
    import lightgbm

    random = np.random.default_rng(0)
    shipped = (resources.files("extractive_lm") / "ranker.txt").read_text("utf-8")
    for model in (shipped, fit(_rows(), trees=3)):
        scale = random.choice([0, 0.1, 1, 10], (500, 19))
        rows = (random.uniform(-1, 5, (500, 19)) * scale).astype(np.float32)
        theirs = lightgbm.Booster(model_str=model).predict(rows, num_threads=1)
        assert Trees.parse(model).scores(rows).tolist() == theirs.tolist()


def test_the_shipped_weights_are_small_and_contain_no_text() -> None:
    weights = (resources.files("extractive_lm") / "ranker.txt").read_text("utf-8")
    assert len(weights) < 400_000
    assert not re.search("[a-z]{3,} [a-z]{3,}", weights)


@pytest.mark.data
def test_the_shipped_weights_reach_their_floor_on_given_passages() -> None:
    if not DATA.exists():
        pytest.skip(f"the dataset samples are not at {DATA}")
    rows = json.loads(DATA.read_text("utf-8"))[:60]
    total = 0.0
    for row in rows:
        docs = [Doc(i, t, "".join(s)) for i, (t, s) in enumerate(row["context"], 1)]
        total += f1(rank(analyse(row["question"]), docs)[0].text, [row["answer"]])
    assert total / len(rows) > 0.36
