"""The command line `ga-dspy`; a known error prints one line and exits with code 2."""

from __future__ import annotations

from ga_dspy.cli.commands import main as main
