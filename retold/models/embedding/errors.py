"""Why there is no embedding."""

from __future__ import annotations

from retold.policy.ports import MalformedReplyError, RefusedByProviderError


class EmbedderNotInstalledError(Exception):
    """A part the embedder needs is not installed. The message says which and how to get it."""


class EmbedderUnavailableError(Exception):
    """The service did not answer, or not in time. The call may be worth repeating later."""


class EmbedderRefusedError(RefusedByProviderError):
    """The service refused the call (credentials, quota, unknown model). Repeating it changes nothing."""


class MalformedEmbeddingError(MalformedReplyError):
    """The service answered something that is not one usable vector a text."""
