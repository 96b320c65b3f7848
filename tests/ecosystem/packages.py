"""Packages, each installed into a clean place, and a job run from it as an ordinary user. A rank is
killed in mid-run; the result is that of an undisturbed run.

The clean root of the Debian package is made once by debootstrap and kept in $EYRIE_CACHE; each test
sees it through an overlay in namespaces of its own, so that nothing of the machine but its kernel is
there. All of this takes root."""

import glob
import os
import shutil
import subprocess
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD = os.path.join(ROOT, "build")
CACHE = os.environ.get("EYRIE_CACHE", os.path.expanduser("~/.cache/eyrie"))
CLEAN_ROOT = os.path.join(CACHE, "clean-root")
RELEASE = "bookworm"
USER = 65534
STEPS = "20000"
# A job as a user runs it: a rank is killed once it has a checkpoint, and its death is borne.
JOB = """set -e
umask 022
export EYRIE_HOME=$1/state
shift
"$@" -n 4 --ckpt-every 1 -v -- $PROGRAM > $EYRIE_HOME.out 2> $EYRIE_HOME.err &
job=$!
until grep -q 'rank 2 checkpointed' $EYRIE_HOME.err; do kill -0 $job; sleep 0.05; done
eyrie inject last kill-rank 2 > /dev/null
wait $job
grep -q 'rank 2.* restored' $EYRIE_HOME.err
cat $EYRIE_HOME.out
"""


def do(*command, **more):
    """Runs a command that has to succeed; returns what it printed."""
    quiet = {"stdin": subprocess.DEVNULL, "capture_output": True, "text": True, "timeout": 600}
    done = subprocess.run(command, **{**quiet, **more})
    assert done.returncode == 0, f"{' '.join(command)}: {done.returncode}\n{done.stdout}{done.stderr}"
    return done.stdout


def packages(kind, folder):
    out = do(os.path.join(ROOT, "scripts", "package"), BUILD, folder, kind)
    return out.strip()


def heat(folder, compiler, env=None):
    program = os.path.join(folder, "heat")
    do(compiler, "-O2", "-o", program, os.path.join(ROOT, "examples", "heat.c"), "-lm", env=env)
    return program


def undisturbed(folder):
    command = [os.path.join(BUILD, "bin", "eyrie"), "run", "-n", "4", "--ft", "none", "--"]
    heats = os.path.join(BUILD, "examples", "heat")
    env = {**os.environ, "EYRIE_HOME": os.path.join(folder, "reference")}
    return do(*command, heats, "--steps", STEPS, env=env)


def job(folder, env, *command):
    """The job as an ordinary user who owns this folder."""
    path = os.path.join(folder, "job")
    with open(path, "w") as file:
        file.write(JOB)
    user = tempfile.mkdtemp(prefix="user-", dir=folder)
    os.chown(user, USER, USER)
    who = {"user": USER, "group": USER, "extra_groups": []}
    return do("sh", path, user, *command, cwd=user, env={**env, "HOME": user}, **who)


def open_to_all(folder):
    """Ordinary users reach what is in it."""
    os.chmod(folder, 0o755)


def test_a_tarball_anywhere(folder):
    open_to_all(folder)
    do("tar", "-C", folder, "-xf", packages("tar", folder))
    (tree,) = glob.glob(os.path.join(folder, "eyrie-*", ""))
    place = os.path.join(folder, "somewhere else")
    os.rename(tree, place)
    env = {"PATH": f"{place}/bin:/usr/bin:/bin"}
    program = heat(folder, os.path.join(place, "bin", "mpicc"))
    assert place in do("ldd", program), program
    said = job(folder, {**env, "PROGRAM": f"{program} --steps {STEPS}"}, "eyrie", "run")
    assert said == undisturbed(folder), said


def test_a_wheel_in_an_environment(folder):
    open_to_all(folder)
    wheel = packages("wheel", folder)
    do("python3", "-m", "venv", f"{folder}/venv")
    pip = ["-q", "--disable-pip-version-check", "install", "--no-index", wheel]
    do(f"{folder}/venv/bin/python", "-m", "pip", *pip)
    env = {"PATH": f"{folder}/venv/bin:/usr/bin:/bin"}
    program = heat(folder, f"{folder}/venv/bin/mpicc", env)
    said = job(folder, {**env, "PROGRAM": f"{program} --steps {STEPS}"}, "eyrie", "run")
    assert said == undisturbed(folder), said
    # mpi4py's wheel finds it without a variable, also without a launcher.
    (modules,) = glob.glob(f"{CACHE}/venv/lib/python*/site-packages")
    env = {**env, "PYTHONPATH": modules, "EYRIE_HOME": f"{folder}/python"}
    text = "from mpi4py import MPI as m; print(m.COMM_WORLD.allreduce(1), m.Get_library_version()[:5])"
    one = do("python", "-c", text, env=env)
    assert one == "1 Eyrie\n", one
    three = do("mpiexec", "-n", "3", "python", "-c", text, env=env)
    assert three == "3 Eyrie\n" * 3, three


# In namespaces of its own: the root on an overlay, so that what is installed is gone afterwards.
INSIDE = """set -e
mount -t tmpfs none {folder}/over
mkdir {folder}/over/up {folder}/over/work {folder}/over/root
root={folder}/over/root
mount -t overlay overlay -o lowerdir={clean},upperdir={folder}/over/up,workdir={folder}/over/work $root
mount -t proc proc $root/proc
mount --rbind /dev $root/dev
mount -t tmpfs none $root/tmp
chmod 1777 $root/tmp
cp {folder}/eyrie* {folder}/heat {folder}/job $root/tmp/
{install} > {folder}/said 2>&1 || {{ cat {folder}/said; exit 1; }}
chroot $root sh -c '
set -e
test "$(readlink -f /usr/bin/mpicc)" = /opt/eyrie/bin/mpicc
test "$(readlink -f /usr/bin/mpiexec)" = /opt/eyrie/bin/eyrie
test -e /opt/eyrie/share/man/man1/eyrie-run.1 -a -x /opt/eyrie/share/eyrie/slurm/epilog
grep -q "^ExecStart=/opt/eyrie/bin/eyrie notice" /usr/lib/systemd/system/eyrie-notice.service
mkdir /tmp/user
chown {user}:{user} /tmp/user
cd /tmp/user
export PROGRAM="/tmp/heat --steps {steps}" HOME=/tmp/user
setpriv --reuid={user} --regid={user} --clear-groups sh /tmp/job /tmp/user eyrie run
'
{remove} >> {folder}/said 2>&1 || {{ cat {folder}/said; exit 1; }}
for left in opt/eyrie usr/bin/mpicc usr/bin/eyrie usr/lib/tmpfiles.d/eyrie.conf; do
    test ! -e $root/$left -a ! -L $root/$left
done
"""


def clean_root():
    if not os.path.exists(CLEAN_ROOT):
        assert shutil.which("debootstrap"), "debootstrap is missing: apt-get install debootstrap"
        made = tempfile.mkdtemp(prefix="clean-root-", dir=CACHE)
        os.chmod(made, 0o755)
        do("debootstrap", "--variant=minbase", RELEASE, made)
        os.rename(made, CLEAN_ROOT)
    return CLEAN_ROOT


def in_a_clean_root(folder, install, remove):
    """What lies in the folder is installed, a job is run from it, and nothing of it is left."""
    heat(folder, os.path.join(BUILD, "bin", "mpicc"))
    with open(os.path.join(folder, "job"), "w") as file:
        file.write(JOB)
    os.mkdir(os.path.join(folder, "over"))
    # The program remembers where it was built, which is not there: `eyrie run` shows it the library.
    commands = {"install": install, "remove": remove}
    text = INSIDE.format(folder=folder, clean=clean_root(), user=USER, steps=STEPS, **commands)
    said = do("unshare", "-m", "-p", "-f", "--propagation", "private", "sh", "-c", text)
    assert said == undisturbed(folder), said


def test_a_debian_package_in_a_clean_root(folder):
    packages("deb", folder)
    in_a_clean_root(folder, "chroot $root sh -c 'dpkg -i /tmp/*.deb'", "chroot $root dpkg -r eyrie")


def test_an_rpm_in_a_clean_root(folder):
    """Installed by this machine's rpm into a root that knows nothing of it, nor of what it needs."""
    for tool in "rpmbuild", "rpm":
        assert shutil.which(tool), f"{tool} is missing: apt-get install rpm"
    path = packages("rpm", folder)
    needs = do("rpm", "-qp", "--requires", path).split("\n")
    assert "libgcc" in needs and "glibc >= 2.36" in needs, needs
    again = os.path.join(folder, "again")
    assert open(packages("rpm", again), "rb").read() == open(path, "rb").read(), "the same bytes"
    shutil.rmtree(again)
    put = f"rpm --root $root --nodeps --nosignature -i {path}"
    in_a_clean_root(folder, put, "rpm --root $root --nodeps -e eyrie")


def test_make_uninstall_leaves_nothing(folder):
    install = os.path.join(ROOT, "scripts", "install")
    do(install, BUILD, "/usr/local", folder)
    foreign = os.path.join(folder, "usr", "local", "bin", "of-somebody-else")
    open(foreign, "w").close()
    do(install, BUILD, "/usr/local", folder)
    do(install, "--remove", "/usr/local", folder)
    left = [os.path.join(base, name) for base, _, names in os.walk(folder) for name in names]
    assert left == [foreign], left
    again = subprocess.run([install, "--remove", "/usr/local", folder], capture_output=True, text=True)
    assert again.returncode == 1 and "no installation" in again.stderr, again


def test_a_module_file(folder):
    init = "/usr/share/lmod/lmod/init/bash"
    assert os.path.exists(init), "Lmod is missing: apt-get install lmod"
    do(os.path.join(ROOT, "scripts", "install"), BUILD, "/eyrie", folder)
    place = os.path.join(folder, "eyrie")
    text = f". {init}; module use {place}/share/modulefiles; module load eyrie; "
    said = do("bash", "-ec", text + "which mpicc eyrie; echo $MPI_HOME; man -w eyrie-run")
    assert said.split() == [f"{place}/bin/mpicc", f"{place}/bin/eyrie", place, f"{place}/share/man/man1/eyrie-run.1"], said
