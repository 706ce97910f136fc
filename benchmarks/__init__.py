"""Side-by-side measurements, each one command. `python -m benchmarks` is the turn's: see `benchmarks/__main__.py`."""
