"""A question to measure: all passages read for it, and the graph as it stood after each step."""

from __future__ import annotations

from typing import Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from ga_dspy.passage import Passage


class AttentionCase(BaseModel):
    """One question with what an LM may be shown when it answers.

    `passages` are all those read, each with its label. `graphs` holds the text of the graph after
    step 1, 2 and so on; `entities` the names that each of these steps was the first to index.

    Raises:
        ValidationError: A text is blank, there is no passage or no graph, or `entities` and
            `graphs` differ in length.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    question: str
    answer: str
    """The gold answer."""
    passages: tuple[tuple[int, Passage], ...] = Field(min_length=1)
    graphs: tuple[str, ...] = Field(min_length=1)
    entities: tuple[tuple[str, ...], ...]

    @model_validator(mode="after")
    def _whole(self) -> Self:
        if not all(text.strip() for text in (self.question, self.answer, *self.graphs)):
            raise ValueError('the question, the answer or a graph is blank; "(empty)" is a graph')
        if len(self.entities) != len(self.graphs):
            raise ValueError(
                f"{len(self.entities)} steps of entities for {len(self.graphs)} graphs"
            )
        return self

    def indexed(self, step: int) -> tuple[str, ...]:
        """The names of all entities that the graph of a step anchors, each once; steps from 1."""
        return tuple(dict.fromkeys(name for names in self.entities[:step] for name in names))
