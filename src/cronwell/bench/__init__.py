"""Benchmarks that an installation can run on itself: throughput, start lateness, and the limit of its database."""
