"""Keeping what optimizers print out of the way: bars, notes and tables go to a file."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import TextIO


class Streams:
    """The streams of the process as they were, for what is to be seen after all."""

    def __init__(self) -> None:
        self._out: TextIO = sys.stdout
        self._err: TextIO = sys.stderr

    @contextmanager
    def restored(self) -> Iterator[None]:
        """Print to the streams as they were."""
        with redirect_stdout(self._out), redirect_stderr(self._err):
            yield


@contextmanager
def quiet(log: Path) -> Iterator[None]:
    """Write what the process prints to a file, appending."""
    log.parent.mkdir(parents=True, exist_ok=True)
    with (
        log.open("a", encoding="utf-8") as file,
        redirect_stdout(file),
        redirect_stderr(file),
    ):
        yield
