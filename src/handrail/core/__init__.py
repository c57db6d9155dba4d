"""Decides, performs nothing: admission, execution, batches, conversations, policy, budgets. See `execution` first."""
