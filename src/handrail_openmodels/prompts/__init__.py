"""Prompt formats of open models, one file or one row each; `dialect` has what they share."""
