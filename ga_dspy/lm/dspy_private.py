"""Everything that ga_dspy takes from inside DSPy, and why nothing public serves.

A name here may move in any release of DSPy: this file is why pyproject.toml pins `dspy<3.5`.
"""

# Parts of a prompt that are no text, such as images, stand in demos behind this marker.
from dspy.adapters.types.base_type import (
    CUSTOM_TYPE_START_IDENTIFIER as CUSTOM_TYPE_START_IDENTIFIER,
)

# An adapter of one's own writes and reads values as DSPy's adapters do.
from dspy.adapters.utils import format_field_value as format_field_value
from dspy.adapters.utils import parse_value as parse_value
from dspy.adapters.utils import translate_field_type as translate_field_type

# A local server has to be sent `max_tokens`, and a timeout must not be part of the cache key.
# Both take an engine of one's own, which needs DSPy's routing and its prices.
from dspy.clients.backend_selection import CLIENT_KEYS as CLIENT_KEYS
from dspy.clients.backend_selection import select_backend as select_backend

# DSPy keeps 10,000 calls for `dspy.inspect_history`, whatever `max_history_size` says.
from dspy.clients.base_lm import GLOBAL_HISTORY as GLOBAL_HISTORY

# A stored call is replayed as the `Response` that it was, and recorded as DSPy records a call.
from dspy.clients.call_result import CallResult as CallResult
from dspy.clients.costs import estimate_cost as estimate_cost
from dspy.clients.engines.lm15_engine import timeouts_for as timeouts_for
from dspy.clients.execution import finalize as finalize
from dspy.clients.execution import prepare as prepare

# An estimate needs the price before there is a call.
from dspy.clients.model_metadata import model_info as model_info
from dspy.clients.model_metadata import rate as rate

# `dspy.streamify` reads status messages from its stream, and has no call that adds one.
from dspy.streaming.messages import sync_send_to_stream as sync_send_to_stream

# An artifact names the versions that DSPy itself would.
from dspy.utils.saving import get_dependency_versions as get_dependency_versions
