"""API keys: who may ask, write and read the metrics, and which passages each caller sees."""

from __future__ import annotations

import hashlib
import hmac
import json
import re
import secrets
from collections.abc import Iterable
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Final, Literal, get_args

from fastapi import Depends, HTTPException, Request
from pydantic import BaseModel, Field

from ga_dspy.errors import InputError
from ga_dspy.graphrag import Access, GraphIndex
from ga_dspy.graphrag.search import with_access
from ga_dspy.programs import MultiHopProgram
from ga_dspy.retrieval.where import as_json
from ga_dspy.storage import read_as

Right = Literal["ask", "write", "metrics"]


class Key(BaseModel, frozen=True, extra="forbid"):
    """An API key, stored as its hash, with the rights and the access scope of its holder.

    Attributes:
        name: A name for people.
        sha256: The SHA-256 of the key, as hex digits.
        where: Conditions on the metadata of all passages that the caller sees (`Index.only`), in
            addition to those of the server.
        labels: The caller's access labels in a graph; by default those of the server.
        rights: "ask" for questions, searches and their records; "write" for documents; "metrics".
    """

    name: str = ""
    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
    where: dict[str, Any] | None = None
    labels: frozenset[str] | None = None
    rights: frozenset[Right] = frozenset({"ask"})

    @classmethod
    def of(cls, key: bytes, **options: Any) -> Key:
        """Return the entry of a plain-text key; by default it may ask and read the metrics."""
        sha256 = hashlib.sha256(key).hexdigest()
        return cls(sha256=sha256, **{"rights": {"ask", "metrics"}, **options})

    @cached_property
    def scope(self) -> str:
        """An id of the access scope, equal for keys that see the same; "" for all of the server."""
        where = None if self.where is None else as_json(self.where)
        labels = None if self.labels is None else sorted(self.labels)
        return json.dumps([where, labels]) if where or labels is not None else ""

    def narrow(self, program: MultiHopProgram) -> MultiHopProgram:
        """Return the program restricted to what the caller may see.

        Raises:
            InputError: A condition is malformed or not supported, or the key has labels but the
                program has no graph.
        """
        if self.labels is not None:
            if not isinstance(program.retriever, GraphIndex):
                found = f"the key {self.name!r} has labels, and the server has no graph"
                raise InputError(found, remedy="add --graph, or use `where` for metadata")
            program = program.with_retrievers(with_access(Access(labels=self.labels)))
        return program if self.where is None else program.only(self.where)


ANYONE: Final = Key(name="anyone", sha256="0" * 64, rights=frozenset({"ask", "metrics"}))
"""The caller of a server without keys."""


def as_keys(keys: Iterable[Key | bytes]) -> tuple[Key, ...]:
    """Return keys as entries; those in bytes are plain text."""
    return tuple(key if isinstance(key, Key) else Key.of(key) for key in keys)


def find_key(keys: Iterable[Key], sent: bytes) -> Key | None:
    """Return the entry of the key that a client sent, compared in constant time, or None."""
    digest = hashlib.sha256(sent).hexdigest()
    found = [key for key in keys if hmac.compare_digest(digest, key.sha256)]
    return next(iter(found), None)


def may(right: Right) -> Any:
    """Return a FastAPI dependency that returns the caller, whose key must have a right."""

    def check(request: Request) -> Key:
        caller: Key = request.state.caller
        if right not in caller.rights:
            remedy = "start the server with GA_DSPY_WRITE_KEY, or --keys and that right"
            raise HTTPException(403, f"no key with the right {right!r} was sent; {remedy}")
        return caller

    return Depends(check)


def read_key_file(path: Path) -> list[Key]:
    """Read a TOML file with a table for each key, named after it.

    Raises:
        InputError: The file cannot be read, an entry is invalid, or there is none.
    """
    rights = ", ".join(get_args(Right))
    hints = {
        "expected": f"a table per key with sha256, and optionally where, labels, rights ({rights})",
        "remedy": "make an entry with `ga-dspy serve --new-key NAME`",
    }
    entries = read_as(path, dict[str, Key], **hints)
    keys = [key.model_copy(update={"name": name}) for name, key in entries.items()]
    if not keys:
        raise InputError(f"{path}: no entry", **hints)
    if len({key.sha256 for key in keys}) < len(keys):
        raise InputError(f"{path}: two entries with one key", **hints)
    return keys


def new_key(name: str) -> tuple[str, str]:
    """Return a random key of 256 bits, and its entry for the key file.

    Raises:
        InputError: The name has characters other than letters, digits, "-" and "_".
    """
    if not re.fullmatch(r"[A-Za-z0-9_-]+", name):
        raise InputError(f"the name {name!r}", expected="letters, digits, - and _")
    key = secrets.token_urlsafe(32)
    sha256 = Key.of(key.encode()).sha256
    return key, f'[{name}]\nsha256 = "{sha256}"\nrights = ["ask"]\n'
