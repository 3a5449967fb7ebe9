"""The words of `skep context` and `skep task`."""

from skep.doors.cli.parser import Command, json_option

_TASK_STATES = "WAITING, RUNNING, FINISHED, FAILED, …"


def fill_context(parser: Command) -> None:
    verbs = parser.add_subparsers(metavar="VERB", required=True)
    verbs.add_parser("submit", help="submit the tasks of a file", fill=_fill_submit, run="context:submit")
    verbs.add_parser("list", help="contexts, newest first", fill=_fill_contexts, run="context:listing")
    verbs.add_parser("show", help="one context and its tasks", fill=_fill_context_show, run="context:show")
    verbs.add_parser("wait", help="return when it has ended", fill=_fill_wait, run="context:wait")
    verbs.add_parser("cancel", help="abort what has not ended", fill=_fill_context_cancel, run="context:cancel")
    verbs.add_parser("retry", help="submit again what failed", fill=_fill_retry, run="context:retry")
    verbs.add_parser("remove", help="forget a context that has ended", fill=_context, run="context:remove")


def fill_task(parser: Command) -> None:
    verbs = parser.add_subparsers(metavar="VERB", required=True)
    verbs.add_parser("run", help="run a command on a worker", fill=_fill_run, run="task:run")
    verbs.add_parser("list", help="tasks, newest first", fill=_fill_tasks, run="task:listing")
    verbs.add_parser("show", help="one task, its moves and its result", fill=_fill_task_show, run="task:show")
    verbs.add_parser("cancel", help="abort a task", fill=_fill_task_cancel, run="task:cancel")
    verbs.add_parser("output", help="what a task has written", fill=_fill_output, run="task:output")


def _context(parser: Command) -> None:
    parser.add_argument("context", metavar="CONTEXT", help="id of a context")


def _task(parser: Command) -> None:
    parser.add_argument("task", metavar="TASK", help="id of a task")


def _reason(parser: Command) -> None:
    parser.add_argument("--reason", metavar="TEXT", default="", help="why; it stands in the moves of the tasks")


def _limit(parser: Command) -> None:
    parser.add_argument("--limit", metavar="N", type=int, default=100, help="how many at most (100)")


def _fill_submit(parser: Command) -> None:
    parser.add_argument("file", metavar="FILE", help="TOML file with the context; - for standard input")
    parser.add_argument("--wait", action="store_true", help="return when it has ended; exit code 1 if it failed")
    json_option(parser)


def _fill_contexts(parser: Command) -> None:
    parser.add_argument("--state", choices=("RUNNING", "FINISHED", "FAILED"), help="only those in this state")
    parser.add_argument("--cause", metavar="TEXT", default="", help="only those whose cause begins so, such as person:")
    _limit(parser)
    json_option(parser)


def _fill_context_show(parser: Command) -> None:
    _context(parser)
    json_option(parser)


def _fill_wait(parser: Command) -> None:
    _context(parser)
    parser.add_argument("--timeout", metavar="TIME", help="at most 90s, 30m or 12h; then exit code 5")
    json_option(parser)


def _fill_context_cancel(parser: Command) -> None:
    _context(parser)
    _reason(parser)
    json_option(parser)


def _fill_retry(parser: Command) -> None:
    _context(parser)
    parser.add_argument("--wait", action="store_true", help="return when it has ended; exit code 1 if it failed")
    json_option(parser)


def _fill_run(parser: Command) -> None:
    parser.add_argument("argv", metavar="ARGV", nargs="*", help="after --: the program and its arguments")
    parser.add_argument("--follow", action="store_true", help="print what it writes; exit code 1 if it failed")
    parser.add_argument("--name", default="", help="what it is called")
    parser.add_argument("--kind", default="command", help="a kind that is built in, instead of a command")
    parser.add_argument("--package", metavar="PACKAGE", default="", help="GROUP/NAME/VERSION that has the command")
    parser.add_argument("--command", metavar="NAME", default="", help="which of the package's; ARGV are more arguments")
    parser.add_argument("--results", metavar="FILE", action="append", default=[], help="it leaves results there")
    parser.add_argument("--selector", metavar="EXPR", default="", help="which workers may do it")
    parser.add_argument("--source", metavar="REF", help="the source it is about; its holder comes first")
    parser.add_argument(
        "--exclusive", choices=("none", "context", "worker"), default="none", help="what runs beside it"
    )
    parser.add_argument("--retries", metavar="N", type=int, default=0, help="how often it is tried again (0)")
    parser.add_argument("--timeout", metavar="TIME", help="given up after 90s, 30m or 12h, wherever it stands")
    parser.add_argument("--priority", metavar="N", type=int, default=0, help="higher goes first (0)")
    parser.add_argument("--env", metavar="NAME=VALUE", action="append", default=[], help="may be repeated")
    json_option(parser)


def _fill_tasks(parser: Command) -> None:
    parser.add_argument("--state", help=f"only those in this state: {_TASK_STATES}")
    parser.add_argument("--worker", metavar="ID", default="", help="only those that this worker has or had last")
    _limit(parser)
    json_option(parser)


def _fill_task_show(parser: Command) -> None:
    _task(parser)
    json_option(parser)


def _fill_task_cancel(parser: Command) -> None:
    _task(parser)
    _reason(parser)
    json_option(parser)


def _fill_output(parser: Command) -> None:
    _task(parser)
    parser.add_argument("--follow", action="store_true", help="go on until it has ended; exit code 1 if it failed")
    parser.add_argument("--stream", choices=("stdout", "stderr"), help="only this one")
    parser.add_argument("--attempt", metavar="N", type=int, help="of an earlier attempt")
    json_option(parser)
