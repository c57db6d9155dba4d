"""The official conformance suite, run against handrail: `make conformance`."""
