"""Child processes: starting and ending them, saying how they ended, loading targets, proving their code."""
