#!/usr/bin/env python3
"""A wide-area link between two network namespaces: a TUN device in each, and this process between
them, which delays packets, loses some and lets so many pass.

usage: wan.py SPACE DEVICE SPACE DEVICE DELAY_MS JITTER_MS LOSS MBIT
    SPACE is a file as /proc/PID/ns/net. LOSS is a probability, MBIT 0: no limit. Packets keep
    order. It says `ready` when the devices are there, and ends with its parent or its standard
    input."""

import collections
import ctypes
import fcntl
import os
import random
import select
import struct
import sys
import time

TUNSETIFF, IFF_TUN, IFF_NO_PI = 0x400454CA, 0x1, 0x1000
CLONE_NEWNET = 0x40000000
PACKET_BYTES = 65536
# What waits for its turn on a link with a limit; what comes beyond that is lost, as in a router.
QUEUE_BYTES = 1 << 20
# Chance is the same in every run.
SEED = 20070


def device(space, name):
    """A TUN device in a namespace."""
    libc = ctypes.CDLL(None, use_errno=True)
    with open(space) as file:
        if libc.setns(file.fileno(), CLONE_NEWNET) != 0:
            raise OSError(ctypes.get_errno(), f"cannot enter {space}")
    tun = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(tun, TUNSETIFF, struct.pack("16sH22x", name.encode(), IFF_TUN | IFF_NO_PI))
    return tun


class Way:
    """One direction."""

    def __init__(self, source, target, delay, jitter, loss, rate, chance):
        self.source, self.target, self.chance = source, target, chance
        self.delay, self.jitter, self.loss, self.rate = delay, jitter, loss, rate
        self.queue = collections.deque()
        self.last = self.busy = 0.0

    def take(self):
        """Takes what has come."""
        while True:
            try:
                packet = os.read(self.source, PACKET_BYTES)
            except (BlockingIOError, OSError):
                return
            # Read after it came: when this process had to wait for its turn it is not early, but late.
            now = time.monotonic()
            if self.chance.random() < self.loss:
                continue
            if self.rate:
                if (self.busy - now) * self.rate > QUEUE_BYTES:
                    continue
                self.busy = max(self.busy, now) + len(packet) / self.rate
            when = max(self.busy, now) + self.delay + self.chance.uniform(0, self.jitter)
            self.last = max(self.last, when)
            self.queue.append((self.last, packet))

    def give(self, now):
        """Passes on what is due. Returns when the next is."""
        while self.queue and self.queue[0][0] <= now:
            try:
                os.write(self.target, self.queue.popleft()[1])
            except OSError:
                pass  # The device is down, or full: the packet is lost.
        return self.queue[0][0] if self.queue else None


def main():
    one, first, other, second, delay, jitter, loss, mbit = sys.argv[1:]
    near, far = device(one, first), device(other, second)
    chance = random.Random(SEED)
    how = (float(delay) / 1e3, float(jitter) / 1e3, float(loss), float(mbit) * 1e6 / 8, chance)
    ways = [Way(near, far, *how), Way(far, near, *how)]
    print("ready", flush=True)
    poll = select.epoll()
    for number in (near, far, 0):
        poll.register(number, select.EPOLLIN)
    due = None
    while True:
        wait = -1 if due is None else max(0.0, due - time.monotonic())
        happened = dict(poll.poll(wait))
        if 0 in happened and not os.read(0, 4096):
            return
        for way in ways:
            if way.source in happened:
                way.take()
        now = time.monotonic()
        nexts = [way.give(now) for way in ways]
        due = min((n for n in nexts if n is not None), default=None)


if __name__ == "__main__":
    main()
