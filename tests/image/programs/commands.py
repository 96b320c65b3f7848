"""Commands that asyncio runs: one that is talked to all the time, others that come and go, one that
has ended. Their ends are awaited through pidfds."""

import asyncio
import os
import sys
from asyncio.subprocess import PIPE

wrong = 0


def check(right, what):
    global wrong
    if not right:
        wrong += 1
        print(what, file=sys.stderr)


async def ask(process, line):
    process.stdin.write(f"{line}\n".encode())
    return (await process.stdout.readline()).decode().strip()


async def main():
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 800
    rounds *= int(os.environ.pop("ROUNDS_TIMES", "1"))
    total = 0
    shell = 'while read -r line; do echo "$((line * 5))"; done; exit 7'
    lasting = await asyncio.create_subprocess_exec("sh", "-c", shell, stdin=PIPE, stdout=PIPE)
    # Ended, not collected, and not asked for.
    ended = os.spawnvp(os.P_NOWAIT, "true", ["true"])
    pidfd = os.pidfd_open(ended)
    os.waitid(os.P_PIDFD, pidfd, os.WEXITED | os.WNOWAIT)
    end = asyncio.ensure_future(lasting.wait())
    with open("ready", "w"):
        pass
    for i in range(rounds):
        answer = int(await ask(lasting, i))
        check(answer == i * 5, f"{i}: {answer}")
        total = (total * 31 + answer) % 2**61
        if i % 40 == 0:
            passing = await asyncio.create_subprocess_exec("cat", stdin=PIPE, stdout=PIPE)
            check(await ask(passing, f"line {i}") == f"line {i}", "an answer of cat")
            passing.stdin.close()
            check(await passing.wait() == 0, "the end of cat")
        result = os.waitid(os.P_PIDFD, pidfd, os.WEXITED | os.WNOWAIT | os.WNOHANG)
        check(result and result.si_pid == ended and not end.done(), "an end")
    lasting.stdin.close()
    check(await end == 7, "the end of the shell")
    check(os.waitpid(ended, 0) == (ended, 0), "the end of true")
    print(f"commands {total:016x} {wrong} wrong")
    return 1 if wrong else 0


if sys.version_info < (3, 12):
    # Later ones do so by themselves.
    asyncio.set_child_watcher(asyncio.PidfdChildWatcher())
sys.exit(asyncio.run(main()))
