"""Settings of a program: declared once in its class body, checked, documented, saved by name.

`__init__` with its types, `settings()`, the class's help and what an artifact accepts are all
made from the declarations.
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
"""No whole number among the settings may be larger: a file from elsewhere may set them."""


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
        doc: What it decides.
        default: The value if none is passed.
        minimum: The smallest value, for a setting that is a whole number.
        maximum: The largest.
        saved: Whether an artifact stores it; JSON must be able to hold it.
    """
    about = {"doc": doc, "minimum": minimum, "maximum": maximum, "saved": saved}
    return field(default=default, metadata=about)


class _CallSignature:
    """The arguments of a class, and of calls of its instances, which DSPy's metaclass hides."""

    def __get__(self, instance: Any, owner: Any) -> inspect.Signature:
        called = inspect.signature(owner.__init__ if instance is None else owner.forward)
        return called.replace(parameters=list(called.parameters.values())[1:])


@dataclass_transform(kw_only_default=True, field_specifiers=(setting, field))
class Configured(dspy.Module):
    """A DSPy module whose class body declares its settings.

    As in a dataclass, every annotated name is an argument; `ClassVar` marks what is not.
    """

    __signature__: ClassVar[Any] = _CallSignature()

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        writes_its_own = "__init__" in vars(cls)
        dataclass(kw_only=True, eq=False, repr=False)(cls)
        if not writes_its_own:
            vars(cls)["__init__"].__annotations__ = typing.get_type_hints(cls)
            cls.__doc__ = "\n".join([inspect.cleandoc(cls.__doc__ or ""), "", *cls._documented()])

    @classmethod
    def _documented(cls) -> Iterator[str]:
        """The arguments with type, purpose and default, in docstring form."""
        yield "Args:"
        types = typing.get_type_hints(cls)
        for one in fields(cls):
            if one.init and "doc" in one.metadata and one.default is MISSING:
                yield f"    {one.name}: {one.metadata['doc']}"
        for name, one in cls.declared().items():
            default = getattr(one.default, "__name__", repr(one.default))
            kind = inspect.formatannotation(types[name])
            yield f"    {name} ({kind}): {one.metadata['doc']} Default: {default}."

    @classmethod
    def declared(cls) -> dict[str, Field[Any]]:
        """Return the settings by name, the class's own before inherited ones."""
        by_name = {one.name: one for one in fields(cls) if one.init and "saved" in one.metadata}
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
        about = self.declared()[name].metadata
        listed = listed_values(typing.get_type_hints(type(self))[name])
        if about["minimum"] is not None:
            if value is not None or None not in listed:
                check_whole(name, value, about["minimum"], about["maximum"])
        elif set(listed) - {None} and (type(value), value) not in [(type(v), v) for v in listed]:
            raise InputError(
                f"{name} is {value!r}",
                expected=f"one of {', '.join(map(repr, listed))}",
                remedy=f"pass {name}={listed[0]!r}",
            )

    def settings(self) -> dict[str, Any]:
        """Return the settings that make this program again, by name, as JSON values."""
        saved = (name for name, one in self.declared().items() if one.metadata["saved"])
        values = {name: getattr(self, name) for name in saved}
        return {name: to_jsonable_python(value) for name, value in values.items()}


def read_pairs(pairs: Iterable[str], option: str = "setting") -> dict[str, Any]:
    """Parse texts of the form `name=value`; a value that is not JSON is a string.

    Raises:
        InputError: A text has no "=".

    >>> read_pairs(["demos=3", "strategy=demos -> demos"])
    {'demos': 3, 'strategy': 'demos -> demos'}
    """
    found: dict[str, Any] = {}
    for pair in pairs:
        name, sign, value = (part.strip() for part in pair.partition("="))
        if not sign:
            raise InputError(f"{option} {pair}", expected="name=value", remedy="pass k=10")
        try:
            found[name] = json.loads(value)
        except (ValueError, RecursionError):
            found[name] = value
    return found


def typed_settings(values: Mapping[str, Any], *programs: type[Configured]) -> dict[str, Any]:
    """Convert values, as texts and JSON have them, to the types that programs declare.

    Args:
        values: Settings by name; "none" and "null" stand for None.
        programs: The classes; of settings with the same name, the first one's type counts.

    Raises:
        InputError: None of the programs has such a setting, or the value is invalid.

    >>> from ga_dspy import GraphAnchor
    >>> typed_settings({"k": "10", "abstain": "None", "as_published": "yes"}, GraphAnchor)
    {'k': 10, 'abstain': None, 'as_published': True}
    """
    types = {
        name: (typing.get_type_hints(kind)[name], one.metadata["doc"])
        for kind in reversed(programs)
        for name, one in kind.declared().items()
        if one.metadata["saved"]
    }
    found: dict[str, Any] = {}
    for name, value in values.items():
        if name not in types:
            raise unknown("setting", name, sorted(types))
        kind, doc = types[name]
        try:
            given = None if str(value).lower() in ("none", "null") else value
            found[name] = TypeAdapter(kind).validate_python(given)
        except ValidationError as error:
            raise InputError(
                f"setting {name}={value}",
                expected=error.errors()[0]["msg"].lower().removeprefix("input should be "),
                remedy=f"{name} is: {doc}",
            ) from error
    return found


def listed_values(kind: Any) -> tuple[Any, ...]:
    """The values that a type lists, including None if it is optional."""
    if kind is bool:
        return (False, True)
    if typing.get_origin(kind) is Literal:
        return typing.get_args(kind)
    parts = typing.get_args(kind)
    return (None,) if kind is NoneType else tuple(v for p in parts for v in listed_values(p))


def check_whole(name: str, value: int, minimum: int = 1, maximum: int = LARGEST) -> int:
    """Return a value if it is a whole number within its bounds.

    Raises:
        InputError: It is not.
    """
    is_whole = isinstance(value, int) and not isinstance(value, bool)
    if not is_whole or not minimum <= value <= maximum:
        raise InputError(
            f"{name} is {value!r}",
            expected=f"a whole number from {minimum} to {maximum:,}",
            remedy=f"pass {name}={max(minimum, 5)}",
        )
    return value
