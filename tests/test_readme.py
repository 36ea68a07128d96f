"""README's first screen: the lines run, and print what it says they print."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

README = Path(__file__).parents[1] / "README.md"


def test_the_first_lines_print_what_the_readme_says(tmp_path: Path) -> None:
    pytest.importorskip("sentence_transformers")
    pytest.importorskip("lightgbm")
    code, output = re.findall(r"```(?:python)?\n(.*?)```", README.read_text(), re.DOTALL)[1:3]
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == output
