"""Other tools' files of measurements: from their bytes to records, and from rows to such files."""
