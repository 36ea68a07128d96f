"""The expected cost of a compilation, before anything is spent."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean
from typing import Any, NamedTuple

import dspy

from ga_dspy.errors import GaDspyError, InputError
from ga_dspy.lm.budget import NOTHING, Caps, Spent
from ga_dspy.lm.dspy_private import model_info, rate
from ga_dspy.lm.endpoints import EMBEDDED
from ga_dspy.optimize.recipes import Recipe
from ga_dspy.programs import MultiHopProgram
from ga_dspy.text import estimate_tokens

MARGIN = 1.5
"""Demos make prompts longer, and an answer may take more steps."""

_SAMPLES = 3
_FRAME = 400  # tokens of field names and descriptions, the graph, and the completion
_COMPLETION = 150
_PROPOSAL = 3_000


class Estimate(NamedTuple):
    """About what a compilation costs; repeated calls, which are free, are counted too.

    Attributes:
        questions: Runs of the program, including both runs on the held-out questions.
        calls: LM calls.
        tokens: Prompt and completion tokens.
        money: US dollars; None if an LM has no known price.
        measuring: The part reserved for measuring before and after.
        least: The smallest caps under which a candidate can be tried.
    """

    questions: int
    calls: int
    tokens: int
    money: float | None
    measuring: Spent = NOTHING
    least: Spent = NOTHING

    def __str__(self) -> str:
        """Return one line for a person."""
        price = "price unknown" if self.money is None else f"${self.money:,.2f}"
        return (
            f"about {self.calls:,} LM calls, {self.tokens:,} tokens, {price} "
            f"({self.questions:,} runs of the program)"
        )


class Declined(GaDspyError):
    """The estimate was not confirmed."""

    def __init__(self, cost: Estimate) -> None:
        super().__init__(
            f"compiling would take {cost}",
            expected="a confirmation",
            remedy="nothing was spent: confirm, choose a smaller recipe or fewer questions, or set "
            "a cap",
        )
        self.cost = cost


class Price(NamedTuple):
    """US dollars per token."""

    prompt: float
    completion: float


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
        recipe: The recipe.
        sizes: Numbers of questions: "train", "validation", and "held out".
        samples: Questions to search for; no LM is called.
        lms: The LMs by role, including "task". Predictors with LMs of their own are assumed to
            call them as often as the others.
    """
    work = recipe.work(sizes["train"], sizes["validation"], len(program.predictors()))
    # A typical question needs half of the steps it may have, then the answer.
    settings = program.settings()
    steps = (int(settings.get("max_steps", 0)) + 1) // 2
    each = 2 if settings.get("as_published") and settings.get("index") else 1
    asked = steps * each + 1
    tried = (work.questions + sizes["validation"]) * asked
    measured = 2 * sizes["held out"] * asked
    demos, prompt = 1 + getattr(recipe, "demos", 0) / 2, _prompt_tokens(program, samples)
    tokens = int(tried * prompt * demos + measured * prompt * (1 + demos) / 2)
    prices = [price_of(predictor.lm or lms["task"]) for predictor in program.predictors()]
    known = [price for price in prices if price is not None]
    task = None
    if len(known) == len(prices):
        task = Price(fmean(p.prompt for p in known), fmean(p.completion for p in known))
    proposer = price_of(lms.get("reflection") or lms.get("prompt") or lms["task"])
    money = one = None
    if task is not None and proposer is not None:
        completion = (tried + measured) * _COMPLETION
        money = task.prompt * (tokens - completion) + task.completion * completion
        money += (proposer.prompt + proposer.completion) * work.proposals * _PROPOSAL / 2
        one = asked * (task.prompt * (prompt - _COMPLETION) + task.completion * _COMPLETION)
    held_out, validation = sizes["held out"], sizes["validation"]
    question = Spent(asked, asked * prompt, one)
    return Estimate(
        questions=work.questions + sizes["validation"] + 2 * sizes["held out"],
        calls=tried + measured + work.proposals,
        tokens=tokens + work.proposals * _PROPOSAL,
        money=money,
        measuring=question.times(held_out + MARGIN * (held_out + validation)),
        least=question.times(needed(held_out, validation, recipe)),
    )


def needed(held_out: int, validation: int, recipe: Recipe) -> float:
    """Return how many questions must be paid for to try and measure a first candidate.

    The program as given is scored on both sets, then the recipe asks its fewest questions and
    scores a candidate; the cost of scoring one on both sets is reserved.
    """
    return (1 + MARGIN) * (held_out + validation) + recipe.least() + MARGIN * validation


def _prompt_tokens(program: MultiHopProgram, samples: Sequence[dspy.Example]) -> int:
    """Return the tokens of a typical call without demos."""
    asked, predictors = samples[:_SAMPLES], program.predictors()
    passages = sum(
        estimate_tokens(passage.content)
        for example in asked
        for passage in program.retriever(example.question, program.k)
    )
    instructions = sum(estimate_tokens(p.signature.instructions) for p in predictors)
    return passages // max(1, len(asked)) + instructions // len(predictors) + _FRAME


def price_of(lm: Any) -> Price | None:
    """Return the price of an LM by DSPy's list; None if it is not known.

    A model behind a custom address or a custom engine has none; the embedded LM costs nothing.
    """
    if lm.model == EMBEDDED:
        return Price(0.0, 0.0)
    if not isinstance(getattr(lm, "engine", None), str) or lm.kwargs.get("api_base"):
        return None
    provider, _, model = lm.model.partition("/")
    info = model_info(provider, model)
    prompt, completion = rate(info, "input_cost_per_token"), rate(info, "output_cost_per_token")
    return None if prompt is None or completion is None else Price(prompt, completion)


def check_prices(lms: Iterable[dspy.BaseLM], caps: Caps) -> None:
    """Check that a cap of money can be enforced.

    Raises:
        InputError: It is set, and an LM has no known price.
    """
    if caps.money is None:
        return
    if unknown := [lm.model for lm in lms if price_of(lm) is None]:
        raise InputError(
            f"{unknown[0]} has no known price, so a cap of money could not be enforced",
            expected="LMs in DSPy's price list",
            remedy="cap calls or tokens instead (--max-calls, --max-tokens)",
        )
