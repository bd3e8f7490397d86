"""Small steady work of two kinds: what identical code scatters by is the machine's doing."""
