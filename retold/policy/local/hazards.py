"""Record texts that must not reach an answer whatever they are about: orders posing as facts, and secrets.

Shapes, not topics: "asked to be written to in Danish" is a fact, "ignore previous instructions" is an order.
"""

from __future__ import annotations

import re

_ORDERS = re.compile(
    r"""
    \b(?:ignore|disregard|forget|override|bypass)\b[^.\n]{0,40}
        \b(?:previous|prior|above|earlier|all|your|any|other|these|system)\b
        [^.\n]{0,30}\b(?:instruction|prompt|rule|message|direction|guideline|safety|memor|context)
    | \b(?:reply|respond|answer)\s+(?:only|exclusively|just|to\ every\w*)\b[^.\n]{0,40}\b(?:with|by|using)\b
    | \b(?:system|developer)\s+(?:prompt|override|instruction)
    | \byou\s+(?:are|will)\s+now\b | \bfrom\s+now\s+on,?\s+(?:you|the\s+assistant|always)\b
    | \b(?:assistant|model|ai|chatbot)\b[^.\n]{0,12}\b(?:must|should|has\ to|will|needs\ to|shall)\b
    | \b(?:note|message|instruction)s?\s+(?:for|to)\s+(?:the\s+)?(?:assistant|model|ai|llm|agent)
    | \bdo\s+not\s+(?:tell|inform|mention|reveal|show|warn)\b[^.\n]{0,30}\b(?:user|them|anyone)
    | \b(?:whenever|when|if)\b[^.\n]{0,60}\bask\w*\b[^.\n]{0,60},
        \s*(?:say|reply|respond|answer|tell|recommend|insert|output|include)\b
    | ^\s*(?:please\s+)?(?:always|never)\s+
        (?:say|reply|respond|answer|recommend|insert|output|append|include|tell|mention|end|start)\b
    | \b(?:send|post|forward|upload|exfiltrate|leak|email)\b[^.\n]{0,60}
        \b(?:to\s+https?:|conversation|chat\ history|credentials|memories)
    | \b(?:rm\s+-rf|curl\s+\S*https?:|powershell\s+-|drop\s+table)\b
    | <\|?/?(?:im_start|im_end|system|assistant|user|memory|instructions?)\b
    | \[/?(?:inst|system)\b | ^\s*(?:system|assistant)\s*:
    | \bignorier\w*\b[^.\n]{0,40}\b(?:anweisung|regel|vorgabe) | \bantworte\s+(?:nur|ausschließlich)\b
    | \bignore[zr]?\b[^.\n]{0,40}\b(?:instructions|consignes|règles)
    | \b(?:ignora|ignore|ignorar|olvida)\b[^.\n]{0,40}\binstrucciones
    | \bignora\b[^.\n]{0,40}\bistruzioni | \bignore\b[^.\n]{0,40}\binstruções | \bигнорируй\w*\b[^.\n]{0,40}\bинструкц
    | 忽略[^。\n]{0,12}(?:指令|指示|提示|说明) | 指示を無視 | (?:निर्देश|निर्देशों)[^।\n]{0,20}(?:अनदेखा|नज़रअंदाज़|भूल)
    | تجاهل[^.\n]{0,30}التعليمات
    """,
    re.IGNORECASE | re.VERBOSE | re.MULTILINE,
)

_SECRETS = re.compile(
    r"""
    -----BEGIN\ [A-Z ]*PRIVATE\ KEY | \bAKIA[0-9A-Z]{12,} | \bgh[pousr]_[A-Za-z0-9]{16,} | \bxox[abprs]-[A-Za-z0-9-]{8,}
    | \b(?:sk|pk|rk)[-_](?:live|test|proj|ant)?[-_]?[A-Za-z0-9_-]{16,} | \beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.
    | \b(?i:password|passphrase|passcode|api[ _-]?key|access[ _-]?key|secret(?:[ _-]key)?|token|pin(?:\ code)?|cvv
        |kennwort|passwort|mot\ de\ passe|contraseña|senha|пароль)\b[^.\n]{0,30}?
        (?:\b(?i:is|ist|est|es|equals)\b|[:=]|\bто\b|—)\s*["'`]?
        (?=\S*[\d!@\#$%^&*_])\S{4,}
    | (?:密码|口令|パスワード)[^\n]{0,6}[是为：:は]\s*[\x21-\x7e]{4,}
    | \b(?:https?|postgres(?:ql)?|mysql|mongodb|redis|amqp)(?:\+\w+)?://[^\s/:@]+:[^\s/@]+@
    """,
    re.VERBOSE,
)
_CARD = re.compile(r"(?<!\d)(?:\d[ -]?){13,19}(?!\d)")


def is_hazardous(text: str) -> bool:
    """Whether a record's text is shaped like an order to the model or holds something shaped like a secret."""
    return bool(_ORDERS.search(text) or _SECRETS.search(text)) or any(
        _is_card_number(found.group()) for found in _CARD.finditer(text)
    )


def _is_card_number(text: str) -> bool:
    digits = [int(char) for char in text if char.isdigit()]
    if not 13 <= len(digits) <= 19 or len(set(digits)) == 1:
        return False
    doubled = [digit * 2 - 9 if digit > 4 else digit * 2 for digit in digits[-2::-2]]
    return (sum(digits[-1::-2]) + sum(doubled)) % 10 == 0
