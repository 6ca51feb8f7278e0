"""Prints the log records that a `PUBHandler` publishes: ``python -m ropewalk.zmq.log URL``."""

from __future__ import annotations

import argparse
import sys
from datetime import datetime

from ropewalk.zmq._context import Context
from ropewalk.zmq.constants import SUB

_COLORS = {"DEBUG": "\033[36m", "WARNING": "\033[33m", "ERROR": "\033[31m", "CRITICAL": "\033[1;31m"}
_RESET = "\033[0m"


def _arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("python -m ropewalk.zmq.log", description=__doc__)
    parser.add_argument("zmq_pub_url", help="the publisher's endpoint")
    parser.add_argument("-t", "--topic", default="", help="only topics that begin with this")
    parser.add_argument("--timestamp", action="store_true", help="print the time before each record")
    parser.add_argument("--separator", default=" | ", help="what is printed between topic and text")
    parser.add_argument("--dateformat", default="%Y-%m-%d %H:%M", help="the form of the time")
    parser.add_argument("--align", action="store_true", help="pad topics to the width of the longest")
    parser.add_argument("--color", action="store_true", help="color the records by their level")
    return parser


def main() -> None:
    """Print until Ctrl-C."""
    arguments = _arguments().parse_args()
    width = 0
    with Context() as context, context.socket(SUB) as reader:
        reader.subscribe(arguments.topic)
        reader.connect(arguments.zmq_pub_url)
        try:
            while True:
                topic, text = (part.decode(errors="replace").strip() for part in reader.recv_multipart())
                width = max(width, len(topic)) if arguments.align else 0
                color = next((_COLORS[part] for part in topic.split(".") if part in _COLORS), "")
                begin, end = (color, _RESET) if arguments.color and color else ("", "")
                time = (
                    f"{datetime.now().astimezone().strftime(arguments.dateformat)} "
                    if arguments.timestamp
                    else ""
                )
                sys.stdout.write(f"{time}{begin}{topic:<{width}}{arguments.separator}{text}{end}\n")
                sys.stdout.flush()
        except KeyboardInterrupt:
            pass


if __name__ == "__main__":
    main()
