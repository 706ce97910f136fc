"""Embedders: MiniLM in this process, any OpenAI-compatible service, and a deterministic one for tests."""
