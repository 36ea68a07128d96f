"""A question answered by a scripted LM over a corpus that is a mapping from queries to passages."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import dspy

from ga_dspy.passage import Passage
from ga_dspy.programs import MultiHopProgram
from ga_dspy.testing import Reply, scripted_lm


class ScriptedRun:
    """What was searched, asked and returned."""

    def __init__(
        self,
        program: type[MultiHopProgram],
        corpus: Mapping[str, list[Passage]],
        question: str,
        script: Sequence[Reply],
        **settings: Any,
    ) -> None:
        self.corpus = corpus
        self.queries: list[str] = []
        lm = scripted_lm(script)
        with dspy.context(lm=lm):
            self.prediction: Any = program(self.search, **settings)(question=question)
        self.prompts: list[str] = lm.engine.prompts
        self.steps = self.prediction.steps

    def search(self, query: str, k: int) -> list[Passage]:
        self.queries.append(query)
        return self.corpus.get(query, [])[:k]


def shown(prompt: str, field: str) -> str:
    """Return the value of a field in the last message of a prompt."""
    behind = prompt.rpartition(f"[[ ## {field} ## ]]\n")[2]
    return behind.partition("\n\n[[ ##")[0]


def labels(prompt: str) -> list[str]:
    return re.findall(r"^\[\d+\] .*$", shown(prompt, "passages"), re.MULTILINE)
