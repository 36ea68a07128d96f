"""Fitting the ranker's weights, and a floor under the shipped ones."""

from __future__ import annotations

import json
from collections import Counter
from importlib import resources
from pathlib import Path

import pytest

pytest.importorskip("lightgbm")

from fit_ranker import Row, fit, plain_question, save

from extractive_lm import ExtractiveError
from extractive_lm.prompt import Doc
from extractive_lm.ranker import Ranker, expected_f1, rank
from extractive_lm.text import normalize

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


def test_other_answers_give_other_weights() -> None:
    turned = [r._replace(answers=("1960",)) if "city" in r.question else r for r in _rows()]
    assert fit(_rows(), trees=3) != fit(turned, trees=3)


def test_saved_weights_can_be_built_again(tmp_path: Path) -> None:
    files = fit(_rows(), trees=3)
    paths = save(files, tmp_path)
    again = {p.name: p.read_text("utf-8") for p in paths}
    assert Ranker.from_files(again).idf == Ranker.from_files(files).idf
    assert again == files


def test_rows_whose_answer_stands_nowhere_are_refused_with_a_remedy() -> None:
    row = Row("Who formed it?", (Doc(1, "A", "Nothing is told here."),), ("Zeno",))
    with pytest.raises(ExtractiveError, match="retrieve more passages"):
        fit([row])


def test_weights_for_other_features_are_refused_by_name() -> None:
    import lightgbm
    import numpy as np

    data = lightgbm.Dataset(np.arange(60.0).reshape(20, 3), np.arange(20.0))
    other = lightgbm.train({"verbose": -1, "num_threads": 1}, data, 1).model_to_string()
    files = fit(_rows(), trees=2)
    with pytest.raises(ExtractiveError, match="fit_ranker"):
        Ranker.from_files(
            {name: other if "ranker" in name else text for name, text in files.items()}
        )


def test_a_relation_of_a_decomposition_becomes_a_question() -> None:
    assert plain_question("Rust Belt >> country") == "What is the country of Rust Belt?"
    assert plain_question("Who won?") == "Who won?"


def test_agreement_between_likely_spans_decides_near_ties() -> None:
    scored = {"leeds": 1.0, "hull": 0.95, "city of hull": 0.9}
    assert expected_f1(scored)[0][0] == "hull"


def test_the_shipped_weights_are_small_and_hold_no_running_text() -> None:
    folder = Path(str(resources.files("extractive_lm"))) / "weights"
    assert sum(p.stat().st_size for p in folder.iterdir()) < 500_000
    table = json.loads((folder / "idf.json").read_text("utf-8"))
    for stems in table["stems"].values():
        assert stems.split() == sorted(stems.split())


@pytest.mark.data
def test_the_shipped_weights_keep_their_floor_on_given_passages() -> None:
    if not DATA.exists():
        pytest.skip(f"the dataset samples are not at {DATA}")
    rows = json.loads(DATA.read_text("utf-8"))[:60]
    total = 0.0
    for row in rows:
        docs = [Doc(i, t, "".join(s)) for i, (t, s) in enumerate(row["context"], 1)]
        total += _f1(rank(row["question"], docs)[0].text, row["answer"])
    assert total / len(rows) > 0.36


def _f1(ours: str, gold: str) -> float:
    a, b = normalize(ours).split(), normalize(gold).split()
    if a != b and {*a[:1], *b[:1]} & {"yes", "no"}:
        return 0.0
    shared = (Counter(a) & Counter(b)).total()
    return 2 * shared / (len(a) + len(b)) if shared else 0.0
