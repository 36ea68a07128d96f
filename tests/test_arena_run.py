"""The arena: which methods take part, one folder per run, resuming, all methods compared."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import dspy
import pytest

from extractive_lm.engine import extractive_lm
from ga_dspy.demo import corpus, questions
from ga_dspy.errors import InputError
from ga_dspy.eval import ProtocolMismatch, RunProgress
from ga_dspy.eval.arena import Benchmark, plan_runs, run_arena, select_methods
from ga_dspy.eval.methods import METHODS, method, methods
from ga_dspy.graphrag.build import build_graph
from ga_dspy.programs import GraphAnchor
from ga_dspy.programs.program import ANSWER_TOKENS
from ga_dspy.retrieval import Index

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def benchmark(tmp_path_factory: pytest.TempPathFactory) -> Benchmark:
    folder = tmp_path_factory.mktemp("arena") / "index"
    Index.build(corpus(), folder, kind="sparse")
    return Benchmark("hotpotqa", questions("dev"), folder)


def search(query: str, k: int) -> list[str]:
    return ["Red Lodge | A city in Montana."]


@pytest.mark.parametrize("name", METHODS)
def test_every_method_has_the_settings_in_its_name(name: str) -> None:
    program = (
        method(name).make(search, k=7, max_steps=3) if name in _FREE else method(name).make(search)
    )
    settings = program.settings()
    assert {n: settings[n] for n in method(name).settings} == method(name).settings
    assert name not in _FREE or settings.get("k", 7) == 7
    assert method(name).program is type(program)


_FREE = ("vanilla-rag", "ircot", "iter-retgen", "deep-note", "search-r1", "graph-anchor")


def test_no_two_methods_are_the_same_program() -> None:
    made = [(m.program, json.dumps(m.make(search).settings())) for m in METHODS.values()]
    assert len(set(made)) == len(made)


def test_a_setting_cannot_contradict_a_method() -> None:
    with pytest.raises(InputError, match="vanilla-rag-10 with k=5"):
        method("vanilla-rag-10").make(search, k=5)


def test_methods_are_selected_by_name_or_by_group() -> None:
    assert len(methods("all")) == len(METHODS)
    assert [m.name for m in methods("graph-anchor, no-graph")] == ["graph-anchor", "no-graph"]
    assert {m.group for m in methods("ablations")} == {"ablations"}
    with pytest.raises(InputError, match="method 'magic' is unknown"):
        methods("graph-anchor,magic")


def test_common_settings_apply_to_every_method_unless_its_name_contradicts_them() -> None:
    made = {e.name: e.make(search).settings() for e in select_methods("all", settings={"k": 3})}
    assert made["vanilla-rag"]["k"] == made["graph-anchor"]["k"] == made["one-step"]["k"] == 3
    assert made["vanilla-rag-10"]["k"] == 10


def test_in_an_arena_of_equal_tokens_every_method_has_the_same_budget() -> None:
    made: dict[str, Any] = {e.name: e.make(search) for e in select_methods("all", tokens=5000)}
    assert {p.settings()["token_budget"] for p in made.values()} == {5000}
    assert made["vanilla-rag"].settings()["k"] == 50
    assert made["graph-anchor"].settings()["max_steps"] == 12
    assert made["one-step"].settings()["max_steps"] == 1
    assert {p.settings()["passage_tokens"] for p in made.values()} == {5000 - ANSWER_TOKENS}
    left_out = {m.name for m in methods("depths,steps,graphrag")} | {"closed-book"}
    assert made.keys() == METHODS.keys() - left_out
    by_group = [e.name for e in select_methods("ablations", tokens=5000)]
    assert by_group == [m.name for m in methods("ablations")] != []


def test_graphrag_methods_are_included_only_with_a_graph(
    benchmark: Benchmark, tmp_path: Path
) -> None:
    static = {m.name for m in methods("graphrag")}
    assert static.isdisjoint(e.name for e in select_methods("all"))
    assert static < {e.name for e in select_methods("all", graphs=True)}
    with pytest.raises(InputError, match="graph-rag on hotpotqa without a graph"):
        plan_runs(select_methods("graph-rag"), [benchmark], tmp_path)


def test_each_run_has_a_folder_and_a_finished_one_is_not_repeated(
    benchmark: Benchmark, tmp_path: Path
) -> None:
    planned = plan_runs(select_methods("closed-book,vanilla-rag"), [benchmark], tmp_path)
    asked: list[str] = []

    def note(planned_run: Any, state: RunProgress) -> None:
        if state.last is not None:
            asked.append(f"{planned_run.contestant.name} {state.last.id}")

    first = {r.contestant.name: report for r, report, _ in run_arena(
        planned, lm=extractive_lm(), limit=2, progress=note
    )}  # fmt: skip
    assert len(asked) == 4
    folder = tmp_path / "hotpotqa-questions_dev"
    for name, report in first.items():
        summary = json.loads((folder / name / "summary.json").read_text())
        assert summary["protocol_hash"] == report.protocol.hash
        assert (summary["n"], summary["program"]) == (2, name)
    again = {r.contestant.name: report for r, report, _ in run_arena(
        planned, lm=extractive_lm(), limit=2, progress=note
    )}  # fmt: skip
    assert len(asked) == 4
    assert again == first


def test_the_protocol_of_a_run_records_what_determines_its_numbers(
    benchmark: Benchmark, tmp_path: Path
) -> None:
    planned = plan_runs(select_methods("graph-anchor"), [benchmark], tmp_path)
    lm = extractive_lm(temperature=0.0, max_tokens=900)
    ((_, report, _),) = run_arena(planned, lm=lm, limit=1)
    protocol, index = report.protocol, Index.open(benchmark.index)
    assert protocol.lm == "ga-dspy/extractive"
    assert protocol.sampling == {"temperature": 0.0, "max_tokens": 900}
    assert (protocol.corpus, protocol.encoder) == (index.fingerprint, "")
    assert (protocol.k, protocol.steps, protocol.n, protocol.limit) == (5, 4, 1, 1)
    assert (protocol.split, protocol.source) == ("questions_dev", "questions_dev.json")
    assert protocol.settings == GraphAnchor(search).settings()


def test_a_folder_accepts_runs_of_one_protocol_only(benchmark: Benchmark, tmp_path: Path) -> None:
    planned = plan_runs(select_methods("vanilla-rag"), [benchmark], tmp_path)
    list(run_arena(planned, lm=extractive_lm(), limit=1))
    other = plan_runs(select_methods("vanilla-rag", settings={"k": 2}), [benchmark], tmp_path)
    with pytest.raises(ProtocolMismatch, match="k was 5, is 2"):
        list(run_arena(other, lm=extractive_lm(), limit=1))


def test_runs_of_one_name_are_refused_before_any_call(benchmark: Benchmark, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"two runs in .*hotpotqa-questions_dev/vanilla-rag"):
        plan_runs(select_methods("vanilla-rag"), [benchmark, benchmark], tmp_path)


def test_a_compiled_program_can_be_a_contestant(benchmark: Benchmark, tmp_path: Path) -> None:
    both = select_methods("graph-anchor", artifacts=[str(ROOT / "artifacts" / "demo")])
    names = [planned.contestant.name for planned in plan_runs(both, [benchmark], tmp_path)]
    assert names == ["graph-anchor", "demo"]
    assert isinstance(both[1].make(Index.open(benchmark.index)), GraphAnchor)


def test_the_corpus_is_identified_by_its_passages_in_any_order() -> None:
    some = corpus()[:20]
    one = Index.from_passages(some, kind="sparse").fingerprint
    assert Index.from_passages(list(reversed(some)), kind="sparse").fingerprint == one
    assert Index.from_passages(some[1:], kind="sparse").fingerprint != one


KILLED = """
import os, sys
from pathlib import Path
from ga_dspy.eval.arena import Benchmark, run_arena, select_methods, plan_runs
from extractive_lm import extractive_lm
benchmark = Benchmark("hotpotqa", Path(sys.argv[1]), Path(sys.argv[2]))
planned = plan_runs(select_methods("closed-book,vanilla-rag"), [benchmark], Path(sys.argv[3]))
def die(planned_run, state):
    if planned_run.contestant.name == "vanilla-rag" and state.done == 1:
        os.kill(os.getpid(), 9)
list(run_arena(planned, lm=extractive_lm(), limit=3, progress=die))
"""


def test_a_killed_arena_resumes_where_it_stopped(benchmark: Benchmark, tmp_path: Path) -> None:
    args = [str(benchmark.data), str(benchmark.index), str(tmp_path / "killed")]
    done = subprocess.run([sys.executable, "-c", KILLED, *args], check=False)
    assert done.returncode == -9
    asked: list[str] = []

    def note(planned_run: Any, state: RunProgress) -> None:
        if state.last is not None:
            asked.append(planned_run.contestant.name)

    names = select_methods("closed-book,vanilla-rag")
    planned = plan_runs(names, [benchmark], tmp_path / "killed")
    killed = [
        report for _, report, _ in run_arena(planned, lm=extractive_lm(), limit=3, progress=note)
    ]
    assert asked == ["vanilla-rag", "vanilla-rag"]
    whole = [r for _, r, _ in run_arena(
        plan_runs(names, [benchmark], tmp_path / "whole"), lm=extractive_lm(), limit=3
    )]  # fmt: skip
    assert [r.summary() | {"seconds": 0} for r in killed] == [
        r.summary() | {"seconds": 0} for r in whole
    ]


def test_every_run_uses_the_same_lm(benchmark: Benchmark, tmp_path: Path) -> None:
    with dspy.context(lm=None):
        planned = plan_runs(select_methods("closed-book,vanilla-rag"), [benchmark], tmp_path)
        reports = [report for _, report, _ in run_arena(planned, lm=extractive_lm(), limit=1)]
    assert {report.protocol.lm for report in reports} == {"ga-dspy/extractive"}
    assert all(not report.failed for report in reports)


def test_a_corpus_graph_method_runs_on_the_same_benchmark(
    benchmark: Benchmark, tmp_path: Path
) -> None:
    pytest.importorskip("igraph")
    index = Index.build(corpus()[:40], tmp_path / "index", kind="sparse")
    build_graph(index, tmp_path / "graph", lm=extractive_lm())
    both = select_methods("vanilla-rag,graph-rag", graphs=True)
    small = replace(benchmark, index=tmp_path / "index", graph=tmp_path / "graph")
    planned = plan_runs(both, [small], tmp_path / "out")
    static, vanilla = sorted(
        (report for _, report, _ in run_arena(planned, lm=extractive_lm(), limit=2)),
        key=lambda report: report.protocol.program,
    )
    assert static.protocol.graph is not None and vanilla.protocol.graph is None
    assert static.protocol.basis == vanilla.protocol.basis
    assert not static.failed
    assert all({"linking", "ranking", "lm"} <= result.timing.keys() for result in static.results)
    assert any(result.triples for result in static.results)
