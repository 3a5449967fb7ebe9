"""Who may come in: tokens, workers and their certificates."""

from skep.cli.commands.shared import DATA, EXPIRES, JSON
from skep.cli.parser import arg, here, verb

TOKEN = (
    verb("create", "make a token; it is shown once").takes(
        arg("SUBJECT", "who will use it"),
        arg(
            "--scope", "may be repeated", action="append", required=True, choices=("read", "write", "private", "admin")
        ),
        EXPIRES,
        JSON,
    ),
    verb("list", "all tokens").takes(JSON),
    verb("revoke", "end a token").takes(arg("ID", "as `skep token list` shows it")),
)
_ONE_WORKER = arg("WORKER", "id or name")
WORKER = (
    verb("list", "all workers").takes(JSON),
    verb("show", "one worker").takes(_ONE_WORKER, JSON),
    verb("select", "try a selector").takes(
        arg("EXPR", 'such as: os == "linux" and memory >= 8GB and tools has "gcc"', dest="selector"), JSON
    ),
    verb("drain", "give what it holds to others").takes(_ONE_WORKER),
    verb("resume", "drain it no further").takes(_ONE_WORKER),
    verb("forget", "it will not come back").takes(_ONE_WORKER),
    verb("token", "make a token to join with; shown once", run="member:token").takes(
        arg("--name NAME", "whose it is, for your own lists", default=""),
        arg("--role", "what it may join as (worker); may be repeated", action="append", choices=("worker", "manager")),
        arg("--shared", "for many that are made alike, such as containers"),
        EXPIRES,
        arg("--join", "print the whole line for `skep worker join`"),
        JSON,
    ),
    verb("tokens", "all tokens to join with", run="member:tokens").takes(JSON),
    verb("revoke", "end a token, and whoever joined with it", run="member:revoke").takes(
        arg("ID", "as `skep worker tokens` shows it")
    ),
    here("join", "remember the line to join with", run="member:join").takes(
        arg("LINE", "of `skep worker token --join`; - for standard input"), DATA
    ),
)
CA = (
    here("init", "make a CA, and a certificate of it for this coordinator").takes(
        arg("HOST*", "name or address that members dial, besides this machine's name and loopback", dest="hosts"), DATA
    ),
    here("issue", "a certificate for another coordinator").takes(
        arg("HOST+", "name or address that members dial", dest="hosts"),
        arg("--out FOLDER", "link.crt, link.key and ca.crt go there", required=True),
        DATA,
    ),
)
