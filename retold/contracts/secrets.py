"""Does a text hold something that must never be kept, in memory or in an audit trail: a key, a token, a password?

Shapes, not guesses: what has the form of a credential, or is called one and looks like one. "My password expired"
and "the API key lives in the vault" are ordinary sentences and pass. Pure; the found value is never returned.
Repetitions are bounded, so that a long hostile line costs no more than a long plain one.
"""

from __future__ import annotations

import re

_ISSUED: dict[str, re.Pattern[str]] = {
    "private key": re.compile(r"-----BEGIN (?:[A-Z0-9]+ )*PRIVATE KEY(?: BLOCK)?-----"),
    "cloud access key": re.compile(r"\b(?:AKIA|ASIA)[0-9A-Z]{16}\b"),
    "API key": re.compile(
        r"\bsk-[A-Za-z0-9_-]{20,}"
        r"|\b(?:sk|rk|pk)_(?:live|test)_[A-Za-z0-9]{16,}"
        r"|\bAIza[0-9A-Za-z_-]{35}"
        r"|\bgh[pousr]_[A-Za-z0-9]{36,}"
        r"|\bgithub_pat_[A-Za-z0-9_]{40,}"
        r"|\bglpat-[A-Za-z0-9_-]{20,}"
        r"|\bxox[abeprs]-[A-Za-z0-9-]{10,}"
        r"|\bhf_[A-Za-z0-9]{30,}"
    ),
    "signed token": re.compile(r"\beyJ[A-Za-z0-9_-]{8,2000}\.[A-Za-z0-9_-]{8,2000}\.[A-Za-z0-9_-]{8}"),
    "authorization header": re.compile(r"\bauthorization\s*:\s*\w+\s+[A-Za-z0-9._~+/=-]{8,}", re.IGNORECASE),
    "password in a URL": re.compile(r"\b[a-z][a-z0-9+.-]{0,20}://[^\s/:@]{1,256}:[^\s/@]{1,256}@", re.IGNORECASE),
}

_UNSEEN = re.compile("[\u00ad\u200b-\u200f\u202a-\u202e\u2060-\u2064\ufeff]")
"""Characters that show nothing: between the letters of a secret they hide it from a pattern, and from nobody else."""

_BEARER = re.compile(r"\bbearer\s+(?P<value>[A-Za-z0-9._~+/=-]{16,})", re.IGNORECASE)

_NAMES = (
    r"pass(?:word|phrase|code|wd)?|pwd|passwort|kennwort|contraseña|senha|mot de passe|пароль",
    r"(?:api|access|secret|private|encryption)[\s_-]?key|(?:client|app)[\s_-]?secret|secret",
    r"(?:(?:api|access|auth|refresh|bearer|session)[\s_-]?)?token",
)
_NAMES_WITHOUT_SPACES = r"密码|密碼|パスワード|비밀번호"
_NAMED = re.compile(
    rf"(?P<name>(?<![^\W_])(?:{'|'.join(_NAMES)})|{_NAMES_WITHOUT_SPACES})"
    r"[\"'`]?\s*(?P<link>[:：=]|\bis\b|は|是|는|은)\s*"
    r"[\"'`“]?(?P<value>[^\s\"'`“”]+)[\"'`”]?(?=(?P<rest>[^\n]{0,80}))",
    re.IGNORECASE,
)
_PROSE_LINKS = ("is", "は", "是", "는", "은")
_SHORTEST = 4
_PLAIN_WORDS = frozenset(
    {"required", "optional", "none", "null", "empty", "unknown", "unset", "changed", "expired", "reset"}
)
_MASKED = re.compile(r"[*•x.…\[\]_-]+\Z|<|\$\{?\w+\}?\Z", re.IGNORECASE)


def find_secret(text: str) -> str | None:
    """What kind of secret the text seems to hold, or None. The kind is safe to show; the value is not part of it."""
    text = _UNSEEN.sub("", text)
    for kind, shape in _ISSUED.items():
        if shape.search(text):
            return kind
    for bearer in _BEARER.finditer(text):
        if _mixed(bearer["value"]):
            return "bearer token"
    for named in _NAMED.finditer(text):
        if _looks_secret(named["value"].rstrip(".,;:!?)。、"), named["link"].casefold(), named["rest"]):
            return named["name"].casefold()
    return None


def _looks_secret(value: str, link: str, rest: str) -> bool:
    if len(value) < _SHORTEST or _MASKED.match(value) or value.casefold() in _PLAIN_WORDS:
        return False
    if link in _PROSE_LINKS:
        # Prose: any word may follow, so the word itself has to look made up.
        return _mixed(value) and len(value) >= 6
    # An assignment: a made-up word, or a plain one that is all the line says.
    return _mixed(value) or not rest.strip(" .,;!?")


def _mixed(value: str) -> bool:
    """Letters with digits or symbols inside, as passwords and keys have and words do not."""
    letters = any(char.isalpha() for char in value)
    digits = any(char.isdigit() for char in value)
    symbols = any(not char.isalnum() and char not in "-'’/." for char in value)
    return (letters and (digits or symbols)) or (digits and symbols) or (digits and not letters and len(value) >= 6)
