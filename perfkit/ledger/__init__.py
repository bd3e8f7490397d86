"""Every measurement ever made, one immutable parquet file per run."""
