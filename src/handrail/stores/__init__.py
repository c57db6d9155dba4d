"""Where things are kept; one file per store, one inherited contract suite."""
