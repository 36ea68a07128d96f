"""A passage: the unit that is retrieved, read, cited and quoted."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Passage(BaseModel):
    r"""A titled piece of text with an id that is unique in its corpus.

    Character spans anywhere in this library count in `content`, never in `text` alone.

    >>> Passage(id="7", title="Red Lodge", text="Red Lodge is a city in Montana.").content
    'Red Lodge\nRed Lodge is a city in Montana.'
    """

    model_config = ConfigDict(frozen=True)

    id: str
    text: str
    title: str = ""

    @property
    def content(self) -> str:
        """Title, newline, text; the text alone where there is no title."""
        return f"{self.title}\n{self.text}" if self.title else self.text
