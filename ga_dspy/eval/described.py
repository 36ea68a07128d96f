"""The protocol of a program's run, read off the program, its retriever and its LM."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import dspy

from ga_dspy.eval.protocol import Protocol, ScoreVariant
from ga_dspy.eval.renaming import provenance
from ga_dspy.graphrag import GraphIndex
from ga_dspy.programs import MultiHopProgram
from ga_dspy.retrieval import Index

_SAMPLING = (
    "temperature", "max_tokens", "max_completion_tokens", "top_p", "top_k", "min_p", "n", "seed",
    "stop", "presence_penalty", "frequency_penalty", "reasoning_effort", "rollout_id",
)  # fmt: skip


def protocol_of(
    program: MultiHopProgram,
    examples: Sequence[dspy.Example],
    *,
    name: str,
    dataset: str,
    source: Path | str,
    lm: dspy.LM,
    score: ScoreVariant = "official",
    limit: int | None = None,
    seed: int | None = None,
) -> Protocol:
    """Everything that decides the numbers of a run.

    Args:
        program: What will be asked.
        examples: The questions, as `load` gives them.
        name: The program's name in reports.
        dataset: The dataset's name.
        source: The file of the questions, or the hub's name of the rows.
        lm: The language model; of its settings those that decide how it samples are kept.
        score: Which F1 counts.
        limit: How many questions were asked for; None for all.
        seed: Seed of the sample; None where the questions are in file order.

    Raises:
        CopyChanged: The file is a renamed copy that was changed after it was made.
    """
    copy = provenance(source) if isinstance(source, Path) else None
    settings = program.settings()
    return Protocol.of(
        examples,
        dataset=dataset,
        source=source,
        renamed_from=copy.source_sha256 if copy else None,
        program=name,
        lm=str(lm.model),
        sampling={key: lm.kwargs[key] for key in _SAMPLING if lm.kwargs.get(key) is not None},
        **_searched(program.retriever.search),
        k=settings.get("k"),
        steps=settings.get("max_steps"),
        score=score,
        settings=settings,
        limit=limit,
        seed=seed,
    )


def _searched(retriever: Any) -> dict[str, Any]:
    source = getattr(retriever, "source", retriever)
    index = source.index if isinstance(source, GraphIndex) else source
    if not isinstance(index, Index):
        return {"retriever": getattr(source, "__qualname__", type(source).__qualname__)}
    return {
        "retriever": index.description,
        "graph": source.fingerprint if isinstance(source, GraphIndex) else None,
        "corpus": index.fingerprint,
        "encoder": index.encoder.name if index.encoder else "",
    }
