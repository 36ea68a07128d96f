"""The questions that a finished run has to offer: those that used the most steps."""

from __future__ import annotations

from ga_dspy.arena.attention.cases import AttentionCase
from ga_dspy.errors import GaDspyError
from ga_dspy.eval import Report, Result
from ga_dspy.signatures.prompt import EMPTY


class NoGraphs(GaDspyError):
    """The run kept no graph, so there is nothing to attend to."""

    def __init__(self, program: str) -> None:
        super().__init__(
            f"the run of {program} holds no question with a graph; expected a run of graph-anchor "
            "with at least one question that was not failed; make one with `ga-dspy arena`"
        )


def cases_of(report: Report) -> tuple[AttentionCase, ...]:
    """The questions that took as many steps as any, as the paper chooses them.

    Args:
        report: A run of a program that keeps a graph.

    Raises:
        NoGraphs: No question of it has a graph.
    """
    having = [r for r in report.results if r.passages and any(step.graph for step in r.trace)]
    if not having:
        raise NoGraphs(report.protocol.program)
    most = max(len(result.trace) for result in having)
    return tuple(_case(result) for result in having if len(result.trace) == most)


def _case(result: Result) -> AttentionCase:
    return AttentionCase(
        question=result.question,
        answer=result.gold[0],
        passages=tuple(enumerate(result.passages, start=1)),
        graphs=tuple(step.graph or EMPTY for step in result.trace),
        entities=tuple(step.names for step in result.trace),
    )
