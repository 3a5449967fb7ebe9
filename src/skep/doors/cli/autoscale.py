"""`skep autoscale`: as many workers as the work needs, by whatever command starts and stops them."""

import subprocess
import sys
import time
from argparse import Namespace

from skep.client import Client
from skep.doors.cli import exits
from skep.doors.cli.parser import Command
from skep.doors.cli.terminal import clean
from skep.errors import BadInput, SkepError
from skep.fleet.scaling import Aim, Load, wanted

_PLACE = "{n}"


def fill(parser: Command) -> None:
    parser.add_argument("--least", metavar="N", type=int, default=1, help="workers that are always there (1)")
    parser.add_argument("--most", metavar="N", type=int, default=10, help="workers there are at most (10)")
    parser.add_argument(
        "--within", metavar="S", type=float, default=60.0, help="seconds in which what waits should be done (60)"
    )
    parser.add_argument("--label", default="", help="only workers with this label count")
    parser.add_argument("--every", metavar="S", type=float, default=60.0, help="seconds between two looks (60)")
    parser.add_argument("--once", action="store_true", help="look once")
    about = "makes it so many workers: `{n}` stands for the number, as in docker service scale workers={n}"
    parser.add_argument("command", metavar="COMMAND", nargs="+", help=about)


def run(args: Namespace) -> int:
    if not any(_PLACE in word for word in args.command):
        raise BadInput("the command says nowhere how many", hint=f"write {_PLACE} where the number belongs")
    if not 0 <= args.least <= args.most or args.within <= 0 or args.every <= 0:
        raise BadInput("--least is from 0 to --most, and times are more than 0", hint="see skep autoscale --help")
    aim = Aim(args.least, args.most, args.within)
    while True:
        try:
            done = _look(args, aim)
        except SkepError as error:
            if args.once:
                raise
            done = False
            print(clean(f"skep: {error.message}; tried again in {args.every:g} s"), file=sys.stderr)
        if args.once:
            return exits.OK if done else exits.TASK_FAILED
        time.sleep(args.every)


def _look(args: Namespace, aim: Aim) -> bool:
    """False: the command failed."""
    with Client() as client:
        tasks, workers = client.status().tasks, client.workers.list()
    alive = [
        one for one in workers if one.member.state == "alive" and (not args.label or args.label in one.offer.labels)
    ]
    load = Load(len(alive), tasks.ready, tasks.placed, tasks.ended)
    number = wanted(load, aim)
    if number == load.workers:
        return True
    why = f"{load.ready} tasks wait, {load.placed} have a worker, {load.ended} ended within a minute"
    print(f"{load.workers} -> {number} workers: {why}", flush=True)
    try:
        code = subprocess.run([word.replace(_PLACE, str(number)) for word in args.command], check=False).returncode
    except OSError as error:
        raise BadInput(f"{args.command[0]} cannot be run: {error.strerror}", hint="is it installed?") from None
    if code:
        print(clean(f"skep: {args.command[0]} ended with {code}"), file=sys.stderr)
    return code == 0
