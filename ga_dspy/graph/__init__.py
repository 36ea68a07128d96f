"""The typed graph: its values, its names, its text, its paths and its exports."""

from __future__ import annotations

from ga_dspy.graph.budget import Pruned as Pruned
from ga_dspy.graph.budget import prune as prune
from ga_dspy.graph.draft import Draft as Draft
from ga_dspy.graph.draft import DraftEntity as DraftEntity
from ga_dspy.graph.draft import DraftRelation as DraftRelation
from ga_dspy.graph.export import from_json as from_json
from ga_dspy.graph.export import to_graphml as to_graphml
from ga_dspy.graph.export import to_json as to_json
from ga_dspy.graph.export import to_mermaid as to_mermaid
from ga_dspy.graph.export import to_networkx as to_networkx
from ga_dspy.graph.lenient import NotAGraphError as NotAGraphError
from ga_dspy.graph.lenient import draft_from as draft_from
from ga_dspy.graph.model import Entity as Entity
from ga_dspy.graph.model import Evidence as Evidence
from ga_dspy.graph.model import Gain as Gain
from ga_dspy.graph.model import GraphUpdate as GraphUpdate
from ga_dspy.graph.model import KnowledgeGraph as KnowledgeGraph
from ga_dspy.graph.model import Relation as Relation
from ga_dspy.graph.names import normalise as normalise
from ga_dspy.graph.names import split_qualifier as split_qualifier
from ga_dspy.graph.paths import connects as connects
from ga_dspy.graph.paths import distances as distances
from ga_dspy.graph.paths import evidence_chain as evidence_chain
from ga_dspy.graph.paths import named_in as named_in
from ga_dspy.graph.text import linearise as linearise
from ga_dspy.graph.text import parse as parse
from ga_dspy.graph.wording import is_hedged as is_hedged
from ga_dspy.graph.wording import is_placeholder as is_placeholder
from ga_dspy.graph.wording import stated_aliases as stated_aliases
