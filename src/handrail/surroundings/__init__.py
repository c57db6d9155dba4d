"""What handrail asks of whatever it runs on: the time and chance. See also `handrail.process_identity`.

A simulation of several processes in one thread sets `source` in each of these modules, and so moves all of it.
"""
