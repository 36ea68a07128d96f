"""Writing a completion in the form its prompt asks for, so that the adapter reads it at once."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from ga_dspy.lm.prompt import Style


def write_completion(values: Mapping[str, Any], style: Style) -> str:
    """Write fields in the form of an adapter; a plain prompt gets the first value alone.

    >>> print(write_completion({"answer": "Montana"}, "chat"))
    [[ ## answer ## ]]
    Montana
    <BLANKLINE>
    [[ ## completed ## ]]
    """
    if style == "chat":
        parts = [f"[[ ## {name} ## ]]\n{_text(value)}" for name, value in values.items()]
        return "\n\n".join([*parts, "[[ ## completed ## ]]"])
    if style == "xml":
        return "\n\n".join(_element(name, value) for name, value in values.items())
    if style == "plain":
        return next((_text(value) for value in values.values()), "")
    return json.dumps(dict(values), ensure_ascii=False, indent=2)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _element(name: str, value: Any) -> str:
    if isinstance(value, list):
        items = "".join(_element("item", item) for item in value)
        return f"<{name}>{items}</{name}>"
    if isinstance(value, Mapping):
        return f"<{name}>{''.join(_element(k, v) for k, v in value.items())}</{name}>"
    if value is None:
        return f"<{name} />"
    text = _text(value).replace("&", "&amp;").replace("<", "&lt;")
    return f"<{name}>\n{text}\n</{name}>"
