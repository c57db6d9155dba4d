"""What handrail costs, as ratios taken in one process; `make bench`."""
