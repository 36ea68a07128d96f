"""Documents parsed in a separate process, with limits on time, memory and text.

Plain text, data and small markup are parsed in time whatever they hold, so they are read here.
"""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from contextlib import suppress
from pathlib import PurePosixPath
from threading import Timer
from typing import Any, Self

from ga_dspy.errors import InputError, MissingExtra
from ga_dspy.passage import Metadata
from ga_dspy.retrieval.documents import DATA, MARKUP, TEXTS, Document, Section, read_document

_LOG = logging.getLogger("ga_dspy")
SECONDS, PER_MEGABYTE = 60.0, 10.0
_SLOW = 10.0  # seconds until the log names the file
_MOST_MEMORY = 4_000_000_000  # bytes
_SMALL = 20_000  # bytes


def python_process(code: str, *arguments: str, **pipes: Any) -> subprocess.Popen[bytes]:
    """Start a Python process that imports from the same places as this one."""
    path = os.pathsep.join(filter(None, sys.path))
    return subprocess.Popen(
        [sys.executable, "-c", code, *arguments], env={**os.environ, "PYTHONPATH": path}, **pipes
    )


class DocumentReader:
    """Reads documents; a context manager, which ends the process that parses them."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    def read(self, name: str, data: bytes) -> Document:
        """Read a document, as `read_document`.

        Raises:
            InputError: It cannot be read, or not within the limits.
            MissingExtra: The library that reads it is not installed.
        """
        if is_cheap(name, data):
            return _checked(read_document(name, data), data)
        if self._process is None:
            self._process = python_process(
                "from ga_dspy.retrieval.sandbox import serve; serve()",
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
            )  # fmt: skip
        process, seconds = self._process, SECONDS + PER_MEGABYTE * len(data) / 1e6
        slow = f"still reading {name} after {_SLOW:.0f} s; it is given up after {seconds:.0f} s"
        warning, limit = Timer(_SLOW, _LOG.warning, [slow]), Timer(seconds, process.kill)
        for timer in (warning, limit):
            timer.daemon = True
            timer.start()
        try:
            reply = _request(process, name, data)
        finally:
            timed_out = not limit.is_alive()
            warning.cancel()
            limit.cancel()
        if reply is not None:
            return _checked(_document(reply), data)
        code = process.wait()
        self._end()
        raise InputError(
            f"not read within {seconds:.0f} s" if timed_out else f"its parser ended ({code})",
            expected="a document of ordinary size",
            remedy="split or convert it",
        )

    def _end(self) -> None:
        if self._process:
            self._process.kill()
            self._process.communicate()
            self._process = None


def is_cheap(name: str, data: bytes) -> bool:
    """Return whether a file is parsed in bounded time and memory, whatever it holds."""
    ending = PurePosixPath(name).suffix.lower()
    return ending in TEXTS or ending in DATA or (ending in MARKUP and len(data) <= _SMALL)


def _checked(document: Document, data: bytes) -> Document:
    """The document, unless it has much more text than files of its size have."""
    size, most = sum(len(section.text) for section in document.sections), 5_000_000 + 20 * len(data)
    if size > most:
        raise InputError(
            f"it has {size:,} characters", expected=f"{most:,} at most", remedy="split it"
        )
    return document


def _request(process: subprocess.Popen[bytes], name: str, data: bytes) -> dict[str, Any] | None:
    """The reply of the process; None if it has ended."""
    if process.stdin is None or process.stdout is None:
        return None
    with suppress(OSError):
        process.stdin.write(json.dumps([name, len(data)]).encode() + b"\n" + data)
        process.stdin.flush()
        line = process.stdout.readline()
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
        Section(tuple(path), text, Metadata(metadata), header)
        for path, text, metadata, header in reply["sections"]
    ]
    return Document(sections, Metadata(reply["metadata"]), tuple(reply["notes"]), reply["whole"])


# --- In the process


def serve() -> None:
    """Read documents from stdin, and write the contents of each to stdout as a line of JSON."""
    if sys.platform == "linux":
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (_MOST_MEMORY, _MOST_MEMORY))
    source, out = sys.stdin.buffer, sys.stdout.buffer
    sys.stdout = sys.stderr  # so that nothing that a library prints gets into the replies
    while line := source.readline():
        name, size = json.loads(line)
        out.write(json.dumps(_reply(name, source.read(size))).encode() + b"\n")
        out.flush()


def _reply(name: str, data: bytes) -> dict[str, Any]:
    try:
        document = _checked(read_document(name, data), data)
    except MissingExtra as error:
        return {"missing": [error.package, error.extra]}
    except InputError as error:
        return {part: getattr(error, part) for part in ("found", "expected", "remedy")}
    except Exception as error:  # noqa: BLE001 - parsers raise anything; the file's line names it
        cause = " ".join(str(error).split())[:100]
        return {"found": f"{type(error).__name__}: {cause}"}
    return {**document._asdict(), "metadata": Metadata(document.metadata), "rows": ()}
