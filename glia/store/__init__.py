"""L2: names without addresses. LevelDB index and append-only segments, and the same in memory."""
