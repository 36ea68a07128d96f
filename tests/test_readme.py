"""README and SECURITY: what they say of settings and tests."""

from __future__ import annotations

import re
from pathlib import Path

from ga_dspy import GraphAnchor

ROOT = Path(__file__).parents[1]
SECURITY = ROOT / "SECURITY.md"


def test_every_setting_stands_in_the_table_of_settings_with_its_default() -> None:
    text = (ROOT / "docs" / "answers.md").read_text()
    table = text[text.index("| setting | default |") :]
    for name, setting in GraphAnchor.declared().items():
        if setting.metadata["saved"]:
            default = str(setting.default).replace("'", '"')
            shown = f'"{default}"' if isinstance(setting.default, str) else default
            assert f"| `{name}` | `{shown}` |" in table


def test_every_promise_on_security_names_a_test_that_there_is() -> None:
    named = re.findall(r"`(tests/\w+\.py)::(\w+)`", SECURITY.read_text())
    assert len(named) > 20
    for file, test in named:
        assert f"def {test}(" in (ROOT / file).read_text(), f"{file}::{test}"
