"""Fine-tuning up to the provider's call: what it is given, and what becomes of its model."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import dspy
import pytest

from ga_dspy import GraphAnchor, Passage
from ga_dspy.errors import InputError
from ga_dspy.optimize import Outcome, compile, recipe
from ga_dspy.testing import Reply, scripted_lm


def rows(first: int, last: int) -> list[dspy.Example]:
    return [
        dspy.Example(id=f"q{i}", question=f"Where is Town{i}?", answer=f"Land{i}").with_inputs(
            "question"
        )
        for i in range(first, last)
    ]


def search(query: str, k: int) -> list[Passage]:
    i = re.findall(r"\d+", query)[0]
    return [Passage(id=i, title=f"Town{i}", text=f"Town{i} lies in Land{i}.")]


def town(prompt: str) -> int:
    return int(re.findall(r"Where is Town(\d+)", prompt)[-1])


def task(prompt: str) -> Reply:
    """Right for even towns, wordy for the others."""
    i = town(prompt)
    if "[[ ## answer ## ]]" in prompt:
        answer = f"in the land of Land{i}" if i % 2 else f"Land{i}"
        return {"verdict": "answered", "cited": "1", "answer": answer}
    return {
        "additions": f"Relations:\n1. Town{i} -> lies in -> Land{i} [1]",
        "reasoning": "seen",
        "judgement": "sufficient",
        "candidate": "",
        "next_query": "",
    }


class Trainer(dspy.clients.provider.Provider):
    """A provider that trains nothing and says so with a new name."""

    def __init__(self) -> None:
        super().__init__()
        self.finetunable = True
        self.trained: list[dict[str, Any]] = []

    def finetune(self, job: Any, model: str, train_data: Any, *form: Any, **settings: Any) -> str:
        self.trained += train_data
        return "ga-dspy/trained"


def compiled(name: str, out: Path, lm: dspy.LM, **settings: Any) -> Outcome:
    return compile(
        GraphAnchor(search),
        recipe(name, **settings),
        rows(0, 6),
        rows(10, 14),
        test=rows(20, 24),
        out=out,
        lm=lm,
        threads=1,
    )


@pytest.mark.parametrize(("name", "settings"), [("finetune", {}), ("better-together", {})])
def test_the_provider_is_given_the_traces_of_well_answered_questions(
    name: str, settings: dict[str, Any], tmp_path: Path
) -> None:
    lm = scripted_lm(task)
    lm.provider = trainer = Trainer()
    outcome = compiled(name, tmp_path, lm, **settings)
    assert {town(str(row["messages"])) for row in trainer.trained} == {0, 2, 4}
    assert len(trainer.trained) == 2 * 3  # a call of each of the two predictors
    assert any("ga-dspy/trained" in c.description for c in outcome.candidates)
    assert outcome.stopped == ""


def test_a_trained_model_that_is_kept_is_named_in_the_artifact(tmp_path: Path) -> None:
    def learned(prompt: str) -> Reply:
        reply = task(prompt)
        if isinstance(reply, dict) and "answer" in reply and trainer.trained:
            return {**reply, "answer": f"Land{town(prompt)}"}
        return reply

    lm = scripted_lm(learned)
    lm.provider = trainer = Trainer()
    outcome = compiled("finetune", tmp_path, lm)
    assert outcome.before.f1 < outcome.after.f1 == 100.0
    manifest = json.loads((tmp_path / "manifest.json").read_text())
    assert manifest["lms"]["task (read)"] == "ga-dspy/trained"
    assert "trained" not in (tmp_path / "program.json").read_text()


def test_a_provider_that_cannot_train_is_named_before_any_call(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="ga-dspy/scripted cannot fine-tune"):
        compiled("finetune", tmp_path, scripted_lm([]))
    assert not list(tmp_path.iterdir())
