"""Artifacts: compiled programs as folders of two JSON files.

`program.json` has the instructions, field wording and demos of every predictor, in DSPy's own
state format; `manifest.json` names the program, its settings and its provenance. Neither contains
an address or a key, and nothing in them is executed.

    save(program, "artifacts/hotpotqa", recipe=Recipe(name="bootstrap"), lms={"task": lm})
    program = load("artifacts/hotpotqa", retriever=index)
"""

from __future__ import annotations

from ga_dspy.artifact.artifact import ArtifactInfo as ArtifactInfo
from ga_dspy.artifact.artifact import compiled_for as compiled_for
from ga_dspy.artifact.artifact import diff as diff
from ga_dspy.artifact.artifact import load as load
from ga_dspy.artifact.artifact import outline as outline
from ga_dspy.artifact.artifact import save as save
from ga_dspy.artifact.artifact import show as show
from ga_dspy.artifact.artifact import verify as verify
from ga_dspy.artifact.state import PROGRAMS as PROGRAMS
from ga_dspy.artifact.state import Cost as Cost
from ga_dspy.artifact.state import Recipe as Recipe
from ga_dspy.artifact.state import Score as Score
from ga_dspy.artifact.state import Scores as Scores
from ga_dspy.artifact.state import register as register
from ga_dspy.errors import ArtifactError as ArtifactError
from ga_dspy.secrets import SecretFound as SecretFound
