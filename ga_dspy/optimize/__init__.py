"""Compile programs: fit prompts and demos to an LM and a data set, and measure the gain."""

from __future__ import annotations

from ga_dspy.lm.store import Caps as Caps
from ga_dspy.optimize.compilation import compile as compile
from ga_dspy.optimize.metric import AnswerMetric as AnswerMetric
from ga_dspy.optimize.recipes import RECIPES as RECIPES
from ga_dspy.optimize.recipes import Estimate as Estimate
from ga_dspy.optimize.recipes import Recipe as Recipe
from ga_dspy.optimize.recipes import recipe as recipe
from ga_dspy.optimize.trials import Candidate as Candidate
from ga_dspy.optimize.trials import Outcome as Outcome
