"""Relations in words: one at a time to be compared, and grouped by subject to be read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from ga_dspy.graph import Relation


def fact_text(relation: Relation) -> str:
    """A relation as an encoder reads it.

    >>> fact_text(Relation(head="Oslo", relation="capital of", tail="Norway", time="since 1814"))
    'Oslo capital of Norway (since 1814)'
    """
    when = f" ({relation.time})" if relation.time else ""
    return f"{relation.head} {relation.relation} {relation.tail}{when}"


def grouped(relations: Iterable[Relation], labels: Mapping[str, int] | None = None) -> str:
    """Relations by subject, a line for each, in the order in which they come.

    Args:
        relations: The relations.
        labels: The number of each passage in the prompt; passages without one are not cited.
            Without `labels` passages are cited by their ids.

    >>> said = [Relation(head="Oslo", relation="in", tail="Norway", time="1814")]
    >>> grouped([*said, Relation(head="Oslo", relation="on", tail="Oslofjord")])
    'Oslo: in → Norway (1814); on → Oslofjord'
    """
    lines: dict[str, list[str]] = {}
    for relation in relations:
        lines.setdefault(relation.head, []).append(_told(relation, labels))
    return "\n".join(f"{head}: {'; '.join(told)}" for head, told in lines.items())


def chain_text(names: Sequence[str], relations: Sequence[Relation]) -> str:
    """A chain of relations with the direction of each.

    >>> said = Relation(head="Oslo", relation="capital of", tail="Norway")
    >>> chain_text(("Norway", "Oslo"), [said])
    'Norway <- capital of <- Oslo'
    """
    text = names[0]
    for name, relation in zip(names[1:], relations, strict=True):
        arrow = "->" if relation.tail == name else "<-"
        text += f" {arrow} {relation.relation} {arrow} {name}"
    return text


def _told(relation: Relation, labels: Mapping[str, int] | None) -> str:
    passages = dict.fromkeys(evidence.passage for evidence in relation.evidence)
    cited = [*passages] if labels is None else sorted(labels[p] for p in passages if p in labels)
    when = f" ({relation.time})" if relation.time else ""
    sources = f" [{','.join(map(str, cited))}]" if cited else ""
    return f"{relation.relation} → {relation.tail}{when}{sources}"
