"""Options that several commands have."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

IndexDir = Annotated[Path, typer.Option("--index", help="Folder of a built index.")]
Model = Annotated[
    str | None,
    typer.Option("--lm", help="Any DSPy model name; the embedded extractive LM where left out."),
]
ApiBase = Annotated[
    str | None, typer.Option("--api-base", help="Address of an OpenAI-compatible endpoint.")
]
Artifact = Annotated[
    str | None,
    typer.Option(help="A compiled program: a folder, or models:/name@alias, or runs:/…"),
]
Program = Annotated[
    str, typer.Option(help="graph-anchor, vanilla-rag, ircot, iter-retgen, deep-note, …")
]
Score = Annotated[str, typer.Option(help="Which F1 counts: official (HotpotQA's script) or squad.")]
Graph = Annotated[
    Path | None, typer.Option("--graph", help="The graph of its passages, for graph-rag.")
]
Timeout = Annotated[float, typer.Option(help="Seconds to wait for one LM call.")]
Yes = Annotated[bool, typer.Option("--yes", help="Do not ask about the estimate.")]
