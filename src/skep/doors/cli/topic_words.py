"""The words of `skep topic …`."""

from skep.doors.cli.parser import Command, json_option


def fill(parser: Command) -> None:
    verbs = parser.add_subparsers(metavar="VERB", required=True)
    verbs.add_parser("create", help="make a topic", fill=_fill_topic_create, run="topic:create")
    verbs.add_parser("list", help="all topics", fill=json_option, run="topic:listing")
    verbs.add_parser("show", help="partitions and groups of a topic", fill=_fill_topic_show, run="topic:show")
    verbs.add_parser("publish", help="store messages", fill=_fill_topic_publish, run="topic:publish")
    verbs.add_parser("read", help="messages of a topic", fill=_fill_topic_read, run="topic:read")
    verbs.add_parser("follow", help="messages as they come", fill=_fill_topic_follow, run="topic:follow")
    verbs.add_parser("trim", help="forget old messages", fill=_fill_topic_trim, run="topic:trim")
    verbs.add_parser("lag", help="how far groups are behind", fill=_fill_topic_lag, run="topic:lag")


def _topic(parser: Command) -> None:
    parser.add_argument("topic", metavar="TOPIC", help="name, such as skep.changes")


def _partition(parser: Command) -> None:
    parser.add_argument("--partition", metavar="N", type=int, default=0, help="which partition (0)")


def _fill_topic_create(parser: Command) -> None:
    _topic(parser)
    parser.add_argument("--partitions", metavar="N", type=int, default=1, help="how many (1); it stays so")
    parser.add_argument("--retain", metavar="TIME", help="forget what is older than 90s, 30m, 12h, 30d or 2w")
    parser.add_argument("--retain-bytes", metavar="N", type=int, help="keep at most so many in each partition")
    json_option(parser)


def _fill_topic_show(parser: Command) -> None:
    _topic(parser)
    json_option(parser)


def _fill_topic_publish(parser: Command) -> None:
    _topic(parser)
    parser.add_argument("message", metavar="MESSAGE", nargs="?", help="JSON or text; - for each line of standard input")
    parser.add_argument("--file", metavar="FILE", help="the message is the content of this file")
    parser.add_argument("--key", default="", help="messages with the same key keep their order")
    parser.add_argument("--partition", metavar="N", type=int, help="this partition, whatever the key")
    json_option(parser)


def _fill_topic_read(parser: Command) -> None:
    _topic(parser)
    parser.add_argument("--offset", metavar="N", type=int, default=0, help="first message to read (0)")
    parser.add_argument("--limit", metavar="N", type=int, default=100, help="messages at most (100)")
    _partition(parser)
    parser.add_argument("--wait", metavar="TIME", help="at the end, wait so long for something new, such as 30s")
    json_option(parser)


def _fill_topic_follow(parser: Command) -> None:
    _topic(parser)
    parser.add_argument("--offset", metavar="N", type=int, help="first message to print; else only new ones")
    _partition(parser)
    json_option(parser)


def _fill_topic_trim(parser: Command) -> None:
    _topic(parser)
    parser.add_argument("--before", metavar="N", type=int, required=True, help="the first offset that is kept")
    _partition(parser)
    json_option(parser)


def _fill_topic_lag(parser: Command) -> None:
    _topic(parser)
    parser.add_argument("group", metavar="GROUP", nargs="?", help="only this one")
    json_option(parser)
