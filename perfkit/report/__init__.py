"""Turns records into what people read: tables in the terminal, markdown, pictures and pages."""
