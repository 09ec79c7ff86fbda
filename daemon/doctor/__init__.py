"""What `gliad doctor` looks at: one module a subject, each gives findings and changes nothing."""
