"""Two small steady benchmarks, by which the doctor measures how much the machine makes times scatter."""
