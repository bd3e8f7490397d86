"""History: which of a ledger's runs stand for a commit, and how commits follow one another in the log."""
