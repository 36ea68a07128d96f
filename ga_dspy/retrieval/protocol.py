"""What a retriever is, and how anything that retrieves becomes one."""

from __future__ import annotations

import hashlib
import inspect
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol, Self

from ga_dspy.errors import InputError
from ga_dspy.passage import Passage

_TEXT_KEYS = ("text", "long_text", "page_content", "content", "contents", "passage")
_ID_KEYS = ("id", "_id", "pid", "doc_id", "docid", "passage_id")
_LONGEST_TITLE = 150


def _unreadable(found: object, where: str) -> InputError:
    return InputError(
        f"{where} is {type(found).__name__} {found!r:.120}",
        expected="passages: strings, mappings with 'text' (and 'title'), LangChain documents, "
        "Passages, or a prediction with .passages",
        remedy="wrap the retriever in a function that returns one of these",
    )


def content_hash(title: str, text: str) -> str:
    """A stable id for a passage that has none: 16 hex digits of the SHA-256 of its content.

    >>> content_hash("Red Lodge", "A city.")
    'edf0505b5f920980'
    """
    return hashlib.sha256(f"{title}\n{text}".encode()).hexdigest()[:16]


def sound(text: str) -> str:
    r"""Replace lone surrogates, which JSON can hold and no file can be written with.

    >>> sound("caf\ud800")
    'caf?'
    """
    return text.encode("utf-8", "replace").decode("utf-8")


def read_results(result: Any) -> list[Passage]:
    """Read a retriever's whole result.

    Raises:
        InputError: It is no collection of passages, or one item holds no text.
    """
    if isinstance(result, Mapping):
        result = result.get("passages", result)
    elif not isinstance(result, (str, bytes, Passage)):
        result = getattr(result, "passages", result)
    if isinstance(result, (str, bytes, Mapping, Passage)) or not isinstance(result, Iterable):
        raise _unreadable(result, "the retriever's result")
    return [_passage(item, f"result {number}") for number, item in enumerate(result, start=1)]


def _passage(item: Any, where: str) -> Passage:
    if isinstance(item, Passage):
        return item
    if isinstance(item, tuple) and len(item) == 2 and isinstance(item[1], (int, float)):
        return _passage(item[0], where)
    if isinstance(item, str):
        fields: Mapping[str, Any] = {"text": item}
    elif isinstance(item, Mapping):
        fields = item
    elif isinstance(getattr(item, "page_content", None), str):
        fields = {
            "page_content": item.page_content,
            "metadata": getattr(item, "metadata", None),
            "id": getattr(item, "id", None),
        }
    else:
        raise _unreadable(item, where)
    return _from_fields(fields, item, where)


def _from_fields(fields: Mapping[str, Any], item: Any, where: str) -> Passage:
    texts = (fields.get(key) for key in _TEXT_KEYS)
    text = next((text for text in texts if isinstance(text, str) and text.strip()), None)
    if text is None:
        raise _unreadable(item, where)
    metadata = fields.get("metadata")
    more = metadata if isinstance(metadata, Mapping) else {}
    title = fields.get("title") or more.get("title") or ""
    if not title:
        title, text = _split_title(text)
    title, text = sound(str(title)).strip(), sound(text).strip()
    ids = (source.get(key) for source in (fields, more) for key in _ID_KEYS)
    id = next((sound(str(v)) for v in ids if v is not None and str(v) != ""), "")
    return Passage(id=id or content_hash(title, text), title=title, text=text)


def _split_title(text: str) -> tuple[str, str]:
    """Split DSPy's `Title | text`; a bar far into the text belongs to the text."""
    title, bar, rest = text.partition(" | ")
    if bar and rest.strip() and len(title) <= _LONGEST_TITLE and "\n" not in title:
        return title, rest
    return "", text


_DEPTH_NAMES = (
    "k", "top_k", "topk", "n", "n_results", "num_results", "max_results", "limit",
)  # fmt: skip


class Retriever(Protocol):
    """Maps a query to at most `k` passages, best first."""

    def __call__(self, query: str, k: int) -> list[Passage]:
        """Return at most `k` passages for the query, best first."""


def as_retriever(obj: Any) -> Retriever:
    """Make a `Retriever` of an index, a callable, a DSPy retriever or a LangChain retriever.

    Results may be strings (`"Title | text"` is split), mappings (`title` with `text`, `long_text`,
    `page_content`, `content` or `passage`), LangChain documents, `Passage`s, (document, score)
    pairs, or a prediction with `.passages`. A passage without an id gets a hash of its content;
    the same passage returned twice counts once; more than `k` are cut, fewer are kept.

    Args:
        obj: The retriever. Its depth parameter (`k`, `top_k`, `n`, …) is filled where it has one;
            otherwise the depth it was configured with is the upper bound.

    Raises:
        InputError: The object cannot be called and has no retrieval method.

    >>> search = as_retriever(lambda query: ["Red Lodge | A city in Montana.", "Untitled text."])
    >>> [(passage.title, passage.text) for passage in search("montana", k=5)]
    [('Red Lodge', 'A city in Montana.'), ('', 'Untitled text.')]
    """
    if isinstance(obj, PassageRetriever):
        return obj
    return AdaptedRetriever(obj)


class PassageRetriever(ABC):
    """Base of what is a `Retriever` already: `as_retriever` returns it as it is."""

    @abstractmethod
    def __call__(self, query: str, k: int) -> list[Passage]:
        """Return at most `k` passages, best first."""

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        """Return itself: copies of a program share the retriever, for corpora are large."""
        return self


class AdaptedRetriever(PassageRetriever):
    """A foreign retriever behind the `Retriever` protocol; safe to call from several threads."""

    def __init__(self, source: Any) -> None:
        self.source = source
        self._search = _search_function(source)
        self._depth = _depth_parameter(source, self._search)
        self._seen: dict[str, str] = {}
        self._lock = threading.Lock()

    def __call__(self, query: str, k: int) -> list[Passage]:
        """Return at most `k` distinct passages for the query, in the order of the source.

        Raises:
            InputError: The query is blank, `k` is below 1, or the source returned something
                that holds no passage, or used an id for two texts.
        """
        check_query(query, k)
        result = self._call(query, k)
        if inspect.iscoroutine(result):
            result.close()
        passages = read_results(result)
        return self._distinct(passages)[:k]

    def _call(self, query: str, k: int) -> Any:
        if self._depth is None:
            return self._search(query)
        if self._depth == "":
            return self._search(query, k)
        return self._search(query, **{self._depth: k})

    def _distinct(self, passages: Iterable[Passage]) -> list[Passage]:
        kept: dict[str, Passage] = {}
        for passage in passages:
            digest = content_hash(passage.title, passage.text)
            with self._lock:
                known = self._seen.setdefault(passage.id, digest)
            if known != digest:
                raise InputError(
                    f"the retriever returned passage id {passage.id!r} with a text that differs "
                    f"from the one it had before (now it begins {passage.content[:60]!r})",
                    expected="ids that are unique in the corpus",
                    remedy="return the corpus id, or no id at all (then the text makes the id)",
                )
            kept.setdefault(passage.id, passage)
        return list(kept.values())


def check_query(query: str, k: int) -> None:
    """Raise `InputError` unless the query has text and `k` is a whole number from 1."""
    if not isinstance(query, str) or not query.strip():
        raise InputError(
            f"the query is {query!r}",
            expected="a text that is not blank",
            remedy="skip retrieval where there is nothing to ask",
        )
    if isinstance(k, bool) or not isinstance(k, int) or k < 1:
        raise InputError(f"k is {k!r}", expected="a whole number from 1", remedy="pass k=5")


def _search_function(source: Any) -> Callable[..., Any]:
    if not isinstance(source, (str, bytes, Mapping, type)):
        methods = (getattr(source, name, None) for name in ("invoke", "get_relevant_documents"))
        for search in (*methods, source):
            if callable(search):
                return search  # type: ignore[no-any-return]  # a foreign object: Any by nature
    raise InputError(
        f"{type(source).__name__} is no retriever",
        expected="a ga_dspy Index, a callable (query, k) -> passages, a DSPy retriever or a "
        "LangChain retriever",
        remedy="wrap it in a function that takes a query and returns passages",
    )


def _depth_parameter(source: Any, search: Callable[..., Any]) -> str | None:
    """The keyword that takes the depth; "" where it is the second argument; None without one."""
    if search is not source:
        return None
    try:
        signature = inspect.signature(getattr(source, "forward", source))
    except (TypeError, ValueError):
        return None
    parameters = list(signature.parameters.values())
    for name in _DEPTH_NAMES:
        found = signature.parameters.get(name)
        if found is not None and found is not parameters[0]:
            return "" if found.kind is inspect.Parameter.POSITIONAL_ONLY else name
    required = [
        p for p in parameters[1:]
        if p.default is p.empty and p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)
    ]  # fmt: skip
    return "" if len(required) == 1 else None
