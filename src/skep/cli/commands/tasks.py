"""Work: contexts, tasks, packages, what they measured, rules and benchmarks."""

from skep.cli.commands.shared import JSON, LIMIT
from skep.cli.parser import arg, here, verb

_ONE_CONTEXT = arg("CONTEXT", "id of a context")
_REASON = arg("--reason TEXT", "why; it stands in the moves of the tasks", default="")
_ENDED = arg("--wait", "return when it has ended; exit code 1 if it failed")
CONTEXT = (
    verb("submit", "submit the tasks of a file").takes(
        arg("FILE", "TOML file with the context; - for standard input"), _ENDED, JSON
    ),
    verb("list", "contexts, newest first").takes(
        arg("--state", "only those in this state", choices=("RUNNING", "FINISHED", "FAILED")),
        arg("--cause TEXT", "only those whose cause begins so, such as person:", default=""),
        LIMIT,
        JSON,
    ),
    verb("show", "one context and its tasks").takes(_ONE_CONTEXT, JSON),
    verb("wait", "return when it has ended").takes(
        _ONE_CONTEXT, arg("--timeout TIME", "at most 90s, 30m or 12h; then exit code 5"), JSON
    ),
    verb("cancel", "abort what has not ended").takes(_ONE_CONTEXT, _REASON, JSON),
    verb("retry", "submit again what failed").takes(_ONE_CONTEXT, _ENDED, JSON),
    verb("remove", "forget a context that has ended").takes(_ONE_CONTEXT),
)
_ONE_TASK = arg("TASK", "id of a task")
TASK = (
    verb("run", "run a command on a worker").takes(
        arg("ARGV*", "after --: the program and its arguments"),
        arg("--follow", "print what it writes; exit code 1 if it failed"),
        arg("--name NAME", "what it is called", default=""),
        arg("--kind KIND", "a kind that is built in, instead of a command", default="command"),
        arg("--package PACKAGE", "GROUP/NAME/VERSION that has the command", default=""),
        arg("--command NAME", "which of the package's; ARGV are more arguments", default=""),
        arg("--results FILE", "it leaves results there", action="append", default=[]),
        arg("--selector EXPR", "which workers may do it", default=""),
        arg("--source REF", "the source it is about; its holder comes first"),
        arg("--exclusive", "what runs beside it", choices=("none", "context", "worker"), default="none"),
        arg("--retries N", "how often it is tried again after it failed (0)", default=0),
        arg("--lost-worker-retries N", "how often it is started again after its worker was lost (5)"),
        arg("--at-most-once", "never start it a second time"),
        arg("--timeout TIME", "given up after 90s, 30m or 12h, wherever it stands"),
        arg("--priority N", "higher goes first (0)", default=0),
        arg("--network", "it reaches the network, where the worker allows that"),
        arg("--env NAME=VALUE", "may be repeated", action="append", default=[]),
        JSON,
    ),
    verb("list", "tasks, newest first").takes(
        arg("--state STATE", "only those in this state: WAITING, RUNNING, FINISHED, FAILED, …"),
        arg("--worker ID", "only those that this worker has or had last", default=""),
        LIMIT,
        JSON,
    ),
    verb("show", "one task, its moves and its result").takes(_ONE_TASK, JSON),
    verb("cancel", "abort a task").takes(_ONE_TASK, _REASON, JSON),
    verb("output", "what a task has written").takes(
        _ONE_TASK,
        arg("--follow", "go on until it has ended; exit code 1 if it failed"),
        arg("--stream", "only this one", choices=("stdout", "stderr")),
        arg("--attempt N", "of an earlier attempt"),
        JSON,
    ),
)
_ONE_PACKAGE = arg("PACKAGE", "GROUP/NAME/VERSION")
PACKAGE = (
    here("build", "make an archive of a folder").takes(
        arg("FOLDER", "with skep-package.toml in it"),
        arg("--output FILE", "NAME-VERSION.tar.gz, if not given", default=""),
        JSON,
    ),
    verb("push", "store a package, for all workers").takes(
        arg("PATH", "a zip, tar or tar.gz; or a folder, which is built first"), JSON
    ),
    verb("list", "packages by name").takes(arg("PREFIX?", "a GROUP, or GROUP/NAME/", default=""), JSON),
    verb("show", "one package: commands, templates").takes(_ONE_PACKAGE, JSON),
    verb("download", "its archive").takes(_ONE_PACKAGE, arg("FILE", "where to; it is overwritten")),
    verb("remove", "forget a package").takes(_ONE_PACKAGE),
    verb("run", "submit one of its templates").takes(
        _ONE_PACKAGE,
        arg("TEMPLATE", "of a task or context, as `skep package show` lists them"),
        arg("--property NAME=VALUE", "may be repeated", action="append", default=[]),
        _ENDED,
        JSON,
    ),
)
_WHERE = arg("FILTER*", "such as metric=time, 'group~parse*', 'value>=1.5' or 'ref=main|next'", dest="where")
RESULT = (
    verb("list", "results, newest first").takes(
        _WHERE, arg("--order FIELD", "smallest first; -FIELD: largest first (-at)", default="-at"), LIMIT, JSON
    ),
    verb("show", "one result").takes(arg("RESULT", "id of a result", dest="id"), JSON),
    verb("record", "results in a file, for a task").takes(
        arg("TASK", "id of the task they are of"),
        arg("FILE", "JSON lines, or what pytest-benchmark, asv, hyperfine or go wrote; - for stdin"),
        JSON,
    ),
    verb("series", "the curves there are").takes(_WHERE, JSON),
    verb("plot", "curves, drawn in the terminal", run="result:show_plot").takes(
        _WHERE,
        arg("--limit N", "how many curves at most (4)", default=4),
        arg("--rows N", "how high each of them is (8)", default=8),
    ),
    verb("aggregate", "count, mean, median, …").takes(
        _WHERE, arg("--by FIELDS", "divided by commas, such as group,machine", default=""), JSON
    ),
    verb("export", "everything that matches, to stdout").takes(
        _WHERE,
        arg("--fields FIELDS", "only these, divided by commas", default=""),
        arg("--order FIELD", "smallest first; -FIELD: largest first (at)", default="at"),
        arg("--format", "JSON lines, or CSV", choices=("jsonl", "csv"), default="jsonl"),
    ),
)
_ONE_RULE = arg("NAME", "as `skep rule list` shows it")
RULE = (
    verb("add", "make the rules of a file").takes(
        arg("FILE", "TOML: one rule, or several [[rule]]; - for standard input"), JSON
    ),
    verb("list", "all rules").takes(JSON),
    verb("show", "one rule, whole").takes(_ONE_RULE, JSON),
    verb("remove", "forget a rule; what it made stays").takes(_ONE_RULE),
    verb("enable", "let a rule fire again").takes(_ONE_RULE, JSON),
    verb("disable", "keep a rule, but let it not fire").takes(_ONE_RULE, JSON),
    verb("fire", "try a rule out").takes(
        _ONE_RULE, JSON, arg("--source REF", "for the newest commit of this source", default="")
    ),
)
_ONE_BENCHMARK = arg("NAME", "as `skep benchmark list` shows it")
BENCHMARK = (
    verb("add", "add the benchmarks of a file").takes(
        arg("FILE", "TOML: one benchmark, or several [[benchmark]]; - for standard input"),
        arg("--code FILE", "Python file with a subclass of skep.benchmark.Benchmark"),
        JSON,
    ),
    verb("list", "all benchmarks").takes(JSON),
    verb("show", "how one stands, and its steps").takes(_ONE_BENCHMARK, JSON),
    verb("pause", "measure nothing new").takes(_ONE_BENCHMARK, JSON),
    verb("resume", "go on, also after it failed").takes(_ONE_BENCHMARK, JSON),
    verb("run", "measure these commits as well").takes(
        _ONE_BENCHMARK,
        arg("REVS", "a commit, branch or tag, or OLD..NEW"),
        arg("--again", "also what was measured already"),
        JSON,
    ),
    verb("bisect", "find the commit between two that differ").takes(
        _ONE_BENCHMARK, arg("OLD..NEW", "two commits of its branch", dest="revs"), JSON
    ),
    verb("remove", "forget it; what it measured stays").takes(_ONE_BENCHMARK),
)
