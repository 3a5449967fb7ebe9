"""The worker role's work: look, fetch, build; everything it must not forget is in its own small file."""
