"""Features beside the core, each whole in one folder; the core imports none of them."""
