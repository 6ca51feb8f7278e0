"""Orders over a pool of processes: contracts, a journal, a watch. Run it, kill it, run it again:

python examples/orders.py orders.wal            # kill -9 it, and run it again: no order is lost, none is priced twice
"""

from __future__ import annotations

import asyncio
import sys
from dataclasses import dataclass

import ropewalk
from ropewalk.result import Err, Ok, Result
from ropewalk.state import AppendOnly, Const, Counter, Draft, PMap, PVector, Store, invariant, paths, task


@dataclass(frozen=True, slots=True)
class Order:
    """What a customer wants; the price comes from a worker."""

    item: str
    count: int
    price: int | None = None


@dataclass(frozen=True, slots=True)
class Shop:
    """The whole state."""

    prices: Const[PMap[str, int]]
    stock: PMap[str, int]
    orders: PMap[int, Order]
    log: AppendOnly[str]
    priced: Counter


P = paths(Shop)
ITEMS = ("rope", "twine", "cord")


@task(writes=[P.stock, P.orders, P.log])
def place(shop: Draft[Shop], number: int, item: str, count: int) -> Result[int, str]:
    """Takes an order once, however often it is asked to, and reserves the stock."""
    if number in shop.orders:
        return Ok(number)
    if shop.stock[item] < count:
        return Err(f"only {shop.stock[item]} of {item} are left")
    shop.stock[item] -= count
    shop.orders[number] = Order(item, count)
    shop.log.append(f"order {number}: {count} {item}")
    return Ok(number)


@task(reads=[P.prices], writes=[P.orders, P.log, P.priced])
def price(shop: Draft[Shop], number: int) -> int:
    """Runs in a worker process, which gets the declared fields alone."""
    order = shop.orders[number]
    if order.price is None:
        order.price = sum(shop.prices[order.item] for _ in range(order.count))
        shop.priced += 1
        shop.log.append(f"order {number} costs {order.price}")
        shop.on_commit(announce, number, order.price)
    return order.price


def announce(number: int, amount: int, key: str) -> None:
    """Follows the commit; after a crash it may come twice, with the same key."""
    print(f"invoice {key[:8]} for order {number}: {amount}")


@invariant(reads=[P.stock])
def nothing_is_sold_twice(shop: Shop) -> bool:
    """Holds of every committed state."""
    return all(count >= 0 for count in shop.stock.values())


async def watch(store: Store[Shop], orders: int) -> None:
    """Sees each price in the order of the commits."""
    left = sum(order.price is None for order in store.snapshot().orders.values())
    left += orders - len(store.snapshot().orders)
    if not left:
        return
    async for change in store.changes(P.orders[...].price):
        if isinstance(change.new, int):
            left -= 1
            print(f"  version {change.version}: {change.path} is {change.new}, {left} to go")
        if not left:
            return


async def main(path: str, orders: int = 12) -> None:
    """Places orders, lets workers price them, and shows what happens."""
    empty = Shop(PMap(rope=7, twine=3, cord=5), PMap(rope=90, twine=90, cord=90), PMap(), PVector(), 0)
    with (
        ropewalk.Pool(2, kind="process") as pool,
        Store(empty, journal=path, pool=pool, invariants=[nothing_is_sold_twice]) as store,
    ):
        print(store)
        watching = asyncio.create_task(watch(store, orders))
        await asyncio.sleep(0)
        await asyncio.gather(*(store.arun(place, n, ITEMS[n % 3], n % 4 + 1) for n in range(orders)))
        futures = [asyncio.wrap_future(store.submit(price, n)) for n in range(orders)]
        prices = await asyncio.gather(*futures)
        await watching
        state = store.snapshot()
        assert state.priced == orders
        assert [state.orders[n].price for n in range(orders)] == prices
        print(f"{orders} orders for {sum(prices)}, each priced once, in {store.version} versions")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "orders.wal"))
