"""A weather service in several processes: stations publish, a display subscribes, and whoever comes late joins in.

Each process has a `Bus` of its own, which connects to the one that was made first. None of them is a pool's worker;
programs that were started by hand would do the same, with an endpoint such as "shm:///run/user/1000/weather".
"""

from __future__ import annotations

import multiprocessing

import ropewalk


def station(endpoint: str, city: str, degrees: list[int]) -> None:
    """Publishes what it measures, once everybody is there."""
    with ropewalk.Bus() as bus:
        start = bus.subscribe("start")
        bus.connect(endpoint)
        bus.publish("ready", city)
        start.recv(timeout=60)
        for value in degrees:
            bus.publish(f"weather.{city}", value)
        bus.publish("done", city)


def display(endpoint: str, stations: int) -> None:
    """Reports the highest value of each city to the process that has started it."""
    with ropewalk.Bus() as bus:
        weather, done = bus.subscribe("weather.*", topics=True), bus.subscribe("done")
        bus.connect(endpoint)
        bus.publish("ready", "display")
        for _ in range(stations):
            done.recv(timeout=60)
        highest: dict[str, int] = {}
        for topic, value in weather.recv_many(1000):
            city = topic.removeprefix("weather.")
            highest[city] = max(value, highest.get(city, value))
        bus.publish("highest", highest)


def main() -> None:
    measured = {"oslo": [-3, 1, 0], "rome": [11, 14, 13], "paris": [7, 6, 9]}
    # A forked process would do as well, and a program that was started by hand.
    context = multiprocessing.get_context("spawn")
    with ropewalk.Bus() as bus:
        ready, highest = bus.subscribe("ready"), bus.subscribe("highest")
        endpoint = bus.bind("shm://*")
        processes = [context.Process(target=display, args=(endpoint, len(measured)))]
        processes += [context.Process(target=station, args=(endpoint, *each)) for each in measured.items()]
        for process in processes:
            process.start()
        for _ in processes:
            ready.recv(timeout=60)
        bus.publish("start", None)
        for city, value in sorted(highest.recv(timeout=60).items()):
            print(f"{city}: {value}")
        for process in processes:
            process.join()


if __name__ == "__main__":
    main()
