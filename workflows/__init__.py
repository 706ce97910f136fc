"""What happens, in order. Deterministic; one file per workflow."""
