"""Slurm: the example scripts run in a real one (root), with three nodes on this machine, as do epilog and
health. Its jobs have numbers of their own, so that nothing of another Slurm on the machine is meant."""

import glob
import json
import os
import random
import re
import shlex
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
for part in "e2e", "e2e/cases", "net", "pick":
    sys.path.insert(0, os.path.join(ROOT, "tests", part))
import drain  # noqa: E402
import nodes  # noqa: E402
import notice  # noqa: E402
import restart  # noqa: E402
import slurm  # noqa: E402
from harness import BUILD, EYRIE, Hung, alive, compile_gate, example, soon  # noqa: E402

SLURM = os.path.join(ROOT, "packaging", "slurm")


def numbers():
    return f"FirstJobId={random.randrange(1 << 20, 1 << 25)}\n"


def script(name, command):
    """An example, of a size for three small nodes, with checkpoints that come soon."""
    with open(f"{SLURM}/examples/{name}.sbatch") as file:
        text = file.read()
    for pattern, new in (
        ("--nodes=4", "--nodes=3"),
        ("--ntasks=128", "--ntasks=4"),
        ("--time=24:00:00", "--time=20"),
        (r"-- \./heat --steps 2000000", f"--ckpt-every 0.5 -- {shlex.join(command)}"),
    ):
        text, count = re.subn(pattern, new, text)
        assert count <= 1, (name, pattern)
    assert "./heat" not in text and "#SBATCH" in text, text
    return text


class Queue:
    """A Slurm, and a home for the jobs in it, whose ranks do not end before they are let."""

    def __init__(self, it, folder):
        self.it, self.folder, self.gate = it, folder, os.path.join(folder, "gate")
        self.env = {
            **os.environ,
            **it.environment,
            "EYRIE_HOME": os.path.join(folder, "home"),
            "EYRIE_TEST_GATE": self.gate,
            "LD_PRELOAD": compile_gate(),
            "PATH": os.path.join(BUILD, "bin") + ":" + os.environ["PATH"],
        }

    def run(self, *command):
        done = subprocess.run(command, env=self.env, cwd=self.folder, capture_output=True, text=True)
        assert done.returncode == 0, (command, done)
        return done.stdout.strip()

    def submit(self, name, *options):
        path = os.path.join(self.folder, f"{name}.sbatch")
        with open(path, "w") as file:
            file.write(script(name, example("farm") + nodes.SIZES["farm"]))
        return self.run("sbatch", "--parsable", *options, path)

    def protected(self):
        """Its state, once all ranks of the only job run and have checkpoints."""
        found = json.loads(self.run("eyrie", "ps", "--json") or "[]")
        ranks = found[0]["ranks"] if len(found) == 1 else []
        good = len(ranks) == 4 and all(r["pid"] and r["checkpoint"] for r in ranks)
        return found[0]["job"] if good else None

    def again(self, number):
        """The job once it runs in another allocation, of the same number."""
        try:
            found = soon(self.protected, "the same job in another allocation")
        except Hung as hung:
            raise Hung(f"{hung}: {self.run('scontrol', 'show', 'job', number)}\n{self.run('eyrie', 'ps')}") from None
        assert "Restarts=1" in self.run("scontrol", "show", "job", number), number
        return found

    def printed(self):
        """What the job itself printed, in all its allocations."""
        text = ""
        for path in sorted(glob.glob(f"{self.folder}/slurm-*.out"), key=os.path.getmtime):
            with open(path) as file:
                text += file.read()
        told_by = ("eyrie: ", "slurmstepd-", "Submitted batch job")
        return "".join(line + "\n" for line in text.splitlines() if not line.startswith(told_by))

    def ends_as(self, want):
        open(self.gate, "w").close()
        soon(self.it.idle, "the end of all allocations")
        os.remove(self.gate)
        printed = self.printed()
        for path in glob.glob(f"{self.folder}/slurm-*.out"):
            os.remove(path)
        assert printed == want, printed


def test_slurm_scripts_go_on_in_the_next_allocation(folder):
    """Told by a signal, pre-empted, and on nodes of two kinds: what is printed is that of one run."""
    want = nodes.expected("farm")
    more = (
        "PreemptType=preempt/partition_prio\nPreemptMode=REQUEUE\n"
        "PartitionName=low Nodes=ALL PriorityTier=1 PreemptMode=REQUEUE GraceTime=60 MaxTime=INFINITE State=UP\n"
        "PartitionName=high Nodes=ALL PriorityTier=9 PreemptMode=OFF MaxTime=INFINITE State=UP\n"
    )
    options = ("Features=old", "Features=old", "Features=new")
    with slurm.slurm(more=numbers() + more, auth=",cred_expire=5", options=options) as it:
        queue = Queue(it, folder)
        queue.submit("mixed-nodes")
        soon(queue.protected, "a job on mixed nodes")
        queue.ends_as(want)
        # Slurm tells the steps, as it does at the time that --signal names.
        number = queue.submit("requeue")
        job = soon(queue.protected, "a job")
        queue.run("scancel", "--signal=TERM", number)
        soon(lambda: queue.run("squeue", "-h", "-j", number, "-o", "%T") == "PENDING", "the queue")
        assert queue.again(number) == job
        queue.ends_as(want)
        number = queue.submit("preempt")
        job = soon(queue.protected, "a job")
        other = queue.run("sbatch", "--parsable", "-p", "high", "--nodes=3", "--exclusive", "-o", "/dev/null", "--wrap", "true")
        soon(lambda: other not in queue.run("squeue", "-h", "-o", "%A"), "the end of the job that was first")
        assert queue.again(number) == job
        queue.ends_as(want)


def test_slurms_epilog_removes_what_a_dead_job_left(folder):
    home, epilog = os.path.join(folder, "home"), os.path.join(SLURM, "epilog")
    nodes_here = os.path.join(home, "nodes", os.uname().nodename)
    for name in "dead-0", "live-0":
        os.makedirs(f"{nodes_here}/{name}")
        open(f"{nodes_here}/{name}/lock", "w").close()
    # What nodes keep in folders of this machine: one is told by the job's processes, one by a link.
    told, linked = (os.path.join(folder, name, f"eyrie-{os.geteuid()}") for name in ("told", "linked"))
    stored = {name: f"{told}/{name}" for name in ("dead-0.7", "live-0.8", "kept-0.9")}
    stored |= {name: f"{linked}/{name}" for name in ("dead-0.3", "other-0.4")}
    for name, path in stored.items():
        os.makedirs(f"{path}/store/images")
        if not name.startswith("kept"):
            open(f"{path}/lock", "w").close()
    os.symlink(f"{linked}/dead-0.3/store", f"{nodes_here}/dead-0/store")
    # Nothing that Eyrie has made.
    os.makedirs(f"{folder}/precious/store")
    open(f"{folder}/precious/lock", "w").close()
    os.makedirs(f"{home}/jobs/abcd")
    os.symlink(f"{folder}/precious/store", f"{home}/jobs/abcd/node-0")
    held = (f"{nodes_here}/live-0", stored["live-0.8"])
    holders = [subprocess.Popen(["flock", f"{path}/lock", "sleep", "1000"]) for path in held]
    pids = []
    try:
        with slurm.slurm(more=f"{numbers()}Prolog={SLURM}/prolog\nEpilog={epilog}\n") as it:
            env = {**os.environ, **it.environment, "EYRIE_HOME": home}
            start = "setsid sh -c 'echo $$ > {1}; exec {0} sleep 1000' > /dev/null 2>&1 &"
            lines = [
                start.format(f"env EYRIE_RANK=0 EYRIE_LOCAL={folder}/told", f"{folder}/rank"),
                start.format("", f"{folder}/other"),
                start.format("env -u SLURM_JOB_ID EYRIE_RANK=0", f"{folder}/free"),
                f"until test -s {folder}/rank -a -s {folder}/other -a -s {folder}/free; do sleep 0.1; done",
            ]
            path = os.path.join(folder, "script")
            with open(path, "w") as file:
                file.write("#!/bin/sh\n" + "\n".join(lines) + "\n")
            done = subprocess.run(["sbatch", "-o", "/dev/null", path], env=env, capture_output=True, text=True)
            assert done.returncode == 0, done

            def number(name):
                with open(f"{folder}/{name}") as file:
                    return int(file.read())

            soon(lambda: os.path.exists(f"{folder}/free") and os.path.getsize(f"{folder}/free"), "the job")
            pids += [number(name) for name in ("rank", "other", "free")]
            soon(lambda: not os.path.exists(f"{nodes_here}/dead-0"), "the epilog")
            soon(it.idle, "idle nodes: prolog and epilog have not failed")
            # Slurm itself ends what it knows of a job; that process of it which is none of Eyrie's is Slurm's.
            assert not alive(pids[0]), "a rank of the job"
            assert alive(pids[2]), "of no job"
            assert os.path.exists(f"{nodes_here}/live-0"), "of a node that lives"
            left = sorted(name for name, path in stored.items() if os.path.exists(path))
            # What nothing leads to may be another job's, whose next node looks after it.
            assert left == ["kept-0.9", "live-0.8", "other-0.4"], left
            assert os.path.exists(f"{folder}/precious/store"), "of somebody else"
    finally:
        for pid in pids:
            if alive(pid):
                os.kill(pid, 9)
        for holder in holders:
            holder.kill()
            holder.wait()


def test_slurms_health_check_has_nodes_leave(folder):
    nodes.expected("farm")
    # What is called when a node is idle: nothing, here.
    with slurm.slurm(more=numbers() + "RebootProgram=/bin/true\n") as it:
        env = {**os.environ, **it.environment, "EYRIE": EYRIE, "EYRIE_RUN": f"{folder}/run"}

        def health(own):
            done = subprocess.run([f"{SLURM}/health"], env={**env, "SLURMD_NODENAME": own}, capture_output=True, text=True)
            assert done.returncode == 0 and not done.stderr, done

        def set_state(*words):
            done = subprocess.run(["scontrol", *words], env=env, capture_output=True, text=True)
            assert done.returncode == 0, done

        with slurm.allocated("farm", it) as job:
            record = drain.ready(job)
            health("n3")
            set_state("update", "nodename=n2", "state=drain", "reason=test")
            health("n3")
            job.wait_event("node-left", node=1)
            drain.nothing_again(job, drain.on_node(record, 1))
            set_state("reboot", "asap", "n1")
            health("n1")
            notice.saved(job)
            job.job_home = job.env["EYRIE_HOME"] = job.home
            restart.restart(job, "--nodes", "2")
            job.wait_event("restarted")
            job.ends_as("farm")
