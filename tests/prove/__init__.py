"""Every interleaving of a few processes, up to a number of disturbances, checked against the promises: `make prove`."""
