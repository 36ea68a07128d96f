"""What is measured of one prompt, from its attention rows and the positions of its tokens."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ga_dspy.arena.attention.weights import Weight, entropy, share, weight

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


class Shares(NamedTuple):
    """The parts of the answer tokens' whole attention, which sum to 1.

    `answer` is what they give to themselves and one another. `rest` is the instruction, the
    headings, what a chat template adds, and special tokens; many models park most of their
    attention on the very first token.
    """

    graph: float
    passages: float
    question: float
    answer: float
    rest: float


class TokenSets(NamedTuple):
    """Positions of tokens in the prompt.

    `anchored` are the passage tokens that mention an entity of the graph shown, `new[s]` those
    that mention one first indexed at step s + 1; a token may lie in several.
    """

    graph: tuple[int, ...]
    passages: tuple[int, ...]
    question: tuple[int, ...]
    answer: tuple[int, ...]
    rest: tuple[int, ...]
    anchored: tuple[int, ...]
    new: tuple[tuple[int, ...], ...]


class StepMeasure(NamedTuple):
    """A question with the graph of one step, from 1.

    Attributes:
        step: Which graph the prompt holds.
        tokens: The length of the prompt.
        shares: The answer's attention by part of the prompt.
        answer_entropy: Entropy over passage tokens of the answer's attention, in nats.
        graph_entropy: The same of the graph's; None where the graph comes first.
        anchored: What mentions of the graph's entities get of the answer's attention on passages;
            None where no passage mentions one.
        perplexity: Of the gold answer.
        new_entities: For each step, what mentions of the entities first indexed there get of the
            graph's attention on passages; None for a step without, and for all where the graph
            comes first.
    """

    step: int
    tokens: int
    shares: Shares
    answer_entropy: float | None
    graph_entropy: float | None
    anchored: Weight | None
    perplexity: float
    new_entities: tuple[Weight | None, ...]


def measure_step(
    step: int,
    answer_rows: NDArray[np.floating],
    graph_rows: NDArray[np.floating] | None,
    sets: TokenSets,
    perplexity: float,
) -> StepMeasure:
    """Measure one prompt.

    Args:
        step: Which graph it holds.
        answer_rows: Attention of the answer's tokens, `[answer tokens, tokens]`.
        graph_rows: Attention of the graph's tokens; None where the graph comes first.
        sets: Which tokens are which.
        perplexity: Of the gold answer.
    """
    return StepMeasure(
        step=step,
        tokens=answer_rows.shape[1],
        shares=Shares(*(share(answer_rows, getattr(sets, part)) for part in Shares._fields)),
        answer_entropy=entropy(answer_rows, sets.passages),
        graph_entropy=None if graph_rows is None else entropy(graph_rows, sets.passages),
        anchored=weight(answer_rows, sets.anchored, sets.passages),
        perplexity=perplexity,
        new_entities=tuple(
            None if graph_rows is None else weight(graph_rows, new, sets.passages)
            for new in sets.new
        ),
    )
