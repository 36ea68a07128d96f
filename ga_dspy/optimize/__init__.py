"""Compiling programs: prompts and demos fitted to an LM and a data set, held to what they bought.

The order in which the files build on one another: `record` (what a compilation did), `faults` and
`feedback` (the metric), `splits`, `budget`, `ledger` and `ledgered` (every LM call, once), `demos`,
`trials` (programs that were scored), `recipes`, `estimate`, `held_out`, `search`, `job`,
`phases`, `compile`.

Names are loaded when first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ga_dspy.optimize.budget import Caps as Caps
    from ga_dspy.optimize.compile import compile as compile
    from ga_dspy.optimize.estimate import Estimate as Estimate
    from ga_dspy.optimize.feedback import AnswerMetric as AnswerMetric
    from ga_dspy.optimize.recipes import RECIPES as RECIPES
    from ga_dspy.optimize.recipes import Recipe as Recipe
    from ga_dspy.optimize.recipes import recipe as recipe
    from ga_dspy.optimize.record import Candidate as Candidate
    from ga_dspy.optimize.record import Outcome as Outcome
    from ga_dspy.optimize.record import Tracker as Tracker

_HOME = {
    "AnswerMetric": "feedback",
    "Candidate": "record",
    "Caps": "budget",
    "Estimate": "estimate",
    "Outcome": "record",
    "RECIPES": "recipes",
    "Recipe": "recipes",
    "Tracker": "record",
    "compile": "compile",
    "recipe": "recipes",
}

__all__ = list(_HOME)


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'ga_dspy.optimize' has no attribute {name!r}")
    value = getattr(import_module(f"ga_dspy.optimize.{_HOME[name]}"), name)
    # Importing the module `compile` binds it here under that name; the function is meant.
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOME])
