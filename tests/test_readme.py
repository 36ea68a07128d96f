"""README and SECURITY: what they say of settings and tests."""

from __future__ import annotations

import json
import re
from pathlib import Path

import dspy
import pytest

from ga_dspy import GraphAnchor, Index, extractive_lm
from ga_dspy.cli.ask import HOPS
from ga_dspy.demo import corpus, questions
from ga_dspy.eval.scores import f1

ROOT = Path(__file__).parents[1]
SECURITY = ROOT / "SECURITY.md"


def test_the_table_of_settings_lists_every_setting_with_its_default() -> None:
    text = (ROOT / "docs" / "answers.md").read_text()
    table = text[text.index("| setting | default |") :]
    for name, setting in GraphAnchor.declared().items():
        if setting.metadata["saved"]:
            default = str(setting.default).replace("'", '"')
            shown = f'"{default}"' if isinstance(setting.default, str) else default
            assert f"| `{name}` | `{shown}` |" in table


def test_every_test_named_in_security_md_exists() -> None:
    named = re.findall(r"`(tests/\w+\.py)::(\w+)`", SECURITY.read_text())
    assert len(named) > 20
    for file, test in named:
        assert f"def {test}(" in (ROOT / file).read_text(), f"{file}::{test}"


def test_the_readme_states_how_many_multi_hop_questions_the_embedded_lm_answers() -> None:
    pytest.importorskip("bm25s")
    program, right, whole = GraphAnchor(Index.from_passages(corpus())), 0, 0
    with dspy.context(lm=extractive_lm()):
        for row in json.loads(questions("hops").read_text()):
            found = program(question=row["question"])
            right += f1(found.answer, row["answer"]) == 1
            whole += f1(found.answer, row["answer"]) == 1 and found.supported == "chained"
    said = f"the embedded LM answers {right}; {whole} with a whole chain"
    assert said in HOPS
    assert said in " ".join((ROOT / "README.md").read_text().split())
