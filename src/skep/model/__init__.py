"""The nouns: frozen structs without I/O. Everything else in Skep is verbs over these."""
