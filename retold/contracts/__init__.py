"""Everything that crosses a process boundary: frozen, versioned pydantic models and the rules on their fields."""
