"""Observers that come with handrail; they pass the events of runs on to other systems."""
