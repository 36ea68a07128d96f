"""`ga-dspy graph`: build the graph of a corpus, keep it up to date, look into it, take it away."""

from __future__ import annotations
