"""What a build will cost, before it is begun."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import dspy

from ga_dspy.graphrag.extraction import Extractor
from ga_dspy.graphrag.journal import Journal, reading_key
from ga_dspy.graphrag.store import JOURNAL
from ga_dspy.retrieval import Index
from ga_dspy.signatures.prompt import render_passage
from ga_dspy.tokens import estimate_tokens


class Estimate(NamedTuple):
    """What a build will ask of the LM, without second attempts.

    Attributes:
        calls: Passages that have not been read yet.
        prompt_tokens: Tokens sent.
        completion_tokens: Tokens written, about as many as the passages hold.
        finished: Passages that need no call.
    """

    calls: int
    prompt_tokens: int
    completion_tokens: int
    finished: int

    @property
    def tokens(self) -> int:
        """All tokens."""
        return self.prompt_tokens + self.completion_tokens


def estimate_build(
    index: Index,
    out: Path | str | None = None,
    *,
    lm: Any = None,
    extractor: Extractor | None = None,
) -> Estimate:
    """Estimate the calls and tokens of a build before it is begun.

    Args:
        index: The passages.
        out: The folder of the graph, where passages may have been read already.
        lm: As for `build_graph`.
        extractor: As for `build_graph`.
    """
    reader = extractor or Extractor()
    passages = list(index)
    journal = Path(out) / JOURNAL if out is not None else None
    if journal is not None and journal.is_file():
        keys = {p.id: reading_key(p, reader.fingerprint(lm)) for p in passages}
        with Journal(journal) as written:
            known = written.known(keys.values())
        passages = [p for p in passages if keys[p.id] not in known]
    texts = [render_passage(1, passage) for passage in passages]
    held = sum(map(estimate_tokens, texts))
    framing = _framing(reader) * len(texts)
    return Estimate(len(texts), framing + held, held, len(index) - len(texts))


def _framing(reader: Extractor) -> int:
    """Tokens of a prompt around its passage."""
    adapter = dspy.settings.adapter or dspy.ChatAdapter()
    predict = reader.extract
    blank = {"passages": "", "feedback": ""}
    messages = adapter.format(predict.signature, predict.demos, blank)
    return sum(estimate_tokens(str(message["content"])) for message in messages)
