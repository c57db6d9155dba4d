"""The stores: one file each, and one contract suite for all."""
