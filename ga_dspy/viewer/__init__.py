"""HTML pages that show how answers were found, and the graph of a corpus."""

from __future__ import annotations

from ga_dspy.viewer.graph import graph_data as graph_data
from ga_dspy.viewer.graph import graph_page as graph_page
from ga_dspy.viewer.page import page as page
from ga_dspy.viewer.page import run_page as run_page
