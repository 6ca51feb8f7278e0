"""The API of LitServe's server: its processes import the class by name."""

from __future__ import annotations

import sys
from typing import Any

# With the second version of this package beside it, LitServe does not start.
sys.modules["mcp"] = None  # type: ignore[assignment]

import litserve  # noqa: E402


class Echo(litserve.LitAPI):  # type: ignore[misc]
    """Answers what it is sent."""

    def setup(self, device: Any) -> None:
        """Nothing is loaded."""

    def decode_request(self, request, **_):  # type: ignore[no-untyped-def]  # An annotation would be a query's.
        """What is asked."""
        return request["text"]

    def predict(self, x: Any, **_: Any) -> Any:
        """What is answered."""
        return x

    def encode_response(self, output: Any, **_: Any) -> Any:
        """The answer's body."""
        return {"text": output}
