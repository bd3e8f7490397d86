"""Tricks as pairs of benchmarks: measured in lockstep like the two sides of a gate."""
