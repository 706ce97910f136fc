"""INSERT .. ON CONFLICT, which both databases know and SQLAlchemy spells once for each."""

from __future__ import annotations

from sqlalchemy import Table
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.orm import Session

Insert = sqlite.Insert | postgresql.Insert


def insert(dialect: str, table: Table) -> Insert:
    """An insert that may say what happens when the row is already there."""
    return sqlite.insert(table) if dialect == "sqlite" else postgresql.insert(table)


def dialect_of(session: Session) -> str:
    return session.get_bind().dialect.name
