"""Speed as ratios: both sides in one run, medians. `python -m simulations.bench`."""
