"""A passage: the unit that is retrieved, read, cited and quoted."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, field_validator


def sound(text: str) -> str:
    r"""Replace lone surrogates and NULs, which no file or request can be written with.

    >>> sound("caf\ud800 au\0lait")
    'caf? au�lait'
    """
    whole = text.encode("utf-8", "replace").decode("utf-8").replace("\0", "\ufffd")
    return text if whole == text else whole


class Passage(BaseModel):
    r"""A titled piece of text with an id that is unique in its corpus.

    Character spans anywhere in this library count in `content`, never in `text` alone. Lone
    surrogates and NULs are replaced when a passage is made; all else stays as it is, and what
    could pass for a part of the prompt is broken where prompts are written
    (`ga_dspy.signatures.prompt.safe`), so that quotes come from this text.

    >>> Passage(id="7", title="Red Lodge", text="Red Lodge is a city in Montana.").content
    'Red Lodge\nRed Lodge is a city in Montana.'
    """

    model_config = ConfigDict(frozen=True)

    id: str
    text: str
    title: str = ""

    @field_validator("id", "text", "title")
    @classmethod
    def _sound(cls, text: str) -> str:
        return sound(text)

    @property
    def content(self) -> str:
        """Title, newline, text; the text alone where there is no title."""
        return f"{self.title}\n{self.text}" if self.title else self.text
