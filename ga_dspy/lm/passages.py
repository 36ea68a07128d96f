"""Passages as a prompt shows them, read back."""

from __future__ import annotations

import re

from ga_dspy.lm.evidence import Doc

_UNTITLED = "(untitled)"
_BLOCK = re.compile(r"^\[(\d+)\][ \t]*(.*)$", re.MULTILINE)
_QUOTED_BLOCK = re.compile(r"[«]+(.*?)[»]+", re.DOTALL)


def read_passages(text: str) -> tuple[Doc, ...]:
    r"""Passages as `[n] title` over a line of text; else DSPy's numbered list; else one passage.

    >>> read_passages("[3] Red Lodge\nA city.")
    (Doc(label=3, title='Red Lodge', text='A city.'),)
    """
    marks = list(_BLOCK.finditer(text))
    if not marks:
        return (Doc(1, "", text),) if text else ()
    docs = []
    for mark, after in zip(marks, [*marks[1:], None], strict=True):
        body = text[mark.end() : after.start() if after else len(text)].strip()
        docs.append(_doc(int(mark[1]), mark[2].strip(), body))
    return tuple(docs)


def _doc(label: int, line: str, body: str) -> Doc:
    quoted = _QUOTED_BLOCK.search(f"{line}\n{body}")
    if quoted:
        line, body = quoted[1].strip(), ""
    if not body:
        title, bar, rest = line.partition(" | ")
        line, body = (title, rest) if bar else ("", line)
    return Doc(label, "" if line == _UNTITLED else line, " ".join(body.split()))
