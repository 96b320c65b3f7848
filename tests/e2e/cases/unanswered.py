"""`eyrie drain` and `eyrie migrate` whose controller dies before it has answered: they ask the next
one, or watch what the dead one had begun; either way it is done once."""

from drain import Asked, nothing_again, on_node, ready
from harness import alive
from migrate import Asking, is_spare
from nodes import Pointed, expected


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
