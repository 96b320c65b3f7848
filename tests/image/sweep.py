"""All kinds of descriptors that a process can have here, one after the other (`programs/kinds.c`).

Each either comes back, twice, or is refused at the checkpoint, by a line that names the descriptor;
none is taken and then cannot be restored. What this machine does not have is told."""

import dataclasses
import os
import shutil
import subprocess
import tempfile
import time

import builds
import cycle
import table
from driver import Driver

PROGRAM = table.Program("kinds.c")
CYCLES = 2
# What is refused on this kernel, or on some kernel: any other kind comes back.
REFUSED = {
    # Made by a path, and not to be made by it again.
    "link_path", "socket_path", "fifo_path", "proc_exe_link", "folder_deleted", "mount",
    # Others are at their other ends, or have a part in them.
    "fifo_read", "lock_lease", "pidfd_parent", "proc_collected", "proc_namespace", "proc_namespace_pid",
    # Devices, and what the kernel keeps for a process.
    "dev_mem", "dev_kvm", "dev_fuse", "dev_tun", "dev_loop", "dev_rtc", "dev_userfaultfd",
    "fanotify", "userfaultfd", "io_uring", "perf", "bpf", "landlock", "file_system", "message_queue",
    "memory_secret",
    # Sockets that are neither Unix, TCP nor UDP.
    "tcp_multipath", "sctp", "ping", "raw", "netlink", "packet", "vsock", "crypto",
}


@dataclasses.dataclass(frozen=True)
class Case:
    """All kinds."""

    name: str = "sweep.kinds"


class Suite:
    """Runs the sweep."""

    def __init__(self):
        self.counts = cycle.Counts()
        self.lacking = []

    def run(self, _case):
        """Returns (what was done, seconds)."""
        began = time.monotonic()
        command = builds.command(PROGRAM, "gcc")
        told = subprocess.run([*command, "list"], capture_output=True, text=True, check=True)
        kinds = told.stdout.split()
        unknown = REFUSED - set(kinds)
        if unknown:
            raise cycle.Broken(f"no kinds: {unknown}")
        problems = [problem for kind in kinds if (problem := self.kind(command, kind))]
        if problems:
            raise cycle.Broken("\n".join(problems))
        if len(self.lacking) > len(kinds) // 4:
            raise cycle.Broken(f"this machine has none of {self.lacking}")
        return self.counts, time.monotonic() - began

    def kind(self, command, kind):
        """What is wrong with a kind; nothing if all is as it should be."""
        folder = tempfile.mkdtemp(prefix="eyrie-kind-")
        try:
            return self.life(folder, [*command, "0", kind], kind)
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def life(self, folder, command, kind):
        work = os.path.join(folder, "work")
        os.makedirs(work)
        driver = Driver.start(work, command)
        for number in range(CYCLES):
            with driver:
                if number == 0 and not cycle.wait_ready(driver, work):
                    ended = driver.ask("wait")
                    self.lacking.append(kind)
                    lacks = ended == f"exited {cycle.LACKS}"
                    return None if lacks else f"{kind}: {ended} {self.said(work)}"
                image = os.path.join(folder, f"image{number}")
                answer = driver.freeze("twin", image)
                if answer.startswith("refused"):
                    self.counts.refusals += 1
                    named = "file descriptor" in answer or "memfd_secret" in answer
                    expected = kind in REFUSED and named and not number
                    return None if expected else f"{kind}: {answer}"
                if not answer.startswith("frozen"):
                    return f"{kind}: {answer}"
                self.counts.freezes += 1
                driver.ask("kill")
            driver = Driver.restore(work, image)
            if driver.pid is None:
                with driver:
                    return f"{kind}: taken, and not to be restored: {driver.answer}"
            self.counts.restores += 1
        with driver:
            with open(os.path.join(work, "go"), "w"):
                pass
            ended = driver.ask("wait")
            return None if ended == "exited 0" else f"{kind}: {ended} {self.said(work)}"

    @staticmethod
    def said(work):
        return cycle.read(work, "err").decode(errors="replace").strip()
