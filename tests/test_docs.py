"""README and docs: blocks run, commands exist, links lead somewhere, the site builds."""

from __future__ import annotations

import csv
import json
import re
import runpy
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import benches
import dspy
import pytest
import typer

import ga_dspy
from ga_dspy.cli.commands import app
from ga_dspy.demo import corpus, questions

ROOT = Path(__file__).parents[1]
DOCS, SHARED = ROOT / "docs", ROOT.parent / "shared"
PAGES = {str(p.relative_to(ROOT)): p for p in [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]}
BLOCKS = re.compile(r"^```(\w+)\n(.*?)^```\n(?:\n```\n(.*?)^```)?", re.MULTILINE | re.DOTALL)
SERVING = ("serve", "mcp", "chat")  # these wait for clients
SERVERS = {"--engine", "--ray"}
CORPUS = [*corpus()[:12], *(passage for passage in corpus()[12:] if "Brunel" in passage.content)]
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)


@pytest.fixture(scope="module")
def made(
    tmp_path_factory: pytest.TempPathFactory,
    tables: Path,
    command: Callable[..., subprocess.CompletedProcess[str]],
) -> Path:
    """A folder with the files that the pages speak of, and what their commands make of them."""
    pytest.importorskip("bm25s")
    folder = tmp_path_factory.mktemp("docs")
    (folder / "docs").mkdir()
    (folder / "docs" / "bridge.md").write_text("# The bridge\n\nNils Haug designed the bridge.")
    shutil.copytree(ROOT / "artifacts" / "demo", folder / "artifacts" / "mine")
    shutil.copyfile(tables, folder / "artifacts" / "mlflow.db")
    passages = "".join(f"{passage.model_dump_json()}\n" for passage in CORPUS)
    for name in ("corpus.jsonl", "ga_dspy/demo/corpus.jsonl", "musique/dev.jsonl"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(passages)
    train, dev = (json.loads(questions(split).read_text())[:6] for split in ("train", "dev"))
    for name, rows in {"train": train, "dev": dev, "test": dev, "questions": dev}.items():
        (folder / f"{name}.json").write_text(json.dumps(rows))
        own = [{"question": row["question"], "answer": row["answer"]} for row in rows]
        (folder / f"{name}.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in own))
        with (folder / f"{name}.csv").open("w") as table:
            writer = csv.DictWriter(table, ["question", "answer"])
            writer.writeheader()
            writer.writerows(own)
    (folder / "questions.txt").write_text("Who designed the bridge?\n")
    ga_dspy.Index.build(CORPUS, folder / "my-index")
    for copy in ("index", "backup-index"):
        (folder / copy).symlink_to("my-index")
    (folder / "data").mkdir()
    (folder / "data" / "index").symlink_to("../my-index")
    for run in ("runs/a", "runs/b"):
        asked = ("--dataset", "qa", "--data", "dev.csv", "--limit", "1", "--program", "vanilla-rag")
        command("eval", *asked, "--index", "my-index", "--out", run, cwd=folder)
    return folder


@pytest.fixture
def workspace(made: Path, tmp_path: Path) -> Path:
    """A copy of that folder for one page."""
    return Path(shutil.copytree(made, tmp_path / "here", symlinks=True))


@pytest.mark.parametrize("page", [p for p in PAGES if BLOCK.search(PAGES[p].read_text())])
def test_the_code_blocks_of_a_page_run_and_print_the_documented_output(
    page: str,
    workspace: Path,
    command: Callable[..., subprocess.CompletedProcess[str]],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(workspace)
    names: dict[str, Any] = {"lm": ga_dspy.extractive_lm()}
    names["index"] = names["my_retriever"] = ga_dspy.Index.from_passages(CORPUS)
    names["program"] = ga_dspy.GraphAnchor(names["index"])
    names["my_search"] = lambda query: ["Halden Bridge | Nils Haug designed the bridge."]
    is_measured_elsewhere = page.startswith("docs/results/")  # on whole datasets, for hours
    for language, code, below in BLOCKS.findall(PAGES[page].read_text()):
        if language == "sh" and not is_measured_elsewhere:
            for words in offline(code):
                clear(words)
                told = words.index(">") if ">" in words else len(words)
                done = command(*words[:told], cwd=workspace)
                assert done.returncode == 0, (words, done.stdout, done.stderr)
                for file in words[told + 1 :]:
                    Path(file).write_text(done.stdout)
        elif language == "python" and page != "docs/integrations.md":  # test_integrations.py
            code = re.sub(r"dspy\.LM\([^)]*\)", "lm", code)  # a test reaches no endpoint
            with dspy.context(lm=names["lm"]):
                exec(
                    compile(f"import dspy, ga_dspy\n{code}", page, "exec", dont_inherit=True), names
                )
            printed = capsys.readouterr().out
            assert not below or printed == below


def offline(block: str) -> Iterator[list[str]]:
    """The commands of a block as they can be run here: small numbers, and the embedded LM."""
    for line in block.replace("\\\n", " ").splitlines():
        words = shlex.split(line, comments=True)
        if words[:1] != ["ga-dspy"] or words[1] in SERVING or SERVERS & {*words}:
            continue
        if "--track" in words and words[words.index("--track") + 1].startswith("http"):
            continue
        for option in ("--lm", "--api-base", "--judge", "--reflection-lm", "--prompt-lm"):
            while option in words:
                at = words.index(option)
                del words[at : at + 2]
        for option, value in (("--validation", "2"), ("--recipe", "labeled")):
            if option in words:
                words[words.index(option) + 1] = value
        words += {"arena": ["--limit", "1"], "eval": ["--limit", "1"],
                  "compile": ["--set", "demos=1", "--no-track"]}.get(words[1], [])  # fmt: skip
        yield words[1:]


def clear(words: list[str]) -> None:
    """Take away what a command is to make, which the workspace has already."""
    if "--out" in words:
        old = Path(words[words.index("--out") + 1])
        if old.is_symlink():
            old.unlink()
        elif old.is_dir():
            shutil.rmtree(old)


@pytest.mark.parametrize("page", PAGES)
def test_the_commands_and_links_on_a_page_are_valid(page: str) -> None:
    text = PAGES[page].read_text()
    for language, block in BLOCK.findall(text):
        for line in block.replace("\\\n", " ").splitlines():
            if language == "sh" or (not language and line.startswith("$ ")):
                words = shlex.split(line.removeprefix("$ "), comments=True)
                if words[:1] == ["ga-dspy"]:
                    check(words[1:])
                elif words[:1] == ["make"]:
                    check_target(words[1:])
                elif words[:1] == ["python"]:
                    assert (ROOT / words[1]).exists(), line
                    if file := next(SHARED.rglob(words[-1]), None):
                        run = [sys.executable, str(ROOT / words[1]), str(file)]
                        assert subprocess.check_output(run, text=True) in text
    for program, command in re.findall(r"`(ga-dspy|make) ([^`]+)`", BLOCK.sub("", text)):
        words = shlex.split(command)
        check(words) if program == "ga-dspy" else check_target(words)
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
        command, words = command.commands[words[0]], words[1:]
    known = {option for parameter in command.params for option in parameter.opts}
    assert {word for word in words if word.startswith("--")} <= known


def check_target(words: list[str]) -> None:
    """A target of make that there is, and the arguments of a benchmark."""
    target, *arguments = words
    assert f"\n{target}:" in (ROOT / "Makefile").read_text()
    if target == "bench":
        for argument in arguments:
            check(shlex.split(argument.removeprefix("ARGS=")), typer.main.get_group(benches.app))


def test_the_container_files_use_existing_commands_and_files() -> None:
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
def test_a_notebook_reproduces_its_saved_output(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("nbclient")
    from notebooks import run

    def outputs(cells: Any) -> list[Any]:
        return [cell["outputs"] for cell in cells if cell["cell_type"] == "code"]

    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    printed = json.loads(json.dumps(outputs(run(page, str(tmp_path)).cells)))
    stored = json.loads(page.read_text())["cells"]
    assert outputs(joined(cell) for cell in stored) == printed, "run `make notebooks`"


def joined(cell: dict[str, Any]) -> dict[str, Any]:
    """A stored cell, the lines of its outputs joined."""
    for output in cell.get("outputs", []):
        for part in (output, output.get("data", {})):
            part.update({k: "".join(v) for k, v in part.items() if isinstance(v, list)})
    return cell


def test_the_frontier_lm_tables_match_the_recorded_scores() -> None:
    pytest.importorskip("pandas")
    script = runpy.run_path(str(DOCS / "results" / "frontier.py"))
    page = PAGES["docs/results/frontier.md"].read_text()
    assert all(script["tables"](name).strip() in page for name in script["FILES"])


def test_the_site_builds_in_strict_mode_and_loads_nothing_from_other_hosts(tmp_path: Path) -> None:
    mkdocs = pytest.importorskip("mkdocs.__main__")
    config = ["--config-file", str(ROOT / "mkdocs.yml"), "--site-dir", str(tmp_path)]
    mkdocs.cli(["build", "--quiet", "--strict", *config], standalone_mode=False)
    pages = "".join(page.read_text() for page in tmp_path.rglob("*.html"))
    assert not re.search(r"(<script|<img|stylesheet)[^>]*https?://", pages)
