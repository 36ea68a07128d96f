"""Serve a program over HTTP and MCP; needs the extra `serve`."""

from __future__ import annotations

from ga_dspy.serve.api import Guard as Guard
from ga_dspy.serve.api import make_app as make_app
from ga_dspy.serve.keys import Key as Key
from ga_dspy.serve.keys import read_key_file as read_key_file
from ga_dspy.serve.listen import make_server as make_server
from ga_dspy.serve.service import Limits as Limits
from ga_dspy.serve.service import Service as Service
