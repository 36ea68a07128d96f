"""HTML pages that show how answers were found."""

from __future__ import annotations

from ga_dspy.viewer.page import live_page as live_page
from ga_dspy.viewer.page import page as page
from ga_dspy.viewer.page import run_page as run_page
