"""The shape of the project: links, import cost, what an import may not pull in."""

from __future__ import annotations

import statistics
import subprocess
import sys
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
)


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


def test_importing_pulls_in_no_heavy_library() -> None:
    packages = "programs retrieval graph eval optimize artifact cli demo".split()
    modules = ["ga_dspy", "extractive_lm", *(f"ga_dspy.{name}" for name in packages)]
    check = f"[(module, heavy) for heavy in {HEAVY} if heavy in sys.modules]"
    code = f"import sys\nfor module in {modules}: __import__(module); assert not {check}, {check}"
    assert python(code) == ""


@pytest.mark.parametrize(
    ("ours", "most"),
    [("import dspy, ga_dspy", 1.2), ("import dspy; from ga_dspy import GraphAnchor", 1.8)],
)
def test_an_import_costs_little_more_than_that_of_dspy(ours: str, most: float) -> None:
    timed = "import time; t = time.process_time(); {}; print(time.process_time() - t)"
    codes = timed.format(ours), timed.format("import dspy")
    for code in codes:
        python(code)
    ratios = [float(python(codes[0])) / float(python(codes[1])) for _ in range(3)]
    assert statistics.median(ratios) <= most


def test_every_public_name_can_be_imported() -> None:
    names = python("import ga_dspy; [getattr(ga_dspy, n) for n in ga_dspy.__all__]; print('ok')")
    assert names == "ok"


def test_every_public_package_is_an_attribute_that_is_imported_when_first_used() -> None:
    packages = {path.parent.name for path in (ROOT / "ga_dspy").glob("*/__init__.py")}
    names = sorted({*packages, "grounding", "testing"} - {"cli", "demo"})
    code = """
import os, sys, ga_dspy
for name in {names}:
    if not os.fork():  # a process each: one package may import another
        before = f"ga_dspy.{name}" in sys.modules
        print(name, before, getattr(ga_dspy, name).__name__, name in dir(ga_dspy), flush=True)
        os._exit(0)
    os.wait()
"""
    said = python(code.replace("{names}", str(names))).splitlines()
    assert said == [f"{name} False ga_dspy.{name} True" for name in names]


def test_an_unknown_name_is_an_attribute_error() -> None:
    import ga_dspy

    with pytest.raises(AttributeError, match="no attribute 'GraphAncor'"):
        _ = ga_dspy.GraphAncor
