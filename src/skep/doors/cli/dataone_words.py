"""The words of `skep dataone`, declared when it was chosen."""

from skep.doors.cli.parser import Command, json_option


def fill(parser: Command) -> None:
    verbs = parser.add_subparsers(metavar="VERB", required=True)
    verbs.add_parser("nodes", help="all Member Nodes", fill=json_option, run="dataone:nodes")
    verbs.add_parser("node", help="one Member Node", fill=_node, run="dataone:node")
    verbs.add_parser("approve", help="harvest a node that registered itself", fill=_node, run="dataone:approve")
    verbs.add_parser("set", help="change limits, pause or go on", fill=_fill_set, run="dataone:put")
    verbs.add_parser("reconcile", help="list everything again", fill=_fill_reconcile, run="dataone:reconcile")
    verbs.add_parser("replay", help="try again what is parked", fill=_fill_replay, run="dataone:replay")
    verbs.add_parser("explain", help="why an object is, or is not, there", fill=_fill_explain, run="dataone:explain")
    verbs.add_parser("index", help="how far the index of records is", fill=_fill_index, run="dataone:index")


def _node(parser: Command) -> None:
    parser.add_argument("node", metavar="NODE", help="urn:node:NAME, or the id of its source")
    json_option(parser)


def _fill_set(parser: Command) -> None:
    _node(parser)
    parser.add_argument("--connections", type=int, help="requests at the same time")
    parser.add_argument("--rate", type=float, help="requests per second; 0: as many as there are")
    parser.add_argument("--bytes", type=int, help="bytes of answers under way")
    pause = parser.add_mutually_exclusive_group()
    pause.add_argument("--pause", action="store_const", const=True, dest="paused", help="ask it nothing any more")
    pause.add_argument("--resume", action="store_const", const=False, dest="paused", help="go on")


def _fill_reconcile(parser: Command) -> None:
    _node(parser)
    parser.add_argument("--since", metavar="TIME", help="only what is newer: 2026-01-31T12:00:00Z")


def _fill_replay(parser: Command) -> None:
    _node(parser)
    parser.add_argument("--pid", default="", help="this object, whatever its state")


def _fill_explain(parser: Command) -> None:
    parser.add_argument("pid", metavar="PID", help="the object's identifier")
    json_option(parser)


def _fill_index(parser: Command) -> None:
    mode = parser.add_mutually_exclusive_group()
    mode.add_argument("--bulk", action="store_const", const=True, help="bulk-load mode: nothing is indexed")
    mode.add_argument("--no-bulk", action="store_const", const=False, dest="bulk", help="index what waits, and go on")
    parser.add_argument("--audit", action="store_true", help="compare all objects with their records, and repair")
    json_option(parser)
