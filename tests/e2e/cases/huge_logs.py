"""What logs lie in: huge pages that a tmpfs of the job's own has, or a memfd. A rank comes back with
either."""

import os
import subprocess

from harness import EYRIE, Gated, example
from programs import SIZES, expected

# A tmpfs with huge pages can be had here by mounting it; without that right, in a user namespace.
WITHOUT_MOUNTS = ("setpriv", "--bounding-set=-sys_admin", "--inh-caps=-sys_admin")


def here(**env):
    told = subprocess.run([EYRIE, "info"], env={**os.environ, **env}, capture_output=True, text=True)
    return next(line for line in told.stdout.split("\n") if "huge pages of shared" in line)


def segment_of(pid):
    """What its segment is called in its mappings."""
    with open(f"/proc/{pid}/maps") as maps:
        return next(line.split()[5] for line in maps if "eyrie-job:" in line)


def comes_back(prefix, env, wrap=()):
    want = expected("heat")
    with Gated(example("heat") + SIZES["heat"], ckpt_every=3600, env=env, wrap=wrap) as job:
        job.wait_running(4)
        job.eyrie("checkpoint", "last")
        job.wait_event("checkpointed", rank=1)
        before = segment_of(job.status()["ranks"][1]["pid"])
        assert before.startswith(prefix), before
        job.kill_ranks([1])
        job.wait_event("restored", rank=1)
        assert segment_of(job.status()["ranks"][1]["pid"]) == before
        job.let_end()
        assert job.wait() == 0, job.report()
        assert job.stdout() == want, job.report()
        assert not job.count("diverged"), job.report()


def test_a_rank_comes_back_to_a_log_in_huge_pages():
    prefix = "/eyrie-job:" if " yes " in here() else "/memfd:eyrie-job:"
    comes_back(prefix, {})


def test_a_rank_comes_back_to_a_log_in_a_memfd():
    assert " no " in here(EYRIE_HUGE_PAGES="off")
    comes_back("/memfd:eyrie-job:", {"EYRIE_HUGE_PAGES": "off"})


def test_huge_pages_take_no_right_to_mount():
    """In a user namespace, if this machine lets its users have them; else there is a memfd."""
    wrap = WITHOUT_MOUNTS if os.geteuid() == 0 else ()
    told = subprocess.run([*wrap, EYRIE, "info"], capture_output=True, text=True).stdout
    line = next(line for line in told.split("\n") if "huge pages of shared" in line)
    comes_back("/eyrie-job:" if " yes " in line else "/memfd:eyrie-job:", {}, wrap)
