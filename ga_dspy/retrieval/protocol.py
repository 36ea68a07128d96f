"""What a retriever is, and how anything that retrieves becomes one."""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol

from ga_dspy.errors import GaDspyError, InputError
from ga_dspy.passage import Passage
from ga_dspy.retrieval.results import content_hash, read_results

_DEPTH_NAMES = (
    "k", "top_k", "topk", "n", "n_results", "num_results", "max_results", "limit",
)  # fmt: skip


class Retriever(Protocol):
    """Maps a query to at most `k` passages, best first."""

    def __call__(self, query: str, k: int) -> list[Passage]:
        """Return at most `k` passages for the query, best first."""
        ...


class NotARetriever(GaDspyError):
    """The object has no way of retrieving that is known here."""

    def __init__(self, found: object) -> None:
        super().__init__(
            f"{type(found).__name__} is no retriever; expected a ga_dspy Index, a callable "
            "(query, k) -> passages, a DSPy retriever or a LangChain retriever; "
            "wrap it in a function that takes a query and returns passages"
        )
        self.found = found


class ConflictingId(GaDspyError):
    """A retriever used one passage id for two texts, so a citation would be ambiguous."""

    def __init__(self, id: str, passage: Passage) -> None:
        super().__init__(
            f"the retriever returned passage id {id!r} with a text that differs from the one it "
            f"had before (now it begins {passage.content[:60]!r}); expected ids that are unique "
            "in the corpus; return the corpus id, or no id at all (then the text makes the id)"
        )
        self.id, self.passage = id, passage


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
        NotARetriever: The object cannot be called and has no retrieval method.

    >>> search = as_retriever(lambda query: ["Red Lodge | A city in Montana.", "Untitled text."])
    >>> [(passage.title, passage.text) for passage in search("montana", k=5)]
    [('Red Lodge', 'A city in Montana.'), ('', 'Untitled text.')]
    """
    from ga_dspy.retrieval.index import Index

    if isinstance(obj, (Index, AdaptedRetriever)):
        return obj
    return AdaptedRetriever(obj)


class AdaptedRetriever:
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
            InputError: The query is blank or `k` is below 1.
            UnreadableResult: The source returned something that holds no passage.
            ConflictingId: The source used an id for two texts.
        """
        check_query(query, k)
        result = self._call(query, k)
        if inspect.iscoroutine(result):
            result.close()
        passages = read_results(result)
        return self._distinct(passages)[:k]

    def __deepcopy__(self, memo: dict[int, Any]) -> AdaptedRetriever:
        """Return itself: copies of a program share the retriever."""
        return self

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
                raise ConflictingId(passage.id, passage)
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
    if isinstance(source, (str, bytes, Mapping, type)):
        raise NotARetriever(source)
    for name in ("invoke", "get_relevant_documents"):
        method = getattr(source, name, None)
        if callable(method):
            return method  # type: ignore[no-any-return]  # a foreign object: Any by nature
    if callable(source):
        return source  # type: ignore[no-any-return]  # a foreign object: Any by nature
    raise NotARetriever(source)


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
