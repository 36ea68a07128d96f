"""A compiled program behind MLflow's scoring server; MLflow runs this file when it loads a model.

The program comes from the model's own artifact, and its LM from the environment: the artifact
cannot name an LM to call. The variables are those of the command line:

    GA_DSPY_LM         any DSPy model name, for all steps; also STEP=NAME, separated by spaces
    GA_DSPY_API_BASE   address of an OpenAI-compatible endpoint; its key is OPENAI_API_KEY
    GA_DSPY_INDEX      folder of a retrieval index, in place of the one packed with the model
    GA_DSPY_GRAPH      folder of the graph of its passages, for a program that searches one
    GA_DSPY_WHERE      conditions on the passages, as JSON: {"tenant": "acme"}

`predict` takes a table with a column `question` and returns an answer per row. If the LM cannot be
reached, the request fails; it never returns an empty answer instead.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import mlflow
import pandas as pd
from mlflow.models import set_model

import ga_dspy
from ga_dspy.artifact import show
from ga_dspy.errors import InputError


class ServedProgram(mlflow.pyfunc.PythonModel):
    """Answers questions with a compiled program."""

    def load_context(self, context: Any) -> None:
        """Open the index and load the program, once.

        Raises:
            InputError: A variable is missing or invalid.
        """
        config = context.artifacts["config"]
        if not os.environ.get("GA_DSPY_LM"):
            compiled_for = show(Path(config).parent).manifest.lms.get("task")
            remedy = f"set it; the program was compiled for {compiled_for or 'no LM'}"
            raise InputError("GA_DSPY_LM is not set", remedy=remedy)
        self.program = ga_dspy.from_config(config)
        if where := os.environ.get("GA_DSPY_WHERE"):
            self.program = self.program.only(_conditions(where))
        self.program.check_ready()

    def predict(self, model_input: pd.DataFrame) -> list[dict[str, Any]]:
        """Answer the questions in column `question`, in order."""
        return [_row(self.program(question=text)) for text in model_input["question"]]


def _conditions(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        expected = 'conditions on metadata as JSON, such as {"tenant": "acme"}'
        raise InputError(f"GA_DSPY_WHERE is {text!r:.80}", expected=expected) from error


def _row(answer: Any) -> dict[str, Any]:
    plain = {name: answer[name] for name in ("answer", "verdict", "calls", "tokens")}
    lists = {name: [*map(str, answer[name])] for name in ("evidence", "cited", "failures")}
    return {**plain, **lists, "supported": answer.supported or "", "steps": len(answer.steps)}


set_model(ServedProgram())
