"""Speed tricks: the catalogue, the suite that tries them, the checks before, and the choice after."""
