"""Git: which commit a result belongs to, the order of commits, and worktrees of them."""
