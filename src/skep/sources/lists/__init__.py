"""Source lists: files of URLs kept in git, and what an organisation of a forge holds."""
