"""Fit the weights of the embedded LM's ranker: questions, passages as retrieved, and answers.

The same files give the same bytes. Train files of HotpotQA and MuSiQue in, weights out:

    python tests/fit_ranker.py hotpotqa/train.json musique/train.jsonl extractive_lm/ranker.txt
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from extractive_lm.english import ExtractiveError, analyse, normalize
from extractive_lm.prompt import Doc
from extractive_lm.ranker import FEATURES, describe, read_page, word_f1
from ga_dspy.eval import load
from ga_dspy.retrieval import Index, read_passages

TREES = 200
NEGATIVES = 250
RISING = frozenset("type_fits focus best_near best_focus pair_coverage".split())
"""Features of which more is never worse; with few questions this keeps the trees sensible."""
FALLING = frozenset("passage_rank in_question overlap".split())
PARAMETERS: dict[str, Any] = {
    "objective": "lambdarank",
    "learning_rate": 0.05,
    "num_leaves": 15,
    "min_data_in_leaf": 20,
    "feature_fraction": 0.5,
    "bagging_fraction": 0.8,
    "bagging_freq": 1,
    "lambda_l2": 20.0,
    "lambdarank_truncation_level": 20,
    "max_bin": 63,
    "seed": 1,
    "verbose": -1,
    "num_threads": 1,
    "deterministic": True,
    "force_row_wise": True,
    "monotone_constraints": [(name in RISING) - (name in FALLING) for name in FEATURES],
}


class Row(NamedTuple):
    """A training example: a question, its passages exactly as retrieved, its accepted answers."""

    question: str
    docs: tuple[Doc, ...]
    answers: tuple[str, ...]


class _Example(NamedTuple):
    """A row's phrases: their features and their F1."""

    values: np.ndarray
    f1: np.ndarray


def fit(rows: Sequence[Row], *, trees: int = TREES) -> str:
    """Fit the ranker; the text of its weights, the same bytes for the same rows.

    Rows that share a question may differ in their passages, say the top 5 and the top 10.

    Raises:
        ExtractiveError: where no row has a phrase that answers its question.
    """
    examples = [e for row in rows if (e := _example(row)) is not None]
    if not examples:
        raise ExtractiveError(
            f"none of the {len(rows)} rows has a phrase in its passages that answers it; "
            "expected questions whose answers stand in their passages; "
            "retrieve more passages for a row"
        )
    return _train(examples, trees)


def plain_question(text: str) -> str:
    """A question in words where a decomposition writes "subject >> relation".

    >>> plain_question("Brand >> author")
    'What is the author of Brand?'
    """
    subject, arrow, relation = text.partition(">>")
    return f"What is the {relation.strip()} of {subject.strip()}?" if arrow else text


def _example(row: Row) -> _Example | None:
    """A row's phrases; None where none can answer it."""
    question = analyse(plain_question(row.question))
    if question.wants in ("yesno", "choice"):
        return None
    places, values = describe(question, [read_page(doc.title, doc.text) for doc in row.docs])
    golds = [normalize(answer) for answer in row.answers]
    by_norm = {norm: max(word_f1(norm, gold) for gold in golds) for norm, *_ in places}
    f1 = np.array([by_norm[norm] for norm, *_ in places])
    return _Example(values, f1) if max(f1, default=0.0) >= 0.4 else None


def _train(examples: Sequence[_Example], trees: int) -> str:
    import lightgbm

    random = np.random.default_rng(0)
    picked = [_sample(e.f1, random) for e in examples]
    f1 = np.concatenate([e.f1[i] for e, i in zip(examples, picked, strict=True)])
    data = lightgbm.Dataset(
        np.vstack([e.values[i] for e, i in zip(examples, picked, strict=True)]),
        # Grades of relevance: right, nearly right, partly right, wrong.
        np.select([f1 > 0.999, f1 >= 0.66, f1 >= 0.4], [4, 2, 1], 0),
        group=[len(i) for i in picked],
    )
    booster = lightgbm.train(PARAMETERS, data, trees)
    # Without the training parameters and the importances, which scoring ignores.
    model: str = booster.model_to_string()
    return model.partition("\nfeature_importances:")[0] + "\n"


def _sample(f1: np.ndarray, random: np.random.Generator) -> np.ndarray:
    """All rows that are at least partly right and a fixed number of wrong ones."""
    right, wrong = np.nonzero(f1 >= 0.4)[0], np.nonzero(f1 < 0.4)[0]
    if len(wrong) > NEGATIVES:
        wrong = random.choice(wrong, NEGATIVES, replace=False)
    return np.sort(np.concatenate([right, wrong]))


# --- The rows of the public train files

DEPTHS = (5, 10)


def rows_of(dataset: str, data: Path) -> Iterator[Row]:
    """Each question with its top passages at each depth, then its sub-questions where it has any.

    Passages are taken exactly as retrieved from the file's own: a ranker that is shown appended
    gold passages learns where they were put.
    """
    index = Index.from_passages(read_passages(data))
    parts = _decompositions(data) if dataset == "musique" else {}
    for example in load(dataset, data):
        answers = tuple(example.answers)
        if {answer.lower() for answer in answers} & {"yes", "no"}:
            continue
        for depth in DEPTHS:
            yield Row(example.question, _docs(index, example.question, depth), answers)
        for question, answer in parts.get(example.id, ()):
            yield Row(question, _docs(index, question, DEPTHS[0]), (answer,))


def _docs(index: Index, question: str, depth: int) -> tuple[Doc, ...]:
    found = index(question, depth)
    return tuple(Doc(i, passage.title, passage.text) for i, passage in enumerate(found, 1))


def _decompositions(data: Path) -> dict[str, list[tuple[str, str]]]:
    """MuSiQue's single-hop parts by question, "#1" replaced by the first part's answer."""
    found: dict[str, list[tuple[str, str]]] = {}
    for line in filter(str.strip, data.read_text("utf-8").splitlines()):
        row, answers = json.loads(line), list[str]()
        for part in row["question_decomposition"]:
            text = part["question"]
            for number, answer in enumerate(answers, 1):
                text = re.sub(rf"#{number}\b", answer.replace("\\", r"\\"), text)
            answers.append(part["answer"])
            found.setdefault(row["id"], []).append((text, part["answer"]))
    return found


if __name__ == "__main__":
    hotpotqa, musique, out = map(Path, sys.argv[1:])
    out.write_text(fit([*rows_of("hotpotqa", hotpotqa), *rows_of("musique", musique)]), "utf-8")
    print(f"wrote {out}")
