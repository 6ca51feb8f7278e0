"""How the benchmarks measure: rounds, peers, the servers and programs they play, verdicts, reports, comparisons."""
