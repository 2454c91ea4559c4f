"""The sentinel: a small process beside the others that reads, judges, and calls somebody before anything is late.

It has one connection that cannot write, and needs nothing else of the cluster: no bus, no coordinator, no API. So what
keeps the others from working does not keep it from saying so.
"""
