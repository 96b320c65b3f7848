"""Jobs in an allocation of Slurm: a script plays `srun`, and a real Slurm (root only) with three
nodes on this machine, its daemons started here with folders, ports and a key of their own."""

import contextlib
import glob
import json
import os
import shlex
import shutil
import signal
import subprocess
import tempfile

from controller import kill_controller, unharmed
from harness import BUILD, EYRIE, ROOT, NotRun, compile_gate, example, free_ports, soon
from hosts import daemons, on_node, restored_alone, shell
from nodes import SIZES, Nodes, checkpointed_again, expected


SRUN = """while [ "$1" != --nodelist ]; do shift; done
echo "$2" >> "$0.log"
shift 2
exec "$@"
"""


SCONTROL = """#!/bin/sh
case "$*" in
"show config") echo "KillWait                = 90 sec" ;;
*"partition all") echo "PartitionName=all GraceTime=60 Hidden=NO" ;;
*) exit 1 ;;
esac
"""


@contextlib.contextmanager
def allocation():
    """The variables of an allocation of three hosts, for four tasks."""
    with shell(SRUN) as path:
        srun = os.path.join(os.path.dirname(path), "srun")
        os.rename(path, srun)
        with open(os.path.join(os.path.dirname(srun), "scontrol"), "w") as file:
            os.chmod(file.fileno(), 0o755)
            file.write(SCONTROL)
        yield srun, {
            "PATH": os.path.dirname(srun) + ":" + os.environ["PATH"],
            "SLURM_JOB_ID": "7",
            "SLURM_JOB_PARTITION": "all",
            "SLURM_JOB_NODELIST": "n[08-09],login",
            "SLURM_TASKS_PER_NODE": "1(x2),2",
            "SLURM_NTASKS": "4",
        }


def test_an_allocations_hosts_are_used():
    expected("cg")
    with allocation() as (srun, variables):
        where = ["--address", "127.0.0.1"]
        before = daemons()
        with Nodes("cg", where, env=variables, ckpt_every=0.5) as job:
            record = job.wait_running(4)
            assert [n["host"] for n in record["nodes"]] == ["n08", "n09", "login"], record
            assert [r["node"] for r in record["ranks"]] == [0, 1, 2, 2], record
            with open(srun + ".log") as file:
                assert sorted(file.read().split()) == ["login", "n08", "n09"]
            assert record["grace_ms"] == 55_000, record
            job.all_checkpointed()
            os.kill(record["nodes"][1]["pid"], signal.SIGKILL)
            job.wait_event("node-lost", node=1)
            restored_alone(job, "cg", [1])
            soon(lambda: not daemons() - before, "end of all daemons")


def outlives(job, name):
    """The controller dies; then a node is lost."""
    job.all_checkpointed()
    before = job.status()
    kill_controller(job)
    after = job.status()
    assert [n["host"] for n in before["nodes"]] == [n["host"] for n in after["nodes"]], after
    checkpointed_again(job)
    unharmed(job)
    victims = on_node(job.status(), 1)
    job.kill_nodes(1)
    job.wait_event("node-lost", node=1)
    restored_alone(job, name, victims)


def test_a_job_outlives_its_controller():
    expected("farm")
    with allocation() as (_, variables):
        before = daemons()
        with Nodes("farm", ["--address", "127.0.0.1"], env=variables, ckpt_every=0.5) as job:
            outlives(job, "farm")
            soon(lambda: not daemons() - before, "end of all daemons")


def test_tasks_are_the_number_of_ranks():
    with allocation() as (_, variables), tempfile.TemporaryDirectory() as home:
        options = ["--address", "127.0.0.1", "--ft", "none"]
        command = [EYRIE, "run", *options, "--", "sh", "-c", "echo $EYRIE_RANK $SLURM_PROCID"]
        env = {**os.environ, **variables, "EYRIE_HOME": home, "SLURM_PROCID": "0"}
        done = subprocess.run(command, env=env, capture_output=True, text=True)
        assert done.returncode == 0 and not done.stderr, done
        # The last is srun's own business: it is as on the host, which is this machine.
        assert sorted(done.stdout.splitlines()) == [f"{n} 0" for n in range(4)], done
        # A job of one's own nodes needs no srun.
        one = [EYRIE, "run", "-n", "1", "--nodes", "1", "true"]
        env["PATH"] = os.environ["PATH"]
        assert subprocess.run(one, env=env).returncode == 0
        env["SLURM_JOB_NODELIST"] = "n[1-"
        wrong = subprocess.run(command, env=env, capture_output=True, text=True)
        assert wrong.returncode == 2 and "SLURM_JOB_NODELIST=n[1-" in wrong.stderr, wrong


# ---- a real Slurm ----

CONF = """ClusterName=eyrie
SlurmctldHost={machine}(127.0.0.1)
SlurmctldPort={ports[0]}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket{auth}
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool.%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
ReturnToService=2
SlurmdParameters=config_overrides
MpiDefault=none
{nodes}PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
{more}"""


def tool(name):
    found = shutil.which(name, path=os.environ.get("PATH", "") + ":/usr/sbin")
    if not found:
        raise NotRun(f"there is no {name} here (packages slurmctld, slurmd, slurm-client, munge)")
    return found


class Slurm:
    """A controller and three nodes, n1 to n3. `more`: lines of its configuration, `auth`: of how long
    credentials are good, `options`: of each node."""

    def __init__(self, folder, more="", auth="", options=("", "", "")):
        if os.geteuid() != 0:
            raise NotRun("a Slurm of one's own takes root")
        tools = {name: tool(name) for name in ("munged", "slurmctld", "slurmd", "salloc", "sinfo")}
        os.chmod(folder, 0o755)
        self.folder, self.processes = folder, []
        ports = free_ports(4)
        line = "NodeName=n{} NodeAddr=127.0.0.1 NodeHostname={} Port={} CPUs=2 {}\n"
        machine = os.uname().nodename
        nodes = "".join(line.format(n, machine, ports[n], options[n - 1]) for n in (1, 2, 3))
        with open(f"{folder}/slurm.conf", "w") as file:
            where = {"machine": machine, "ports": ports, "folder": folder, "nodes": nodes}
            file.write(CONF.format(**where, more=more, auth=auth))
        with open(f"{folder}/munge.key", "wb") as file:
            os.chmod(file.fileno(), 0o600)
            file.write(os.urandom(1024))
        for name in ("state", "spool.n1", "spool.n2", "spool.n3"):
            os.mkdir(f"{folder}/{name}")
        self.environment = {"SLURM_CONF": f"{folder}/slurm.conf"}
        options = "key-file=munge.key socket=munge.socket pid-file=munge.pid seed-file=munge.seed"
        options = [f"--{o.replace('=', f'={folder}/')}" for o in options.split()]
        log = f"--log-file={folder}/munge.log"
        self.start(tools["munged"], "--foreground", "--force", log, *options)
        soon(lambda: os.path.exists(f"{folder}/munge.socket"), "munged")
        self.start(tools["slurmctld"], "-D")
        for n in (1, 2, 3):
            self.start(tools["slurmd"], "-D", "-N", f"n{n}")
        soon(self.idle, "idle nodes of Slurm")

    def start(self, *command):
        env = {**os.environ, **self.environment}
        with open(f"{self.folder}/out", "ab") as out:
            quiet = {"stdin": subprocess.DEVNULL, "stdout": out, "stderr": out}
            self.processes.append(subprocess.Popen(command, env=env, **quiet))

    def idle(self):
        command = ["sinfo", "-h", "-o", "%T %D"]
        env = {**os.environ, **self.environment}
        done = subprocess.run(command, env=env, capture_output=True, text=True)
        return done.stdout.strip() == "idle 3"

    def close(self):
        for process in reversed(self.processes):
            process.terminate()
            process.wait()


@contextlib.contextmanager
def slurm(**options):
    with tempfile.TemporaryDirectory(prefix="eyrie-test-") as folder:
        with contextlib.closing(Slurm(folder, **options)) as it:
            yield it


def allocated(name, it, options=()):
    """A job in an allocation of all three nodes."""
    wrap = ["salloc", "--quiet", "--nodes=3", "--ntasks=4", "--no-kill"]
    return Nodes(name, [], options, env=it.environment, wrap=wrap, ckpt_every=0.5)


def loses_a_daemon(job, name):
    """The job, on the three nodes, goes on without that of the second."""
    record = job.wait_running(4)
    assert [n["host"] for n in record["nodes"]] == ["n1", "n2", "n3"], record
    job.all_checkpointed()
    victims = on_node(record, 1)
    assert victims, record
    os.kill(record["nodes"][1]["pid"], signal.SIGKILL)
    job.wait_event("node-lost", node=1)
    restored_alone(job, name, victims)


def test_real_a_job_runs_and_a_daemon_is_killed():
    expected("cg")
    with slurm() as it:
        before = daemons()
        with allocated("cg", it) as job:
            loses_a_daemon(job, "cg")
        soon(lambda: not daemons() - before, "end of all daemons")
        soon(it.idle, "end of the allocation")


def test_real_a_job_outlives_its_controller():
    expected("cg")
    with slurm() as it:
        before = daemons()
        with allocated("cg", it) as job:
            outlives(job, "cg")
        soon(lambda: not daemons() - before, "end of all daemons")
        soon(it.idle, "end of the allocation")


def test_real_nothing_is_left_of_a_job_whose_controller_is_killed():
    with slurm() as it:
        before = daemons()
        with allocated("farm", it, ["--controller-limit", "0"]) as job:
            record = job.wait_running(4)
            assert daemons() - before
            os.kill(record["daemon_pid"], signal.SIGKILL)
            assert job.wait() != 0
            soon(lambda: not daemons() - before, "end of all daemons")
        soon(it.idle, "end of the allocation")


def script_of_the_readme(command):
    """The batch script of README, for three nodes, another program and checkpoints that come soon."""
    with open(os.path.join(ROOT, "README.md")) as file:
        blocks = file.read().split("```")[1::2]
    (script,) = [b.partition("\n")[2] for b in blocks if "#SBATCH" in b]
    lines = script.splitlines()
    # So it is in the documents, and among the examples, where more is said.
    with open(os.path.join(ROOT, "docs", "guides", "slurm.md")) as file:
        assert f"\n{script}```" in file.read(), script
    with open(os.path.join(ROOT, "packaging", "slurm", "examples", "time-limit.sbatch")) as file:
        kept = [line for line in file.read().splitlines() if not line.startswith("# ")]
    assert kept == lines, kept
    asked = next(i for i, line in enumerate(lines) if line.startswith("#SBATCH"))
    lines[asked] = "#SBATCH --nodes=3 --ntasks=4 --no-kill"
    run = next(i for i, line in enumerate(lines) if line.startswith("eyrie run"))
    head, _, _ = lines[run].partition(" -- ")
    lines[run] = f"{head} --ckpt-every 0.5 -- {shlex.join(command)}"
    return "\n".join(lines) + "\n"


def test_real_the_script_of_the_readme_goes_on_in_the_next_allocation():
    """Slurm ends the allocation as at its time limit: the script submits itself again, and the job
    goes on from where it stood."""
    want = expected("farm")
    with slurm() as it, tempfile.TemporaryDirectory(prefix="eyrie-test-") as home:
        gate = os.path.join(home, "gate")
        env = {
            **os.environ,
            **it.environment,
            "EYRIE_HOME": home,
            "EYRIE_TEST_GATE": gate,
            "LD_PRELOAD": compile_gate(),
            "PATH": os.path.join(BUILD, "bin") + ":" + os.environ["PATH"],
        }
        path = os.path.join(home, "script")
        with open(path, "w") as file:
            file.write(script_of_the_readme(example("farm") + SIZES["farm"]))

        def told(*command):
            done = subprocess.run(command, env=env, cwd=home, capture_output=True, text=True)
            return done.stdout if done.returncode == 0 else ""

        def job():
            found = json.loads(told("eyrie", "ps", "--json") or "[]")
            assert len(found) <= 1, found
            return found[0] if found else None

        def is_protected():
            # One that is saved has them, too, and is in no list for a moment when it goes on.
            it = job() or {"phase": "", "ranks": []}
            there = it["phase"] == "running" and len(it["ranks"]) == 4
            return there and all(r["checkpoint"] for r in it["ranks"])

        def outputs():
            paths = sorted(glob.glob(f"{home}/slurm-*.out"), key=os.path.getmtime)
            texts = []
            for found in paths:
                with open(found) as file:
                    texts.append(file.read())
            return texts

        first = told("sbatch", "--parsable", path).strip()
        assert first, "sbatch"
        soon(is_protected, "a checkpoint of each rank")
        before = job()
        told("scancel", first)
        soon(lambda: len(outputs()) == 2 and is_protected(), "the next allocation")
        after = job()
        assert after["job"] == before["job"], (before, after)
        open(gate, "w").close()
        soon(it.idle, "the end of both allocations")
        printed = "".join(outputs())
        told_by = ("eyrie: ", "slurmstepd-", "Submitted batch job")
        kept = [line for line in printed.splitlines() if not line.startswith(told_by)]
        assert "\n".join(kept) + "\n" == want, printed
