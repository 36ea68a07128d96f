"""README and docs: blocks run, commands exist, links lead somewhere, the site builds."""

from __future__ import annotations

import re
import runpy
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import dspy
import pytest
import typer

import ga_dspy
from ga_dspy.cli.commands import app
from ga_dspy.demo import corpus
from ga_dspy.graphrag import build_graph

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
ELSEWHERE: dict[str, str] = {}  # pages whose Python another test runs


def over(pages: list[Path]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("page", pages, ids=lambda page: str(page.relative_to(ROOT)))


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with what the pages speak of."""
    pytest.importorskip("lightgbm")
    folder = tmp_path_factory.mktemp("docs")
    (folder / "docs").mkdir()
    (folder / "docs" / "bridge.md").write_text("# The bridge\n\nNils Haug designed the bridge.")
    shutil.copytree(ROOT / "artifacts" / "demo", folder / "artifacts" / "mine")
    index = ga_dspy.Index.build(corpus()[:12], folder / "my-index")
    (folder / "index").symlink_to("my-index")
    build_graph(index, folder / "graph", lm=ga_dspy.extractive_lm())
    return folder


@over([page for page in PAGES if "```python" in page.read_text()])
def test_the_python_on_a_page_runs(
    page: Path, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if page.name in ELSEWHERE:
        assert page.name in (ROOT / ELSEWHERE[page.name]).read_text()
        return
    monkeypatch.chdir(workspace)
    lm = ga_dspy.extractive_lm()
    index = ga_dspy.Index.open("my-index")
    names: dict[str, Any] = {"dspy": dspy, "ga_dspy": ga_dspy, "index": index, "lm": lm}
    names |= {"program": ga_dspy.GraphAnchor(index), "my_retriever": index}
    names["my_search"] = lambda query: ["Halden Bridge | Nils Haug designed the bridge."]
    with dspy.context(lm=lm):
        for language, code in BLOCK.findall(page.read_text()):
            if language == "python":
                code = re.sub(r"dspy\.LM\([^)]*\)", "lm", code)  # a test reaches no endpoint
                exec(compile(code, str(page), "exec"), names)


@over(PAGES)
def test_the_commands_on_a_page_exist(page: Path) -> None:
    for language, block in BLOCK.findall(page.read_text()):
        if language not in ("sh", ""):
            continue
        block = block.replace("\\\n", " ")
        lines = block.splitlines() if language else re.findall(r"^\$ (.*)", block, re.MULTILINE)
        for line in lines:
            words = shlex.split(line, comments=True)
            if words[:1] == ["make"]:
                assert f"\n{words[1]}:" in (ROOT / "Makefile").read_text(), line
            elif words[:1] == ["python"]:
                assert (ROOT / words[1]).exists(), line
            elif words[:1] == ["ga-dspy"]:
                check(words[1:], line)


def test_the_containers_run_commands_that_exist_on_files_that_exist() -> None:
    yaml, cli = pytest.importorskip("yaml"), pytest.importorskip("mlflow.cli").cli
    folder = ROOT / "docs" / "deploy"
    dockerfile, compose = (folder / "Dockerfile").read_text(), (folder / "compose.yaml").read_text()
    services = yaml.safe_load(compose)["services"]
    check(services["service"]["command"], "service")
    check(services["mlflow"]["command"], "mlflow", cli)
    for name, service in services.items():
        assert re.search(r":v?\d+\.\d+", service["image"]) and service["healthcheck"], name
        for variable in service.get("environment", {}).values():
            assert not re.search("KEY|PASS", variable) or "${" in variable, name
    for stage in re.split(r"^FROM ", dockerfile, flags=re.MULTILINE)[2:]:
        assert "\nUSER app\n" in stage
    for source in re.findall(r"^COPY (.*) \S+$", dockerfile, re.MULTILINE):
        assert all((ROOT / file).exists() for file in source.split()), source


def check(words: list[str], line: str, command: Any = None) -> None:
    command = command or typer.main.get_command(app)
    while hasattr(command, "commands"):
        assert words[0] in command.commands, line
        command = command.commands[words.pop(0)]
    known = {option for parameter in command.params for option in parameter.opts}
    assert {word for word in words if word.startswith("--")} <= known, line


@over(PAGES)
def test_links_on_a_page_lead_to_a_file_and_a_heading(page: Path) -> None:
    prose = BLOCK.sub("", page.read_text())
    for target in re.findall(r"\]\((?!https?:)([^)\s]+)\)", prose):
        file, _, anchor = target.strip("<>").partition("#")
        there = (page.parent / file).resolve() if file else page
        assert there.is_relative_to(ROOT) and there.exists(), target
        headings = re.findall(r"^#+ (.*)", there.read_text(), re.MULTILINE) if anchor else []
        slugs = [re.sub(r"[^\w -]", "", head).lower().replace(" ", "-") for head in headings]
        assert not anchor or anchor in slugs, target


@over(sorted((ROOT / "docs" / "notebooks").glob("*.ipynb")))
def test_a_notebook_runs_and_is_kept_without_outputs(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nbclient, nbformat = pytest.importorskip("nbclient"), pytest.importorskip("nbformat")
    pytest.importorskip("lightgbm")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    notebook = nbformat.read(page, as_version=4)
    assert not any(cell.get("outputs") for cell in notebook.cells)
    nbclient.NotebookClient(
        notebook, timeout=120, resources={"metadata": {"path": tmp_path}}
    ).execute()


def test_the_tables_of_the_frontier_lm_are_those_of_its_scores() -> None:
    pytest.importorskip("pandas")
    tables = runpy.run_path(str(ROOT / "docs" / "results" / "frontier.py"))["tables"]()
    assert tables.strip() in (ROOT / "docs" / "results" / "frontier.md").read_text()


def test_the_site_builds_strictly_and_loads_nothing_from_another_host(tmp_path: Path) -> None:
    pytest.importorskip("mkdocstrings")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    pages = "".join(page.read_text() for page in tmp_path.rglob("*.html"))
    assert not re.search(r"(<script|<img|stylesheet)[^>]*https?://", pages)
