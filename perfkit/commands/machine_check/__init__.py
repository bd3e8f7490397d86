"""Small steady benchmarks, with torch or without, by which the doctor measures how much times scatter."""
