"""The figures of a report, each drawn from runs alone.

One picture a file: `graph_by_step` (Figure 3), `retrieval_by_step` (4), `knowledge_use` (7), `cost`
(F1 against tokens), `scores` and `steps_reached` (Tables 1 and 3 as pictures). `scene` says which
runs a picture is of, `placing` keeps labels apart, `drawn` writes all of them.
"""

from __future__ import annotations

from ga_dspy.arena.figures.cost import plot_cost_of_methods as plot_cost_of_methods
from ga_dspy.arena.figures.drawn import Drawn as Drawn
from ga_dspy.arena.figures.drawn import Lacking as Lacking
from ga_dspy.arena.figures.drawn import draw_figures as draw_figures
from ga_dspy.arena.figures.graph_by_step import plot_graph_by_step as plot_graph_by_step
from ga_dspy.arena.figures.knowledge_use import plot_knowledge_use as plot_knowledge_use
from ga_dspy.arena.figures.retrieval_by_step import plot_retrieval_by_step as plot_retrieval_by_step
from ga_dspy.arena.figures.scene import NothingToDraw as NothingToDraw
from ga_dspy.arena.figures.scene import Scene as Scene
from ga_dspy.arena.figures.scores import plot_scores as plot_scores
from ga_dspy.arena.figures.steps_reached import plot_steps_reached as plot_steps_reached
