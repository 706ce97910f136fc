"""The searchable index of records: derived data, rebuilt from SQL at any time. Embedded or on a Qdrant server."""
