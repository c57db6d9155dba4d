"""JSON Schema: from type hints, imported, validated, and written for each provider."""
