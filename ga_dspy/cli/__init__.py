"""The command line: `ga-dspy`. Errors are one clear line and exit code 2."""

from __future__ import annotations

from ga_dspy.cli.commands import main as main
