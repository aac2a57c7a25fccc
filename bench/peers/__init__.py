"""The peers: each a process of its own, started by the benchmarks as `python -m bench.peers.NAME`."""
