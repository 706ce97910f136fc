"""The operator's command: `retold`."""
