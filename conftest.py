"""Found by pytest from anywhere; the plugins themselves are in tests/."""

pytest_plugins = ["tests.spec_table"]
