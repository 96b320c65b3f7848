"""In which order ranks are checkpointed, and what `eyrie status` says of it."""

import os
import tempfile

from harness import Job, compile_gate, example, run_to_end

PROGRAM = example("cg") + ["--class", "S", "--repeat", "1"]


MODES = (("copy", "copy"), ("twin", "twin"), ("sync", "synchronous"))


def under(policy):
    """All ranks get checkpoints, the state tells when the next ones come, and a rank that is killed
    comes back from its own."""
    code, want, err = run_to_end(PROGRAM)
    assert code == 0, err
    with tempfile.TemporaryDirectory(prefix="eyrie-test-") as folder:
        gate = os.path.join(folder, "gate")
        env = {"LD_PRELOAD": compile_gate(), "EYRIE_TEST_GATE": gate}
        options = ["--ckpt-policy", policy]
        with Job(PROGRAM, ckpt_every=0.3, options=options, env=env) as job:
            for rank in range(4):
                job.wait_event("checkpointed", rank=rank, count=2)
            says = [r["next_checkpoint"] for r in job.status()["ranks"]]
            known = ("under way", "as soon as it can be", f"({policy}: ")
            assert all(any(k in text for k in known) for text in says), says
            _, text, _ = job.eyrie("status", "last", "-v")
            assert "next checkpoint" in text, text
            job.kill_ranks([2])
            job.wait_event("restored", rank=2)
            open(gate, "w").close()
            assert job.wait() == 0, job.report()
            assert job.stdout() == want, job.report()


def frozen(mode, name):
    """Each way to keep a rank's memory does, is told, and can be restored from."""
    code, want, err = run_to_end(PROGRAM)
    assert code == 0, err
    with tempfile.TemporaryDirectory(prefix="eyrie-test-") as folder:
        gate = os.path.join(folder, "gate")
        env = {"LD_PRELOAD": compile_gate(), "EYRIE_TEST_GATE": gate}
        with Job(PROGRAM, ckpt_every=0.3, options=["--ckpt-freeze", mode], env=env) as job:
            for rank in range(4):
                job.wait_event("checkpointed", rank=rank, count=2)
            texts = [e["text"] for e in job.events() if e["event"] == "checkpointed"]
            assert all(f"({name})" in text for text in texts), texts
            job.kill_ranks([1])
            job.wait_event("restored", rank=1)
            open(gate, "w").close()
            assert job.wait() == 0, job.report()
            assert job.stdout() == want, job.report()


def generated():
    return [(f"frozen_by_{m}", lambda m=m, n=n: frozen(m, n)) for m, n in MODES] + [(f"under_{p}", lambda p=p: under(p)) for p in ("sr", "br", "st", "auto")]


def test_pages_of_other_ranks_do_not_go_with_nodes():
    options = ["--nodes", "2", "--ckpt-dedup", "on"]
    with Job(PROGRAM, options=options) as job:
        assert job.wait() == 2, job.report()
        job.says("--ckpt-dedup on works within one node")
