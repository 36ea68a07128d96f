"""The graph of one question: records, entity resolution, text format, paths, checks, exports."""

from __future__ import annotations

from ga_dspy.graph.checks import checked_chain as checked_chain
from ga_dspy.graph.checks import fits_question as fits_question
from ga_dspy.graph.knowledge_graph import KnowledgeGraph as KnowledgeGraph
from ga_dspy.graph.knowledge_graph import from_json as from_json
from ga_dspy.graph.knowledge_graph import to_graphml as to_graphml
from ga_dspy.graph.knowledge_graph import to_json as to_json
from ga_dspy.graph.knowledge_graph import to_mermaid as to_mermaid
from ga_dspy.graph.knowledge_graph import to_networkx as to_networkx
from ga_dspy.graph.lines import draft_from as draft_from
from ga_dspy.graph.lines import linearise as linearise
from ga_dspy.graph.lines import parse as parse
from ga_dspy.graph.paths import distances as distances
from ga_dspy.graph.paths import evidence_chain as evidence_chain
from ga_dspy.graph.paths import named_in as named_in
from ga_dspy.graph.paths import prune as prune
from ga_dspy.graph.records import Draft as Draft
from ga_dspy.graph.records import DraftEntity as DraftEntity
from ga_dspy.graph.records import DraftRelation as DraftRelation
from ga_dspy.graph.records import Entity as Entity
from ga_dspy.graph.records import Evidence as Evidence
from ga_dspy.graph.records import GraphUpdate as GraphUpdate
from ga_dspy.graph.records import Relation as Relation
from ga_dspy.graph.schema import Schema as Schema
from ga_dspy.text import normalise as normalise
