"""What is mirrored, how it is found and with which secrets: sources, lists, searches, credentials, DataONE's nodes."""

from skep.cli.commands.shared import JSON, YES
from skep.cli.parser import arg, const, either, verb
from skep.search.cli import query

REF = arg("REF", "id, name (github.com/org/repo) or URL")
REPOSITORY = "URL or path of a repository"
SEARCHABLE = arg("--wait", "return when its newest commit is searchable")
COMMIT = arg("--commit ID", "wait until this commit is searchable", default="")
SOURCE = (
    verb("add", "mirror a repository").takes(
        arg("URL*", REPOSITORY),
        arg("--file FILE", "add or update the URLs in this file, one in each line; - for stdin"),
        SEARCHABLE,
        arg("--label LABEL", "give it this label; may be repeated", action="append"),
        arg("--private", "seen only with the scope 'private'"),
        arg("--kind KIND", "git, or dataone for the base URL of a Member Node", default="git"),
        JSON,
    ),
    verb("list", "all sources").takes(
        arg("--state STATE", "only those in this state: new, cloning, current, failing, …"), JSON
    ),
    verb("show", "one source").takes(REF, JSON),
    verb("update", "change URL, labels, settings or visibility").takes(
        REF,
        arg("--url URL", "the upstream moved here"),
        arg("--label LABEL", "these labels instead of its own; '' for none", action="append"),
        arg(
            "--set KEY=VALUE",
            "force_push, refs, branches, poll_min, poll_max or priority; without VALUE as others; may be repeated",
            action="append",
        ),
        either(
            const("--private", "visibility", "private", "hide it"),
            const("--public", "visibility", "public", "show it to all readers"),
        ),
        JSON,
    ),
    verb("fetch", "look at the upstream now").takes(REF, SEARCHABLE, COMMIT, JSON),
    verb("accept", "follow it into the loss it asks about").takes(REF, SEARCHABLE, COMMIT, JSON),
    verb("reindex", "build its index anew, or with --all everybody's").takes(
        arg("REF?", "id, name (github.com/org/repo) or URL"),
        arg("--all", "every source: the whole index from the mirrors"),
        JSON,
    ),
    verb("remove", "forget a source and its mirror").takes(REF, YES),
)
_LISTED = arg("REF", "id or URL, as `skep list list` shows it")
LIST = (
    verb("add", "follow a list").takes(
        arg("URL", "git repository, github:ORG, gitlab:GROUP, gitee:ORG, gitea:https://HOST/ORG or manifest:URL"),
        arg("--private", "it and its sources need the scope 'private'"),
        arg("--no-forks", "leave out forks that an organisation holds"),
        arg("--no-archived", "leave out what is archived there"),
        JSON,
    ),
    verb("list", "all lists").takes(JSON),
    verb("show", "one list, its problems and what waits").takes(_LISTED, JSON),
    verb("entries", "what a list names").takes(
        _LISTED, JSON, arg("--gone", "only what is no longer in it and waits to be removed")
    ),
    verb("read", "read it now").takes(_LISTED),
    verb("confirm", "let it remove what waits").takes(_LISTED, YES),
    verb("remove", "follow it no longer").takes(_LISTED, YES),
)
_SAVED = arg("NAME", "of the search")
SEARCHES = (
    verb("save", "keep a query; what newly matches is told").takes(
        _SAVED,
        query,
        arg("--topic TOPIC", "where it is told (skep.searches)", default=""),
        arg("--first", "tell also what matches when a source is new"),
        JSON,
    ),
    verb("list", "those that are kept").takes(JSON),
    verb("remove", "no longer").takes(_SAVED),
)
CREDENTIAL = (
    verb("set", "set one; the secret is read from standard input").takes(
        arg("NAME", "what it is called here"),
        arg("--host HOST", "HOST or HOST:PORT; it is shown to no other", required=True),
        arg("--source REF", "only for this source", default=""),
        arg("--user USER", "user name beside the secret (x-access-token)", default="x-access-token"),
        arg("--public", "use it for public sources too"),
        either(
            const("--hook", "use", "hook", "it proves webhooks instead of being shown to the host"),
            const("--api", "use", "api", "it is shown when the host is asked for its repositories, for a list"),
        ),
        lambda parser: parser.set_defaults(use="fetch"),
        JSON,
    ),
    verb("list", "all credentials, without secrets").takes(JSON),
    verb("remove", "forget one").takes(arg("NAME", "as `skep credential list` shows it")),
)
_NODE = arg("NODE", "urn:node:NAME, or the id of its source")
DATAONE = (
    verb("nodes", "all Member Nodes").takes(JSON),
    verb("node", "one Member Node").takes(_NODE, JSON),
    verb("approve", "harvest a node that registered itself").takes(_NODE, JSON),
    verb("set", "change limits, pause or go on").takes(
        _NODE,
        JSON,
        arg("--connections CONNECTIONS", "requests at the same time", type=int),
        arg("--rate RATE", "requests per second; 0: as many as there are", type=float),
        arg("--bytes BYTES", "bytes of answers under way", type=int),
        either(
            const("--pause", "paused", True, "ask it nothing any more"),
            const("--resume", "paused", False, "go on"),
        ),
    ),
    verb("reconcile", "list everything again").takes(
        _NODE,
        JSON,
        arg("--since TIME", "only what is newer: 2026-01-31T12:00:00Z"),
        arg("--dry-run", "only say what the next harvest, or one from there on, would bring"),
    ),
    verb("replay", "try again what is parked").takes(
        _NODE, JSON, arg("--pid PID", "this object, whatever its state", default="")
    ),
    verb("explain", "why an object is, or is not, there").takes(
        arg("PID", "an object's identifier, or a series"), JSON
    ),
    verb("index", "how far the index of records is").takes(
        either(
            const("--bulk", "bulk", True, "bulk-load mode: nothing is indexed"),
            const("--no-bulk", "bulk", False, "index what waits, and go on"),
        ),
        arg("--audit", "compare all objects with their records, and repair"),
        JSON,
    ),
)
