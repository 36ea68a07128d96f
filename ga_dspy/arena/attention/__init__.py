"""What a local causal LM attends to when it answers with the graph of each step at hand.

The paper's Figures 5 and 6 (section 5.4). The order of the ideas: `cases` and `collected` (what
is measured), `prompt` (what the model reads, and whose each token is), `model` (a model from a
folder), `reading` (one forward pass), `weights` (the maths), `step` (one prompt), `measure` (a
question, many questions), `report` (means over them), `figures`.
"""

from ga_dspy.arena.attention.cases import AttentionCase as AttentionCase
from ga_dspy.arena.attention.collected import NoGraphs as NoGraphs
from ga_dspy.arena.attention.collected import cases_of as cases_of
from ga_dspy.arena.attention.figures import NothingToDraw as NothingToDraw
from ga_dspy.arena.attention.figures import plot_all as plot_all
from ga_dspy.arena.attention.figures import plot_anchored as plot_anchored
from ga_dspy.arena.attention.figures import plot_entropy as plot_entropy
from ga_dspy.arena.attention.figures import plot_new_entities as plot_new_entities
from ga_dspy.arena.attention.figures import plot_shares as plot_shares
from ga_dspy.arena.attention.measure import Progress as Progress
from ga_dspy.arena.attention.measure import PromptTooLong as PromptTooLong
from ga_dspy.arena.attention.measure import measure as measure
from ga_dspy.arena.attention.measure import measure_all as measure_all
from ga_dspy.arena.attention.model import LocalModel as LocalModel
from ga_dspy.arena.attention.model import ModelUnusable as ModelUnusable
from ga_dspy.arena.attention.model import SlowTokenizer as SlowTokenizer
from ga_dspy.arena.attention.model import load_model as load_model
from ga_dspy.arena.attention.prompt import NoTokens as NoTokens
from ga_dspy.arena.attention.prompt import TemplateUnusable as TemplateUnusable
from ga_dspy.arena.attention.reading import WeightsUnavailable as WeightsUnavailable
from ga_dspy.arena.attention.report import AttentionReport as AttentionReport
from ga_dspy.arena.attention.report import Mean as Mean
from ga_dspy.arena.attention.report import Skipped as Skipped
from ga_dspy.arena.attention.report import StepMeans as StepMeans
from ga_dspy.arena.attention.report import as_rows as as_rows
from ga_dspy.arena.attention.step import StepMeasure as StepMeasure
