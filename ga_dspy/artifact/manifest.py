"""manifest.json: which program the state belongs to, and where it comes from."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AwareDatetime, BaseModel, Field, JsonValue, TypeAdapter

from ga_dspy.artifact.errors import ArtifactError
from ga_dspy.artifact.records import Record, parsed

FORMAT = 1
"""The newest version of the format that this code writes and reads."""

_Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class NewerFormat(ArtifactError):
    """A later version of the library wrote the artifact, in a format unknown here."""

    def __init__(self, where: str, found: int, wrote: str, installed: str) -> None:
        super().__init__(
            f"{where} is in format {found}, the installed ga-dspy {installed} reads up to format "
            f"{FORMAT}; expected no newer one; run: pip install 'ga-dspy>={wrote}'"
        )
        self.where, self.found, self.wrote, self.installed = where, found, wrote, installed


class FieldEntry(Record):
    """A field of a signature: its name, which side it is on, and its type as DSPy names it."""

    name: str
    kind: Literal["input", "output"]
    type: str


class PredictorEntry(Record):
    """A predictor and its fields, in order."""

    name: str
    fields: tuple[FieldEntry, ...]


class Versions(Record):
    """What wrote the artifact."""

    ga_dspy: str
    dspy: str


class Recipe(Record):
    """How the program was compiled."""

    name: str
    parameters: dict[str, JsonValue] = Field(default_factory=dict)


class Score(Record):
    """A mean in percent, and its 95 % interval where one was computed."""

    value: float
    low: float | None = None
    high: float | None = None


class Scores(Record):
    """What compiling changed, measured on questions that the recipe did not learn from.

    Attributes:
        n: Number of questions.
        held_out: Which questions, e.g. "test".
        before: Scores by metric ("f1", "em", …) of the program as it was given.
        after: Scores of the compiled program on the same questions.
        p_value: Two-sided, of a paired test.
        verdict: Whether the compiled program is better.
    """

    n: int = Field(ge=1)
    held_out: str = ""
    before: dict[str, Score] = Field(default_factory=dict)
    after: dict[str, Score]
    p_value: float | None = Field(default=None, ge=0, le=1)
    verdict: Literal["better", "no better than before"] | None = None


class Cost(Record):
    """What compiling cost.

    Attributes:
        calls: LM calls, replayed ones among them.
        tokens: Prompt and completion tokens of those calls.
        money: US dollars; None where an LM has no known price.
        replayed: Calls taken over from an earlier run.
        seconds: Duration.
    """

    calls: int = Field(ge=0)
    tokens: int = Field(ge=0)
    money: float | None = None
    replayed: int = 0
    seconds: float | None = None


class Manifest(Record):
    """All that is known of a saved program but its prompts.

    Attributes:
        format: Version of the artifact format.
        program: Name of the program's class among the known programs, never an import path.
        settings: The arguments that make the program again.
        predictors: Its predictors with their fields, in order.
        versions: What wrote it.
        sha256: Digest of program.json.
        created: When, with a time zone.
        recipe: How it was compiled; None for a program that was not.
        lms: Model name by role ("task", "reflection", …): a name only, never an address.
        data: What is known of each question set by role ("train", "test"): digest, size, …
        scores: What compiling changed.
        cost: What it cost.
    """

    format: int = Field(ge=1)
    program: str
    settings: dict[str, JsonValue]
    predictors: tuple[PredictorEntry, ...]
    versions: Versions
    sha256: _Sha256
    created: AwareDatetime
    recipe: Recipe | None = None
    lms: dict[str, str] = Field(default_factory=dict)
    data: dict[str, dict[str, JsonValue]] = Field(default_factory=dict)
    scores: Scores | None = None
    cost: Cost | None = None


class _WrittenBy(BaseModel):
    ga_dspy: str = "the version that wrote it"


class _Header(BaseModel):
    format: int = Field(strict=True, ge=1)
    versions: _WrittenBy = _WrittenBy()


_HEADER = TypeAdapter(_Header)
_MANIFEST = TypeAdapter(Manifest)


def read_manifest(data: bytes, where: str) -> Manifest:
    """Read manifest.json.

    Raises:
        NewerFormat: Its format is later than this code's.
        NotJSON, UnknownKeys, WrongShape: It is not a manifest.
    """
    # The version first: what a later one adds must not be reported as unknown keys.
    header = parsed(_HEADER, data, where)
    if header.format > FORMAT:
        from ga_dspy import __version__

        raise NewerFormat(where, header.format, header.versions.ga_dspy, __version__)
    return parsed(_MANIFEST, data, where)
