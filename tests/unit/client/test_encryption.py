"""Payloads at rest in Temporal: unreadable without a key, readable with any key of the ring, never altered unseen."""

from __future__ import annotations

import base64
import json
import zlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from temporalio.api.common.v1 import Payload

from retold.client.encryption import (
    KEY_BYTES,
    CodecKeysError,
    EncryptingCodec,
    KeyRing,
    UndecryptableError,
    key_ring_from_environment,
    used_keys,
)

OLD, NEW = b"o" * KEY_BYTES, b"n" * KEY_BYTES
SAID = "my daughter's birthday is on the 9th of May"


def payload(text: str = SAID) -> Payload:
    return Payload(metadata={"encoding": b"json/plain"}, data=json.dumps(text).encode())


def listed(**keys: bytes) -> str:
    return json.dumps([{"id": key_id, "key": base64.b64encode(key).decode()} for key_id, key in keys.items()])


@given(st.binary(max_size=4_000), st.dictionaries(st.text(max_size=20), st.binary(max_size=50), max_size=3))
def test_what_goes_in_comes_out(data: bytes, metadata: dict[str, bytes]) -> None:
    codec = EncryptingCodec(KeyRing({"new": NEW}))
    original = Payload(metadata=metadata, data=data)
    assert codec._decrypted(codec._encrypted(original)) == original


async def test_neither_text_nor_encoding_is_visible_and_the_same_text_never_looks_the_same() -> None:
    codec = EncryptingCodec(KeyRing({"new": NEW}))
    first, second = await codec.encode([payload(), payload()])
    for sealed in (first, second):
        raw = sealed.SerializeToString()
        assert b"birthday" not in raw and b"json/plain" not in raw
        assert used_keys([sealed]) == {"new"}
    assert first.data != second.data


async def test_a_long_text_is_smaller_than_it_was() -> None:
    codec = EncryptingCodec(KeyRing({"new": NEW}))
    long = payload(SAID * 200)
    (sealed,) = await codec.encode([long])
    assert sealed.ByteSize() < long.ByteSize() / 5
    assert await codec.decode([sealed]) == [long]


async def test_rotation_keeps_old_histories_readable_and_writes_with_the_new_key() -> None:
    (written_before,) = await EncryptingCodec(KeyRing({"old": OLD})).encode([payload()])
    rotated = EncryptingCodec(KeyRing({"new": NEW, "old": OLD}))
    assert await rotated.decode([written_before]) == [payload()]
    assert used_keys(await rotated.encode([payload()])) == {"new"}
    with pytest.raises(UndecryptableError, match="'old', which is not among \\['new'\\]"):
        await EncryptingCodec(KeyRing({"new": NEW})).decode([written_before])


async def test_what_was_written_before_encryption_stays_readable() -> None:
    assert await EncryptingCodec(KeyRing({"new": NEW})).decode([payload()]) == [payload()]


async def test_a_changed_payload_and_a_borrowed_key_name_are_refused() -> None:
    codec = EncryptingCodec(KeyRing({"new": NEW, "old": NEW}))
    (sealed,) = await codec.encode([payload()])
    changed = Payload(metadata=sealed.metadata, data=sealed.data[:-1] + bytes([sealed.data[-1] ^ 1]))
    renamed = Payload(metadata={**sealed.metadata, "encryption-key-id": b"old"}, data=sealed.data)
    short = Payload(metadata=sealed.metadata, data=sealed.data[:5])
    for forged in (changed, renamed, short):
        with pytest.raises(UndecryptableError, match="was changed"):
            await codec.decode([forged])


async def test_a_payload_that_unpacks_without_end_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("retold.client.encryption.INFLATED_MAX_BYTES", 10_000)
    monkeypatch.setattr("retold.client.encryption._packed", lambda data: b"\x01" + zlib.compress(b"0" * 100_000))
    codec = EncryptingCodec(KeyRing({"new": NEW}))
    with pytest.raises(UndecryptableError, match="more than 10000 bytes"):
        await codec.decode(await codec.encode([payload()]))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "must be JSON"),
        ("[]", "at least one key"),
        ("{}", "at least one key"),
        ('[{"id": "a"}]', "must be JSON"),
        ('[{"id": "a", "key": "not base64!"}]', "must be JSON"),
        (listed(a=b"short"), "'a' has 5 bytes"),
        (
            '[{"id": "a", "key": "' + "A" * 44 + '"}, {"id": "a", "key": "' + "A" * 44 + '"}]',
            "bytes|same id|must be JSON",
        ),
    ],
)
def test_unusable_keys_are_refused_without_being_shown(text: str, says: str) -> None:
    with pytest.raises(CodecKeysError, match=says) as refused:
        KeyRing.from_json(text)
    assert "not base64!" not in str(refused.value)


def test_keys_come_from_a_variable_a_file_or_the_secrets_folder_and_a_broken_file_is_never_no_keys(
    tmp_path: Path,
) -> None:
    (tmp_path / "retold_codec_keys").write_text(listed(folder=NEW))
    (tmp_path / "elsewhere").write_text(listed(file=NEW))
    folder = {"RETOLD_SECRETS_DIR": str(tmp_path)}
    named = {**folder, "RETOLD_CODEC_KEYS_FILE": str(tmp_path / "elsewhere")}
    variable = {**named, "RETOLD_CODEC_KEYS": listed(variable=NEW)}
    found = [key_ring_from_environment(each) for each in (folder, named, variable, {})]
    assert [ring and ring.current for ring in found] == ["folder", "file", "variable", None]
    for broken in ({"RETOLD_CODEC_KEYS_FILE": str(tmp_path / "missing")}, {"RETOLD_CODEC_KEYS": "x"}):
        with pytest.raises(CodecKeysError):
            key_ring_from_environment(broken)
    assert "nnnn" not in repr(found[0])
