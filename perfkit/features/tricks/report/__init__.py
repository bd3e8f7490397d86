"""What tricks do on this machine: a ranked table for the terminal, and a document."""
