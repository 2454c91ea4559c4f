"""Attacks on the interface, by their classes: each is tried, and none gets in."""
