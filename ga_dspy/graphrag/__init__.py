"""GraphRAG: a graph extracted from the whole corpus ahead of time, and answers from it."""

from __future__ import annotations

from ga_dspy.graph import Schema as Schema
from ga_dspy.graphrag.build import build_graph as build_graph
from ga_dspy.graphrag.build import estimate_build as estimate_build
from ga_dspy.graphrag.build import record_passages as record_passages
from ga_dspy.graphrag.build import update_graph as update_graph
from ga_dspy.graphrag.communities import Summaries as Summaries
from ga_dspy.graphrag.corpus_graph import CorpusGraph as CorpusGraph
from ga_dspy.graphrag.corpus_graph import View as View
from ga_dspy.graphrag.extraction import Extractor as Extractor
from ga_dspy.graphrag.extraction import propose_schema as propose_schema
from ga_dspy.graphrag.imports import Fact as Fact
from ga_dspy.graphrag.imports import Imported as Imported
from ga_dspy.graphrag.imports import import_graph as import_graph
from ga_dspy.graphrag.program import GraphRAG as GraphRAG
from ga_dspy.graphrag.records import Access as Access
from ga_dspy.graphrag.records import Overrides as Overrides
from ga_dspy.graphrag.records import Pair as Pair
from ga_dspy.graphrag.records import Rules as Rules
from ga_dspy.graphrag.records import Spelling as Spelling
from ga_dspy.graphrag.search import GraphIndex as GraphIndex
from ga_dspy.graphrag.stored import StoredGraph as StoredGraph
from ga_dspy.graphrag.stored import open_graph as open_graph
