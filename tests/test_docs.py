"""README and docs: blocks run, commands exist, links lead somewhere, the site builds."""

from __future__ import annotations

import re
import runpy
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import benches
import dspy
import pytest
import typer

import ga_dspy
from ga_dspy.cli.commands import app
from ga_dspy.demo import corpus
from ga_dspy.graphrag import build_graph

ROOT = Path(__file__).parents[1]
DOCS, SHARED = ROOT / "docs", ROOT.parent / "shared"
PAGES = {str(p.relative_to(ROOT)): p for p in [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]}
PYTHON = re.compile(r"^```python\n(.*?)^```\n(?:\n```\n(.*?)^```)?", re.MULTILINE | re.DOTALL)
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with what the pages speak of."""
    pytest.importorskip("lightgbm")
    folder = tmp_path_factory.mktemp("docs")
    (folder / "docs").mkdir()
    (folder / "docs" / "bridge.md").write_text("# The bridge\n\nNils Haug designed the bridge.")
    (folder / "artifacts").mkdir()
    (folder / "artifacts" / "mine").symlink_to(ROOT / "artifacts" / "demo")
    index = ga_dspy.Index.build(corpus()[:12], folder / "my-index")
    (folder / "index").symlink_to("my-index")
    build_graph(index, folder / "graph", lm=ga_dspy.extractive_lm())
    return folder


@pytest.mark.parametrize("page", [p for p in PAGES if "```python" in PAGES[p].read_text()])
def test_the_python_on_a_page_runs_and_prints_what_stands_below_it(
    page: str,
    workspace: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    if page == "docs/integrations.md":
        pytest.skip("tests/test_integrations.py runs it")
    monkeypatch.chdir(workspace)
    names: dict[str, Any] = {"lm": ga_dspy.extractive_lm()}
    names["index"] = names["my_retriever"] = ga_dspy.Index.open("my-index")
    names["program"] = ga_dspy.GraphAnchor(names["index"])
    names["my_search"] = lambda query: ["Halden Bridge | Nils Haug designed the bridge."]
    with dspy.context(lm=names["lm"]):
        for code, below in PYTHON.findall(PAGES[page].read_text()):
            code = re.sub(r"dspy\.LM\([^)]*\)", "lm", code)  # a test reaches no endpoint
            exec(compile(f"import dspy, ga_dspy\n{code}", page, "exec", dont_inherit=True), names)
            printed = capsys.readouterr().out
            assert not below or printed == below


@pytest.mark.parametrize("page", PAGES)
def test_the_commands_and_links_on_a_page_lead_somewhere(page: str) -> None:
    text = PAGES[page].read_text()
    for language, block in BLOCK.findall(text):
        for line in block.replace("\\\n", " ").splitlines():
            if language == "sh" or (not language and line.startswith("$ ")):
                words = shlex.split(line.removeprefix("$ "), comments=True)
                if words[:1] == ["ga-dspy"]:
                    check(words[1:])
                elif words[:1] == ["make"]:
                    assert f"\n{words[1]}:" in (ROOT / "Makefile").read_text()
                elif words[:1] == ["python"]:
                    assert (ROOT / words[1]).exists(), line
                    if file := next(SHARED.rglob(words[-1]), None):
                        run = [sys.executable, str(ROOT / words[1]), str(file)]
                        assert subprocess.check_output(run, text=True) in text
    for command in re.findall(r"`ga-dspy ([^`]+)`", BLOCK.sub("", text)):
        check(shlex.split(command))
    for target in re.findall(r"\]\(<?(?!https?:)([^)>\s]+)>?\)", BLOCK.sub("", text)):
        file, _, anchor = target.partition("#")
        there = PAGES[page].parent / file if file else PAGES[page]
        assert there.exists(), target
        heads = re.findall(r"^#+ (.*)", there.read_text(), re.M) if anchor else [""]
        assert anchor in [re.sub(r"[^\w -]", "", h).lower().replace(" ", "-") for h in heads]


def check(words: list[str], command: Any = None) -> None:
    """A command line names a command that there is, and options that it has."""
    command = command or typer.main.get_command(app)
    while hasattr(command, "commands"):
        name, command = words[0], command.commands[words[0]]
        words = words[1:]
        if command.context_settings.get("ignore_unknown_options"):  # handed on
            command = typer.main.get_group(benches.app).commands[name]
    known = {option for parameter in command.params for option in parameter.opts}
    assert {word for word in words if word.startswith("--")} <= known


def test_the_containers_run_commands_that_exist_on_files_that_exist() -> None:
    yaml, mlflow = pytest.importorskip("yaml"), pytest.importorskip("mlflow.cli")
    dockerfile = (DOCS / "deploy" / "Dockerfile").read_text()
    services = yaml.safe_load((DOCS / "deploy" / "compose.yaml").read_text())["services"]
    check(services["service"]["command"])
    check(services["mlflow"]["command"], mlflow.cli)
    for name, service in services.items():
        assert re.search(r":v?\d+\.\d+", service["image"]) and service["healthcheck"], name
    assert dockerfile.count("\nUSER app\n") == dockerfile.count("\nFROM base ")
    for sources in re.findall(r"^COPY (.*) \S+$", dockerfile, re.M):
        assert all((ROOT / source).exists() for source in sources.split())


@pytest.mark.parametrize("page", sorted((DOCS / "notebooks").glob("*.ipynb")))
def test_a_notebook_runs(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nbclient, nbformat = pytest.importorskip("nbclient"), pytest.importorskip("nbformat")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    nbclient.execute(nbformat.read(page, as_version=4), cwd=str(tmp_path), timeout=120)


def test_the_tables_of_the_frontier_lm_are_those_of_its_scores() -> None:
    pytest.importorskip("pandas")
    tables = runpy.run_path(str(DOCS / "results" / "frontier.py"))["tables"]()
    assert tables in PAGES["docs/results/frontier.md"].read_text()


def test_the_site_builds_strictly_and_loads_nothing_from_another_host(tmp_path: Path) -> None:
    mkdocs = pytest.importorskip("mkdocs.__main__")
    config = ["--config-file", str(ROOT / "mkdocs.yml"), "--site-dir", str(tmp_path)]
    mkdocs.cli(["build", "--quiet", "--strict", *config], standalone_mode=False)
    pages = "".join(page.read_text() for page in tmp_path.rglob("*.html"))
    assert not re.search(r"(<script|<img|stylesheet)[^>]*https?://", pages)
