"""An extractive LM for DSPy: it sees only the rendered prompt, and needs no server."""

from __future__ import annotations

from extractive_lm.engine import AsyncExtractiveEngine as AsyncExtractiveEngine
from extractive_lm.engine import ExtractiveEngine as ExtractiveEngine
from extractive_lm.engine import extractive_lm as extractive_lm
from extractive_lm.english import ExtractiveError as ExtractiveError
