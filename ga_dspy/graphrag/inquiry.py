"""What a GraphRAG program knows about one question while it works on it."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any

from ga_dspy.graphrag.access import Access
from ga_dspy.graphrag.found import Found
from ga_dspy.graphrag.topics import Topic
from ga_dspy.passage import Passage
from ga_dspy.programs.meter import Meter
from ga_dspy.programs.prediction import EvidenceLink
from ga_dspy.programs.progress import Progress


class Stopwatch(Meter):
    """Counts LM calls, and the time that they take.

    Attributes:
        seconds: Wall time inside LM calls so far, those answered from the cache among them.
    """

    def __init__(self) -> None:
        super().__init__()
        self.seconds = 0.0
        self._began = 0.0

    def on_lm_start(self, call_id: str, instance: Any, inputs: dict[str, Any]) -> None:
        """Note the time."""
        super().on_lm_start(call_id, instance, inputs)
        self._began = time.perf_counter()

    def on_lm_end(self, call_id: str, outputs: Any, exception: BaseException | None = None) -> None:
        """Count the call and its time."""
        self.seconds += time.perf_counter() - self._began
        super().on_lm_end(call_id, outputs, exception)


@dataclass
class Inquiry(Progress):
    """Everything known about one question, with what the graph has of it.

    Attributes:
        access: The caller's rights and wishes; taken when the question was asked.
        meter: What it cost so far, time included.
        found: What graph and passages brought.
        topics: The topics shown, or for a question about the whole corpus those cited.
        links: Evidence beside the chain of the graph.
        quoted: Passages that the chain quotes and that were not among those read.
    """

    access: Access = field(default_factory=Access)
    meter: Stopwatch = field(default_factory=Stopwatch)
    found: Found | None = None
    topics: tuple[Topic, ...] = ()
    links: tuple[EvidenceLink, ...] = ()
    quoted: tuple[Passage, ...] = ()

    @property
    def seconds(self) -> dict[str, float]:
        """Where the time went: linking, expansion, ranking, passages, and the LM."""
        searched = dict(self.found.seconds) if self.found else {}
        return {**searched, "lm": self.meter.seconds}
