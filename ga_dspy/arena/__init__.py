"""The arena: run methods under one protocol, then compare them in a report."""

from __future__ import annotations

from ga_dspy.arena.arena import Benchmark as Benchmark
from ga_dspy.arena.arena import Contestant as Contestant
from ga_dspy.arena.arena import PlannedRun as PlannedRun
from ga_dspy.arena.arena import plan_runs as plan_runs
from ga_dspy.arena.arena import run_arena as run_arena
from ga_dspy.arena.arena import select_methods as select_methods
from ga_dspy.arena.runs import Run as Run
from ga_dspy.arena.runs import Runs as Runs
from ga_dspy.arena.runs import UnlikeProtocols as UnlikeProtocols
from ga_dspy.arena.runs import collect as collect
