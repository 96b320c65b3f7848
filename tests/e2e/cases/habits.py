"""What users are used to: prompts, Ctrl-Z, a full disk behind standard output, and lines that say what
is wrong with a home, a program or a node."""

import fcntl
import os
import pty
import signal
import subprocess
import tempfile
import termios
import time

import harness
from harness import EYRIE, Job, run_to_end, soon

ASKS = 'printf "Name: "; read name; echo "hello $name"'


def asked(job, prompt):
    """Answers when the prompt is there; it must not take the end of a line for that."""
    job.until(lambda: job.stdout().endswith(prompt), f"the prompt {prompt!r}")
    job.process.stdin.write(b"Ann\n")
    job.process.stdin.flush()
    assert job.wait() == 0, job.report()


def test_a_prompt_is_shown_before_its_line_ends():
    for options, label in ((), ""), (("-l",), "[0] "):
        with Job(["sh", "-c", ASKS], ranks=1, options=options, stdin="open") as job:
            asked(job, f"{label}Name: ")
            assert job.stdout() == f"{label}Name: hello Ann\n", job.report()


def test_lines_of_others_do_not_go_into_a_prompt():
    with tempfile.TemporaryDirectory(prefix="eyrie-test-") as folder:
        gate = os.path.join(folder, "gate")
        other = f'until test -e {gate}; do sleep 0.02; done; printf "no end"; sleep 0.3; echo " but here"'
        line = f'if test $EYRIE_RANK = 0; then {ASKS}; else {other}; fi'
        with Job(["sh", "-c", line], ranks=2, options=("-l",), stdin="open") as job:
            job.until(lambda: job.stdout().endswith("[0] Name: "), "the prompt")
            open(gate, "w").close()
            job.until(lambda: job.stdout().endswith("but here\n"), "the other's line")
            job.process.stdin.write(b"Ann\n")
            job.process.stdin.flush()
            assert job.wait() == 0, job.report()
            lines = ["[0] Name: ", "[1] no end but here", "[0] hello Ann"]
            assert job.stdout().splitlines() == lines, job.report()


class Outputs:
    """Standard outputs that take nothing: what a command says of each, and its exit code."""

    FULL = (1, "cannot write to standard output: No space left on device")
    CLOSED = (1, "cannot write to standard output: it is closed")

    def __init__(self):
        self.home = tempfile.TemporaryDirectory(prefix="eyrie-test-")

    def run(self, command, **how):
        env = {**os.environ, "EYRIE_HOME": self.home.name}
        done = subprocess.run(command, env=env, stderr=subprocess.PIPE, text=True, stdin=subprocess.DEVNULL, **how)
        return done.returncode, done.stderr

    def full(self, command):
        with open("/dev/full", "wb") as full:
            return self.run(command, stdout=full)

    def closed(self, command):
        return self.run(command, preexec_fn=lambda: os.close(1))

    def without_reader(self, command):
        read, write = os.pipe()
        os.close(read)
        try:
            return self.run(command, stdout=write)
        finally:
            os.close(write)


def test_standard_output_that_takes_no_more_is_named():
    outputs = Outputs()
    gone = (128 + signal.SIGPIPE, "cannot write to standard output: nobody reads it")
    lines = (
        # The job ends at once; or it has ended when its last line, which has no end, is shown.
        (("-n", "2"), "echo something; sleep 60"),
        (("-n", "2"), "printf something"),
        (("-n", "2", "-l", "--nodes", "2"), "printf something"),
    )
    with outputs.home:
        for options, line in lines:
            command = [EYRIE, "run", *options, "--", "sh", "-c", line]
            ways = ((outputs.full, outputs.FULL), (outputs.closed, outputs.CLOSED), (outputs.without_reader, gone))
            for way, (code, words) in ways:
                got, err = way(command)
                assert got == code and words in err, (options, line, way, got, err)
        # Who has failed ends as before; who prints nothing needs no output.
        got, err = outputs.full([EYRIE, "run", "--", "sh", "-c", "printf something; exit 7"])
        assert got == 7 and outputs.FULL[1] in err, (got, err)
        assert outputs.closed([EYRIE, "run", "true"]) == (0, ""), "nothing is printed"


def test_commands_whose_output_is_lost_say_so():
    outputs = Outputs()
    image = os.path.join(os.path.dirname(EYRIE), "eyrie-image")
    with outputs.home:
        for command in [EYRIE, "ps"], [EYRIE, "--help"], [EYRIE, "--version"], [EYRIE, "info", "--json"], [image, "-h"]:
            for way, (code, words) in (outputs.full, outputs.FULL), (outputs.closed, outputs.CLOSED):
                got, err = way(command)
                assert got == code and words in err, (command, way, got, err)
            assert outputs.without_reader(command) == (128 + signal.SIGPIPE, ""), command
        # The program has the same output as without us: none.
        got, err = outputs.closed([image, "run", "sh", "-c", "echo something"])
        assert got != 0 and "echo" in err, (got, err)


def test_a_home_that_cannot_be_used_names_the_way_out():
    env = {k: v for k, v in os.environ.items() if k != "EYRIE_HOME"}
    for home in "/proc/nowhere", None, "/dev/null":
        env.pop("HOME", None)
        if home:
            env["HOME"] = home
        done = subprocess.run([EYRIE, "run", "true"], env=env, capture_output=True, text=True, stdin=subprocess.DEVNULL)
        assert done.returncode == 1 and "set EYRIE_HOME to a folder" in done.stderr, (home, done)
    # With a folder of its own, and no file named, a home that is none is no matter.
    env = {k: v for k, v in env.items() if k not in ("EYRIE_CONFIG", "XDG_CONFIG_HOME")}
    with tempfile.TemporaryDirectory() as folder:
        command = [EYRIE, "run", "-n", "1", "--", "echo", "fine"]
        env |= {"HOME": "/dev/null", "EYRIE_HOME": folder}
        done = subprocess.run(command, env=env, capture_output=True, text=True, stdin=subprocess.DEVNULL)
        assert (done.returncode, done.stdout) == (0, "fine\n"), done


FOREIGN = r"""
#include <dlfcn.h>
#include <stdio.h>
#include <unistd.h>
int main(int argc, char **argv) {
    if (!dlopen(argv[1], RTLD_NOW)) return 3;
    while (access(argv[2], F_OK) != 0) usleep(1000);
    return argc == 3 ? 0 : 4;
}
"""
EXTENDS = r"""
#include <mpi.h>
int MPIX_Somebody_elses(void);
int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    MPIX_Somebody_elses();
    return MPI_Finalize();
}
"""


def compiled(folder, name, text, *flags, compiler="cc"):
    source, out = os.path.join(folder, f"{name}.c"), os.path.join(folder, name)
    with open(source, "w") as file:
        file.write(text)
    subprocess.run([compiler, "-o", out, source, *flags], check=True)
    return out


def test_a_program_with_another_mpi_is_told_of():
    """One that opens it by itself: what is linked to it is refused before it starts."""
    with tempfile.TemporaryDirectory(prefix="eyrie-test-") as folder:
        library = compiled(folder, "libmpi.so.40", "int MPI_Init(void) { return 0; }\n", "-shared", "-fPIC")
        main = compiled(folder, "loads", FOREIGN, "-ldl")
        gate = os.path.join(folder, "gate")
        for command in [main, library, gate], ["sh", "-c", f"{main} {library} {gate}; exit $?"]:
            with Job(command, ranks=3) as job:
                job.says("uses another MPI library")
                open(gate, "w").close()
                assert job.wait() == 0, job.report()
                told = [line for line in job.stderr().splitlines() if "another MPI" in line]
                assert len(told) == 1 and library in told[0] and "MPI4PY_LIBMPI" in told[0], job.report()
            os.remove(gate)


def test_extensions_that_are_not_there_are_told_of():
    with tempfile.TemporaryDirectory(prefix="eyrie-test-") as folder:
        mpicc, has = os.path.join(harness.BUILD, "bin", "mpicc"), "int MPIX_Somebody_elses(void) { return 0; }\n"
        shared = ("-shared", "-fPIC")
        library = compiled(folder, "libother.so", has, *shared)
        main = compiled(folder, "extends", EXTENDS, library, compiler=mpicc)
        # As on the machine of somebody who has another MPI: the function is not there.
        compiled(folder, "libother.so", "int nothing;\n", *shared)
        code, _, err = run_to_end([main], ranks=2)
        assert code == 127, (code, err)
        assert "needs MPIX_Somebody_elses: extensions of another MPI" in err, err


TICKS = r"""
#include <mpi.h>
#include <stdio.h>
#include <unistd.h>
int main(int argc, char **argv) {
    int rank, all, one = 1;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    FILE *ticks = rank == 0 ? fopen(argv[1], "w") : NULL;
    do {
        int over = access(argv[2], F_OK) == 0;
        MPI_Bcast(&over, 1, MPI_INT, 0, MPI_COMM_WORLD);
        MPI_Allreduce(&one, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
        if (ticks) fputc('.', ticks), fflush(ticks);
        if (over) break;
        usleep(2000);
    } while (1);
    if (rank == 0) printf("ticked\n");
    return MPI_Finalize();
}
"""


class Terminal:
    """A shell with job control in a terminal of its own."""

    def __init__(self, env):
        self.ours, theirs = pty.openpty()
        attributes = termios.tcgetattr(theirs)
        attributes[3] &= ~termios.ECHO
        termios.tcsetattr(theirs, termios.TCSANOW, attributes)

        def own_terminal():
            os.setsid()
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)
            for number in signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU:
                signal.signal(number, signal.SIG_DFL)

        shell = ["bash", "--norc", "--noprofile", "-i"]
        self.shell = subprocess.Popen(
            shell, stdin=theirs, stdout=theirs, stderr=theirs, env=env, preexec_fn=own_terminal
        )
        os.close(theirs)
        os.set_blocking(self.ours, False)
        self.text = ""

    def types(self, text):
        os.write(self.ours, text.encode())

    def has(self, words):
        try:
            self.text += os.read(self.ours, 65536).decode(errors="replace")
        except (BlockingIOError, OSError):
            pass
        return words in self.text

    def until(self, words):
        soon(lambda: self.has(words), f"{words!r} on the terminal, but {self.text!r}")
        self.text = self.text.split(words, 1)[1]

    def close(self):
        self.shell.kill()
        self.shell.wait()
        os.close(self.ours)


def test_ctrl_z_stops_the_job_and_fg_continues_it():
    with tempfile.TemporaryDirectory(prefix="eyrie-test-") as folder:
        main = compiled(folder, "ticks", TICKS, compiler=os.path.join(harness.BUILD, "bin", "mpicc"))
        ticks, gate = os.path.join(folder, "out"), os.path.join(folder, "gate")
        size = lambda: os.path.getsize(ticks) if os.path.exists(ticks) else 0  # noqa: E731
        terminal = Terminal({**os.environ, "EYRIE_HOME": os.path.join(folder, "home"), "PS1": "$ "})
        try:
            terminal.types(f"{EYRIE} run -n 2 -- {main} {ticks} {gate}\n")
            soon(lambda: size() > 20, "some steps")
            for _ in range(2):
                terminal.types("\x1a")
                terminal.until("Stopped")
                before = size()
                time.sleep(0.3)
                assert size() == before, "it runs on"
                terminal.types("fg\n")
                soon(lambda: size() > before + 20, "more steps")
            open(gate, "w").close()
            terminal.until("ticked")
        finally:
            terminal.close()


def test_in_the_background_of_a_terminal_a_reader_waits_for_fg():
    """Its output comes, the rank dies and comes back, and what is typed afterwards is its input."""
    with tempfile.TemporaryDirectory(prefix="eyrie-test-") as folder:
        home = os.path.join(folder, "home")
        env = {**os.environ, "EYRIE_HOME": home, "PS1": "$ "}
        terminal = Terminal(env)
        line = 'echo runs; read word; echo "read <$word>"'
        try:
            terminal.types(f"{EYRIE} run -n 2 --ckpt-every 0.1 -- sh -c '{line}' &\n")
            terminal.until("runs")
            terminal.until("read <>")
            ask = lambda *words: subprocess.run(  # noqa: E731
                [EYRIE, *words], env=env, capture_output=True, text=True, stdin=subprocess.DEVNULL
            )
            assert ask("checkpoint", "last", "--rank", "0").returncode == 0
            assert ask("inject", "last", "kill-rank", "0").returncode == 0
            terminal.types("fg\n")
            terminal.until("eyrie run")
            terminal.types("hello\n")
            terminal.until("read <hello>")
            terminal.until("$ ")
        finally:
            terminal.close()
