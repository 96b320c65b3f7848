"""`eyrie drain` and `eyrie migrate` whose controller dies before it has answered: they ask the next
one, or watch what the dead one had begun; either way it is done once."""

import os
import shutil
import signal
import tempfile

from drain import Asked, nothing_again, on_node, ready
from harness import alive
from migrate import Asking, is_spare
from nodes import Nodes, expected


class Points:
    """Of a job over nodes whose controller waits at the points that are armed."""

    def __init__(self, *arguments, **more):
        self.points = tempfile.mkdtemp(prefix="eyrie-test-")
        super().__init__(*arguments, env={"EYRIE_POINTS": self.points}, **more)

    def close(self):
        super().close()
        shutil.rmtree(self.points, ignore_errors=True)

    def arm(self, point):
        open(os.path.join(self.points, point), "w").close()

    def dies_at(self, point, count):
        """The controller has come to that point, and dies there; the next one goes on."""

        def told_who():
            try:
                with open(os.path.join(self.points, f"{point}.pid")) as file:
                    return file.read()
            except OSError:
                return ""

        os.kill(int(self.until(told_who, point)), signal.SIGKILL)
        os.remove(os.path.join(self.points, f"{point}.held"))
        self.wait_event("controller-back", count=count)


class Pointed(Points, Nodes):
    def begun(self):
        return [e["node"] for e in self.events() if e["event"] == "node-leaving"]


def test_who_asked_asks_the_next_controller_or_goes_on_to_watch():
    expected("farm")
    with Pointed("farm", 3, ["--spares", "1"], ckpt_every=0.5) as job:
        record = ready(job)
        moved = on_node(record, 1)
        # Nothing was begun.
        job.arm("leave-1")
        with Asking(job, "--from", "1", "--to", "3") as asked:
            job.dies_at("leave-1", 1)
            code, out, err = asked.over()
        assert code == 0 and "is a spare" in out and "controller died" in err, (code, out, err)
        assert job.begun() == [1], job.report()
        is_spare(job, 1)
        # It was begun, and nobody was told. That node 3 came and went before is another matter.
        job.arm("leave-2")
        with Asked(job, "3", "--to", "1") as asked:
            job.dies_at("leave-2", 2)
            code, out, err = asked.over()
        assert code == 0 and "has left" in out and "controller died" in err, (code, out, err)
        assert job.begun() == [1, 3], job.report()
        job.wait_event("node-left", node=3)
        assert not alive(record["nodes"][3]["pid"]), job.report()
        job.ends_as("farm")
        nothing_again(job, moved * 2)
