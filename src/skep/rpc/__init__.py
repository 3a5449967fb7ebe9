"""The wire between roles. Workers dial out; one gRPC stream each carries everything small."""

import os

# grpc's fork handlers would run for every child and may deadlock it; our children are exec'd, never merely forked
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
# what goes wrong is told in our own log; grpc would print a line of its own for each handshake that fails
os.environ.setdefault("GRPC_VERBOSITY", "NONE")
