"""Observers that come with handrail: what they are told of runs, they pass on to other systems."""
