"""Payloads that Temporal keeps and cannot read: compressed, then encrypted with AES-256-GCM under a named key.

Keys are a list; the first one encrypts, every one of them decrypts. Rotation is: put a new key first, roll out, and
take the old one out when no history that used it is kept any more (the namespace's retention, plus open reviews).
What was written before encryption was switched on stays readable.
"""

from __future__ import annotations

import base64
import binascii
import json
import os
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from google.protobuf.message import Message
from temporalio.api.common.v1 import Payload
from temporalio.contrib.pydantic import PydanticPayloadConverter
from temporalio.converter import EncodingPayloadConverter, PayloadCodec

from retold.client._errors import RetoldError
from retold.contracts import names

KEYS_VARIABLE = "RETOLD_CODEC_KEYS"
KEYS_FILE_VARIABLE = "RETOLD_CODEC_KEYS_FILE"
SECRETS_DIR_VARIABLE = "RETOLD_SECRETS_DIR"
KEYS_SECRET = "retold_codec_keys"

ENCODING = names.ENCRYPTED_ENCODING
CIPHER = b"A256GCM"
KEY_BYTES = 32
NONCE_BYTES = 12
COMPRESS_FROM_BYTES = 256
INFLATED_MAX_BYTES = 64 * 1024 * 1024
"""A payload that unpacks to more is not one of ours: Temporal takes 2 MB, and text compresses a few times."""

_PLAIN, _DEFLATED = b"\x00", b"\x01"


class CodecKeysError(ValueError):
    """The keys cannot be used; the message says which and why, and never shows one."""


class UndecryptableError(RetoldError):
    """A payload was encrypted under a key that is not in the ring, or was changed since."""


@dataclass(frozen=True, repr=False)
class KeyRing:
    """Keys by id, the encrypting one first."""

    keys: Mapping[str, bytes]

    def __post_init__(self) -> None:
        if not self.keys:
            raise CodecKeysError("the codec needs at least one key")
        for key_id, key in self.keys.items():
            if len(key) != KEY_BYTES:
                raise CodecKeysError(f"codec key {key_id!r} has {len(key)} bytes; AES-256 needs {KEY_BYTES}")

    @property
    def current(self) -> str:
        """The id of the key that encrypts."""
        return next(iter(self.keys))

    @classmethod
    def from_json(cls, text: str) -> KeyRing:
        """Read `[{"id": "...", "key": "<base64 of 32 bytes>"}, ...]`.

        Raises:
            CodecKeysError: it is not that.
        """
        try:
            listed = json.loads(text)
            keys = {str(each["id"]): base64.b64decode(each["key"], validate=True) for each in listed}
        except (ValueError, TypeError, KeyError, binascii.Error) as error:
            raise CodecKeysError(
                'codec keys must be JSON: [{"id": "name", "key": "base64 of 32 random bytes"}, ...]'
            ) from error
        if len(keys) != len(listed):
            raise CodecKeysError("codec keys: two keys have the same id")
        return cls(keys)

    def __repr__(self) -> str:
        return f"KeyRing(ids={list(self.keys)})"


def key_ring_from_environment(environment: Mapping[str, str] | None = None) -> KeyRing | None:
    """The keys this process was given: in a variable, a named file, or a file of the secrets folder. None: none.

    Raises:
        CodecKeysError: keys were given and cannot be used. Nothing is ever sent in the clear instead.
    """
    given = os.environ if environment is None else environment
    if text := given.get(KEYS_VARIABLE):
        return KeyRing.from_json(text)
    if named := given.get(KEYS_FILE_VARIABLE):
        return KeyRing.from_json(_read(Path(named)))
    if folder := given.get(SECRETS_DIR_VARIABLE):
        secret = Path(folder) / KEYS_SECRET
        if secret.exists():
            return KeyRing.from_json(_read(secret))
    return None


class EncryptingCodec(PayloadCodec):
    """Encrypts whole payloads, their own encoding included; only the key's id is visible."""

    def __init__(self, ring: KeyRing) -> None:
        self._ring = ring
        self._ciphers = {key_id: AESGCM(key) for key_id, key in ring.keys.items()}

    async def encode(self, payloads: Sequence[Payload]) -> list[Payload]:
        return [self._encrypted(payload) for payload in payloads]

    async def decode(self, payloads: Sequence[Payload]) -> list[Payload]:
        """Raises UndecryptableError. A payload in the clear is passed on: it is older than the keys."""
        return [
            self._decrypted(payload) if payload.metadata.get("encoding") == ENCODING else payload
            for payload in payloads
        ]

    def _encrypted(self, payload: Payload) -> Payload:
        key_id = self._ring.current
        nonce = os.urandom(NONCE_BYTES)
        sealed = self._ciphers[key_id].encrypt(nonce, _packed(payload.SerializeToString()), _bound_to(key_id))
        metadata = {"encoding": ENCODING, "encryption-cipher": CIPHER, "encryption-key-id": key_id.encode()}
        return Payload(metadata=metadata, data=nonce + sealed)

    def _decrypted(self, payload: Payload) -> Payload:
        key_id = payload.metadata.get("encryption-key-id", b"").decode(errors="replace")
        cipher = self._ciphers.get(key_id)
        if cipher is None:
            raise UndecryptableError(
                f"a payload was encrypted under key {key_id!r}, which is not among {list(self._ring.keys)}: "
                f"add it to {KEYS_VARIABLE} (after the first) until nothing needs it any more"
            )
        nonce, sealed = payload.data[:NONCE_BYTES], payload.data[NONCE_BYTES:]
        try:
            packed = cipher.decrypt(nonce, sealed, _bound_to(key_id))
        except (InvalidTag, ValueError) as error:  # ValueError: shorter than a nonce
            raise UndecryptableError(
                f"a payload under key {key_id!r} was changed, or the key is another one"
            ) from error
        return Payload.FromString(_unpacked(packed))


class ReadablePayloads(PydanticPayloadConverter):
    """Pydantic's converter. What is still encrypted when it gets here is called that: this process has no keys."""

    def __init__(self) -> None:
        super().__init__()
        self.converters = {**self.converters, ENCODING: _StillEncrypted()}


class _StillEncrypted(EncodingPayloadConverter):
    @property
    def encoding(self) -> str:
        return ENCODING.decode()

    def to_payload(self, value: Any) -> Payload | None:
        return None

    def from_payload(self, payload: Payload, type_hint: type | None = None) -> Any:
        key_id = payload.metadata.get("encryption-key-id", b"").decode(errors="replace")
        raise UndecryptableError(
            f"a payload was encrypted under key {key_id!r}, and this process has no codec keys: set {KEYS_VARIABLE}"
        )


def payloads_in(message: Message) -> Iterator[Payload]:
    """Every payload anywhere in a message of Temporal's API, such as a history."""
    if isinstance(message, Payload):
        yield message
        return
    for field, value in message.ListFields():
        if field.message_type is None:
            continue
        if field.message_type.GetOptions().map_entry:
            entries = value.values() if field.message_type.fields_by_name["value"].message_type else ()
        else:
            entries = value if field.is_repeated else (value,)
        for each in entries:
            yield from payloads_in(each)


def used_keys(payloads: Iterable[Payload]) -> set[str]:
    """The ids of the keys these payloads need; what is in the clear needs none."""
    return {
        payload.metadata["encryption-key-id"].decode(errors="replace")
        for payload in payloads
        if payload.metadata.get("encoding") == ENCODING and "encryption-key-id" in payload.metadata
    }


def _bound_to(key_id: str) -> bytes:
    """Authenticated with the ciphertext: a payload cannot be passed off under another key's name."""
    return CIPHER + b"\x00" + key_id.encode()


def _packed(data: bytes) -> bytes:
    if len(data) >= COMPRESS_FROM_BYTES:
        deflated = zlib.compress(data, level=1)  # the fastest: text shrinks to a third either way
        if len(deflated) < len(data):
            return _DEFLATED + deflated
    return _PLAIN + data


def _unpacked(packed: bytes) -> bytes:
    form, data = packed[:1], packed[1:]
    if form == _PLAIN:
        return data
    if form != _DEFLATED:
        raise UndecryptableError("a payload was packed by a newer version of Retold")
    inflating = zlib.decompressobj()
    inflated = inflating.decompress(data, INFLATED_MAX_BYTES)
    if inflating.unconsumed_tail:
        raise UndecryptableError(f"a payload unpacks to more than {INFLATED_MAX_BYTES} bytes")
    return inflated


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError as error:
        raise CodecKeysError(f"codec keys: {path} cannot be read ({error.strerror})") from error
