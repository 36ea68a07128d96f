"""`ga-dspy data rename`: a dataset under invented names."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from ga_dspy.cli.console import Console, facts
from ga_dspy.eval.renaming import rename_file


def rename_data(
    file: Annotated[Path, typer.Argument(help="A file of questions with their paragraphs.")],
    out: Annotated[Path, typer.Option(help="The renamed copy.")],
    seed: Annotated[int, typer.Option(help="Another seed, other names.")] = 0,
    dataset: Annotated[str | None, typer.Option(help="Told from its fields if left out.")] = None,
    mapping: Annotated[
        Path | None, typer.Option(help="A CSV of old and new names, to look at.")
    ] = None,
) -> None:
    """Copy a dataset under invented names, so that only reading helps.

    Examples:
        ga-dspy data rename dev.json --out renamed.json
    """
    console = Console()
    report = rename_file(file, out, seed, dataset=dataset, mapping=mapping)
    before, after = 100 * report.derivable_in_source, 100 * report.derivable_in_copy
    followed = [100 * (n or 0) for n in (report.followed_in_source, report.followed_in_copy)]
    rows = [
        ("questions", f"{report.questions:,} of {report.dataset}, seed {report.seed}"),
        ("renamed", _counts(report.renamed) or "none"),
        ("answers left as they are", _counts(report.unchanged_answers) or "none"),
        (
            "answers that can be read",
            f"{after:.1f} % of the questions, {before:.1f} % in the source",
        ),
        (
            "questions that can be followed",
            f"{followed[1]:.1f} %, {followed[0]:.1f} % in the source",
        ),
        ("questions with a mention less", ", ".join(report.lost[:10]) or "none"),
        ("rows that still show an old name", str(report.leaks)),
        ("words left alone for an answer's sake", str(report.kept_words)),
    ]
    console.print(facts(rows))
    console.print(f"\nwrote {out}; index its passages anew:", markup=False)
    console.print(f"  ga-dspy index build {out} --out …", style="bold", markup=False)


def _counts(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{n:,} {name}" for name, n in counts.items() if n)
