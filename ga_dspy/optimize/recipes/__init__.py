"""The recipes, by the name they have on the command line."""

from __future__ import annotations

import dataclasses
from typing import Any

from ga_dspy.errors import InputError
from ga_dspy.optimize.recipes.base import Context as Context
from ga_dspy.optimize.recipes.base import MissingRole as MissingRole
from ga_dspy.optimize.recipes.base import Needs as Needs
from ga_dspy.optimize.recipes.base import Recipe as Recipe
from ga_dspy.optimize.recipes.base import TooFewQuestions as TooFewQuestions
from ga_dspy.optimize.recipes.base import Work as Work
from ga_dspy.optimize.recipes.few_shot import BootstrapFewShot as BootstrapFewShot
from ga_dspy.optimize.recipes.few_shot import BootstrapRandomSearch as BootstrapRandomSearch
from ga_dspy.optimize.recipes.few_shot import KNNFewShot as KNNFewShot
from ga_dspy.optimize.recipes.few_shot import LabeledFewShot as LabeledFewShot
from ga_dspy.optimize.recipes.instructions import COPRO as COPRO
from ga_dspy.optimize.recipes.instructions import InferRules as InferRules
from ga_dspy.optimize.recipes.instructions import MIPROv2 as MIPROv2
from ga_dspy.optimize.recipes.reflective import GEPA as GEPA
from ga_dspy.optimize.recipes.reflective import SIMBA as SIMBA
from ga_dspy.optimize.recipes.weights import BetterTogether as BetterTogether
from ga_dspy.optimize.recipes.weights import BootstrapFinetune as BootstrapFinetune
from ga_dspy.optimize.recipes.weights import CannotFinetune as CannotFinetune

RECIPES: dict[str, type[Recipe]] = {
    kind.name: kind
    for kind in (
        LabeledFewShot,
        BootstrapFewShot,
        BootstrapRandomSearch,
        KNNFewShot,
        COPRO,
        MIPROv2,
        InferRules,
        SIMBA,
        GEPA,
        BetterTogether,
        BootstrapFinetune,
    )
}


def recipe(name: str | None = None, *, reflection: bool = False, **settings: Any) -> Recipe:
    """The recipe of a name, with other settings where they are given.

    Args:
        name: One of `RECIPES`; None for GEPA where there is a reflection LM, else bootstrap-rs.
        reflection: Whether there is a reflection LM.
        settings: Settings of the recipe.

    Raises:
        InputError: There is no such recipe, or it has no such setting.

    >>> recipe("bootstrap", demos=2)
    BootstrapFewShot(demos=2, rounds=1)
    """
    chosen = name or (GEPA.name if reflection else BootstrapRandomSearch.name)
    if chosen not in RECIPES:
        raise InputError(
            f"recipe {chosen!r}",
            expected=f"one of {', '.join(RECIPES)}",
            remedy="pass one of these names",
        )
    known = [f.name for f in dataclasses.fields(RECIPES[chosen])]
    if unknown := [setting for setting in settings if setting not in known]:
        raise InputError(
            f"setting {unknown[0]!r} of recipe {chosen}",
            expected=f"one of {', '.join(known)}",
            remedy="leave it out for the defaults",
        )
    return RECIPES[chosen](**settings)
