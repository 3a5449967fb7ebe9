"""Arguments of many commands."""

from skep.cli.parser import arg, settings

JSON = arg("--json", "for programs: JSON, one object per line")
YES = arg("--yes", "do not ask")
LIMIT = arg("--limit N", "how many at most (100)", default=100)
EXPIRES = arg("--expires TIME", "after 90s, 30m, 12h, 30d or 2w; never if not given")
DATA = settings("data", only=True)
