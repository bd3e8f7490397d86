"""Pure: measurements and policy in, verdicts out."""
