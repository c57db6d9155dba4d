"""What every server over HTTP shares: where it listens, and whose tokens it accepts."""
