"""The question sets of a compilation: no question may be in two of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any

import dspy

from ga_dspy.errors import GaDspyError, InputError
from ga_dspy.eval import normalise
from ga_dspy.eval.protocol import questions_digest

Sets = Mapping[str, Sequence[dspy.Example]]


class SetsOverlap(GaDspyError):
    """A question is in two sets: what is learned from one would be measured on the other."""

    def __init__(self, first: str, second: str, shared: Sequence[str], how: str) -> None:
        shown = ", ".join(map(repr, shared[:3]))
        more = f" and {len(shared) - 3} more" if len(shared) > 3 else ""
        super().__init__(
            f"{len(shared)} questions are in {first} and in {second}, by {how}: {shown}{more}; "
            f"expected sets that share none; take them out of {first}"
        )
        self.first, self.second, self.shared = first, second, tuple(shared)


def without_context(examples: Sequence[dspy.Example]) -> list[dspy.Example]:
    """Questions without the paragraphs of their file.

    Programs search for their own passages. Optimizers that print whole examples would put ten
    paragraphs a question into a prompt, and demos would carry them into the artifact.
    """
    left_out = ("paragraphs", "supporting_facts")
    return [
        example.without(*(name for name in left_out if name in example)) for example in examples
    ]


def check_sets(sets: Sets) -> None:
    """Check that no set is empty and that no two of them share a question, by id or by text.

    Raises:
        InputError: A set is empty.
        SetsOverlap: They share a question. Texts are compared without case, signs and articles.
    """
    for name, examples in sets.items():
        if not examples:
            raise InputError(
                f"the {name} set is empty", expected="at least one question", remedy="pass some"
            )
    for (first, a), (second, b) in combinations(sets.items(), 2):
        _check_pair(first, a, second, b)


def _check_pair(
    first: str, a: Sequence[dspy.Example], second: str, b: Sequence[dspy.Example]
) -> None:
    ids = {example.id for example in b if example.get("id")}
    if shared := [example.id for example in a if example.get("id") in ids]:
        raise SetsOverlap(first, second, shared, "id")
    texts = {normalise(example.question) for example in b}
    if shared := [e.question for e in a if normalise(e.question) in texts]:
        raise SetsOverlap(first, second, shared, "text")


def fingerprints(sets: Sets, names: Mapping[str, str]) -> dict[str, dict[str, Any]]:
    """The digest, the size and the name of each set, by role."""
    return {
        role: {
            "sha256": questions_digest(examples),
            "n": len(examples),
            "name": names.get(role, role),
        }
        for role, examples in sets.items()
    }
