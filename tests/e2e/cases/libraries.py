"""Hosts with an installation of their own: the program and its libraries lie at the same paths, but
are other files. One host is put in a mount namespace for that, which takes root."""

import contextlib
import os
import shutil
import subprocess

from drain import ready
from harness import BUILD, NotRun, example
from hosts import Hosted, on_node, shell
from migrate import homes, migrate
from nodes import checkpointed_again, expected

# What the ranks of `gamma` map: each file is hidden by another one.
OWN = """if [ $1 = gamma ]; then
    shift
    exec unshare -m sh -c '
        while read copy file; do mount --bind "$copy" "$file"; done < "$0"
        exec sh -c "$*"' "$(dirname "$0")/files" "$@"
fi
shift
exec sh -c "$*"
"""


def mapped(program):
    """The program and its libraries."""
    env = {**os.environ, "LD_LIBRARY_PATH": os.path.join(BUILD, "lib")}
    text = subprocess.run(["ldd", program], env=env, capture_output=True, text=True).stdout
    words = [word for line in text.splitlines() for word in line.split()]
    return sorted({os.path.realpath(w) for w in [program, *words] if w.startswith("/")})


@contextlib.contextmanager
def installed_anew(program, change=lambda copy: None):
    """A remote shell; at `gamma` the program and its libraries are copies, of the program one that is
    changed."""
    probe = ["unshare", "-m", "mount", "--bind", program, program]
    if os.geteuid() != 0 or subprocess.run(probe, capture_output=True).returncode != 0:
        raise NotRun("mount namespaces take root")
    with shell(OWN) as rsh:
        folder, lines = os.path.dirname(rsh), []
        for number, file in enumerate(mapped(program)):
            copy = os.path.join(folder, f"copy-{number}")
            shutil.copyfile(file, copy)
            shutil.copymode(file, copy)
            if file == os.path.realpath(program):
                change(copy)
            lines.append(f"{copy} {file}\n")
        assert any("libc.so" in line for line in lines) and len(lines) > 3, lines
        with open(os.path.join(folder, "files"), "w") as out:
            out.writelines(lines)
        yield rsh


def test_the_same_files_at_another_place_will_do():
    """Ranks move to that host, and from there, when it is lost, to one without copies."""
    expected("heat")
    program = example("heat")[0]
    with installed_anew(program) as rsh:
        with Hosted("heat", rsh, ["--spares", "1"], ckpt_every=0.3) as job:
            ready(job)
            migrate(job, "--from", "beta", "--to", "gamma")
            moved = on_node(job.status(), 2)
            assert moved, job.status()
            checkpointed_again(job)
            job.kill_nodes(2)
            for rank in moved:
                job.wait_event("restored", rank=rank)
            job.ends_as("heat")
            for event in ("unfit", "image-refused", "rolled-back", "diverged"):
                assert job.count(event) == 0, job.report()


def test_a_host_with_another_program_gets_none():
    """That is known before anything moves; when a node is lost, another one takes its ranks, and
    their images are as good as before."""
    expected("heat")
    program = example("heat")[0]

    def change(copy):
        # Flags of an ELF header: nobody looks at them, but they are mapped.
        with open(copy, "r+b") as file:
            file.seek(48)
            file.write(b"\1")

    with installed_anew(program, change) as rsh:
        with Hosted("heat", rsh, ["--spares", "1"], ckpt_every=0.3) as job:
            record = ready(job)
            words = ["--from", "beta", "--to", "gamma"]
            code, out, err = job.eyrie("migrate", "last", *words, check=False)
            assert code == 1 and program in out and "same version" in out, (code, out, err)
            assert homes(job) == [r["node"] for r in record["ranks"]], job.status()
            job.wait_event("node-stays", node=1)
            job.kill_nodes(1)
            for rank in on_node(record, 1):
                job.wait_event("unfit", rank=rank, node=2)
                job.wait_event("restored", rank=rank, node=0)
            said = lambda: "cannot be brought back on node 2" in job.stderr() and program in job.stderr()
            job.until(said, "a line of that")
            job.ends_as("heat")
            for event in ("image-refused", "rolled-back", "diverged"):
                assert job.count(event) == 0, job.report()
