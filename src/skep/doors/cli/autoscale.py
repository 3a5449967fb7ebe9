"""`skep autoscale`: as many workers as the work needs, by whatever command starts and stops them."""

import subprocess
import sys
import time
from argparse import Namespace

from skep.client import Client
from skep.doors.cli import exits
from skep.doors.cli.terminal import clean
from skep.errors import BadInput, SkepError
from skep.fleet.scaling import Aim, wanted

_PLACE = "{n}"


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
    return exits.OK


def _look(args: Namespace, aim: Aim) -> bool:
    """False: the command failed."""
    with Client() as client:
        tasks, workers = client.workers.load(args.label), client.workers.list()
    alive = [
        one for one in workers if one.member.state == "alive" and (not args.label or args.label in one.offer.labels)
    ]
    number = wanted(len(alive), tasks, aim)
    if number == len(alive):
        return True
    why = f"{tasks.ready} tasks wait for them, they have {tasks.placed}, {tasks.ended} ended within a minute"
    print(f"{len(alive)} -> {number} workers: {why}", flush=True)
    try:
        code = subprocess.run([word.replace(_PLACE, str(number)) for word in args.command], check=False).returncode
    except OSError as error:
        raise BadInput(f"{args.command[0]} cannot be run: {error.strerror}", hint="is it installed?") from None
    if code:
        print(clean(f"skep: {args.command[0]} ended with {code}"), file=sys.stderr)
    return code == 0
