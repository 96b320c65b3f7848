"""Jobs in allocations of PBS, LSF, Flux, Grid Engine and Kubernetes: scripts play their commands. All
hosts are this machine under other names."""

import contextlib
import os
import signal
import subprocess
import tempfile

from drain import ready
from harness import EYRIE, Gated, NotRun, example, soon
from hosts import PLAIN, daemons, on_node
from nodes import SIZES, Nodes, expected
from restart import SAVED, ended_well, restart

HERE = ["--address", "127.0.0.1"]
# The host comes last of the options; a command follows, for no shell.
STARTER = 'echo "$1" >> "$0.log"\nshift\nexec "$@"\n'
QRSH = 'echo "$2" >> "$0.log"\nshift 2\nexec "$@"\n'
QSTAT = """#!/bin/sh
case "$1" in
-Qf) printf 'Queue: workq\\n    kill_delay = 40\\n' ;;
-f) printf '    Resource_List.walltime = 01:00:00\\n    resources_used.walltime = 00:00:10\\n' ;;
esac
"""
# Brokers have numbers. What is left is little, and nothing when the test says so.
FLUX = """#!/bin/sh
case "$1 $2" in
"getattr hostlist") echo 'alpha,n[08-09]' ;;
"exec --rank") echo "$3" >> "$0.log"; shift 3; exec "$@" ;;
"job timeleft") if [ -e "$0.over" ]; then echo 0; else echo 2; fi ;;
*) exit 1 ;;
esac
"""


@contextlib.contextmanager
def played(commands, **files):
    """A folder with these commands, first in PATH; files lie in it. Yields it and variables."""
    with tempfile.TemporaryDirectory(prefix="eyrie-test-") as folder:
        for name, text in commands.items():
            path = os.path.join(folder, name)
            with open(path, "w") as file:
                os.chmod(file.fileno(), 0o755)
                file.write(text if text.startswith("#!") else "#!/bin/sh\n" + text)
        variables = {"PATH": folder + ":" + os.environ["PATH"]}
        for name, text in files.items():
            variables[name] = os.path.join(folder, name)
            with open(variables[name], "w") as file:
                file.write(text)
        yield folder, variables


def pbs(hosts="alpha\nbeta\nbeta\ngamma\n"):
    return played({"qstat": QSTAT, "rsh": STARTER.replace('exec "$@"', PLAIN.partition("\n")[2])}, PBS_NODEFILE=hosts)


def of_pbs(folder, variables):
    return {**variables, "PBS_JOBID": "7.head", "PBS_QUEUE": "workq", "EYRIE_RSH": f"{folder}/rsh"}


def log(path):
    with open(path + ".log") as file:
        return sorted(file.read().split())


def echoes(variables, options=HERE, wrap=()):
    """What the ranks of a job that is not sized print, one line each."""
    with tempfile.TemporaryDirectory(prefix="eyrie-test-") as home:
        command = [EYRIE, "run", "--ft", "none", *options]
        env = {**os.environ, **variables, "EYRIE_HOME": home}
        done = subprocess.run(
            [*wrap, *command, "--", "sh", "-c", "echo $EYRIE_RANK"],
            env=env,
            capture_output=True,
            text=True,
        )
        return done.returncode, sorted(done.stdout.splitlines()), done.stderr


def test_hosts_of_batch_systems_are_found():
    before = daemons()
    four = ["0", "1", "2", "3"]
    with pbs() as (folder, variables):
        env = of_pbs(folder, variables)
        assert echoes(env) == (0, four, ""), echoes(env)
        assert log(f"{folder}/rsh") == ["alpha", "beta", "gamma"], log(f"{folder}/rsh")
        own = {**env, "PBS_NODEFILE": "/no/such/file"}
        code, _, said = echoes(own)
        assert code == 2 and "PBS_NODEFILE=/no/such/file" in said, said
    with played({"qrsh": QRSH}, PE_HOSTFILE="alpha 3 all.q@alpha UNDEFINED\nbeta 1 all.q@beta UNDEFINED\n") as (
        folder,
        variables,
    ):
        env = {**variables, "JOB_ID": "7"}
        assert echoes(env) == (0, four, ""), echoes(env)
        assert log(f"{folder}/qrsh") == ["alpha", "beta"], log(f"{folder}/qrsh")
    with played({"rsh": 'echo "$1" >> "$0.log"\n' + PLAIN}, HYDRA_HOST_FILE="w-0.heat:2\nw-1.heat slots=2\n") as (
        folder,
        variables,
    ):
        env = {**variables, "KUBERNETES_SERVICE_HOST": "10.0.0.1", "EYRIE_RSH": f"{folder}/rsh"}
        assert echoes(env) == (0, four, ""), echoes(env)
        assert set(log(f"{folder}/rsh")) == {"w-0.heat", "w-1.heat"}, log(f"{folder}/rsh")
    soon(lambda: not daemons() - before, "end of all daemons")


def test_a_job_of_this_machine_alone_takes_no_remote_shell():
    own = os.uname().nodename
    with pbs(f"{own}\n{own}\n") as (folder, variables):
        env = {**of_pbs(folder, variables), "EYRIE_RSH": "/no/such/shell"}
        assert echoes(env, []) == (0, ["0", "1"], ""), echoes(env, [])
        # It is saved as others are.
        want = expected("farm")
        with Gated(example("farm") + SIZES["farm"], env=env, ckpt_every=0.5) as job:
            job.wait_running(4)
            for rank in range(4):
                job.wait_event("checkpointed", rank=rank)
            job.interrupt(signal.SIGTERM)
            assert job.wait() == SAVED, job.report()
            restart(job)
            ended_well(job, want)


def test_pods_of_an_indexed_job_are_found():
    if os.geteuid() != 0:
        raise NotRun("another name for the machine takes root")
    with played({"rsh": 'echo "$1" >> "$0.log"\n' + PLAIN}) as (folder, variables):
        env = {
            **variables,
            "KUBERNETES_SERVICE_HOST": "10.0.0.1",
            "JOB_COMPLETION_INDEX": "0",
            "EYRIE_PODS": "2",
            "EYRIE_RSH": f"{folder}/rsh",
        }
        named = ["unshare", "--uts", "sh", "-c", 'echo heat-0 > /proc/sys/kernel/hostname; exec "$@"', "sh"]
        said = echoes(env, ["-n", "2", *HERE], named)
        assert said == (0, ["0", "1"], ""), said
        assert log(f"{folder}/rsh") == ["heat-0", "heat-1"], log(f"{folder}/rsh")
        code, _, said = echoes(env, ["-n", "2", *HERE])
        assert code == 2 and "JOB_COMPLETION_INDEX" in said, said


def goes_on(job, before):
    """The job is saved, and goes on here."""
    assert job.wait() == SAVED, job.report()
    assert "is saved and ends" in job.stderr() and not job.count("node-lost"), job.report()
    soon(lambda: not daemons() - before, "end of all daemons")
    restart(job, "--nodes", "2")
    job.wait_event("restarted")
    job.ends_as("farm")


def test_pbs_ends_a_job_by_sigterm():
    """What comes to `eyrie run` alone: on other hosts PBS knows nothing of what ssh has started."""
    expected("farm")
    with pbs() as (folder, variables):
        before = daemons()
        with Nodes("farm", HERE, env=of_pbs(folder, variables), ckpt_every=0.5) as job:
            record = ready(job)
            assert [n["host"] for n in record["nodes"]] == ["alpha", "beta", "gamma"], record
            assert [r["node"] for r in record["ranks"]] == [0, 1, 1, 2], record
            assert record["grace_ms"] == 35_000, record
            job.interrupt(signal.SIGTERM)
            goes_on(job, before)


def test_lsf_ends_a_job_by_sigusr2():
    expected("farm")
    with played({"blaunch": STARTER}) as (folder, variables):
        before = daemons()
        env = {**variables, "LSB_JOBID": "7", "LSB_MCPU_HOSTS": "alpha 2 beta 2"}
        with Nodes("farm", HERE, env=env, ckpt_every=0.5) as job:
            record = ready(job)
            assert log(f"{folder}/blaunch") == ["alpha", "beta"]
            assert [r["node"] for r in record["ranks"]] == [0, 0, 1, 1], record
            job.interrupt(signal.SIGUSR2)
            job.says("SIGUSR2: the batch system ends the job")
            goes_on(job, before)


def test_a_job_is_saved_ahead_of_the_limit_of_flux():
    """Flux tells its brokers, and nobody else: what is left is asked for."""
    expected("farm")
    with played({"flux": FLUX}) as (folder, variables):
        before = daemons()
        env = {**variables, "FLUX_URI": "local:///run/flux"}
        with Nodes("farm", HERE, env=env, ckpt_every=0.5) as job:
            record = ready(job)
            assert [n["host"] for n in record["nodes"]] == ["alpha", "n08", "n09"], record
            assert log(f"{folder}/flux") == ["0", "1", "2"]
            assert on_node(record, 0), record
            open(f"{folder}/flux.over", "w").close()
            job.says("the batch system ends the job in 0 s: it is saved before that")
            assert job.wait() == SAVED, job.report()
            # The next allocation's.
            os.remove(f"{folder}/flux.over")
            goes_on(job, before)
