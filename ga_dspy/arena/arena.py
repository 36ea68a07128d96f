"""The arena: the same questions, index, LM and cache for every method; one folder a run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

import dspy

from ga_dspy.arena.methods import Method, methods
from ga_dspy.artifact import load as load_artifact
from ga_dspy.artifact import show
from ga_dspy.artifact.artifact import nothing
from ga_dspy.errors import InputError, check_names
from ga_dspy.eval import Report, RunProgress, ScoreVariant, load, protocol_of, run
from ga_dspy.graphrag import GraphIndex, GraphRAG
from ga_dspy.programs import ClosedBook, MultiHopProgram
from ga_dspy.programs.program import unknown_step
from ga_dspy.retrieval import Index

_FREE = ("methods", "ablations", "graphrag")


@dataclass(frozen=True)
class Ground:
    """What every method runs on: a dataset's file and the index over its passages.

    `graph` is the graph of these passages, for the methods that search one.
    """

    dataset: str
    data: Path
    index: Path
    graph: Path | None = None


class Entrant(NamedTuple):
    """A method of the paper, or a compiled program of your own.

    `tokens` is what a question may cost; None in an arena of equal k.
    """

    name: str
    make: Callable[[Any], MultiHopProgram]
    tokens: int | None = None
    needs_graph: bool = False

    @property
    def folder(self) -> str:
        """The name of its runs' folder."""
        return self.name if self.tokens is None else f"{self.name}@{self.tokens}"


class Round(NamedTuple):
    """One run to make: an entrant on a ground, and the folder it is kept in."""

    entrant: Entrant
    ground: Ground
    out: Path


def entrants(
    names: str,
    *,
    artifacts: Sequence[str] = (),
    graphs: bool = False,
    tokens: int | None = None,
    settings: Mapping[str, Any] | None = None,
    lms: Mapping[str, dspy.BaseLM] | None = None,
) -> tuple[Entrant, ...]:
    """The methods and compiled programs of an arena.

    Args:
        names: Comma-separated methods and groups, or "all".
        artifacts: Compiled programs: folders, or anything `ga_dspy.load` takes.
        graphs: Whether there are graphs to search; "all" leaves GraphRAG out where there are none.
        tokens: Tokens a question may cost, the same for every method. What reads nothing has no
            part in it, and depths of vanilla RAG and numbers of steps only where they are named.
        settings: The same for all, such as k; a method keeps what its name means.
        lms: LMs of steps, by the step's name, for the programs that have such a step.

    Raises:
        InputError: There is no such method, or none of them has such a step.
    """
    artifacts = check_names("artifacts", artifacts)
    named = {name.strip() for name in names.split(",")}
    chosen = [
        method
        for method in methods(names)
        if (graphs or not method.needs_graph or {method.name, method.group} & named)
        and (tokens is None or method.name in named or method.group in _FREE)
        and (tokens is None or method.program is not ClosedBook)
    ]
    common, own = dict(settings or {}), dict(lms or {})
    taking_part = (
        *(_entrant(method, common, tokens, own) for method in chosen),
        *(_compiled(path, common, tokens, own) for path in artifacts),
    )
    if own:
        steps = dict.fromkeys(
            name for one in taking_part for name, _ in one.make(nothing).named_predictors()
        )
        for name in own:
            if name not in steps:
                raise unknown_step(name, steps)
    return taking_part


def _entrant(
    method: Method, common: Mapping[str, Any], tokens: int | None, lms: Mapping[str, dspy.BaseLM]
) -> Entrant:
    settings = {**common, **(method.within(tokens) if tokens else {})}
    kept = {name: value for name, value in settings.items() if name not in method.settings}

    def make(index: Any) -> MultiHopProgram:
        program = method.make(index, **kept)
        steps = dict(program.named_predictors())
        program.set_step_lms({name: lm for name, lm in lms.items() if name in steps})
        return program

    return Entrant(method.name, make, tokens, method.needs_graph)


def _compiled(
    path: str, common: Mapping[str, Any], tokens: int | None, lms: Mapping[str, dspy.BaseLM]
) -> Entrant:
    settings = {**common, **({"token_budget": tokens} if tokens else {})}
    info = show(path)
    own = {name: lm for name, lm in lms.items() if name in info.predictors}
    return Entrant(
        path.rstrip("/").rsplit("/", 1)[-1],
        lambda index: load_artifact(path, retriever=index, lms=own, **settings),
        tokens,
        info.manifest.program == GraphRAG.__name__,
    )


def rounds(entrants: Sequence[Entrant], grounds: Sequence[Ground], out: Path) -> list[Round]:
    """Every run of an arena, in order.

    Raises:
        InputError: Two of the grounds, or two of the entrants, have one name; or an entrant
            needs a graph where there is none.
    """
    for ground in grounds:
        needing = [entrant.name for entrant in entrants if entrant.needs_graph]
        if needing and ground.graph is None:
            raise InputError(
                f"{', '.join(needing)} on {ground.dataset} without a graph",
                expected="the graph of its passages, built ahead of time",
                remedy=f"run `ga-dspy graph build --index {ground.index} --out …`, pass it with "
                "--graph, or leave these programs out",
            )
    for what, names in (
        ("dataset files", [_folder(ground) for ground in grounds]),
        ("programs", [entrant.folder for entrant in entrants]),
    ):
        twice = {name for name in names if names.count(name) > 1}
        if twice:
            raise InputError(
                f"two {what} are called {', '.join(sorted(twice))}",
                expected="a name of its own for each",
                remedy="leave one out, or run it into another folder",
            )
    return [
        Round(entrant, ground, out / _folder(ground) / entrant.folder)
        for ground in grounds
        for entrant in entrants
    ]


def compete(
    planned: Sequence[Round],
    *,
    lm: dspy.LM,
    limit: int | None = None,
    score: ScoreVariant = "official",
    threads: int = 1,
    progress: Callable[[Round, RunProgress], None] | None = None,
    **options: Any,
) -> Iterator[tuple[Round, Report, MultiHopProgram]]:
    """Make every run, or go on with it, and give its report and the program that was asked.

    A run that is finished already is read, not made again. Killed and started anew, the arena
    goes on where it stopped.

    Args:
        planned: From `rounds`.
        lm: The LM of all.
        limit: Only the first so many questions of each file.
        score: Which F1 counts.
        threads: Questions asked at once.
        progress: Called before and after every question.
        options: Further ones of `ga_dspy.eval.run`.

    Raises:
        ProtocolMismatch: A folder holds the run of another protocol.
        RunAborted: The endpoint seems to be down; start again when it is up.
    """
    for ground, group in groupby(planned, lambda planned_round: planned_round.ground):
        # One at a time: corpora are large.
        with dspy.context(lm=lm):
            passages, graph, examples = _open(ground, limit)
        for planned_round in group:
            entrant = planned_round.entrant
            program = entrant.make(graph if graph is not None and entrant.needs_graph else passages)
            protocol = protocol_of(
                program, examples, name=entrant.name, dataset=ground.dataset, source=ground.data,
                lm=lm, score=score, limit=limit, judge=options.get("judge"),
            )  # fmt: skip
            with dspy.context(lm=lm):
                report = run(
                    program,
                    examples,
                    out=planned_round.out,
                    protocol=protocol,
                    threads=threads,
                    progress=progress and partial(progress, planned_round),
                    **options,
                )
            yield planned_round, report, program


def _open(ground: Ground, limit: int | None) -> tuple[Index, GraphIndex | None, list[dspy.Example]]:
    examples = load(ground.dataset, ground.data, limit=limit)
    index, graph = Index.open(ground.index), None
    if ground.graph is not None:
        graph = GraphIndex.open(ground.index, ground.graph, summaries=True)
        graph.warm()
    # The first search loads the encoder; no method is to pay for that in its seconds.
    index.search(examples[0].question, 1)
    return index, graph, examples


def _folder(ground: Ground) -> str:
    return f"{ground.dataset}-{ground.data.stem}"
