window.BENCHMARK_DATA = {
  "lastUpdate": 1700000100000,
  "repoUrl": "https://example.com/team/project",
  "entries": {
    "Rust": [
      {
        "commit": {
          "author": {"email": "a@example.com", "name": "A", "username": "a"},
          "committer": {"email": "a@example.com", "name": "A", "username": "a"},
          "id": "1111111111111111111111111111111111111111",
          "message": "Sort by keys\n\nIt is faster.",
          "timestamp": "2023-11-14T22:00:00+01:00",
          "url": "https://example.com/team/project/commit/1111111111111111111111111111111111111111"
        },
        "date": 1700000000000,
        "tool": "cargo",
        "benches": [{"name": "sort_keys", "value": 1234, "range": "± 123", "unit": "ns/iter"}]
      },
      {
        "commit": {"id": "2222222222222222222222222222222222222222", "message": "Sort in place", "timestamp": "2023-11-14T23:00:00+01:00"},
        "date": 1700000100000,
        "tool": "cargo",
        "benches": [{"name": "sort_keys", "value": 1000, "range": "± 100", "unit": "ns/iter"}]
      }
    ],
    "Python": [
      {
        "commit": {"id": "2222222222222222222222222222222222222222", "message": "Sort in place", "timestamp": "2023-11-14T23:00:00+01:00"},
        "date": 1700000100001,
        "tool": "pytest",
        "benches": [
          {"name": "tests/bench.py::test_sort", "value": 4000, "unit": "iter/sec", "range": "stddev: 0.00001", "extra": "mean: 250 usec\nrounds: 20"}
        ]
      }
    ],
    "Throughput": [
      {
        "commit": {"id": "2222222222222222222222222222222222222222", "message": "Sort in place", "timestamp": "2023-11-14T23:00:00+01:00"},
        "date": 1700000100002,
        "tool": "customBiggerIsBetter",
        "benches": [{"name": "loader", "value": "12,345.5", "unit": "images"}]
      }
    ]
  }
}
