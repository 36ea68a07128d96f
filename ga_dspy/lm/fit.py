"""Fit the ranker's weights from questions, passages as retrieved, and answers; deterministic."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ga_dspy.errors import InputError
from ga_dspy.lm import idf as idf_table
from ga_dspy.lm.evidence import Doc
from ga_dspy.lm.features import NAMES, describe
from ga_dspy.lm.idf import Idf
from ga_dspy.lm.question import analyse
from ga_dspy.lm.ranker import MODEL_FILES, Ranker, best_by_string, build, expected_f1
from ga_dspy.lm.text import normalize

if TYPE_CHECKING:
    import numpy as np

TREES = 200
FOLDS = 3
NEGATIVES = 250
TEMPERATURE = 0.6
RISING = frozenset(
    "type_fits place_fits noun_beside sentence_focus sentence_relation best_near nearest "
    "best_sentence_focus passage_pair_coverage".split()
)
"""Features of which more is never worse; with few questions this keeps the trees sensible."""
FALLING = frozenset("passage_rank in_question overlap joints".split())
PARAMETERS: dict[str, Any] = {
    "objective": "lambdarank",
    "learning_rate": 0.05,
    "num_leaves": 15,
    "min_data_in_leaf": 20,
    "feature_fraction": 0.5,
    "bagging_fraction": 0.8,
    "bagging_freq": 1,
    "lambda_l2": 5.0,
    "lambdarank_truncation_level": 20,
    "max_bin": 63,
    "verbose": -1,
    "num_threads": 1,
    "deterministic": True,
    "force_row_wise": True,
}


class Row(NamedTuple):
    """A training example: a question, its passages exactly as retrieved, its accepted answers."""

    question: str
    docs: tuple[Doc, ...]
    answers: tuple[str, ...]


class _Example(NamedTuple):
    question: str
    values: np.ndarray
    norm: list[str]
    f1: np.ndarray


def fit(rows: Sequence[Row], *, trees: int = TREES) -> dict[str, str]:
    """Fit all weights; the texts of the weight files by name, the same bytes for the same rows.

    Rows that share a question may differ in their passages (say the top 5 and the top 10); they
    stay in one fold when the scale is fitted.

    Raises:
        InputError: where no row has a candidate that answers its question.
    """
    idf = idf_table.count(dict.fromkeys(f"{d.title} {d.text}" for r in rows for d in r.docs))
    examples = [e for row in rows if (e := _example(row, idf)) is not None]
    if not examples:
        raise InputError(
            f"none of the {len(rows)} rows has a span among its passages that answers it",
            expected="questions whose answers stand in their passages",
            remedy="retrieve more passages for a row",
        )
    files = {
        "idf.json": idf_table.dumps(idf),
        "scale.json": json.dumps({"temperature": TEMPERATURE, "bias": -1.5, "slope": 3.0}),
    }
    bias, slope = _calibrate(examples, files, trees)
    files["scale.json"] = json.dumps({"temperature": TEMPERATURE, "bias": bias, "slope": slope})
    return files | _train(examples, trees)


def save(files: dict[str, str], folder: Path) -> list[Path]:
    """Write the weight files into a folder, which must exist."""
    paths = [folder / name for name in sorted(files)]
    for path in paths:
        path.write_text(files[path.name], encoding="utf-8")
    return paths


def plain_question(text: str) -> str:
    """A question in words where a decomposition writes "subject >> relation".

    >>> plain_question("Brand >> author")
    'What is the author of Brand?'
    """
    subject, arrow, relation = text.partition(">>")
    return f"What is the {relation.strip()} of {subject.strip()}?" if arrow else text


def _example(row: Row, idf: Idf) -> _Example | None:
    """A row's candidates with their F1; None where no span can answer it."""
    import numpy as np

    question = analyse(plain_question(row.question))
    if question.wants in ("yesno", "choice"):
        return None
    found = describe(question, row.docs, idf)
    f1 = {n: max(_f1(n, a) for a in row.answers) for n in set(found.norm)}
    values = np.asarray([f1[n] for n in found.norm])
    if not len(values) or values.max() < 0.4:
        return None
    return _Example(row.question, found.values, found.norm, values)


def _f1(ours: str, gold: str) -> float:
    a, b = Counter(ours.split()), Counter(normalize(gold).split())
    shared = (a & b).total()
    return 2 * shared / (a.total() + b.total()) if shared else 0.0


def _grade(f1: np.ndarray) -> np.ndarray:
    """Grades of relevance: 4 right, 2 for F1 from 0.66, 1 from 0.4, else 0."""
    import numpy as np

    return np.select([f1 > 0.999, f1 >= 0.66, f1 >= 0.4], [4, 2, 1], 0)


def _train(
    examples: Sequence[_Example], trees: int, names: Sequence[str] = MODEL_FILES
) -> dict[str, str]:
    """One model a name, each with its own seed and its own sample of wrong candidates."""
    import lightgbm
    import numpy as np

    models = {}
    for seed, name in enumerate(names):
        random = np.random.default_rng(seed)
        picked = [_sample(e, random) for e in examples]
        data = lightgbm.Dataset(
            np.vstack([e.values[i] for e, i in zip(examples, picked, strict=True)]),
            np.concatenate([_grade(e.f1[i]) for e, i in zip(examples, picked, strict=True)]),
            group=[len(i) for i in picked],
        )
        settings = PARAMETERS | {"seed": seed, "monotone_constraints": _directions()}
        booster = lightgbm.train(settings, data, trees)
        models[name] = _compact(booster.model_to_string())
    return models


def _directions() -> list[int]:
    return [(name in RISING) - (name in FALLING) for name in NAMES]


def _sample(example: _Example, random: np.random.Generator) -> np.ndarray:
    """All rows that are at least partly right and a fixed number of wrong ones."""
    import numpy as np

    right = np.nonzero(example.f1 >= 0.4)[0]
    wrong = np.nonzero(example.f1 < 0.4)[0]
    if len(wrong) > NEGATIVES:
        wrong = random.choice(wrong, NEGATIVES, replace=False)
    return np.sort(np.concatenate([right, wrong]))


def _compact(model: str) -> str:
    """The trees without the training parameters and the importances, which scoring ignores."""
    return model.partition("\nfeature_importances:")[0] + "\n"


def _calibrate(
    examples: Sequence[_Example], files: dict[str, str], trees: int
) -> tuple[float, float]:
    """Logistic regression from expected F1 to being right, on questions held out in folds."""
    questions = sorted({e.question for e in examples})
    fold = {q: i % FOLDS for i, q in enumerate(questions)}
    points: list[tuple[float, float]] = []
    for f in range(FOLDS):
        seen = [e for e in examples if fold[e.question] != f]
        if not seen:
            continue
        model = _train(seen, trees, MODEL_FILES[:1])[MODEL_FILES[0]]
        ranker = build(files | dict.fromkeys(MODEL_FILES, model))
        points += [_point(e, ranker) for e in examples if fold[e.question] == f]
    return _logistic(points)


def _point(example: _Example, ranker: Ranker) -> tuple[float, float]:
    best = best_by_string(example.norm, ranker.scores(example.values))
    text, expected = expected_f1(best, ranker.temperature)[0]
    return expected, float(example.f1[example.norm.index(text)])


def _logistic(points: Sequence[tuple[float, float]], steps: int = 400) -> tuple[float, float]:
    """Bias and slope by gradient descent with a light pull to zero; targets in [0, 1]."""
    bias, slope = 0.0, 1.0
    for _ in range(steps):
        gradient = [0.0, 0.001 * slope]
        for x, y in points:
            error = 1 / (1 + math.exp(-(bias + slope * x))) - y
            gradient[0] += error / len(points)
            gradient[1] += error * x / len(points)
        bias, slope = bias - 2.0 * gradient[0], slope - 2.0 * gradient[1]
    return round(bias, 3), round(slope, 3)
