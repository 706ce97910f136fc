"""Adapters to models: completion and embedding."""
