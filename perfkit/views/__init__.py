"""Functions from records to what people read: markdown, terminal tables."""
