"""Retold decides, on every turn of an AI assistant, whether a stored memory will make this answer better."""

__version__ = "0.1.0"
