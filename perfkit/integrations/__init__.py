"""Callbacks for the libraries in which people train; each module alone imports its library."""
