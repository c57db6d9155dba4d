"""Where a user's function runs: threads, warm processes, and sandboxes that serve one call each."""
