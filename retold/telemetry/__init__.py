"""Spans and attribute names, in one place."""
