"""The base of every error about an artifact; each cause stands beside the code that finds it."""

from __future__ import annotations

from ga_dspy.errors import GaDspyError


class ArtifactError(GaDspyError):
    """An artifact cannot be written, or what was read is not one that this code can load."""
