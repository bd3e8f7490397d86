"""Counts what repeats to the digit: operators, syncs, tensor bytes, FLOPs, Python calls, graph breaks."""
