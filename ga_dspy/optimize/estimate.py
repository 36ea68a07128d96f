"""What a compilation will cost, before anything is spent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import dspy

from ga_dspy.errors import GaDspyError
from ga_dspy.optimize.budget import Caps
from ga_dspy.optimize.ledgered import EMBEDDED
from ga_dspy.optimize.recipes.base import Recipe, Work
from ga_dspy.programs import MultiHopProgram
from ga_dspy.tokens import estimate_tokens

_LOOKED_AT = 3
_FRAME = 400  # tokens of field names and descriptions, the graph, and the completion
_COMPLETION = 150
_PROPOSAL = 3_000


class PriceUnknown(GaDspyError):
    """A cap of money was set for an LM whose price is not known."""

    def __init__(self, model: str) -> None:
        super().__init__(
            f"{model} has no known price, so a cap of money could not be held; expected LMs in "
            "DSPy's price list; cap calls or tokens instead (--max-calls, --max-tokens)"
        )
        self.model = model


class Price(NamedTuple):
    """US dollars a token."""

    prompt: float
    completion: float


class Estimate(NamedTuple):
    """About what a compilation costs; repeated calls, which are free, are not taken off.

    Attributes:
        questions: Runs of the program, before and after on the held-out questions among them.
        calls: LM calls.
        tokens: Prompt and completion tokens.
        money: US dollars; None where an LM has no known price.
    """

    questions: int
    calls: int
    tokens: int
    money: float | None

    def __str__(self) -> str:
        """One line for a person."""
        price = "price unknown" if self.money is None else f"${self.money:,.2f}"
        return (
            f"about {self.calls:,} LM calls, {self.tokens:,} tokens, {price} "
            f"({self.questions:,} runs of the program)"
        )


def estimate(
    program: MultiHopProgram,
    recipe: Recipe,
    sizes: Mapping[str, int],
    samples: Sequence[dspy.Example],
    lms: Mapping[str, dspy.BaseLM],
) -> Estimate:
    """Estimate the cost from the recipe's work and the passages of a few questions.

    Args:
        program: The program that is compiled.
        recipe: How.
        sizes: Numbers of questions: "train", "validation", and "held out".
        samples: Questions to look at; they are searched for, and no LM is called.
        lms: The LMs by role, "task" among them.
    """
    predictors = len(program.predictors())
    work = recipe.work(sizes["train"], sizes["validation"], predictors)
    work = work._replace(questions=work.questions + sizes["validation"])
    demos = 1 + getattr(recipe, "demos", 0) / 2
    calls, prompt = calls_a_question(program), prompt_tokens(program, samples)
    tried, held_out = work.questions * calls, 2 * sizes["held out"] * calls
    tokens = int(tried * prompt * demos + held_out * prompt * (1 + demos) / 2)
    return Estimate(
        questions=work.questions + 2 * sizes["held out"],
        calls=tried + held_out + work.proposals,
        tokens=tokens + work.proposals * _PROPOSAL,
        money=_money(work, tokens, tried + held_out, lms),
    )


def calls_a_question(program: MultiHopProgram) -> int:
    """LM calls of a typical question: half of the steps it may take, then the answer."""
    settings = program.settings()
    steps = (int(settings.get("max_steps", 0)) + 1) // 2
    each = 1 if settings.get("fused", True) or settings.get("index") is None else 2
    return steps * each + 1


def prompt_tokens(program: MultiHopProgram, samples: Sequence[dspy.Example]) -> int:
    """Tokens of a typical call without demos."""
    found = [
        passage
        for example in samples[:_LOOKED_AT]
        for passage in program.retriever.search(example.question, program.k)
    ]
    passages = sum(estimate_tokens(passage.content) for passage in found)
    instructions = sum(estimate_tokens(p.signature.instructions) for p in program.predictors())
    looked_at = max(1, len(samples[:_LOOKED_AT]))
    return passages // looked_at + instructions // len(program.predictors()) + _FRAME


def price_of(lm: Any) -> Price | None:
    """The price of an LM by DSPy's list; None where it is not known.

    A model behind an address of one's own, or an engine of one's own, has none; the embedded LM
    costs nothing.
    """
    if lm.model == EMBEDDED:
        return Price(0.0, 0.0)
    settings = getattr(lm, "kwargs", {})
    if not isinstance(getattr(lm, "engine", None), str) or settings.get("api_base"):
        return None
    from dspy.clients.model_metadata import model_info, rate

    provider, _, model = lm.model.partition("/")
    info = model_info(provider, model)
    prompt, said = rate(info, "input_cost_per_token"), rate(info, "output_cost_per_token")
    return None if prompt is None or said is None else Price(prompt, said)


def check_prices(lms: Mapping[str, dspy.BaseLM], caps: Caps) -> None:
    """Check that a cap of money can be held.

    Raises:
        PriceUnknown: It is set, and an LM has no known price.
    """
    if caps.money is not None:
        for lm in lms.values():
            if price_of(lm) is None:
                raise PriceUnknown(lm.model)


def _money(work: Work, tokens: int, calls: int, lms: Mapping[str, dspy.BaseLM]) -> float | None:
    task = price_of(lms["task"])
    proposer = price_of(lms.get("reflection") or lms.get("prompt") or lms["task"])
    if task is None or proposer is None:
        return None
    said = calls * _COMPLETION
    proposals = work.proposals * _PROPOSAL / 2
    return (
        task.prompt * (tokens - said)
        + task.completion * said
        + (proposer.prompt + proposer.completion) * proposals
    )
