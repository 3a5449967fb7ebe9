"""Python imports this by itself where it is on its path: the process takes it to be SKEW seconds later than it is."""

import os
import time

_true = time.time
_skew = float(os.environ["SKEW"])


def _wrong() -> float:
    return _true() + _skew


time.time = _wrong
