"""Callbacks for the libraries in which people train; each module imports its library, and nothing else does."""
