"""Speed tricks of PyTorch, each declared as the same work without it and with it; they know no harness."""
