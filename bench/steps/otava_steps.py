"""Run by an interpreter that has apache-otava: series in, places of its change points out, both JSON."""

import json
import sys

from otava.analysis import compute_change_points  # type: ignore[import-not-found]

found = []
for values in json.load(sys.stdin):
    points = compute_change_points(values, window_len=50, max_pvalue=0.001, min_magnitude=0.0)
    points = points[0] if isinstance(points, tuple) else points
    found.append([int(point.index) for point in points])
json.dump(found, sys.stdout)
