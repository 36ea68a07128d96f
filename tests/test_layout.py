"""The shape of the project: links, import cost, what an import may not pull in."""

from __future__ import annotations

import re
import statistics
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
HEAVY = (
    "mlflow",
    "Stemmer",
    "bm25s",
    "torch",
    "faiss",
    "datasets",
    "lightgbm",
    "sentence_transformers",
    "pyarrow",
    "matplotlib",
    "pandas",
)
# What a module imports neither, checked before others are imported.
LIGHT = {
    "ga_dspy.retrieval": ("numpy", "scipy"),
    "ga_dspy.artifact": ("ga_dspy.eval", "ga_dspy.optimize"),
}


def python(code: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True
    )
    return done.stdout.strip()


@pytest.mark.parametrize("name", ["signatures", "optimize", "eval"])
def test_each_top_level_name_is_a_relative_link_into_the_package(name: str) -> None:
    link = ROOT / name
    assert link.is_symlink()
    assert link.readlink() == Path("ga_dspy") / name
    assert link.resolve() == ROOT / "ga_dspy" / name


def test_imports_load_no_heavy_library() -> None:
    packages = "programs graph eval eval.comparison optimize optimize.tracking cli demo".split()
    modules = [*LIGHT, "extractive_lm", *(f"ga_dspy.{name}" for name in packages)]
    code = f"""
import sys
for module in {modules}:
    __import__(module)
    print([(module, name) for name in {HEAVY} + {LIGHT}.get(module, ()) if name in sys.modules])
"""
    assert python(code).splitlines() == ["[]"] * len(modules)


def test_an_import_costs_little_more_than_that_of_dspy() -> None:
    timed = "import time; t = time.process_time(); {}; print(time.process_time() - t)"
    bare, package, program = (
        timed.format(code)
        for code in (
            "import dspy",
            "import dspy, ga_dspy",
            "import dspy; from ga_dspy import GraphAnchor",
        )
    )
    python(program)  # compiles what is not compiled yet
    rounds = [[float(python(code)) for code in (bare, package, program)] for _ in range(3)]
    assert statistics.median(ours / least for least, ours, _ in rounds) <= 1.2
    assert statistics.median(ours / least for least, _, ours in rounds) <= 1.8


def test_the_version_is_the_same_everywhere() -> None:
    import ga_dspy

    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    images = (ROOT / "docs" / "deploy" / "compose.yaml").read_text()
    assert {version} == {ga_dspy.__version__, *re.findall(r"image: ga-dspy-\w+:(\S+)", images)}


def test_every_public_name_can_be_imported() -> None:
    names = python("import ga_dspy; [getattr(ga_dspy, n) for n in ga_dspy.__all__]; print('ok')")
    assert names == "ok"


def test_public_packages_are_imported_lazily_as_attributes() -> None:
    packages = {path.parent.name for path in (ROOT / "ga_dspy").glob("*/__init__.py")}
    names = sorted({*packages, "grounding", "testing"} - {"cli", "demo"})
    code = f"""
import sys, ga_dspy
print([name for name in {names} if f"ga_dspy.{{name}}" in sys.modules])
print([name for name in {names} if name not in dir(ga_dspy)])
print([name for name in {names} if getattr(ga_dspy, name).__name__ != f"ga_dspy.{{name}}"])
"""
    assert python(code).splitlines() == ["[]"] * 3


def test_an_unknown_name_is_an_attribute_error() -> None:
    import ga_dspy

    with pytest.raises(AttributeError, match="no attribute 'GraphAncor'"):
        _ = ga_dspy.GraphAncor
