"""`skep completion SHELL`."""

import sys
from argparse import Namespace

import shtab

from skep.doors.cli.parser import FullCommand, build

#: words of a query are completed by the server, which knows sources and languages; without one, not at all
_PREAMBLE = {
    # bash cuts words at colons, wants what follows the last, and reads it as if it had been typed
    "bash": r"""_skep_query() {
  local word="${COMP_LINE:0:$COMP_POINT}" field="" one
  word="${word##* }"
  [[ "$word" == *:* ]] && field="${word%:*}:"
  skep search --complete -- "$word" 2>/dev/null | while IFS= read -r one; do printf '%q\n' "${one#"$field"}"; done
}""",
    "zsh": '_skep_query() { compadd -S "" -- ${(f)"$(skep search --complete -- "$PREFIX" 2>/dev/null)"}; }',
}


def show(args: Namespace) -> None:
    script = shtab.complete(build(FullCommand), shell=args.shell, preamble=_PREAMBLE.get(args.shell, ""))
    sys.stdout.write(script + "\n")
