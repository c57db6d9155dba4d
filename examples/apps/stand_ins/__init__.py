"""Servers on this machine in place of what the apps reach: a cluster, a wiki, a web search, mail, a ticket system."""
