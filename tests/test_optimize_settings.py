"""The recipe `settings`: settings of the program, kept where it scores higher with them."""

from __future__ import annotations

from pathlib import Path

import dspy
import pytest
from test_programs_compare import PASSAGES, QUESTION, WRONG, compared

from ga_dspy import VanillaRAG, load
from ga_dspy.errors import InputError
from ga_dspy.optimize import compile, recipe
from ga_dspy.testing import Reply, given_fields, scripted_lm


def ships(n: int) -> list[dspy.Example]:
    rows = ((f"{QUESTION[:-1]}, row {i}?", "the Otter") for i in range(n, n + 4))
    return [
        dspy.Example(id=q, question=q, answer=a, answers=(a,)).with_inputs("question")
        for q, a in rows
    ]


def test_the_settings_recipe_keeps_what_scores_higher_and_the_artifact_has_it(
    tmp_path: Path,
) -> None:
    def reply(prompt: str) -> Reply:
        return compared("the Otter") if "facts" in given_fields(prompt) else WRONG

    program = VanillaRAG(lambda query, k: PASSAGES)
    outcome = compile(
        program,
        recipe("settings", tries=("k=7", "compare_facts=true")),
        ships(0),
        ships(4),
        test=ships(8),
        out=tmp_path / "made",
        lm=scripted_lm(reply),
    )
    told = [(c.score, c.description) for c in outcome.candidates]
    assert told == [(0.0, "as given"), (0.0, "k=7"), (100.0, "compare_facts=True")]
    assert (outcome.before.f1, outcome.after.f1) == (0.0, 100.0)
    made = load(tmp_path / "made", retriever=lambda query, k: PASSAGES)
    assert made.settings()["compare_facts"] and made.k == 5 and not program.compare_facts


def test_the_settings_recipe_names_a_setting_that_the_program_lacks(tmp_path: Path) -> None:
    program = VanillaRAG(lambda query, k: PASSAGES)
    with pytest.raises(InputError, match="'max_steps' is unknown"):
        compile(
            program,
            recipe("settings", tries=("max_steps=2",)),
            ships(0),
            ships(4),
            out=tmp_path / "made",
            lm=scripted_lm(lambda prompt: WRONG),
        )
