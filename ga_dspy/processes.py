"""Helper processes in Python, which read documents, analyse passages and send traces."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Any, BinaryIO, cast


def python_process(code: str, *arguments: str, **pipes: Any) -> subprocess.Popen[bytes]:
    """Start a Python process with the import path of this one.

    The working directory is not on that path: a file there could shadow a module.
    """
    command = [sys.executable, "-P", "-c", code, *arguments]
    path = os.pathsep.join(filter(None, sys.path))
    return subprocess.Popen(command, env={**os.environ, "PYTHONPATH": path}, **pipes)


class LineProcess:
    """A Python process that replies to each request with a line of JSON (`reply_in_lines`)."""

    def __init__(self, code: str) -> None:
        self.process = python_process(
            code, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )

    def ask(self, request: bytes) -> Any:
        """Return the reply; None if the process ended before the reply was complete."""
        source, out = cast("BinaryIO", self.process.stdin), cast("BinaryIO", self.process.stdout)
        line = b""
        with suppress(OSError):
            source.write(request)
            source.flush()
            line = out.readline()
        return json.loads(line) if line.endswith(b"\n") else None

    def end(self) -> None:
        """Kill the process."""
        self.process.kill()
        self.process.communicate()


def reply_in_lines(reply: Callable[[bytes, BinaryIO], Any]) -> None:
    """Answer each line of stdin with a line of JSON.

    Args:
        reply: Returns the answer to a line; it may read more from stdin, its second argument.
    """
    source, out = sys.stdin.buffer, sys.stdout.buffer
    sys.stdout = sys.stderr  # libraries must not print into the replies
    while line := source.readline():
        out.write(json.dumps(reply(line, source)).encode() + b"\n")
        out.flush()
