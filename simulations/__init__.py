"""Many-node worlds, demonstrations and benchmarks. Not installed with the package."""
