"""Whether audits find what was tampered with, and nothing else: F31 and F32 on a real model."""
