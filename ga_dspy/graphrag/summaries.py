"""Summaries of communities: written once by the LM, kept until the community changes.

A summary may use only names and numbers of its community. A sentence that brings in others is sent
back once, then left out, and said to be left out. Communities are those of the part of the graph
that everybody may see, so a summary may be shown to everybody.
"""

from __future__ import annotations

import contextvars
import hashlib
import json
import re
from collections.abc import Callable, Generator, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import dspy
from pydantic import BaseModel, ConfigDict

from ga_dspy.errors import GaDspyError
from ga_dspy.graphrag.communities import Community, community_text
from ga_dspy.graphrag.corpus_graph import CorpusGraph
from ga_dspy.graphrag.extraction import NoLanguageModel
from ga_dspy.graphrag.journal import Journal
from ga_dspy.mentions import fold, sentences, words
from ga_dspy.programs.conversation import Ask, adrive, drive
from ga_dspy.programs.meter import Meter
from ga_dspy.programs.salvage import StepFailed, asked
from ga_dspy.signatures.prompt import said
from ga_dspy.signatures.summarise import SummariseCommunity

_LONGEST_TITLE: Final = 12
_WORD: Final = re.compile(r"\w+(?:['’]\w+)?")


class Summary(BaseModel):
    """What a community is about; it may be shown to every caller.

    Attributes:
        title: A few words.
        text: Some sentences, of names and numbers of the community alone.
        left_out: Sentences that brought in others.
    """

    model_config = ConfigDict(frozen=True)

    title: str
    text: str
    left_out: tuple[str, ...] = ()


class SummaryFailed(GaDspyError):
    """The LM wrote nothing about a community that its graph supports."""

    def __init__(self, reply: str) -> None:
        super().__init__(
            f"no sentence of the summary rests on the community ({reply[:120]!r}); expected names "
            "and numbers that its graph holds; use a stronger model"
        )


class Summariser(dspy.Module):
    """Summarise a community from its lines; `summarise` is its only predictor."""

    def __init__(self) -> None:
        super().__init__()
        self.summarise = dspy.Predict(SummariseCommunity)

    def forward(self, graph: str) -> dspy.Prediction:
        """Summarise a community given as lines.

        Returns:
            A prediction whose `summary` is a `Summary`.

        Raises:
            StepFailed: The LM gave nothing usable, twice.
            SummaryFailed: Nothing it wrote rests on the lines.
        """
        return drive(self._write(graph))

    async def aforward(self, graph: str) -> dspy.Prediction:
        """Summarise a community from a coroutine."""
        return await adrive(self._write(graph))

    def fingerprint(self, lm: Any = None) -> str:
        """Hash of what is asked, and of whom."""
        lm = lm or self.summarise.lm or dspy.settings.lm
        state = {k: v for k, v in self.summarise.dump_state().items() if k != "lm"}
        text = json.dumps([state, getattr(lm, "model", "")], sort_keys=True, default=str)
        return hashlib.sha256(text.encode()).hexdigest()

    def _write(self, graph: str) -> Generator[Ask, dspy.Prediction, dspy.Prediction]:
        meter = Meter()
        inputs = {"graph": graph, "feedback": ""}
        reply = yield from asked("summarise", self.summarise, inputs, meter)
        if feedback := _feedback(reply, graph):
            told = {**inputs, "feedback": feedback}
            # Where that fails, the first attempt's good sentences are kept, the others named.
            with suppress(StepFailed):
                reply = yield from asked("summarise", self.summarise, told, meter)
        return dspy.Prediction(
            summary=_grounded(reply, graph), calls=meter.calls, tokens=meter.tokens
        )


def strangers(text: str, graph: str) -> tuple[str, ...]:
    """Names and numbers in a text that the lines of a community do not hold, word by word.

    A word counts as a name where it has a capital and does not open a sentence.

    >>> strangers("The river Elbe meets the Vltava at Mělník.", "1. Vltava -> flows into -> Elbe")
    ('Mělník',)
    """
    held = {word.folded for word in words(graph)}
    found: dict[str, None] = {}
    for start, end in sentences(text):
        for place, match in enumerate(_WORD.finditer(text, start, end)):
            word = match.group()
            is_name = (word[0].isupper() and place > 0) or word[0].isdigit()
            if is_name and not all(fold(part) in held for part in re.findall(r"\w+", word)):
                found[word] = None
    return tuple(name for name in found if fold(re.split(r"['’]", name)[0]) not in held)


def _feedback(reply: dspy.Prediction, graph: str) -> str:
    wrong = strangers(f"{reply.title}\n{reply.summary}", graph)
    return f"not in the graph: {', '.join(wrong)}" if wrong else ""


def _grounded(reply: dspy.Prediction, graph: str) -> Summary:
    text = said(reply.summary)
    parts = [text[start:end] for start, end in sentences(text)]
    kept = [part for part in parts if not strangers(part, graph)]
    if not kept:
        raise SummaryFailed(text)
    title = said(reply.title).split()
    if not 0 < len(title) <= _LONGEST_TITLE or strangers(f"x {' '.join(title)}", graph):
        title = kept[0].split()[:_LONGEST_TITLE]
    left_out = tuple(part for part in parts if part not in kept)
    return Summary(title=" ".join(title), text=" ".join(kept), left_out=left_out)


class Summaries:
    """Summaries by community, made when first asked for and kept in a file.

    Args:
        path: The file that keeps them, for several processes; None keeps them in memory.
        summariser: What writes them.
    """

    def __init__(self, path: Path | None = None, summariser: Summariser | None = None) -> None:
        self._path = path
        self._memory: dict[str, str] = {}
        self.summariser = summariser or Summariser()

    def of(
        self,
        graph: CorpusGraph,
        communities: Sequence[Community],
        *,
        lm: Any = None,
        threads: int = 8,
        progress: Callable[[str, int, int], None] | None = None,
    ) -> dict[str, Summary | str]:
        """The summary of each community, by its key; the error, in words, where none could be made.

        Args:
            graph: The graph that the communities are of; its public part is summarised.
            communities: Which to summarise; those that were are not again.
            lm: The LM; by default the configured one.
            threads: Communities summarised at once.
            progress: Called with a stage's name, units done and units in all.

        Raises:
            NoLanguageModel: A summary must be made and there is no LM.
        """
        lm = lm or self.summariser.summarise.lm or dspy.settings.lm
        asked_for = self.summariser.fingerprint(lm)
        keys = {c.key: f"{c.key}-{asked_for}" for c in communities}
        known = self._known(list(keys.values()))
        missing = [c for c in communities if keys[c.key] not in known]
        found: dict[str, Summary | str] = {
            key: Summary.model_validate_json(known[place])
            for key, place in keys.items()
            if place in known
        }
        if missing and lm is None:
            raise NoLanguageModel
        with dspy.context(lm=lm), ThreadPoolExecutor(threads) as pool:
            tasks = [
                pool.submit(contextvars.copy_context().run, self._one, graph.public, community)
                for community in missing
            ]
            for done, (community, task) in enumerate(zip(missing, tasks, strict=True), 1):
                found[community.key] = outcome = task.result()
                if isinstance(outcome, Summary):
                    self._record(keys[community.key], outcome.model_dump_json())
                if progress:
                    progress("summarising", done, len(missing))
        return found

    def kept(self, communities: Sequence[Community]) -> dict[str, Summary]:
        """The summaries that there are, by community, whoever wrote them; no LM is asked."""
        texts = {place.partition("-")[0]: text for place, text in sorted(self._all().items())}
        return {
            community.key: Summary.model_validate_json(texts[community.key])
            for community in communities
            if community.key in texts
        }

    def keep_only(self, communities: Iterable[Community]) -> None:
        """Forget the summaries of all other communities: they are gone or have changed."""
        known = {community.key for community in communities}
        self._memory = {k: v for k, v in self._memory.items() if k.partition("-")[0] in known}
        if self._path is not None and self._path.is_file():
            with Journal(self._path, shared=True) as journal:
                journal.keep_only(
                    key for key in journal.finished() if key.partition("-")[0] in known
                )

    def _one(self, graph: CorpusGraph, community: Community) -> Summary | str:
        try:
            summary: Summary = self.summariser(graph=community_text(graph, community)).summary
        except Exception as error:  # noqa: BLE001 - any failure is named beside its community
            return f"{type(error).__name__}: {error}"
        return summary

    def _known(self, keys: Sequence[str]) -> dict[str, str]:
        rows = self._all()
        return {key: rows[key] for key in keys if key in rows}

    def _all(self) -> dict[str, str]:
        if self._path is None:
            return self._memory
        if not self._path.is_file():
            return {}
        with Journal(self._path, shared=True) as journal:
            return journal.known(journal.finished())

    def _record(self, key: str, text: str) -> None:
        if self._path is None:
            self._memory[key] = text
            return
        with Journal(self._path, shared=True) as journal:
            journal.record(key, text)
