"""Who is asking: the rights and wishes under which a program sees a corpus graph."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import dspy

from ga_dspy.graphrag.access import Access

_CALLER: ContextVar[Access] = ContextVar("ga_dspy_caller")
_NOBODY = Access()


def caller() -> Access:
    """The access of the block of `called_by` around this code; that of everybody without one."""
    return _CALLER.get(_NOBODY)


@contextmanager
def called_by(access: Access) -> Iterator[None]:
    """Ask for a caller: every `GraphRAG` and `GraphIndex` called in this block has these rights.

    Holds for the current thread or task. A thread that the block starts has no rights of its own
    accord: what forgets to pass them on sees less, never more.

    >>> with called_by(Access(labels=frozenset({"hr"}))):
    ...     sorted(caller().labels)
    ['hr']
    >>> sorted(caller().labels)
    []
    """
    before = _CALLER.set(access)
    try:
        yield
    finally:
        _CALLER.reset(before)


@contextmanager
def untraced(access: Access) -> Iterator[None]:
    """Keep what only some may see out of the trace that optimizers make demonstrations of."""
    if not access.labels:
        yield
        return
    with dspy.context(trace=None):
        yield
