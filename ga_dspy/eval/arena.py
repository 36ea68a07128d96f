"""Run several methods on the same questions, index, LM and cache, each into its own folder."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

import dspy

from ga_dspy.artifact import load as load_artifact
from ga_dspy.artifact import nothing, show
from ga_dspy.errors import InputError, check_names
from ga_dspy.eval.datasets import load
from ga_dspy.eval.methods import Method, methods
from ga_dspy.eval.report import Report
from ga_dspy.eval.run import RunProgress, run_program
from ga_dspy.graphrag import GraphIndex, GraphRAG
from ga_dspy.programs import ClosedBook, MultiHopProgram
from ga_dspy.programs.program import unknown_step
from ga_dspy.retrieval import Index

Settings = Mapping[str, Any]
LMs = Mapping[str, dspy.BaseLM]


@dataclass(frozen=True)
class Benchmark:
    """A file of questions and the index over its passages.

    `graph` is the folder of the corpus graph, for methods that search one.
    """

    dataset: str
    data: Path
    index: Path
    graph: Path | None = None

    @property
    def folder(self) -> str:
        """The name of the folder for its runs."""
        return f"{self.dataset}-{self.data.stem}"


class Contestant(NamedTuple):
    """A method of the paper, or a compiled program.

    `tokens` is the token budget per question; None at equal k.
    """

    name: str
    make: Callable[[Any], MultiHopProgram]
    tokens: int | None = None
    needs_graph: bool = False

    @property
    def folder(self) -> str:
        """The name of the folder for its run."""
        return self.name if self.tokens is None else f"{self.name}@{self.tokens}"


class PlannedRun(NamedTuple):
    """A contestant, the benchmark to run it on, and the folder of the run."""

    contestant: Contestant
    benchmark: Benchmark
    out: Path

    @property
    def name(self) -> str:
        """The name of the run in messages: dataset and folder."""
        return f"{self.benchmark.dataset} {self.contestant.folder}"


def select_methods(
    names: str,
    *,
    artifacts: Sequence[str] = (),
    graphs: bool = False,
    tokens: int | None = None,
    settings: Settings | None = None,
    lms: LMs | None = None,
) -> tuple[Contestant, ...]:
    """Return the contestants of an arena.

    Args:
        names: Comma-separated methods and groups, or "all".
        artifacts: Compiled programs: folders, or anything `ga_dspy.load` takes.
        graphs: Whether there are graphs to search; without them "all" excludes GraphRAG.
        tokens: Token budget per question. With one, "all" excludes closed-book and the methods that
            are named for a number of passages or steps.
        settings: Settings for all methods, such as k, except where they contradict a method's name.
        lms: LMs of single steps, by step; programs without the step ignore them.

    Raises:
        InputError: A method does not exist, or no program has one of the steps.
    """
    artifacts = check_names("artifacts", artifacts)
    common, lms = dict(settings or {}), dict(lms or {})
    named = {name.strip() for name in names.split(",")}
    chosen = []
    for method in methods(names):
        is_fixed = method.program is ClosedBook or method.group in ("depths", "steps")
        is_excluded = (method.needs_graph and not graphs) or (tokens is not None and is_fixed)
        if not is_excluded or {method.name, method.group} & named:
            make = partial(_make_method, method, common, tokens, lms)
            chosen.append(Contestant(method.name, make, tokens, method.needs_graph))
    for path in artifacts:
        make, name = partial(_load, path, common, tokens, lms), path.rstrip("/").rsplit("/", 1)[-1]
        needs_graph = show(path).manifest.program == GraphRAG.__name__
        chosen.append(Contestant(name, make, tokens, needs_graph))
    if lms:
        programs = [contestant.make(nothing) for contestant in chosen]
        steps = dict.fromkeys(name for one in programs for name, _ in one.named_predictors())
        for name in lms:
            if name not in steps:
                raise unknown_step(name, steps)
    return tuple(chosen)


def _make_method(
    method: Method, common: Settings, tokens: int | None, lms: LMs, index: Any
) -> MultiHopProgram:
    settings = {**common, **(method.within(tokens) if tokens else {})}
    settings = {name: value for name, value in settings.items() if name not in method.settings}
    program = method.make(index, **settings)
    steps = dict(program.named_predictors())
    program.set_step_lms({name: lm for name, lm in lms.items() if name in steps})
    return program


def _load(path: str, common: Settings, tokens: int | None, lms: LMs, index: Any) -> MultiHopProgram:
    settings = {**common, **({"token_budget": tokens} if tokens else {})}
    steps = show(path).predictors
    step_lms = {name: lm for name, lm in lms.items() if name in steps}
    return load_artifact(path, retriever=index, lms=step_lms, **settings)


def plan_runs(
    contestants: Sequence[Contestant], benchmarks: Sequence[Benchmark], out: Path
) -> list[PlannedRun]:
    """Return the runs of every contestant on every benchmark, in order.

    Raises:
        InputError: Two benchmarks or two contestants have the same name, or a contestant needs a
            graph that a benchmark does not have.
    """
    needing = ", ".join(one.name for one in contestants if one.needs_graph)
    for benchmark in benchmarks:
        if needing and benchmark.graph is None:
            command = f"ga-dspy graph build --index {benchmark.index} --out …"
            remedy = f"run `{command}` and pass it with --graph, or leave these programs out"
            raise InputError(f"{needing} on {benchmark.dataset} without a graph", remedy=remedy)
    planned = [
        PlannedRun(contestant, benchmark, out / benchmark.folder / contestant.folder)
        for benchmark in benchmarks
        for contestant in contestants
    ]
    for folder, count in Counter(one.out for one in planned).items():
        if count > 1:
            expected = "dataset files with different names, and programs with different names"
            raise InputError(f"two runs in {folder}", expected=expected)
    return planned


def run_arena(
    planned: Sequence[PlannedRun],
    *,
    lm: dspy.LM,
    limit: int | None = None,
    progress: Callable[[PlannedRun, RunProgress], None] | None = None,
    **options: Any,
) -> Iterator[tuple[PlannedRun, Report, MultiHopProgram]]:
    """Run or resume each planned run; yield its report and its program.

    Finished runs are only read, so an arena that was killed resumes where it stopped.

    Args:
        planned: From `plan_runs`.
        lm: The LM of all runs.
        limit: Ask only the first questions of each file.
        progress: Called before and after every question.
        options: More options of `ga_dspy.eval.run`.

    Raises:
        ProtocolMismatch: A folder holds a run under another protocol.
        RunAborted: The endpoint seems to be down; start again when it is up.
    """
    # One benchmark at a time, because corpora are large.
    for benchmark, group in groupby(planned, lambda one: one.benchmark):
        with dspy.context(lm=lm):
            passages, graph, examples = _open(benchmark, limit)
        for one in group:
            contestant = one.contestant
            needs_graph = graph is not None and contestant.needs_graph
            with dspy.context(lm=lm):
                program = contestant.make(graph if needs_graph else passages)
            asked = {"dataset": benchmark.dataset, "source": benchmark.data, "limit": limit}
            report = run_program(
                program,
                examples,
                out=one.out,
                lm=lm,
                about={"name": contestant.name, **asked},
                progress=partial(progress, one) if progress else None,
                **options,
            )
            yield one, report, program


def _open(
    benchmark: Benchmark, limit: int | None
) -> tuple[Index, GraphIndex | None, list[dspy.Example]]:
    examples = load(benchmark.dataset, benchmark.data, limit=limit)
    index, graph = Index.open(benchmark.index), None
    if benchmark.graph is not None:
        graph = GraphIndex.open(benchmark.index, benchmark.graph, summaries=True)
        graph.warm()
    # Load the encoder now: its time must not count as that of the first method.
    index.search(examples[0].question, 1)
    return index, graph, examples
