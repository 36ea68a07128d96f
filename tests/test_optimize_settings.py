"""The recipe `settings`: settings of the program, kept if it scores higher with them."""

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


def test_the_settings_recipe_saves_the_settings_that_score_higher(
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


@pytest.mark.parametrize(
    ("tries", "said"),
    [
        ("max_steps=2", "'max_steps' is unknown"),
        ("k=0", "k is 0; expected a whole number from 1"),
        ("compare_facts", "expected name=value"),
    ],
)
def test_a_setting_that_the_program_cannot_have_is_refused_before_any_lm_call(
    tries: str, said: str, tmp_path: Path
) -> None:
    lm = scripted_lm([])
    program = VanillaRAG(lambda query, k: PASSAGES)
    with pytest.raises(InputError, match=said):
        compile(
            program,
            recipe("settings", tries=(tries,)),
            ships(0),
            ships(4),
            out=tmp_path / "made",
            lm=lm,
        )
    assert lm.history == []


def test_two_values_of_one_setting_are_both_tried(tmp_path: Path) -> None:
    outcome = compile(
        VanillaRAG(lambda query, k: PASSAGES),
        recipe("settings", tries=("k=7", "k=9")),
        ships(0),
        ships(4),
        out=tmp_path / "made",
        lm=scripted_lm(lambda prompt: WRONG),
    )
    assert [c.description for c in outcome.candidates] == ["as given", "k=7", "k=9"]
