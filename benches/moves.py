"""Jobs that move over a test network, for `benches/migrate` and `benches/leave`."""

import json
import os
import shutil
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(HERE)
BUILD = os.environ.get("EYRIE_BUILD") or os.path.join(ROOT, "build")
EYRIE = os.path.join(BUILD, "bin", "eyrie")
LIMIT_S = 600
RANKS = 4
SECONDS = 3


def noise():
    folder = os.path.join(BUILD, "benches")
    os.makedirs(folder, exist_ok=True)
    out, source = os.path.join(folder, "noise"), os.path.join(HERE, "noise.c")
    mpicc = os.path.join(BUILD, "bin", "mpicc")
    subprocess.run([mpicc, "-std=c11", "-O2", "-o", out, source], check=True)
    return out


def program(name, mib):
    """The command, and the line that says that its memory is filled."""
    if name == "noise":
        return [noise(), str(mib), "1", "100"], "filled"
    heat = os.path.join(BUILD, "examples", "heat")
    sizes = ["--mib", str(mib), "--steps", "1000000", "--every", "10"]
    return [heat, *sizes, "--progress"], ""


def iperf(network, pairs):
    """MB/s of each link, all at once."""
    if shutil.which("iperf3") is None:
        sys.exit("the links are measured with iperf3, which is not here: apt-get install iperf3")
    servers, clients = [], []
    pipe = dict(stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        for _, to in pairs:
            command = [*network.hosts[to].enter, "iperf3", "--server", "--forceflush"]
            servers.append(subprocess.Popen(command, **pipe))
            assert "-----" in servers[-1].stdout.readline()
        for source, to in pairs:
            words = ["iperf3", "--client", to, "--time", str(SECONDS), "--json"]
            clients.append(subprocess.Popen([*network.hosts[source].enter, *words], **pipe))
        ends = [json.loads(client.communicate(timeout=LIMIT_S)[0])["end"] for client in clients]
        rates = [end["sum_received"]["bits_per_second"] / 8e6 for end in ends]
        return sum(rates) / len(rates)
    finally:
        for process in servers + clients:
            process.kill()
            process.communicate()


class Job:
    """A job of four ranks on these hosts of a network."""

    def __init__(self, network, folder, where, words, ready):
        self.env = {**os.environ, "EYRIE_HOME": os.path.join(folder, "home")}
        rsh = os.path.join(folder, "rsh")
        with open(rsh, "w") as file:
            file.write("#!/bin/sh\n" + network.remote_shell())
        os.chmod(rsh, 0o755)
        where = [*where, "--rsh", rsh]
        command = [*network.hub.enter, EYRIE, "run", "-n", str(RANKS), *where, "--"]
        pipes = dict(stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=self.env)
        self.process = subprocess.Popen([*command, *words], stdin=subprocess.DEVNULL, **pipes)
        while ready not in (line := self.process.stdout.readline()) or not line:
            if not line:
                sys.exit(f"the job ends: {self.process.communicate()[1]}")

    def eyrie(self, *words):
        command = [EYRIE, *words]
        done = subprocess.run(command, env=self.env, capture_output=True, text=True, timeout=LIMIT_S)
        if done.returncode != 0:
            sys.exit(f"eyrie {' '.join(words)}: {done.stderr}{done.stdout}")
        return done.stdout

    def lines(self, *words):
        return [json.loads(line) for line in self.eyrie(*words).splitlines()]

    def close(self):
        self.process.terminate()
        self.process.communicate(timeout=LIMIT_S)

    def resident(self):
        """MB that each rank has in memory, on average."""
        status = json.loads(self.eyrie("status", "last", "--json"))
        pids = [rank["pid"] for rank in status["ranks"]]
        pages = 0
        for pid in pids:
            with open(f"/proc/{pid}/statm") as file:
                words = file.read().split()
                pages += int(words[1]) - int(words[2])
        return pages * 4096 / 1e6 / RANKS


def first_round(events):
    """MB/s of each of two nodes while their ranks, which had no image, were copied for the first
    time."""
    begun = min(e["ms"] for e in events if e["event"] == "node-leaving")
    images = [e for e in events if e["event"] == "checkpointed" and e["generation"] == 1]
    return sum(e["bytes"] for e in images) / 2e3 / (max(e["ms"] for e in images) - begun)


def times(events):
    """Seconds from the first word until all ranks that moved run, and the longest pause of one."""
    begun = min(e["ms"] for e in events if e["event"] == "node-leaving")
    runs = [e for e in events if e["event"] == "restored"]
    if os.environ.get("EYRIE_BENCH_EVENTS"):
        for e in events:
            print({k: v for k, v in e.items() if v is not None}, file=sys.stderr)
    took = (max(e["ms"] for e in runs) - begun) / 1e3
    return took, max(e["took_ms"] for e in runs) / 1e3
