"""The arena: methods compared with one another, and the tables and figures that show it."""

from __future__ import annotations

from ga_dspy.arena.arena import Entrant as Entrant
from ga_dspy.arena.arena import Ground as Ground
from ga_dspy.arena.arena import Round as Round
from ga_dspy.arena.arena import compete as compete
from ga_dspy.arena.arena import entrants as entrants
from ga_dspy.arena.arena import rounds as rounds
from ga_dspy.arena.runs import Run as Run
from ga_dspy.arena.runs import Runs as Runs
from ga_dspy.arena.runs import UnlikeProtocols as UnlikeProtocols
from ga_dspy.arena.runs import collect as collect
