"""What the GridMPI paper says of checkpoint and restart (2.3, 3.6), sentence by sentence, and where Eyrie goes
further. The sentence stands in each test, in English."""

import contextlib
import os
import signal
import subprocess
import tempfile

from harness import BUILD, EYRIE, ROOT, TIMEOUT_S, Job, soon
from programs import expected, example, SIZES

IMAGE = os.path.join(BUILD, "bin", "eyrie-image")
MPIRUN = os.path.join(BUILD, "bin", "mpirun")
# A rank's end in a job that was saved.
SAVED = 85


@contextlib.contextmanager
def asking():
    """A folder with the program that asks for its own image, built as its user would."""
    with tempfile.TemporaryDirectory(prefix="eyrie-test-") as folder:
        flags = subprocess.run(
            ["pkg-config", "--cflags", "--libs", "eyrie-image"],
            env={**os.environ, "PKG_CONFIG_PATH": os.path.join(BUILD, "lib", "pkgconfig")},
            capture_output=True,
            text=True,
            check=True,
        ).stdout.split()
        source = os.path.join(ROOT, "tests", "e2e", "image", "asks.c")
        program = os.path.join(folder, "asks")
        subprocess.run(["cc", "-std=c11", "-O2", "-Wall", "-Wextra", "-o", program, source, *flags, "-pthread"], check=True)
        yield folder, program


def environment(folder, **more):
    return {**os.environ, "EYRIE_HOME": os.path.join(folder, "state"), **more}


def taken(folder, program, *how):
    """The image of a program that was killed after it was written."""
    image = os.path.join(folder, "state.img")
    out = os.path.join(folder, "out")
    with open(out, "w") as file:
        command = [program, image, *how]
        with subprocess.Popen(command, stdout=file, env=environment(folder), stdin=subprocess.DEVNULL) as process:
            soon(lambda: open(out).read() == "taken\n" or process.poll() is not None, "its image")
            assert process.poll() is None, (process.returncode, os.listdir(folder))
            process.kill()
    assert not [name for name in os.listdir(folder) if "said" in name], os.listdir(folder)
    return image


def went_on(folder, *command, **more):
    """(code, what the program wrote from its image on, stderr) of a command that goes on with it: its output is
    the file that it was, put back as it was before that."""
    open(os.path.join(folder, "out"), "w").close()
    done = subprocess.run(
        command,
        env=environment(folder, **more),
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        stdin=subprocess.DEVNULL,
        cwd=folder,
    )
    assert not done.stdout, done
    with open(os.path.join(folder, "out")) as file:
        return done.returncode, [line for line in file.read().splitlines() if line != "taken"], done.stderr


def test_a_quit_signal_to_the_launcher_makes_a_checkpoint_and_restart_is_an_option_of_it():
    """'Without a change of the application a QUIT signal to the gridmpirun process makes checkpoint files. To
    restart, give gridmpirun the option -restart.' (2.3)"""
    want = expected("heat")
    with Job(example("heat") + SIZES["heat"], ckpt_every=0.2) as job:
        job.wait_running(4)
        job.wait_event("checkpointed", rank=3)
        job.process.send_signal(signal.SIGQUIT)
        assert job.wait() == SAVED, job.report()
        done = subprocess.run([MPIRUN, "-restart"], env=job.env, capture_output=True, text=True, timeout=TIMEOUT_S)
        assert done.returncode == 0, done.stderr
        assert (job.stdout() + done.stdout).splitlines()[-1:] == want.splitlines()[-1:], done


def test_a_checkpoint_library_serves_any_program():
    """'The checkpoint/restart of a single process is a library that any program can use.' (3.6)"""
    with asking() as (folder, program):
        image = os.path.join(folder, "state.img")
        open(image + ".go", "w").close()
        # It goes on where nothing happens to it.
        done = subprocess.run([program, image], env=environment(folder), capture_output=True, text=True, timeout=TIMEOUT_S)
        assert (done.returncode, done.stdout) == (0, "taken\nwent on, listens at 127.0.0.2\n"), done
        verified = subprocess.run([EYRIE, "image", "verify", image], capture_output=True, text=True)
        assert verified.returncode == 0, verified
        # What cannot be written is told, and the program goes on.
        done = subprocess.run([program, "/no/such/x"], env=environment(folder), capture_output=True, text=True, timeout=TIMEOUT_S)
        assert done.returncode != 0, done


def test_memory_registers_descriptors_sockets_and_signals_are_saved():
    """'Besides memory and registers, file descriptors, sockets and signals are saved. Of sockets TCP and UNIX are
    supported, and the restart brings the associations back that there were.' (3.6)"""
    with asking() as (folder, program):
        image = taken(folder, program)
        code, last, err = went_on(folder, IMAGE, "restart", image)
        assert (code, last) == (7, ["restarted, listens at 127.0.0.2"]), (code, last, err)


def test_rules_in_a_file_that_a_variable_names_change_end_points():
    """'For process migration, rules that change end points are written to a file, which an environment variable
    names at the restart.' (3.6)"""
    with asking() as (folder, program):
        image = taken(folder, program)
        rules = os.path.join(folder, "rules")
        with open(rules, "w") as file:
            file.write("# the old host's, and the new one's\n127.0.0.2=127.0.0.3\n")
        code, last, err = went_on(folder, IMAGE, "restart", image, EYRIE_IMAGE_RULES=rules)
        assert (code, last) == (7, ["restarted, listens at 127.0.0.3"]), (code, last, err)
        with open(rules, "w") as file:
            file.write("\n127.0.0.2:80=127.0.0.3\n")
        code, last, err = went_on(folder, IMAGE, "restart", image, EYRIE_IMAGE_RULES=rules)
        assert code == 1 and not last and "line 2" in err and rules in err, err


def test_a_program_restarts_another_by_a_call():
    """'A restart is done by calling the restart function from a program.' (3.6)"""
    with asking() as (folder, program):
        image = taken(folder, program)
        code, last, err = went_on(folder, program, "--become", image)
        assert (code, last) == (7, ["restarted, listens at 127.0.0.2"]), (code, last, err)
        code, last, err = went_on(folder, program, "--become", image + ".none")
        assert code == 1 and not last and "state.img.none" in err, err


def test_a_command_restarts_dynamically_linked_programs():
    """'Where linking is dynamic the command ckpt redo restarts, too.' Here it is `eyrie-image restart`, as often
    as wanted. (3.6)"""
    with asking() as (folder, program):
        image = taken(folder, program)
        for _ in range(2):
            code, last, err = went_on(folder, IMAGE, "restart", image)
            assert (code, last) == (7, ["restarted, listens at 127.0.0.2"]), (code, last, err)


def test_threads_are_supported():
    """'Programs with threads are not supported.' Here they are. (3.6)"""
    with asking() as (folder, program):
        image = taken(folder, program, "thread")
        code, last, err = went_on(folder, IMAGE, "restart", image)
        assert (code, last) == (7, ["restarted, listens at 127.0.0.2"]), (code, last, err)
