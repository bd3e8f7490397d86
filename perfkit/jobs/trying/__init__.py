"""The steps of trying tricks: both sides measured and counted, and what came out filed as rows."""
