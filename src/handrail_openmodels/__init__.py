"""Open models on raw completions: prompts, parsers, grammars and rows for training."""
