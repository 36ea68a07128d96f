"""A compiled program behind MLflow's scoring server; MLflow runs this file when it loads a model.

The program comes from the model's own artifact. What else it needs is named in the environment:

    GA_DSPY_INDEX      folder of a retrieval index, in place of the one packed with the model
    GA_DSPY_GRAPH      folder of the graph of its passages, for a program that searches one
    GA_DSPY_WHERE      what passages must meet, as JSON: {"tenant": "acme"}
    GA_DSPY_LM         any DSPy model name, for all steps; by default the LMs that the program was
                       compiled for
    GA_DSPY_API_BASE   address of an OpenAI-compatible endpoint; its key is OPENAI_API_KEY

`predict` takes a table with a column `question` and gives a row an answer. An LM that cannot be
reached is an error of the request, never an empty answer.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import dspy
import mlflow
import pandas as pd
from mlflow.models import set_model

import ga_dspy
from ga_dspy.artifact import load, show
from ga_dspy.errors import InputError
from ga_dspy.graphrag import GraphIndex
from ga_dspy.lm.endpoints import default_timeout
from ga_dspy.retrieval import Index


class ServedProgram(mlflow.pyfunc.PythonModel):
    """Answers questions with a compiled program."""

    def load_context(self, context: Any) -> None:
        """Open the index and load the program, once."""
        artifact = Path(context.artifacts["artifact"])
        index = os.environ.get("GA_DSPY_INDEX") or context.artifacts.get("index")
        if not index:
            raise InputError(
                "the model has no index and GA_DSPY_INDEX is not set",
                expected="one of the two",
                remedy="set GA_DSPY_INDEX to the folder of an index over your passages",
            )
        graph = os.environ.get("GA_DSPY_GRAPH") or context.artifacts.get("graph")
        corpus = GraphIndex.open(index, graph) if graph else Index.open(Path(index))
        manifest, name = show(artifact).manifest, os.environ.get("GA_DSPY_LM")
        own = {
            step: None if name else _lm(lm.model, **lm.settings)
            for step, lm in manifest.predictor_lms.items()
        }
        self.program = load(artifact, retriever=corpus, lms=own)
        if where := os.environ.get("GA_DSPY_WHERE"):
            self.program = self.program.only(_conditions(where))
        self.program.check_ready()
        self.lm = _lm(name or manifest.lms.get("task"))

    def predict(self, model_input: pd.DataFrame) -> list[dict[str, Any]]:
        """Answer the questions in column `question`, in order."""
        with dspy.context(lm=self.lm):
            return [_row(self.program(question=text)) for text in model_input["question"]]


def _conditions(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise InputError(
            f"GA_DSPY_WHERE is {text!r:.80}",
            expected="conditions on metadata as JSON",
            remedy="""set it to such as '{"tenant": "acme"}'""",
        ) from error


def _lm(name: str | None, **settings: Any) -> dspy.LM:
    embedded = ga_dspy.extractive_lm(**settings)
    if name in (None, embedded.model):
        return embedded
    address = os.environ.get("GA_DSPY_API_BASE")
    settings["timeout"] = default_timeout(str(name), address)
    if address:
        # Local servers ignore the key, but OpenAI-compatible clients insist on one.
        settings |= {"api_base": address, "api_key": os.environ.get("OPENAI_API_KEY") or "none"}
    return dspy.LM(str(name), **settings)


def _row(prediction: dspy.Prediction) -> dict[str, Any]:
    return {
        "answer": prediction.answer,
        "verdict": prediction.verdict,
        "supported": prediction.supported or "",
        "evidence": [str(link) for link in prediction.evidence],
        "cited": list(prediction.cited),
        "failures": list(prediction.failures),
        "steps": len(prediction.steps),
        "calls": prediction.calls,
        "tokens": prediction.tokens,
    }


set_model(ServedProgram())
