"""Text, Markdown and HTML files as sections under headings."""

from __future__ import annotations

from collections.abc import Callable
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path

from markdown_it import MarkdownIt

from ga_dspy.retrieval.chunking import Section

_HEADINGS = {f"h{level}": level for level in range(1, 7)}
_UNSEEN = frozenset({"script", "style", "template", "noscript", "head", "nav"})
_BLOCKS = frozenset(
    {"p", "div", "li", "ul", "ol", "br", "tr", "table", "section", "article", "pre", "blockquote"}
)


def read_sections(path: Path, text: str) -> list[Section]:
    """Return the sections of a document, by the ending of its name; sections without text go.

    The name of the file stands in for a missing top heading.
    """
    parse = PARSERS[path.suffix.lower()]
    sections = [
        Section(section.path or (path.stem,), section.text.strip()) for section in parse(text)
    ]
    return [section for section in sections if section.text]


def _plain(text: str) -> list[Section]:
    return [Section((), text)]


def _markdown(text: str) -> list[Section]:
    lines = text.splitlines()
    outline = _Outline()
    done = 0
    tokens = MarkdownIt().parse(text)
    for opening, inline in pairwise(tokens):
        # Headings inside lists and quotes are no divisions of the document.
        if opening.type != "heading_open" or opening.level or opening.map is None:
            continue
        outline.add("\n".join(lines[done : opening.map[0]]))
        outline.enter(int(opening.tag[1]), inline.content)
        done = opening.map[1]
    outline.add("\n".join(lines[done:]))
    return outline.sections


def _html(text: str) -> list[Section]:
    parser = _HtmlSections()
    parser.feed(text)
    parser.close()
    return parser.finish()


class _Outline:
    """Collects sections while keeping the path of headings that are open."""

    def __init__(self) -> None:
        self.sections: list[Section] = []
        self._open: list[tuple[int, str]] = []

    def enter(self, level: int, heading: str) -> None:
        self._open = [(above, name) for above, name in self._open if above < level]
        if heading.strip():
            self._open.append((level, " ".join(heading.split())))

    def add(self, text: str) -> None:
        self.sections.append(Section(tuple(name for _, name in self._open), text))


class _HtmlSections(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self._outline = _Outline()
        self._text: list[str] = []
        self._unseen: list[str] = []
        self._heading = 0

    def handle_starttag(self, tag: str, _attrs: object) -> None:
        if tag in _UNSEEN:
            self._unseen.append(tag)
        elif tag in _HEADINGS:
            self._flush()
            self._heading = _HEADINGS[tag]
        elif tag in _BLOCKS:
            self._text.append("\n")

    def handle_endtag(self, tag: str) -> None:
        if tag in self._unseen:
            # An unclosed tag inside closes with the one around it.
            del self._unseen[self._unseen.index(tag) :]
        elif tag in _HEADINGS and self._heading:
            self._outline.enter(self._heading, "".join(self._text))
            self._text, self._heading = [], 0
        elif tag in _BLOCKS:
            self._text.append("\n")

    def handle_data(self, data: str) -> None:
        if not self._unseen:
            self._text.append(data)

    def finish(self) -> list[Section]:
        self._flush()
        return self._outline.sections

    def _flush(self) -> None:
        lines = (" ".join(line.split()) for line in "".join(self._text).split("\n"))
        self._outline.add("\n".join(line for line in lines if line))
        self._text = []


PARSERS: dict[str, Callable[[str], list[Section]]] = {
    ".txt": _plain,
    ".md": _markdown,
    ".markdown": _markdown,
    ".html": _html,
    ".htm": _html,
}
"""What reads a document, by the ending of its name."""
