"""The audit log: what is written to it, and the chain of hashes that shows whether it is whole."""
