"""Found by pytest from anywhere; the plugins themselves are in tests/."""

import os

# Before torch is imported anywhere: OpenMP reads it once, and threads that spin while they
# wait starve the engines under test on a small machine.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

pytest_plugins = ["tests.spec_table"]
