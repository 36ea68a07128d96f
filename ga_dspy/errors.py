"""Every error this library raises on purpose derives from `GaDspyError`.

A message says what was found, what was expected and what to do. Causes that belong to one
part live in that part; the ones here are shared.
"""

from __future__ import annotations


class GaDspyError(Exception):
    """Base of all errors raised on purpose; catch it to catch them all."""


class InputError(GaDspyError):
    """An argument, a file or a row is not what was expected.

    >>> raise InputError("k is 0", expected="a whole number from 1", remedy="pass k=5")
    Traceback (most recent call last):
    ga_dspy.errors.InputError: k is 0; expected a whole number from 1; pass k=5
    """

    def __init__(self, found: str, *, expected: str, remedy: str) -> None:
        super().__init__(f"{found}; expected {expected}; {remedy}")
        self.found, self.expected, self.remedy = found, expected, remedy


class MissingExtra(GaDspyError):
    """An optional package is needed and is not installed."""

    def __init__(self, package: str, extra: str) -> None:
        super().__init__(f"{package} is not installed; run: pip install 'ga-dspy[{extra}]'")
        self.package, self.extra = package, extra
