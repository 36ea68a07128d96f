"""An app: loads a compiled program and answers, with the core dependencies alone.

Run by `make wheel` as `python tests/app_of_ten_lines.py ARTIFACT`.
"""

import sys

import dspy

import ga_dspy
from ga_dspy.testing import scripted_lm

program = ga_dspy.load(sys.argv[1], retriever=lambda query: ["Red Lodge | A city in Montana."])
lines = "Relations:\n1. Red Lodge -> A city in -> Montana [1]"
read = dict(additions=lines, reasoning="", judgement="sufficient", candidate="", next_query="")
answer = dict(verdict="answered", cited="1", answer="Montana")
with dspy.context(lm=scripted_lm([read, answer])):  # an LM of yours: dspy.LM("openai/…")
    found = program(question="In which state is Red Lodge?")
sys.exit(0 if (found.answer, found.supported) == ("Montana", "chained") else "the app got it wrong")
