"""The errors of the library, which all derive from `GaDspyError`.

There is one class for each way to handle an error; its message says what was found, what was
expected and what to do. A class that only one module raises is defined in that module.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from importlib import import_module
from importlib.util import find_spec
from typing import Any


class GaDspyError(Exception):
    """The base class of all errors that the library raises.

    >>> raise GaDspyError("k is 0", expected="a whole number from 1", remedy="pass k=5")
    Traceback (most recent call last):
    ga_dspy.errors.GaDspyError: k is 0; expected a whole number from 1; pass k=5
    """

    def __init__(self, found: str, *, expected: str = "", remedy: str = "") -> None:
        parts = (found, f"expected {expected}" if expected else "", remedy)
        super().__init__("; ".join(filter(None, parts)))
        self.found: Any = found
        self.expected, self.remedy = expected, remedy


class InputError(GaDspyError):
    """An argument, a setting, a file or a row is not as expected: pass another."""


def check_names(what: str, names: object) -> tuple[str, ...]:
    """Return names as a tuple; a single string is not taken for its characters.

    Raises:
        InputError: The names are a single string, or some are not strings.

    >>> check_names("ids", ["12"])
    ('12',)
    """
    several = isinstance(names, Iterable) and not isinstance(names, str | bytes | Mapping)
    found: tuple[Any, ...] = tuple(names) if several else (names,)  # type: ignore[arg-type]
    if not several or not all(isinstance(name, str) for name in found):
        raise InputError(
            f"{what} is {names!r:.80}", expected="a sequence of names", remedy=f'pass {what}=["…"]'
        )
    return found


def listed(items: Iterable[object], most: int = 5, between: str = ", ") -> str:
    """Return the first items on one line, and the number of the others.

    >>> listed("abcd", 2)
    'a, b and 2 more'
    """
    every = list(map(str, items))
    more = f" and {len(every) - most:,} more" if len(every) > most else ""
    return between.join(every[:most]) + more


def nearest(name: str, known: Iterable[str]) -> str:
    """Return a question that suggests the known name nearest in spelling; empty if none is near.

    >>> nearest("indx", ["lm", "index"])
    'did you mean index?'
    """
    return "".join(f"did you mean {near}?" for near in get_close_matches(name, [*known], n=1))


def unknown(what: str, name: str, known: Iterable[str]) -> InputError:
    """Return the error for an unknown name.

    >>> print(unknown("recipe", "gepe", ["gepa", "simba"]))
    recipe 'gepe' is unknown; expected one of gepa, simba; did you mean gepa?
    """
    names = [*known]
    expected, remedy = f"one of {', '.join(names)}", nearest(name, names)
    return InputError(f"{what} {name!r} is unknown", expected=expected, remedy=remedy)


def install(extra: str) -> str:
    """Return the command that installs an extra.

    >>> install("report")
    "pip install -e '.[report]' (in a clone; else pip install 'ga-dspy[report]')"
    """
    return f"pip install -e '.[{extra}]' (in a clone; else pip install 'ga-dspy[{extra}]')"


class MissingExtra(GaDspyError):
    """An optional package is not installed: install the extra."""

    def __init__(self, package: str, extra: str) -> None:
        super().__init__(f"{package} is not installed", remedy=f"run: {install(extra)}")
        self.package, self.extra = package, extra


def require(package: str, extra: str) -> Any:
    """Import an optional package.

    Raises:
        MissingExtra: It is not installed; the message names the extra that installs it.
    """
    try:
        return import_module(package)
    except ImportError as error:
        raise MissingExtra(package, extra) from error


def check_installed(package: str, extra: str) -> None:
    """Check that an optional package is installed, without importing it.

    Raises:
        MissingExtra: It is not installed.
    """
    if find_spec(package) is None:
        raise MissingExtra(package, extra)


class DamagedFile(GaDspyError):
    """A file of the library is cut off, changed or missing: restore it, or create it again."""


class UnknownFormat(GaDspyError):
    """A file has a format that this version does not read: install another version."""


class InUse(GaDspyError):
    """Another process has locked the folder or the journal: wait for it, or end it."""


class RunAborted(GaDspyError):
    """A run cannot continue; finished work is kept: fix the cause, then run it again."""


class ArtifactError(GaDspyError):
    """An artifact cannot be saved or loaded."""
