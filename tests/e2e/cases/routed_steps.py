"""`--ft routed`: a checkpoint has ten steps, and in each of them somebody who takes part dies."""

import os
import shutil
import signal
import subprocess
import tempfile

from harness import EYRIE
from nodes import expected
from routed import NODES, Routed

# The rank whose checkpoint is disturbed; it is on the node of its number, and has the first router.
RANK = 1


class Stepped(Routed):
    """After their first ones, ranks are checkpointed on request only; a daemon waits in a step."""

    def __init__(self, name):
        self.points = tempfile.mkdtemp(prefix="eyrie-test-")
        options = ["--ckpt-every", "3600", "--ckpt-first", "0.3"]
        super().__init__(name, 2, options, every=None, env={"EYRIE_POINTS": self.points})

    def close(self):
        super().close()
        shutil.rmtree(self.points, ignore_errors=True)

    def path(self, step, what=""):
        return os.path.join(self.points, f"pause-{step}{what}")

    def held(self, step):
        """Somebody has come to this step of a checkpoint of the rank, and waits there."""
        told = self.path(step, ".pid")

        def told_who():
            try:
                with open(told) as file:
                    return file.read()
            except OSError:
                return ""

        return int(self.until(told_who, f"step {step}"))

    def let_go(self, step):
        os.remove(self.path(step, ".held"))


def dies(step, who):
    expected("farm")
    with Stepped("farm") as job:
        job.all_checkpointed()
        record = job.status()
        open(job.path(step), "w").close()
        ask = [EYRIE, "checkpoint", "last", "--rank", str(RANK)]
        asked = subprocess.Popen(ask, env=job.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        waits = job.held(step)
        pids = {
            "rank": record["ranks"][RANK]["pid"],
            "node": record["nodes"][RANK]["pid"],
            "router": record["nodes"][NODES]["pid"],
            "controller": record["daemon_pid"],
        }
        assert waits in pids.values(), (waits, pids)
        os.kill(pids[who], signal.SIGKILL)
        job.let_go(step)
        if who == "controller":
            job.wait_event("controller-back")
        elif who == "rank":
            job.wait_event("restored", rank=RANK)
        else:
            job.wait_event("node-lost", node=RANK if who == "node" else NODES)
        asked.kill()
        asked.communicate()
        # Nobody stands for ever: everybody can be checkpointed, and comes back from that.
        if who == "node":
            job.wait_event("restored", rank=RANK)
        job.eyrie("checkpoint", "last")
        before = job.count("restored", rank=RANK)
        job.kill_ranks([RANK])
        job.wait_event("restored", rank=RANK, count=before + 1)
        job.ends_well("farm", RANK)


def generated():
    for step in range(1, 11):
        for who in ("rank", "node", "router", "controller"):
            yield f"a_{who}_dies_in_step_{step}", lambda s=step, w=who: dies(s, w)
