"""Which of the registered programs is the champion.

The rule: the alias `champion` moves to a new program only if its F1 is higher than that of the
reigning one on the same questions, with p < 0.05 in the paired permutation test over both
programs' stored answers. Where nobody reigns, the program as it was before compiling stands in:
the first champion has to be better than its own baseline. Everything else leaves the alias where
it is, and the reason is told.
"""

from __future__ import annotations

from typing import NamedTuple

from ga_dspy.eval import Paired, Report, paired_test

ALIAS = "champion"
SIGNIFICANT = 0.05


class Decision(NamedTuple):
    """Whether the alias goes to the new program, why, and the test where one was made."""

    champion: bool
    reason: str
    paired: Paired | None = None


def decide(challenger: Report, reigning: Report | None, *, better_than_before: bool) -> Decision:
    """Apply the rule.

    Args:
        challenger: The new program on the held-out questions.
        reigning: The champion on its held-out questions; None where there is no champion.
        better_than_before: Whether the new program beat its own baseline significantly.
    """
    if reigning is None:
        said = "better" if better_than_before else "not better"
        return Decision(better_than_before, f"no champion yet; {said} than its own baseline")
    if _asked(challenger) != _asked(reigning):
        return Decision(
            False,
            f"the champion was measured on other questions ({reigning.protocol.source}, "
            f"{reigning.protocol.n}), so the two cannot be compared",
        )
    paired = paired_test(challenger, reigning)
    won = paired.difference > 0 and paired.p_value < SIGNIFICANT
    said = "beats" if won else "does not beat"
    return Decision(
        won,
        f"{said} the champion: F1 {paired.difference:+.1f} on {paired.n} questions, "
        f"p = {paired.p_value:.3g}",
        paired,
    )


def _asked(report: Report) -> set[tuple[str, str, tuple[str, ...]]]:
    return {(result.id, result.question, result.gold) for result in report.results}
