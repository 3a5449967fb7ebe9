"""Every command, its verbs and their arguments: the help, the completion and docs/cli.md are made from this."""

from skep.cli.commands.fleet import CA, TOKEN, WORKER
from skep.cli.commands.shared import JSON, LIMIT
from skep.cli.commands.sources import COMMIT, CREDENTIAL, DATAONE, LIST, REF, REPOSITORY, SEARCHABLE, SEARCHES, SOURCE
from skep.cli.commands.tasks import BENCHMARK, CONTEXT, PACKAGE, RESULT, RULE, TASK
from skep.cli.commands.topics import SPACE, TOPIC
from skep.cli.parser import Command, arg, either, here, noun, settings, verb
from skep.search.cli import query


def _polling(parser: Command) -> None:
    """Settings that may be others in a simulation."""
    from typing import get_args

    from skep.config.settings import PollRule, Settings

    usual = Settings()
    arg("--rule", "as the setting poll_rule", choices=get_args(PollRule), default=usual.poll_rule)(parser)
    arg("--poll-min S", "as the setting (60)", type=float, default=usual.poll_min)(parser)
    arg("--poll-max S", "as the setting (86400)", type=float, default=usual.poll_max)(parser)


_ROLE = settings("data", "listen", "roles", "name", "coordinators", "token_file", "link_listen", "database")
COMMANDS = (
    here("up", "start Skep on this machine", run="server:up").takes(
        arg("--add URL", "mirror this too, if it is not yet", action="append", default=[]), settings()
    ),
    here("coordinator", "start a coordinator alone, for a fleet of machines", run="server:coordinator").takes(_ROLE),
    here("aggregator", "start an aggregator alone", run="server:aggregator").takes(_ROLE),
    here("manager", "start a manager alone", run="server:manager").takes(_ROLE),
    noun("source", "add, list and change what is mirrored", *SOURCE),
    verb("fetch", "look at a URL now, and add it if need be", run="source:fetch_url").takes(
        arg("URL", REPOSITORY),
        arg("--private", "if it is new: seen only with the scope 'private'"),
        SEARCHABLE,
        COMMIT,
        JSON,
    ),
    noun("list", "follow lists of sources", *LIST, module="lists"),
    verb("search", "search all sources", run="search:search").takes(
        query,
        arg("--lines N", "matching lines at most (50)", default=50),
        arg("-C --context N", "lines before and after each (0)", default=0),
        arg("--files", "only which files, as type:file does"),
        arg("--count", "only how many lines and files match"),
        arg("--explain", "say what each score is made of"),
        arg("--complete", "what may follow the query; for shells"),
        arg("--color", "auto: on a terminal", choices=("auto", "always", "never"), default="auto"),
        JSON,
    ),
    verb("report", "what is in a source", run="report:report").takes(
        REF, arg("--commit ID", "of this commit instead of the newest", default=""), JSON
    ),
    noun("searches", "searches that are kept, and told of", *SEARCHES, module="search"),
    verb("status", "what the server holds and does", run="admin:status").takes(JSON),
    here("config", "every setting and where it came from", run="settings:show").takes(
        JSON, arg("--example", "print a skep.toml with every default"), settings()
    ),
    noun("token", "create, list and revoke tokens", *TOKEN),
    verb("audit", "who changed what", run="admin:audit").takes(
        arg("ABOUT?", "a verb, a caller, or part of what was changed", default=""), LIMIT, JSON
    ),
    noun("credential", "secrets for upstreams and webhooks", *CREDENTIAL),
    noun("dataone", "harvest DataONE's Member Nodes", *DATAONE),
    noun("topic", "publish and read messages", *TOPIC),
    noun("space", "put, take and look at tuples", *SPACE),
    noun("context", "submit tasks that belong together", *CONTEXT),
    noun("task", "run commands on workers", *TASK),
    noun("package", "programs for tasks, kept for all workers", *PACKAGE),
    noun("result", "what tasks measured", *RESULT),
    noun(
        "worker",
        "start a worker alone, or look after workers",
        *WORKER,
        also=[
            settings(
                *(
                    "data",
                    "roles",
                    "name",
                    "coordinators",
                    "token_file",
                    "tls_ca",
                    "labels",
                    "capacity",
                    "task_commands",
                )
            )
        ],
        run="server:worker",
    ),
    noun("ca", "certificates of a fleet's own", *CA),
    here("autoscale", "as many workers as the work needs", run="autoscale:run").takes(
        arg("--least N", "workers that are always there (1)", default=1),
        arg("--most N", "workers there are at most (10)", default=10),
        arg("--within S", "seconds in which what waits should be done (60)", type=float, default=60.0),
        arg("--label LABEL", "only workers with this label count", default=""),
        arg("--every S", "seconds between two looks (60)", type=float, default=60.0),
        arg("--once", "look once"),
        arg(
            "COMMAND+",
            "makes it so many workers: `{n}` stands for the number, as in docker service scale workers={n}",
        ),
    ),
    noun("rule", "what is done on every change, or by the clock", *RULE),
    noun("benchmark", "what each change did to the numbers", *BENCHMARK),
    here("simulate", "how fresh mirrors would be at which load", run="simulate:run").takes(
        either(
            arg("--sources N", "a usual mix of so many sources (1000)", default=1000),
            arg("--file FILE", "TOML: [[group]] tables with sources and commits_per_day"),
        ),
        arg("--days N", "how long; a third of it is learning (60)", type=float, default=60.0),
        arg("--budget N", "looks a day of all together; else as many as age/2 takes", type=float, default=0.0),
        _polling,
        arg("--seed N", "other chances (0)", default=0),
        JSON,
    ),
    verb("log", "what every process says", run="log:show").takes(
        arg("--follow", "go on with what comes"),
        arg("--lines N", "begin with the newest N (100)", default=100),
        arg(
            "--level",
            "this level and worse",
            choices=("debug", "info", "warning", "error", "critical"),
            default="debug",
        ),
        arg("--process ID", "only of this process, as `skep status` names it", default=""),
        arg("--about ID", "only about this source or task", default=""),
        JSON,
    ),
    here("completion", "completion for your shell", run="completion:show").takes(
        arg("SHELL", "write the output where it looks", choices=("bash", "zsh", "fish", "tcsh"), metavar=None)
    ),
)
