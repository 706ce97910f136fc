"""What a reviewer proves themselves with: a token they are shown once, and the signature it makes.

The token holds 32 random bytes. An Ed25519 key is derived from them, and whoever holds the token signs decisions with
it: what travels, and may be kept for ever, is the signature. Retold stores the token's SHA-256 (32 random bytes need no
slow hash) and the public key, and can forge neither a token nor a decision from them.
"""

from __future__ import annotations

import base64
import hashlib
import secrets
from dataclasses import dataclass, field

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from retold.contracts.activation import ActivationCategory
from retold.contracts.review import Resolution, ReviewDecision

_PREFIX = "retold-reviewer"
_SECRET_BYTES = 32
_TOKEN_MAX_CHARS = 800
_PURPOSE = b"retold reviewer decisions 1"


class MalformedTokenError(ValueError):
    """This is no reviewer's token. The message never repeats it."""


@dataclass(frozen=True)
class ReviewerCredential:
    """A token in the hands of the person it was made for. Keep it in memory only."""

    reviewer_id: str
    _secret: bytes = field(repr=False)

    @classmethod
    def issue(cls, reviewer_id: str) -> ReviewerCredential:
        """A new credential of this person."""
        return cls(reviewer_id, secrets.token_bytes(_SECRET_BYTES))

    @classmethod
    def of(cls, token: str) -> ReviewerCredential:
        """The credential behind a token.

        Raises:
            MalformedTokenError: it is none.
        """
        parts = token.strip().split(".")
        if len(token) > _TOKEN_MAX_CHARS or len(parts) != 3 or parts[0] != _PREFIX:
            raise MalformedTokenError(f"a reviewer's token looks like {_PREFIX}.….…, as it was shown when it was made")
        try:
            reviewer_id, secret = _unpacked(parts[1]).decode(), _unpacked(parts[2])
        except ValueError as error:  # no base64, or no UTF-8 in it
            raise MalformedTokenError("the token is damaged: copy it again, whole") from error
        if len(secret) != _SECRET_BYTES or not reviewer_id.strip():
            raise MalformedTokenError("the token is damaged: copy it again, whole")
        return cls(reviewer_id, secret)

    @property
    def token(self) -> str:
        """What the person keeps. Shown once, stored nowhere."""
        return ".".join((_PREFIX, _packed(self.reviewer_id.encode()), _packed(self._secret)))

    @property
    def token_hash(self) -> str:
        return "sha256:" + hashlib.sha256(self.token.encode()).hexdigest()

    @property
    def public_key(self) -> str:
        return base64.b64encode(self._key().public_key().public_bytes_raw()).decode()

    def decide(
        self,
        review_id: str,
        resolution: Resolution,
        *,
        expected_version: int,
        reason: str = "",
        category: ActivationCategory | None = None,
    ) -> ReviewDecision:
        """A signed decision.

        Raises:
            pydantic.ValidationError: a field is out of bounds.
        """
        unsigned = ReviewDecision(
            review_id=review_id,
            resolution=resolution,
            category=category,
            expected_version=expected_version,
            reason=reason,
            reviewer_id=self.reviewer_id,
            signature="unsigned",
        )
        signature = base64.b64encode(self._key().sign(unsigned.signed_bytes())).decode()
        return unsigned.model_copy(update={"signature": signature})

    def _key(self) -> Ed25519PrivateKey:
        derived = HKDF(algorithm=SHA256(), length=32, salt=None, info=_PURPOSE).derive(self._secret)
        return Ed25519PrivateKey.from_private_bytes(derived)


def is_signed_by(public_key: str, decision: ReviewDecision) -> bool:
    """Whether the holder of this key signed exactly this decision."""
    try:
        key = Ed25519PublicKey.from_public_bytes(base64.b64decode(public_key, validate=True))
        key.verify(base64.b64decode(decision.signature, validate=True), decision.signed_bytes())
    except (InvalidSignature, ValueError):  # ValueError: no base64, or not the length of a key
        return False
    return True


def _packed(value: bytes) -> str:
    return base64.urlsafe_b64encode(value).decode().rstrip("=")


def _unpacked(value: str) -> bytes:
    return base64.b64decode(value + "=" * (-len(value) % 4), altchars=b"-_", validate=True)
