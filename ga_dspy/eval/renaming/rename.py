"""Renaming the rows of a dataset: plan, replace, check, and keep what would get lost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from ga_dspy.errors import GaDspyError, InputError
from ga_dspy.eval.files import DatasetName
from ga_dspy.eval.renaming.checks import (
    lost_answers,
    rows_with_leaks,
    share_derivable,
    unchanged_answers,
)
from ga_dspy.eval.renaming.fields import Row, paragraphs
from ga_dspy.eval.renaming.lexicon import read_lexicon
from ga_dspy.eval.renaming.names import Name, find_names
from ga_dspy.eval.renaming.plan import Plan, make_plan
from ga_dspy.eval.renaming.replace import Scope, rename_row, rename_text
from ga_dspy.eval.renaming.text import key

_REPAIRS = 4


class Renaming(NamedTuple):
    """One name or word: as it was, as it is, and of what kind.

    Kinds of names are person, place, organisation, work and other; single words have "given",
    "surname" or one of these as their shape, acronyms "acronym".
    """

    old: str
    new: str
    kind: str


class RenameReport(NamedTuple):
    """What a renamed copy is worth.

    Attributes:
        dataset: Whose layout the rows have.
        seed: What the invented names were drawn with.
        questions: Number of rows.
        renamed: Number of names renamed, by kind; words that are in no listed name count as
            "further words".
        derivable_in_source: Share of questions with an accepted answer that is yes or no or
            stands in the paragraphs to read, from 0 to 1.
        derivable_in_copy: The same in the copy.
        unchanged: Gold answers that stayed as they are, by reason.
        leaks: Rows whose question or context still holds a renamed name of several words, or a
            renamed surname.
        kept: Words left alone because an answer would have got lost.
    """

    dataset: DatasetName
    seed: int
    questions: int
    renamed: dict[str, int]
    derivable_in_source: float
    derivable_in_copy: float
    unchanged: dict[str, int]
    leaks: int
    kept: int


class Renamed(NamedTuple):
    """The copy's rows, in the source's order, what was replaced, and the report."""

    rows: list[dict[str, Any]]
    mapping: tuple[Renaming, ...]
    report: RenameReport


class AnswersLost(GaDspyError):
    """In the copy, answers can no longer be read that could be read in the source."""

    def __init__(self, lost: Mapping[str, tuple[str, ...]]) -> None:
        shown = ", ".join(list(lost)[:10])
        more = f" and {len(lost) - 10} more" if len(lost) > 10 else ""
        super().__init__(
            f"the answers of {len(lost)} questions cannot be read from their paragraphs any more "
            f"({shown}{more}); expected every answer that the source holds to be held by the "
            "copy; leave these questions out, or use another seed"
        )
        self.lost = dict(lost)


class NothingToRead(InputError):
    """The rows have no paragraphs, so that invented names could be known to nobody."""

    def __init__(self, dataset: str) -> None:
        super().__init__(
            f"no row of this {dataset} file has a context",
            expected="questions with paragraphs from which the new names can be read",
            remedy="rename a file of hotpotqa, musique or 2wikimultihopqa; Bamboogle has no "
            "paragraphs of its own",
        )


def rename_rows(rows: Sequence[Row], dataset: DatasetName, seed: int) -> Renamed:
    """Replace the names in all rows, consistently, by invented ones.

    Args:
        rows: Rows in the official layout or the hub's; they are left as they are.
        dataset: Whose layout the rows have.
        seed: Decides the invented names; the same rows and seed give the same copy.

    Raises:
        NothingToRead: no row has a context.
        AnswersLost: an answer that the source holds is not held by the copy.
    """
    if not any(paragraphs(row, dataset) for row in rows):
        raise NothingToRead(dataset)
    lexicon = read_lexicon(rows)
    names = find_names(rows, dataset, lexicon)
    kept: frozenset[str] = frozenset()
    for _ in range(_REPAIRS):
        plan = make_plan(names, lexicon, seed, kept)
        copies = [rename_row(row, plan) for row in rows]
        lost = lost_answers(rows, copies, dataset)
        if not lost:
            return _renamed(rows, copies, dataset, plan, names, len(kept))
        kept |= _needed(lost, plan, kept)
    raise AnswersLost(lost)


def _needed(
    lost: Mapping[str, tuple[str, ...]], plan: Plan, kept: frozenset[str]
) -> frozenset[str]:
    """Words to leave alone: common ones ("tails", in "Lost Tails"); all where these are kept."""
    words = {word for answers in lost.values() for answer in answers for word in key(answer)}
    return frozenset((words - plan.everywhere - kept) or words)


def _renamed(
    rows: Sequence[Row],
    copies: list[dict[str, Any]],
    dataset: DatasetName,
    plan: Plan,
    names: Sequence[Name],
    kept: int,
) -> Renamed:
    changed = _changed(names, plan)
    mapping = _mapping(changed, plan)
    keys = [name.key for name, _ in changed if len(name.key) > 1]
    surnames = {
        n.key[-1] for n, _ in changed if n.kind == "person" and n.key[-1] in plan.everywhere
    }
    kinds = Counter(name.kind for name, _ in changed)
    within = {word for name, _ in changed for word in name.key}
    counts = dict(sorted(kinds.items())) | {"further words": len(plan.new.keys() - within)}
    report = RenameReport(
        dataset,
        plan.alphabet.seed,
        len(rows),
        counts,
        share_derivable(rows, dataset),
        share_derivable(copies, dataset),
        unchanged_answers(rows, copies),
        len(rows_with_leaks(copies, keys, frozenset(surnames))),
        kept,
    )
    return Renamed(copies, mapping, report)


def _changed(names: Sequence[Name], plan: Plan) -> list[tuple[Name, str]]:
    pairs = ((name, rename_text(name.text, plan, _own_scope(name, plan))) for name in names)
    return [(name, new) for name, new in pairs if new != name.text]


def _own_scope(name: Name, plan: Plan) -> Scope:
    whole = name.key
    single = len(whole) == 1 and whole[0] in plan.single
    return Scope("title", frozenset(whole if single else ()))


def _mapping(changed: Sequence[tuple[Name, str]], plan: Plan) -> tuple[Renaming, ...]:
    names = [Renaming(name.text, new, name.kind) for name, new in changed]
    whole = {name.key for name, _ in changed}
    words = [
        Renaming(old.capitalize(), new.capitalize(), plan.shapes[old])
        for old, new in plan.new.items()
        if (old,) not in whole
    ]
    acronyms = [Renaming(old, new, "acronym") for old, new in plan.acronyms.items()]
    return tuple(sorted([*names, *words, *acronyms]))
