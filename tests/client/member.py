"""A member of a group in a process of its own, to be killed: writes `partition offset` for each message it handled."""

import sys

from skep.client import Consumer


def main(url: str, token: str, topic: str, group: str) -> None:
    with Consumer(topic, url, token=token, group=group, heartbeat=0.2) as consumer:
        for message in consumer:
            sys.stdout.write(f"{message.partition} {message.offset}\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
