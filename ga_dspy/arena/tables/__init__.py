"""The tables of a report, each a pure function of the runs.

`table` says what a table is; `scores` has Tables 1, 2 and 4, `steps` Table 3, `cost` Table 5;
`evidence`, `graphrag`, `compare` and `splits` go beyond the paper's; `provenance` says where all
of it is from.
"""

from __future__ import annotations

from ga_dspy.arena.runs import Runs
from ga_dspy.arena.tables.compare import internal_knowledge as internal_knowledge
from ga_dspy.arena.tables.compare import significance as significance
from ga_dspy.arena.tables.cost import equal_tokens as equal_tokens
from ga_dspy.arena.tables.cost import ledger as ledger
from ga_dspy.arena.tables.cost import table_5 as table_5
from ga_dspy.arena.tables.evidence import evidence as evidence
from ga_dspy.arena.tables.evidence import sufficiency as sufficiency
from ga_dspy.arena.tables.graphrag import graphrag as graphrag
from ga_dspy.arena.tables.provenance import failures as failures
from ga_dspy.arena.tables.provenance import protocols as protocols
from ga_dspy.arena.tables.scores import side_by_side as side_by_side
from ga_dspy.arena.tables.scores import table_1 as table_1
from ga_dspy.arena.tables.scores import table_1_renamed as table_1_renamed
from ga_dspy.arena.tables.scores import table_2 as table_2
from ga_dspy.arena.tables.scores import table_4 as table_4
from ga_dspy.arena.tables.splits import Split as Split
from ga_dspy.arena.tables.splits import Splits as Splits
from ga_dspy.arena.tables.splits import knowledge_use as knowledge_use
from ga_dspy.arena.tables.splits import splits as splits
from ga_dspy.arena.tables.steps import table_3 as table_3
from ga_dspy.arena.tables.table import Column as Column
from ga_dspy.arena.tables.table import Estimate as Estimate
from ga_dspy.arena.tables.table import Flagged as Flagged
from ga_dspy.arena.tables.table import Missing as Missing
from ga_dspy.arena.tables.table import Row as Row
from ga_dspy.arena.tables.table import Table as Table

BASELINE = "vanilla-rag"
"""What the others are held against, where nothing else is asked for."""


def tables(runs: Runs, baseline: str = BASELINE) -> list[Table | Missing]:
    """Every table of a report, in order; those that no run fills say what would.

    Args:
        runs: The runs.
        baseline: The method that the others are held against.
    """
    return [
        table_1(runs),
        significance(runs, baseline),
        table_2(runs),
        table_3(runs),
        table_4(runs),
        table_5(runs),
        equal_tokens(runs),
        evidence(runs),
        sufficiency(runs),
        graphrag(runs),
        knowledge_use(runs),
        internal_knowledge(runs),
        table_1_renamed(runs),
        side_by_side(runs),
        ledger(runs),
        failures(runs),
        protocols(runs),
    ]
