"""What services that host repositories are told: a comment on a change, kept up to date in one place."""
