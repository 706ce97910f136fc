"""When "today", "this week" or "until Friday" ends, where that can be told from the words; English and plain dates."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

_DAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_MONTHS = ("january", "february", "march", "april", "may", "june", "july", "august", "september", "october",
           "november", "december")  # fmt: skip
_DATE = re.compile(r"\b(?:until|till|through)\s+(\d{4})-(\d{2})-(\d{2})\b")
_DAY_MONTH = re.compile(
    rf"\b(?:until|till|through)\s+(?:the\s+)?(\d{{1,2}})(?:st|nd|rd|th)?\s+(?:of\s+)?({'|'.join(_MONTHS)})\b"
)
_MONTH_DAY = re.compile(rf"\b(?:until|till|through)\s+({'|'.join(_MONTHS)})\s+(\d{{1,2}})(?:st|nd|rd|th)?\b")
_WEEKDAY = re.compile(rf"\b(?:until|till|through|by)\s+(?:next\s+)?({'|'.join(_DAYS)})\b")
_FOR = re.compile(r"\bfor the next (\d{1,3}|two|three|four|five|six) (day|week|month)s?\b")
_NUMBERS = {"two": 2, "three": 3, "four": 4, "five": 5, "six": 6}


def ends_at(text: str, said_at: datetime) -> datetime | None:
    """The first moment (UTC, exclusive) the statement does not hold any more; None: it does not say when.

    Days end at midnight UTC after them; a day that is named is included. Weeks end with their Sunday.
    """
    lowered = text.casefold()
    today = said_at.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    try:
        return _named_date(lowered, today) or _named_span(lowered, today)
    except (ValueError, OverflowError):
        return None  # the thirtieth of February


def _named_date(text: str, today: datetime) -> datetime | None:
    if match := _DATE.search(text):
        year, month, day = (int(part) for part in match.groups())
        named = datetime(year, month, day, tzinfo=UTC) + timedelta(days=1)
        return named if named > today else None
    match = _DAY_MONTH.search(text)
    day_month = (match.group(1), match.group(2)) if match else None
    if day_month is None and (match := _MONTH_DAY.search(text)):
        day_month = (match.group(2), match.group(1))
    if day_month is not None:
        named = datetime(today.year, _MONTHS.index(day_month[1]) + 1, int(day_month[0]), tzinfo=UTC)
        if named < today:
            named = named.replace(year=today.year + 1)
        return named + timedelta(days=1)
    if match := _WEEKDAY.search(text):
        ahead = (_DAYS.index(match.group(1)) - today.weekday()) % 7 or 7
        return today + timedelta(days=ahead + 1)
    return None


def _named_span(text: str, today: datetime) -> datetime | None:
    if match := _FOR.search(text):
        count = _NUMBERS.get(match.group(1)) or int(match.group(1))
        return today + timedelta(days=count * {"day": 1, "week": 7, "month": 30}[match.group(2)] + 1)
    if re.search(r"\btomorrow\b", text):
        return today + timedelta(days=2)
    if re.search(r"\b(?:today|tonight|this (?:morning|afternoon|evening))\b", text):
        return today + timedelta(days=1)
    if re.search(r"\b(?:this week|rest of the week|this weekend)\b", text):
        return today + timedelta(days=7 - today.weekday())
    if re.search(r"\b(?:this month|rest of the month)\b", text):
        return (today.replace(day=28) + timedelta(days=4)).replace(day=1)
    if re.search(r"\b(?:this year|rest of the year)\b", text):
        return today.replace(year=today.year + 1, month=1, day=1)
    return None
