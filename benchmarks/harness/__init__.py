"""The tools of the benchmarks: rounds, peers, servers, programs, verdicts, reports, comparisons."""
