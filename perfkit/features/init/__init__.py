"""How a repository that has never seen perfkit begins: what it is made of, and what it lacks."""
