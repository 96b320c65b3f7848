"""`benches/spares --real`: a job on a mesh of network namespaces whose links are limited. What a step of
a stencil takes with the ranks of one node on each of the spares, and on the one that the job chooses
when that node is lost, beside the model's."""

import json
import os
import queue
import statistics
import subprocess
import sys
import tempfile
import threading

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(HERE)
BUILD = os.environ.get("EYRIE_BUILD") or os.path.join(ROOT, "build")
EYRIE = os.path.join(BUILD, "bin", "eyrie")
sys.path.insert(0, os.path.join(ROOT, "tests", "net"))
from mesh import Mesh  # noqa: E402
from space import is_root  # noqa: E402

WIDTH, HEIGHT, RANKS = 4, 3, 8
SPARES = range(RANKS, WIDTH * HEIGHT)
LIMIT_S = 120
# Steps that are left out when ranks have moved: connections find their rates.
SETTLE = 5
# No checkpoints but the ones that the job is asked for, and no logs that would have to move: both would
# take the links, too.
QUIET = ["--ft", "coordinated", "--ckpt-every", "100000", "--ckpt-first", "100000"]


def program():
    folder = os.path.join(BUILD, "benches")
    os.makedirs(folder, exist_ok=True)
    out, source = os.path.join(folder, "halo"), os.path.join(HERE, "halo.c")
    subprocess.run([os.path.join(BUILD, "bin", "mpicc"), "-std=c11", "-O2", "-o", out, source], check=True)
    return out


class Job:
    """A job of a rank on each of the first nodes; the others are spares."""

    def __init__(self, mesh, folder, bytes_each, options):
        self.mesh, self.bytes_each = mesh, bytes_each
        self.env = {**os.environ, "EYRIE_HOME": os.path.join(folder, "home")}
        names = [os.path.join(folder, name) for name in ("network.topo", "rsh")]
        self.network = names[0]
        for path, text in zip(names, (mesh.describe(), "#!/bin/sh\n" + mesh.remote_shell())):
            with open(path, "w") as file:
                file.write(text)
        os.chmod(names[1], 0o755)
        where = ["--hosts", ",".join(mesh.hosts), "--spares", str(len(SPARES)), "--rsh", names[1]]
        where += ["--topology", self.network, *QUIET, *options]
        command = [*mesh.hub.enter, EYRIE, "run", "-n", str(RANKS), *where, "--", program()]
        command += [str(WIDTH), str(RANKS // WIDTH), str(bytes_each)]
        self.said = open(os.path.join(folder, "said"), "w+")
        pipes = dict(stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=self.said, text=True)
        self.process = subprocess.Popen(command, env=self.env, **pipes)
        self.steps = queue.Queue()
        threading.Thread(target=self.listen, daemon=True).start()

    def listen(self):
        for line in self.process.stdout:
            if line.startswith("step "):
                self.steps.put(float(line.split()[2]))
        self.steps.put(None)

    def step(self):
        """Seconds of the next step that ends."""
        step = self.steps.get(timeout=LIMIT_S)
        if step is None:
            self.said.seek(0)
            sys.exit(f"benches/spares: the job ends: {self.said.read()}")
        return step

    def measure(self, count):
        """The median of so many steps from now on, the fastest and slowest tenth, and what the busiest
        link carried in one of them, in messages."""
        while not self.steps.empty():
            self.step()
        for _ in range(SETTLE):
            self.step()
        before = self.mesh.carried()
        steps = sorted(self.step() for _ in range(count))
        most = max(now - before[link] for link, now in self.mesh.carried().items())
        return statistics.median(steps), steps[count // 10], steps[-1 - count // 10], most / count / self.bytes_each

    def eyrie(self, *words):
        done = subprocess.run([EYRIE, *words], env=self.env, capture_output=True, text=True, timeout=LIMIT_S)
        if done.returncode != 0:
            sys.exit(f"eyrie {' '.join(words)}: {done.stderr}{done.stdout}")
        return done.stdout

    def home(self, rank):
        return json.loads(self.eyrie("status", "last", "--json"))["ranks"][rank]["node"]

    def close(self):
        self.process.terminate()
        self.process.wait(timeout=LIMIT_S)
        self.said.close()


def model(network, lost, bytes_each):
    """What a step takes by the model before, as times of one message, and with each spare."""
    words = ["--pattern", f"stencil:{WIDTH}x{RANKS // WIDTH}", "--bytes", str(bytes_each), "--spares", "row"]
    command = [EYRIE, "topo", "predict", network, *words, "--lost", str(lost), "--json"]
    said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    said = json.loads(said)
    nodes = {f"10.90.0.{node + 1}": node for node in SPARES}
    return said["before"]["time"], {nodes[each["spare"]]: each for each in said["after"]}


def moved(job, lost, steps):
    """Medians before, and with the lost node's rank on each spare, to which it is moved."""
    before, found, at = job.measure(steps), {}, lost
    for spare in SPARES:
        job.eyrie("migrate", "last", "--from", str(at), "--to", str(spare))
        assert job.home(lost) == spare, "the rank is not where it was to go"
        found[spare], at = job.measure(steps), spare
    return before, found


def chosen(job, lost, steps):
    """The same on the spare that the job chooses when the node is killed, and why."""
    job.eyrie("checkpoint", "last")
    before = job.measure(steps)
    job.eyrie("inject", "last", "kill-node", str(lost))
    after = job.measure(steps)
    events = [json.loads(line) for line in job.eyrie("events", "last", "--json").splitlines()]
    why = [event["text"] for event in events if event["event"] == "placed"]
    return job.home(lost), before, after, why[-1]


def over(mesh, bytes_each, options, work):
    """Does this with a job of its own on the mesh."""
    with tempfile.TemporaryDirectory(prefix="eyrie-bench-") as folder:
        job = Job(mesh, folder, bytes_each, options)
        try:
            job.step()
            return work(job)
        finally:
            job.close()


def real(lost, mbit, bytes_each, steps, options=()):
    if not is_root():
        sys.exit("benches/spares: network namespaces take root")
    with Mesh(WIDTH, HEIGHT, mbit) as mesh:
        def all_spares(job):
            return (*moved(job, lost, steps), model(job.network, lost, bytes_each))

        before, found, (first, models) = over(mesh, bytes_each, options, all_spares)
        taken, base, after, why = over(mesh, bytes_each, options, lambda job: chosen(job, lost, steps))
    print(f"{WIDTH}x{HEIGHT} nodes, links of {mbit} Mbit/s, {WIDTH}x{RANKS // WIDTH} ranks, {bytes_each} bytes; "
          f"node {lost} is lost; median of {steps} steps (10 %, 90 %)")
    alone = 8e3 * bytes_each / (mbit * 1e6)
    print(f"a message alone takes {alone:.1f} ms")
    row = "{:<10}{:>8}{:>18}{:>9}{:>9}{:>9}{:>9}{:>9}"
    print(row.format("rank on", "ms", "", "by flows", "differs", "times", "by flows", "busiest"))

    def show(where, times, base, expected):
        median, low, high = (1e3 * each for each in times[:3])
        model_ms = alone * first * expected
        spread, slower = f"({low:.1f}, {high:.1f})", times[0] / base[0]
        print(row.format(where, f"{median:.1f}", spread, f"{model_ms:.1f}", f"{median / model_ms - 1:+.0%}",
                         f"{slower:.2f}", f"{expected:.2f}", f"{times[3]:.2f}"))

    show(f"node {lost}", before, before, 1.0)
    for spare, times in found.items():
        show(f"spare {spare}", times, before, models[spare]["slowdown_by_flows"])
    show(f"chosen: {taken}", after, base, models[taken]["slowdown_by_flows"])
    best = min(times[0] for times in found.values())
    ratio = found[taken][0] / best
    print(f"the chosen one against the best: {ratio:.2f}; the worst: {max(t[0] for t in found.values()) / best:.2f}")
    for line in why.split("; "):
        print(f"  {line}")
    return ratio
