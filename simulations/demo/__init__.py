"""`make run`: a long prompt cold, warm, and after a restart of gliad. See __main__."""
