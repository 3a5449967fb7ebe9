"""Messages and tuples."""

from skep.cli.commands.shared import JSON, YES
from skep.cli.parser import arg, verb

_ONE_TOPIC = arg("TOPIC", "name, such as skep.changes")
_PARTITION = arg("--partition N", "which partition (0)", default=0)
TOPIC = (
    verb("create", "make a topic").takes(
        _ONE_TOPIC,
        arg("--partitions N", "how many (1); it stays so", default=1),
        arg("--retain TIME", "forget what is older than 90s, 30m, 12h, 30d or 2w"),
        arg("--retain-bytes N", "keep at most so many in each partition"),
        JSON,
    ),
    verb("list", "all topics").takes(JSON),
    verb("show", "partitions and groups of a topic").takes(_ONE_TOPIC, JSON),
    verb("publish", "store messages").takes(
        _ONE_TOPIC,
        arg("MESSAGE?", "JSON or text; - for each line of standard input"),
        arg("--file FILE", "the message is the content of this file"),
        arg("--key KEY", "messages with the same key keep their order", default=""),
        arg("--partition N", "this partition, whatever the key"),
        JSON,
    ),
    verb("read", "messages of a topic").takes(
        _ONE_TOPIC,
        arg("--offset N", "first message to read (0)", default=0),
        arg("--limit N", "messages at most (100)", default=100),
        _PARTITION,
        arg("--wait TIME", "at the end, wait so long for something new, such as 30s"),
        JSON,
    ),
    verb("follow", "messages as they come").takes(
        _ONE_TOPIC, arg("--offset N", "first message to print; else only new ones"), _PARTITION, JSON
    ),
    verb("trim", "forget old messages").takes(
        _ONE_TOPIC, arg("--before N", "the first offset that is kept", required=True), _PARTITION, JSON
    ),
    verb("lag", "how far groups are behind").takes(_ONE_TOPIC, arg("GROUP?", "only this one"), JSON),
)
_ONE_SPACE = arg("SPACE", "name")
_FOUND = (
    _ONE_SPACE,
    arg("FIELD+", "a value as for put, or :str, :int, :float, :bool, :any for a type", dest="fields"),
    arg("--wait TIME", "wait so long for a match, such as 30s; for ever: 'ever'"),
    arg("--all", "every match, without waiting"),
)
SPACE = (
    verb("list", "all spaces").takes(JSON),
    verb("put", "put a tuple").takes(
        arg("SPACE", "name; the first put makes it"),
        arg("FIELD+", "job, 1, 1.5, true; str:1 for the text 1", dest="fields"),
        arg("--id ID", "with the id of a tuple that is there, this is that tuple", default=""),
        JSON,
    ),
    verb("get", "take a tuple and print it").takes(*_FOUND),
    verb("query", "print a tuple and leave it there").takes(*_FOUND),
    verb("drop", "remove a space and all in it").takes(_ONE_SPACE, YES),
)
