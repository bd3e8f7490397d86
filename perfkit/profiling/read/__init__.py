"""Reads profiles that anyone wrote: in a process of its own that has little memory and runs nothing."""
