"""A disk that is full, read-only or damaged: one clear error, nothing lost, a way on."""

from __future__ import annotations

import json
import os
import random
import resource
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import dspy
import pytest

import ga_dspy.demo
from ga_dspy import GraphAnchor, Passage
from ga_dspy.errors import DamagedFile, GaDspyError, InputError, RunAborted, UnknownFormat
from ga_dspy.eval import Protocol, load_report, run
from ga_dspy.graphrag import build_graph, open_graph
from ga_dspy.optimize import compile, recipe
from ga_dspy.retrieval import Index
from ga_dspy.testing import Reply, scripted_lm

PASSAGES = [
    Passage(id=f"p{i}", title=f"Town{i}", text=f"Town{i} lies in Land{i}.") for i in range(40)
]
READ = {"reasoning": "r", "judgement": "sufficient", "candidate": "", "next_query": ""}
Work = Callable[[Path], Any]


@contextmanager
def full_disk(size: int) -> Iterator[None]:
    """No file can grow beyond so many bytes: writing fails as it does on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


class Counted:
    """An LM that reads and answers, and counts what it was asked."""

    def __init__(self) -> None:
        self.prompts: list[str] = []
        self.lm = scripted_lm(self.reply)

    def reply(self, prompt: str) -> Reply:
        self.prompts.append(prompt)
        place = prompt.rpartition("Town")[2].split("?")[0].split()[0].strip(".]")
        if "[[ ## verdict ## ]]" in prompt:
            return {"verdict": "answered", "links": "[1]", "answer": f"Land{place}"}
        return {"additions": f"Relations:\n1. Town{place} -> lies in -> Land{place} [1]", **READ}


def search(query: str, k: int) -> list[Passage]:
    return [PASSAGES[int(query.rpartition("Town")[2].strip("?") or 0)]]


def towns(first: int, last: int) -> list[dspy.Example]:
    return [
        dspy.Example(id=f"q{i}", question=f"Where is Town{i}?", answer=f"Land{i}").with_inputs(
            "question"
        )
        for i in range(first, last)
    ]


def evaluate(out: Path) -> Counted:
    counted, examples = Counted(), towns(0, 30)
    protocol = Protocol.of(examples, dataset="towns", source="towns", program="p", lm="lm")
    with dspy.context(lm=counted.lm):
        run(GraphAnchor(search), examples, out=out, protocol=protocol, threads=2)
    return counted


def build_index(out: Path) -> Counted:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("ga_dspy.retrieval.encoders.SHARD", 8)
        Index.build(PASSAGES, out, encoder="hash-64")
    return Counted()


def extract(out: Path) -> Counted:
    counted = Counted()
    build_graph(Index.from_passages(PASSAGES, kind="sparse"), out, lm=counted.lm, threads=2)
    return counted


def optimise(out: Path) -> Counted:
    counted = Counted()
    compile(
        GraphAnchor(search), recipe("bootstrap-rs", candidates=2, demos=1), towns(0, 6),
        towns(6, 12), test=towns(12, 20), out=out, lm=counted.lm,
    )  # fmt: skip
    return counted


WORKS = [evaluate, build_index, extract, optimise]


@pytest.mark.parametrize(
    ("work", "share"),
    [(work, share) for work in WORKS[:3] for share in (0.02, 0.2, 0.6, 0.95)] + [(optimise, 0.2)],
)
def test_a_full_disk_is_one_clear_error_and_work_resumes_once_there_is_space(
    work: Work, share: float, tmp_path: Path
) -> None:
    work(tmp_path / "whole")
    largest = max(file.stat().st_size for file in (tmp_path / "whole").rglob("*") if file.is_file())
    with full_disk(int(largest * share)), pytest.raises(RunAborted, match="then retry"):
        work(tmp_path / "out")
    work(tmp_path / "out")
    assert results(tmp_path / "out") == results(tmp_path / "whole")


def results(folder: Path) -> dict[str, Any]:
    """What the work came to, without what is never the same."""
    found: dict[str, Any] = {}
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        if path.name in ("summary.json",):
            content = json.loads(path.read_text())
            found[path.name] = {
                k: v for k, v in content.items() if k in ("f1", "f1_after", "failures")
            }
        elif path.name in ("predictions.jsonl", "program.json") or "contents-" in str(path.parent):
            found[str(path.relative_to(folder))] = path.read_bytes()
    assert found
    return found


@pytest.mark.parametrize("work", WORKS)
def test_a_folder_that_cannot_be_created_is_one_clear_error(work: Work, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(GaDspyError, match=r"file.*(Not a directory|File exists)"):
        work(tmp_path / "file" / "out")
    with pytest.raises(GaDspyError, match="/proc/nothing"):
        work(Path("/proc/nothing/out"))


@pytest.mark.parametrize(
    ("work", "name"),
    [(evaluate, "journal.sqlite"), (extract, "journal.sqlite"), (optimise, "run/ledger.sqlite")],
)
def test_a_journal_whose_path_is_a_folder_is_one_clear_error(
    work: Work, name: str, tmp_path: Path
) -> None:
    (tmp_path / "out" / name).mkdir(parents=True)
    with pytest.raises(RunAborted, match=f"{name}: unable to open database file"):
        work(tmp_path / "out")


@pytest.mark.parametrize(
    ("work", "name", "column"),
    [
        (evaluate, "journal.sqlite", "result.json"),
        (extract, "journal.sqlite", "finished.json"),
    ],
)
@pytest.mark.parametrize("damage", ["{", '{"id": 3}', b"\xff\xfe"])
def test_only_the_work_of_an_unreadable_row_is_repeated_and_the_row_is_named(
    work: Work, name: str, column: str, damage: Any, tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    whole = work(tmp_path / "out")
    before = results(tmp_path / "out")
    damage_row(tmp_path / "out" / name, column, damage)
    if work is extract:
        (tmp_path / "out" / "manifest.json").unlink()
        shutil.rmtree(tmp_path / "out" / "contents-000000")
    again = work(tmp_path / "out")
    assert results(tmp_path / "out") == before
    assert 0 < len(again.prompts) <= 3 < len(whole.prompts)
    assert "counts as missing" in caplog.text and name in caplog.text


def damage_row(path: Path, column: str, damage: str | bytes) -> None:
    table, _, field = column.partition(".")
    value = damage if isinstance(damage, str) else None
    with closing(sqlite3.connect(path)) as db, db:
        db.execute(f"UPDATE {table} SET {field} = coalesce(?, CAST(x'fffe' AS TEXT)) "
                   "WHERE rowid = 5", [value])  # fmt: skip


def test_an_unreadable_ledger_call_is_repeated(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    whole = optimise(tmp_path)
    before = results(tmp_path)
    damage_row(tmp_path / "run" / "ledger.sqlite", "call.result", '{"id": 3}')
    again = optimise(tmp_path)
    assert results(tmp_path) == before
    assert len(again.prompts) == 1 < len(whole.prompts)
    assert "counts as missing" in caplog.text and "ledger.sqlite" in caplog.text


def test_a_row_at_an_unknown_position_is_named_and_ignored(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    evaluate(tmp_path)
    with closing(sqlite3.connect(tmp_path / "journal.sqlite")) as db, db:
        db.execute("INSERT INTO result SELECT 77, json FROM result LIMIT 1")
    assert len(load_report(tmp_path).results) == 30
    assert "row 77" in caplog.text


def test_a_damaged_row_makes_the_run_ask_only_that_question_again(tmp_path: Path) -> None:
    evaluate(tmp_path)
    with closing(sqlite3.connect(tmp_path / "journal.sqlite")) as db, db:
        db.execute("UPDATE result SET json = '{' WHERE position = 3")
    with pytest.raises(InputError, match=r"29 of 30 questions.*start the same run again"):
        load_report(tmp_path)
    evaluate(tmp_path)
    assert len(load_report(tmp_path).results) == 30


def damaged(file: Path, rng: random.Random) -> None:
    """Change some bytes of a file at a random place, its size left as it is."""
    content = bytearray(file.read_bytes())
    start = rng.randrange(len(content))
    for place in range(start, min(start + rng.choice([1, 8, 300]), len(content))):
        content[place] = rng.randrange(256)
    file.write_bytes(bytes(content))


@pytest.mark.parametrize("work", [evaluate, build_index, extract])
@pytest.mark.parametrize("seed", range(3))
def test_damage_at_any_byte_is_repaired_or_reported(work: Work, seed: int, tmp_path: Path) -> None:
    rng = random.Random(seed)
    work(tmp_path / "whole")
    files = [
        path.relative_to(tmp_path / "whole")
        for path in sorted((tmp_path / "whole").rglob("*"))
        if path.is_file() and path.stat().st_size
    ]
    for number, name in enumerate(files):
        out = tmp_path / str(number)
        shutil.copytree(tmp_path / "whole", out)
        damaged(out / name, rng)
        with allowing(DamagedFile, UnknownFormat, InputError, RunAborted, naming=out):
            work(out)
            if work is build_index:
                Index.open(out).search("Town3", 2)
            if work is extract:
                list(open_graph(out).graph.public.names)


@contextmanager
def allowing(*kinds: type[GaDspyError], naming: Path) -> Iterator[None]:
    """These errors may be raised where they name the folder."""
    try:
        yield
    except kinds as error:
        if str(naming) not in str(error):
            raise


@pytest.mark.parametrize(("work", "name"), [(build_index, "vectors.f4"), (extract, "nodes.arrow")])
def test_a_restarted_build_replaces_damaged_contents_without_lm_calls(
    work: Work, name: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    work(tmp_path)
    before = results(tmp_path)
    damaged(next(tmp_path.rglob(name)), random.Random(0))
    assert not work(tmp_path).prompts
    assert list(results(tmp_path).values()) == list(before.values())
    assert f"{name} has SHA-256" in caplog.text and "rebuilding it" in caplog.text


def test_the_command_line_reports_a_write_error_in_one_line(
    command: Callable[..., Any], tmp_path: Path
) -> None:
    corpus = Path(str(ga_dspy.demo.questions("dev"))).parent / "corpus.jsonl"
    done = command("index", "build", corpus, "--out", "/proc/nothing/x", "--kind", "sparse",
                   cwd=tmp_path)  # fmt: skip
    assert done.returncode == 2
    assert done.stderr.startswith("ga-dspy: /proc/nothing") and done.stderr.count("\n") == 1


BUILDS = """
import sys
from pathlib import Path
from ga_dspy import Passage
from ga_dspy.graphrag import build_graph
from ga_dspy.retrieval import Index
from ga_dspy.testing import scripted_lm

passages = [Passage(id=f"p{i}", title=f"Town{i}", text=f"Town{i} lies in Land{i % 3}, a country.")
            for i in range(9)]
index = Index.build(passages, Path(sys.argv[1], "index"), encoder="hash-64")
labels = {"p3": ["staff", "board", "press"]}
reply = {"additions": "Relations:\\n1. Town3 -> lies in -> Land0 [1]"}
build_graph(index, Path(sys.argv[1], "graph"), lm=scripted_lm(lambda prompt: reply), labels=labels,
            threads=1)
"""


def test_builds_are_byte_for_byte_reproducible_across_processes(tmp_path: Path) -> None:
    for seed in ("1", "2"):
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        subprocess.run([sys.executable, "-c", BUILDS, str(tmp_path / seed)], check=True,
                       env=environment)  # fmt: skip
    one, two = tmp_path / "1", tmp_path / "2"
    names = [path.relative_to(one) for path in one.rglob("*") if path.is_file()]
    differing = [
        str(name) for name in names if (one / name).read_bytes() != (two / name).read_bytes()
    ]
    assert not [name for name in differing if ".sqlite" not in name]
    assert len(names) > 15
