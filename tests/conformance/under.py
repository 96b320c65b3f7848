"""The ways in which a program of a suite is run: undisturbed without and with logging, with kills, and by MPICH
itself, for comparison: programs and wrappers stay Eyrie's, the library and the launcher are MPICH's."""

import contextlib
import dataclasses
import os
import signal
import subprocess

import harness
import suites

# How often images are taken where ranks are killed, in seconds.
OFTEN_S = 0.05
# Of each test, if whoever runs them says so.
limit_s = None
NODES = ["--nodes", "3", "--spares", "1"]


@dataclasses.dataclass
class Ended:
    code: int
    out: str
    err: str
    events: str = ""

    def told(self):
        return self.out + self.err + self.events


def undisturbed(ft):
    def run(command, ranks, folder, env, limit):
        code, out, err = harness.run_to_end(command, ranks=ranks, timeout=limit, ft=ft, cwd=folder, env=env)
        return Ended(code, out, err)

    return run


def disturbed(options, victims):
    """The program waits in MPI_Finalize until all the victims were there and have come back."""

    def run(command, ranks, folder, env, limit):
        more = {"ckpt_every": OFTEN_S, "options": options, "cwd": folder, "env": env}
        with harness.Gated(command, ranks=ranks, **more) as job:
            job.until(lambda: job.count("started") >= ranks, "start of all ranks", limit)
            for what, which in victims(ranks):
                back = job.count("restored") + job.count("restarted")
                job.eyrie("inject", "last", what, which)
                job.until(lambda b=back: job.count("restored") + job.count("restarted") > b, "a recovery", limit)
            job.let_end()
            code = job.wait(limit)
            assert not job.count("diverged"), job.report()
            # What Eyrie says of the kills is not the program's.
            return Ended(code, job.stdout(), own_words(job.stderr()), job.report() if code else "")

    return run


def own_words(text):
    return "\n".join(line for line in text.splitlines() if not line.startswith("eyrie"))


def ranks_in_turn(ranks):
    """The last rank, and then the first one."""
    return [("kill-rank", str(rank)) for rank in dict.fromkeys((ranks - 1, 0))]


def by_mpich(command, ranks, folder, env, limit):
    base = suites.mpich_itself()
    env = {**os.environ, **env, "LD_LIBRARY_PATH": os.path.join(base, "lib")}
    launch = [os.path.join(base, "bin", "mpiexec"), "-launcher", "fork", "-n", str(ranks), *command]
    pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(launch, cwd=folder, env=env, text=True, errors="replace", start_new_session=True, **pipes) as job:
        try:
            out, err = job.communicate(timeout=limit)
        except subprocess.TimeoutExpired as problem:
            raise harness.Hung(f"MPICH: not over after {limit} s") from problem
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(job.pid, signal.SIGKILL)
    return Ended(job.returncode, out, err)


WAYS = {
    "none": undisturbed("none"),
    "logged": undisturbed(None),
    "rank-killed": disturbed([], ranks_in_turn),
    "node-killed": disturbed(NODES, lambda ranks: [("kill-node", "0")]),
    "mpich": by_mpich,
}


def run(under, command, ranks, folder, env, limit):
    return WAYS[under](command, ranks, folder, env, limit_s or limit)
