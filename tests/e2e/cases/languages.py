"""Programs in Go and Rust that call MPI through the C ABI: killed after a checkpoint, twice, with the
result of an undisturbed run."""

import os
import shutil
import subprocess
import tempfile

import harness
from harness import Job, run_to_end

SOURCES = os.path.join(harness.ROOT, "tests", "image", "programs")
LIBRARIES = os.path.join(harness.BUILD, "lib")
_built = {}


def built(name):
    """The command of a program, built once."""
    if name not in _built:
        target = os.path.join(harness.BUILD, "tests")
        os.makedirs(target, exist_ok=True)
        out = os.path.join(target, name.replace(".", "-"))
        source = os.path.join(SOURCES, name)
        env = dict(os.environ)
        if name.endswith(".go"):
            env["CGO_CFLAGS"] = f"-I{harness.BUILD}/include"
            env["CGO_LDFLAGS"] = f"-L{LIBRARIES} -lmpi_abi -Wl,-rpath,{LIBRARIES}"
            env["GOTOOLCHAIN"] = "local"
            command = ["go", "build", "-o", out, source]
        else:
            search = ["-L", LIBRARIES, "-C", f"link-arg=-Wl,-rpath,{LIBRARIES}"]
            rustc = os.environ.get("RUSTC", "rustc")
            command = [rustc, "--edition", "2024", "-O", *search, "-o", out, source]
        assert shutil.which(command[0]), f"{command[0]} is missing: scripts/setup test installs it"
        done = subprocess.run(command, capture_output=True, text=True, env=env, cwd=target)
        assert done.returncode == 0, done.stderr
        _built[name] = [out]
    return _built[name]


def killed_twice(name, ranks, rounds):
    """One rank dies after a checkpoint, comes back from the image, is checkpointed and dies again."""
    command = [*built(name), str(rounds)]
    code, want, err = run_to_end(command, ranks=ranks)
    assert code == 0 and want.startswith("checksum "), (code, want, err)
    with tempfile.TemporaryDirectory() as folder:
        gate = os.path.join(folder, "gate")
        with Job([*command, gate], ranks=ranks, ckpt_every=0.1) as job:
            disturbed(job, gate, want)


def disturbed(job, gate, want):
    for time in (1, 2):
        job.wait_event("checkpointed", rank=1, count=job.count("checkpointed", rank=1) + 1)
        job.kill_ranks([1])
        job.wait_event("restored", rank=1, count=time)
    # Half-way it waits for this.
    open(gate, "w").close()
    assert job.wait() == 0, job.report()
    assert job.stdout() == want, job.report()
    restored = [e for e in job.events() if e["event"] == "restored"]
    assert all(e["generation"] >= 1 for e in restored), restored


def test_go_calls_mpi():
    killed_twice("ring.go", 2, 3000)


def test_rust_calls_mpi():
    killed_twice("ring.rs", 3, 19999)
