"""Source lists: files of URLs kept in git, what an organisation of a forge holds, and manifests."""
