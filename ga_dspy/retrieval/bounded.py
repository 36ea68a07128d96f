"""Documents read in a process of their own: one that would take hours or all memory ends that.

Small files of formats that are read in time whatever they hold are read where they are asked for.
"""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from contextlib import suppress
from io import BytesIO
from pathlib import PurePosixPath
from threading import Timer
from typing import IO, Any, Self
from zipfile import BadZipFile, ZipFile

from ga_dspy.errors import InputError, MissingExtra
from ga_dspy.passage import Metadata
from ga_dspy.retrieval.documents import TEXTS, Document, Section, read_document

_LOG = logging.getLogger("ga_dspy")
SECONDS, PER_MEGABYTE = 60.0, 10.0
_SLOW = 10.0  # seconds until the log names the file
_MOST_MEMORY = 4_000_000_000
_SMALL, _SMALL_ARCHIVE = 20_000, 500_000  # bytes
_MARKUP = (".md", ".markdown", ".mdx", ".html", ".htm", ".xhtml", ".eml")
_ARCHIVES = (".docx", ".pptx", ".epub")
_MAIN = "from ga_dspy.retrieval.bounded import answer; answer()"


class DocumentReader:
    """Reads documents, with bounds on the time, the memory and the text of each."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        """Be one."""
        return self

    def __exit__(self, *_: object) -> None:
        """End its process."""
        self._end()

    def read(self, name: str, data: bytes) -> Document:
        """Read a document, as `read_document`.

        Raises:
            InputError: It cannot be read, or not within its bounds.
            MissingExtra: What reads it is not installed.
        """
        if is_cheap(name, data):
            return _checked(read_document(name, data), data)
        seconds = SECONDS + PER_MEGABYTE * len(data) / 1e6
        process = self._process = self._process or _begin()
        told = f"still reading {name} after {_SLOW:.0f} s; it is given up after {seconds:.0f} s"
        timers = [Timer(_SLOW, _LOG.warning, [told]), Timer(seconds, process.kill)]
        for timer in timers:
            timer.daemon = True
            timer.start()
        try:
            reply = _asked(process, name, data)
        finally:
            is_over = not timers[1].is_alive()
            for timer in timers:
                timer.cancel()
        if reply is not None:
            return _checked(_document(reply), data)
        code = process.wait()
        self._end()
        why = f"not read within {seconds:.0f} s" if is_over else f"what reads it ended ({code})"
        raise InputError(why, expected="a document of ordinary size", remedy="split or convert it")

    def _end(self) -> None:
        if self._process:
            self._process.kill()
            self._process.communicate()
            self._process = None


def is_cheap(name: str, data: bytes) -> bool:
    """Whether a document is read in time and memory for certain, whatever it holds."""
    ending = PurePosixPath(name).suffix.lower()
    if ending in _ARCHIVES:
        with suppress(BadZipFile, OSError), ZipFile(BytesIO(data)) as archive:
            return sum(part.file_size for part in archive.infolist()) <= _SMALL_ARCHIVE
        return True  # it is refused
    return ending in TEXTS or (ending in _MARKUP and len(data) <= _SMALL)


def _checked(document: Document, data: bytes) -> Document:
    """A document with no more text than a file of its size has."""
    size, most = sum(len(section.text) for section in document.sections), 5_000_000 + 20 * len(data)
    if size > most:
        raise InputError(
            f"it has {size:,} characters", expected=f"{most:,} at most", remedy="split it"
        )
    return document


def _begin() -> subprocess.Popen[bytes]:
    path = os.pathsep.join(filter(None, sys.path))
    return subprocess.Popen(
        [sys.executable, "-c", _MAIN], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL, env={**os.environ, "PYTHONPATH": path},
    )  # fmt: skip


def _asked(process: subprocess.Popen[bytes], name: str, data: bytes) -> dict[str, Any] | None:
    """What the process replies; None where it has ended."""
    stdin, stdout = process.stdin, process.stdout
    if stdin is None or stdout is None:
        return None
    with suppress(OSError):
        stdin.write(json.dumps([name, len(data)]).encode() + b"\n" + data)
        stdin.flush()
        line = stdout.readline()
        if line.endswith(b"\n"):
            reply: dict[str, Any] = json.loads(line)
            return reply
    return None


def _document(reply: dict[str, Any]) -> Document:
    if "missing" in reply:
        raise MissingExtra(*reply["missing"])
    if "found" in reply:
        raise InputError(**reply)
    sections = [
        Section(tuple(path), text, Metadata(about), header)
        for path, text, about, header in reply["sections"]
    ]
    notes = tuple(reply["notes"])
    return Document(sections, Metadata(reply["metadata"]), notes, reply["whole"])


# --- In the process


def answer() -> None:
    """Read the documents that stand in stdin, and write to stdout what is in each."""
    _bound_memory()
    source, out = sys.stdin.buffer, sys.stdout.buffer
    sys.stdout = sys.stderr  # what a library prints is no reply
    while line := source.readline():
        name, size = json.loads(line)
        out.write(json.dumps(_reply(name, source, size)).encode() + b"\n")
        out.flush()


def _bound_memory() -> None:
    if sys.platform == "linux":
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (_MOST_MEMORY, _MOST_MEMORY))


def _reply(name: str, source: IO[bytes], size: int) -> dict[str, Any]:
    data = source.read(size)
    try:
        found = _checked(read_document(name, data), data)
    except MissingExtra as error:
        return {"missing": [error.package, error.extra]}
    except InputError as error:
        return {part: getattr(error, part) for part in ("found", "expected", "remedy")}
    except Exception as error:  # noqa: BLE001 - whatever a library makes of it, it is named
        said = " ".join(str(error).split())[:100]
        return {"found": f"{type(error).__name__}: {said}"}
    return {
        "sections": found.sections,
        "metadata": Metadata(found.metadata),
        "notes": found.notes,
        "whole": found.whole,
    }
