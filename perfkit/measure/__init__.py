"""The measuring protocol: clocks, launches, and what a pytest session measured."""
