"""Artifacts: the form in which a compiled program reaches an app.

An artifact is a folder of two JSON files. `program.json` is what optimization found (the
instructions, field wording and demos of every predictor, in DSPy's own state format);
`manifest.json` says which program that is for, its settings, and where it comes from. Neither
holds an LM, an address or a key, and nothing in them is executed.

    save(program, "artifacts/hotpotqa", recipe=Recipe(name="bootstrap"), lms={"task": lm})
    program = load("artifacts/hotpotqa", retriever=index)
"""

from __future__ import annotations

from ga_dspy.artifact.diff import diff as diff
from ga_dspy.artifact.errors import ArtifactError as ArtifactError
from ga_dspy.artifact.folder import AlreadyThere as AlreadyThere
from ga_dspy.artifact.folder import MissingFile as MissingFile
from ga_dspy.artifact.folder import NotAnArtifact as NotAnArtifact
from ga_dspy.artifact.known import PROGRAMS as PROGRAMS
from ga_dspy.artifact.known import InvalidSetting as InvalidSetting
from ga_dspy.artifact.known import MissingSetting as MissingSetting
from ga_dspy.artifact.known import UnknownProgram as UnknownProgram
from ga_dspy.artifact.known import UnknownSetting as UnknownSetting
from ga_dspy.artifact.known import register as register
from ga_dspy.artifact.loading import ArtifactInfo as ArtifactInfo
from ga_dspy.artifact.loading import ChangesPredictors as ChangesPredictors
from ga_dspy.artifact.loading import Tampered as Tampered
from ga_dspy.artifact.loading import load as load
from ga_dspy.artifact.loading import show as show
from ga_dspy.artifact.loading import verify as verify
from ga_dspy.artifact.manifest import Cost as Cost
from ga_dspy.artifact.manifest import Manifest as Manifest
from ga_dspy.artifact.manifest import NewerFormat as NewerFormat
from ga_dspy.artifact.manifest import Recipe as Recipe
from ga_dspy.artifact.manifest import Score as Score
from ga_dspy.artifact.manifest import Scores as Scores
from ga_dspy.artifact.records import NotJSON as NotJSON
from ga_dspy.artifact.records import UnknownKeys as UnknownKeys
from ga_dspy.artifact.records import WrongShape as WrongShape
from ga_dspy.artifact.saving import CannotSave as CannotSave
from ga_dspy.artifact.saving import save as save
from ga_dspy.artifact.secrets import SecretFound as SecretFound
from ga_dspy.artifact.source import RESOLVERS as RESOLVERS
from ga_dspy.artifact.source import UnknownScheme as UnknownScheme
from ga_dspy.artifact.state import DemoMismatch as DemoMismatch
from ga_dspy.artifact.state import ExtraPredictor as ExtraPredictor
from ga_dspy.artifact.state import FieldMismatch as FieldMismatch
from ga_dspy.artifact.state import MissingPredictor as MissingPredictor
from ga_dspy.artifact.state import PredictorState as PredictorState
