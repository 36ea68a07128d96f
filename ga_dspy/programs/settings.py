"""Settings of a program, declared once in its class body.

The declarations give `__init__` its arguments and types, `settings()` its values, the class its
documentation, and artifacts and the command line their checks.
"""

from __future__ import annotations

import inspect
import json
import typing
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import MISSING, Field, dataclass, field, fields
from types import NoneType
from typing import Any, ClassVar, Literal, dataclass_transform

import dspy
from pydantic import TypeAdapter, ValidationError
from pydantic_core import to_jsonable_python

from ga_dspy.errors import InputError, unknown

LARGEST = 1_000_000
"""The maximum of an integer setting, since an untrusted file may set it."""


def setting(
    doc: str,
    *,
    default: Any,
    minimum: int | None = None,
    maximum: int = LARGEST,
    saved: bool = True,
) -> Any:
    """Declare a setting in a class body, after its name and its type.

    `k: int = setting("Passages to retrieve per query.", default=5, minimum=1)` is a whole number
    from 1. A type that lists values, such as `Literal["lines", "json"]`, allows only those.

    Args:
        doc: The description, for help texts.
        default: The value if none is passed.
        minimum: The smallest value; required for a whole number.
        maximum: The largest value.
        saved: Whether an artifact stores the value, which must then have a JSON form.
    """
    metadata = {"doc": doc, "minimum": minimum, "maximum": maximum, "saved": saved}
    return field(default=default, metadata=metadata)


class _CallSignature:
    """The signature of a class and of its instances' calls, which DSPy's metaclass hides."""

    def __get__(self, instance: Any, owner: Any) -> inspect.Signature:
        called = inspect.signature(owner.__init__ if instance is None else owner.forward)
        return called.replace(parameters=list(called.parameters.values())[1:])


@dataclass_transform(kw_only_default=True, field_specifiers=(setting, field))
class Configured(dspy.Module):
    """A DSPy module whose class body declares its settings.

    As in a dataclass, every annotated name that is not a `ClassVar` is an argument.
    """

    __signature__: ClassVar[Any] = _CallSignature()

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        has_own_init = "__init__" in vars(cls)
        dataclass(kw_only=True, eq=False, repr=False)(cls)
        if not has_own_init:
            vars(cls)["__init__"].__annotations__ = typing.get_type_hints(cls)
            cls.__doc__ = "\n".join([inspect.cleandoc(cls.__doc__ or ""), "", *cls._documented()])

    @classmethod
    def _documented(cls) -> Iterator[str]:
        """Yield the arguments as a docstring section, with types, descriptions and defaults."""
        yield "Args:"
        types = typing.get_type_hints(cls)
        for argument in fields(cls):
            if argument.init and "doc" in argument.metadata and argument.default is MISSING:
                yield f"    {argument.name}: {argument.metadata['doc']}"
        for name, declared in cls.declared().items():
            default = getattr(declared.default, "__name__", repr(declared.default))
            kind = inspect.formatannotation(types[name])
            yield f"    {name} ({kind}): {declared.metadata['doc']} Default: {default}."

    @classmethod
    def declared(cls) -> dict[str, Field[Any]]:
        """Return the settings by name, the class's own before inherited ones."""
        by_name = {f.name: f for f in fields(cls) if f.init and "saved" in f.metadata}
        order = (name for kind in cls.__mro__ for name in vars(kind).get("__annotations__", ()))
        return {name: by_name[name] for name in dict.fromkeys(order) if name in by_name}

    def __post_init__(self) -> None:
        """Check the settings.

        Raises:
            InputError: A setting has an invalid value.
        """
        super().__init__()
        for name in self.declared():
            self._check(name, getattr(self, name))

    def _check(self, name: str, value: Any) -> None:
        """Check the value of one setting."""
        metadata = self.declared()[name].metadata
        allowed = listed_values(typing.get_type_hints(type(self))[name])
        if metadata["minimum"] is not None:
            if value is not None or None not in allowed:
                check_whole(name, value, metadata["minimum"], metadata["maximum"])
        elif set(allowed) - {None} and (type(value), value) not in [(type(v), v) for v in allowed]:
            raise InputError(
                f"{name} is {value!r}",
                expected=f"one of {', '.join(map(repr, allowed))}",
                remedy=f"pass {name}={allowed[0]!r}",
            )

    def settings(self) -> dict[str, Any]:
        """Return the saved settings by name, as JSON values."""
        saved = (name for name, declared in self.declared().items() if declared.metadata["saved"])
        return {name: to_jsonable_python(getattr(self, name)) for name in saved}


def read_pairs(pairs: Iterable[str], option: str = "setting") -> dict[str, Any]:
    """Parse texts of the form `name=value`; a value that is not JSON is a string.

    Raises:
        InputError: A text has no "=".

    >>> read_pairs(["demos=3", "strategy=demos -> demos"])
    {'demos': 3, 'strategy': 'demos -> demos'}
    """
    settings: dict[str, Any] = {}
    for pair in pairs:
        name, sign, value = (part.strip() for part in pair.partition("="))
        if not sign:
            raise InputError(f"{option} {pair}", expected="name=value", remedy="pass k=10")
        try:
            settings[name] = json.loads(value)
        except (ValueError, RecursionError):
            settings[name] = value
    return settings


def typed_settings(values: Mapping[str, Any], *programs: type[Configured]) -> dict[str, Any]:
    """Convert values from texts or JSON to the types that programs declare.

    Args:
        values: Settings by name; "none" and "null" mean None.
        programs: The classes; if several have a setting of that name, the type of the first counts.

    Raises:
        InputError: None of the programs has such a setting, or the value is invalid.

    >>> from ga_dspy import GraphAnchor
    >>> typed_settings({"k": "10", "abstain": "None", "as_published": "yes"}, GraphAnchor)
    {'k': 10, 'abstain': None, 'as_published': True}
    """
    types = {
        name: (typing.get_type_hints(kind)[name], declared.metadata["doc"])
        for kind in reversed(programs)
        for name, declared in kind.declared().items()
        if declared.metadata["saved"]
    }
    settings: dict[str, Any] = {}
    for name, value in values.items():
        if name not in types:
            raise unknown("setting", name, sorted(types))
        kind, doc = types[name]
        try:
            plain = None if str(value).lower() in ("none", "null") else value
            settings[name] = TypeAdapter(kind).validate_python(plain)
        except ValidationError as error:
            raise InputError(
                f"setting {name}={value}",
                expected=error.errors()[0]["msg"].lower().removeprefix("input should be "),
                remedy=f"{name} is: {doc}",
            ) from error
    return settings


def listed_values(kind: Any) -> tuple[Any, ...]:
    """Return the values that a type lists, including None if it is optional."""
    if kind is bool:
        return (False, True)
    if typing.get_origin(kind) is Literal:
        return typing.get_args(kind)
    parts = typing.get_args(kind)
    return (None,) if kind is NoneType else tuple(v for p in parts for v in listed_values(p))


def check_whole(name: str, value: int, minimum: int = 1, maximum: int = LARGEST) -> int:
    """Return a value if it is a whole number within its bounds.

    Raises:
        InputError: The value is something else or out of bounds.
    """
    is_whole = isinstance(value, int) and not isinstance(value, bool)
    if not is_whole or not minimum <= value <= maximum:
        raise InputError(
            f"{name} is {value!r}",
            expected=f"a whole number from {minimum} to {maximum:,}",
            remedy=f"pass {name}={max(minimum, 5)}",
        )
    return value
