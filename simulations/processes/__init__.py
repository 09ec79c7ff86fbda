"""Real gliads on loopback, each with a tiny random model and one thread."""
