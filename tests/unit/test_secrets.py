"""What has the shape of a credential is found; sentences about credentials are not."""

from __future__ import annotations

import time

import pytest

from retold.contracts.secrets import find_secret

SECRETS = [
    "password: hunter2",
    "My password is hunter2",
    "password: swordfish",
    "pwd=letmein",
    "DB_PASSWORD=s3cr3t!",
    "the wifi passphrase is Tr0ub4dor&3",
    "my passcode is 482913",
    '{"password": "hunter2"}',
    "Password: required, but the API key: 9f8e7d6c5b4a works too",
    "api_key=abcd1234efgh5678",
    "client_secret = a1b2c3d4e5",
    "token=0a1b2c3d4e5f",
    "密码：hunter2",
    "パスワードは hunter2 です",
    "Passwort: geheim123",
    "Authorization: Bearer abcdef1234567890abcdef",
    "authorization: basic dXNlcjpwYXNz",
    "call it with bearer abc123def456ghi789",
    "sk-" + "proj-abcdefghij0123456789",
    "ghp_" + "a1B2" * 9,
    "AKIA" + "IOSFODNN7EXAMPLE",
    "eyJhbGciOiJIUzI1NiJ9." + "eyJzdWIiOiIxMjM0In0." + "dozjgNryP4J3jVmNHl0w",
    "-----BEGIN " + "RSA PRIVATE KEY-----\nMIIE",
    "-----BEGIN " + "PGP PRIVATE KEY BLOCK-----",
    "postgres://ada:s3cret@db.internal/app",
    "My pass\u200bword is hunter2",
    "sk-" + "proj-abc\u2060defghij0123456789",
]

ORDINARY = [
    "My password expired last week",
    "The API key lives in the vault",
    "The password is stored in the vault",
    "The password is required.",
    "Our password policy: rotate every 90 days",
    "Passwords: rotate quarterly, never reuse",
    "I am a password manager fan: bitwarden",
    "password: required",
    "password: ****",
    "password: <your password>",
    "password: ${DB_PASSWORD}",
    "The secret: use butter instead of oil",
    "The secret is patience",
    "The secret is out",
    "The secret is in room B12",
    "Secret Santa is on 12/20",
    "token is 2048 bits",
    "Token budget: 4000",
    "Max token = 4096 for replies",
    "The token is ERC20",
    "Each session token is valid for 30 minutes",
    "A bearer of good news",
    "the compass: north",
    "keyboard: qwerty1",
    "Mon mot de passe est perdu",
    "Commit 1f0c2d3e4b5a69788796a5b4c3d2e1f001234567 broke it",
    "id 123e4567-e89b-12d3-a456-426614174000",
    "Call me at +49 170 1234567, the meeting is at 12:30",
    "See https://example.org/a:b@c",
    "",
]


@pytest.mark.parametrize("text", SECRETS)
def test_a_secret_is_found_and_its_kind_named_without_its_value(text: str) -> None:
    kind = find_secret(f"Please note. {text}")
    assert kind
    assert not any(char.isdigit() for char in kind)


@pytest.mark.parametrize("text", ORDINARY)
def test_an_ordinary_sentence_passes(text: str) -> None:
    assert find_secret(text) is None


@pytest.mark.parametrize(
    "piece", ["a.", "eyJ-", "eyJaaaaaaaa.", "token: ", "password ", "://a:", "bearer ", "-----BEGIN A "]
)
def test_a_hostile_line_takes_as_long_as_it_is(piece: str) -> None:
    """Eight times the line is about eight times the work; a pattern that backtracks would take 64 times or more."""

    def found_in_s(characters: int) -> float:
        started = time.process_time()
        find_secret(piece * (characters // len(piece)))
        return time.process_time() - started

    assert found_in_s(32_000) < 30 * max(found_in_s(4_000), 0.001)
