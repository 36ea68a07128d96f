"""LMs that need no server: the extractive one that is the default."""

from __future__ import annotations

from ga_dspy.lm.engine import AsyncExtractiveEngine as AsyncExtractiveEngine
from ga_dspy.lm.engine import ExtractiveEngine as ExtractiveEngine
from ga_dspy.lm.engine import extractive_lm as extractive_lm
