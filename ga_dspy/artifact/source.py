"""Where an artifact comes from: a folder, or an address that another part can fetch."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

from ga_dspy.artifact.errors import ArtifactError
from ga_dspy.errors import MissingExtra

RESOLVERS: dict[str, str] = {
    "models": "ga_dspy.optimize.tracking:resolve",
    "runs": "ga_dspy.optimize.tracking:resolve",
}
"""URI scheme to "module:function", a function from the whole URI to a local folder.

It is imported when such a URI is loaded, so that folders need the core dependencies alone. An
app may add schemes of its own.
"""

_OURS = "ga_dspy."
# Two characters or more: a single one is a Windows drive.
_URI = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/")


class UnknownScheme(ArtifactError):
    """Nothing is known that fetches from such an address."""

    def __init__(self, uri: str, scheme: str) -> None:
        super().__init__(
            f"{uri} has the scheme {scheme!r}; expected a folder, or one of "
            f"{', '.join(sorted(RESOLVERS))}; add a function for it to "
            "ga_dspy.artifact.RESOLVERS, or fetch the folder first"
        )
        self.uri, self.scheme = uri, scheme


def located(source: Path | str) -> Path:
    """The local folder of a source.

    Args:
        source: A path, or a URI such as "models:/name@champion" or "runs:/id/artifact".

    Raises:
        UnknownScheme: Nothing resolves such a URI.
        MissingExtra: What resolves it is not installed.
    """
    match = _URI.match(source) if isinstance(source, str) else None
    if match is None:
        return Path(source)
    scheme = match[1].lower()
    if scheme not in RESOLVERS:
        raise UnknownScheme(str(source), scheme)
    module, _, function = RESOLVERS[scheme].partition(":")
    try:
        return Path(getattr(importlib.import_module(module), function)(source))
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if not module.startswith(_OURS) or package == _OURS.rstrip("."):
            raise
        raise MissingExtra(package, "optimize") from error
