"""The image for Kubernetes, built of its Containerfile by podman and run: a job in it whose rank is killed.

Nothing is asked of a registry: what stands in for the base image is made of debootstrap's tree (as the
clean root of packages is). What the Containerfile installs comes from the machine's own sources."""

import glob
import os
import shutil
import subprocess
import sys

import packages

ROOT = packages.ROOT
sys.path.insert(0, os.path.join(ROOT, "tests", "e2e"))
from harness import NotRun  # noqa: E402

PACKAGING = os.path.join(ROOT, "packaging", "kubernetes")
# No service manager, no storage driver that the machine's file system may lack.
PLAIN = ["--cgroup-manager=cgroupfs", "--storage-driver=vfs", "--events-backend=none"]
BASE = "localhost/base:latest"
# As docs/guides/kubernetes.md has it.
OWN = """FROM eyrie
COPY --chown=eyrie heat.c common.h ./
RUN mpicc -O2 -o heat heat.c -lm
"""


class Podman:
    """With storage of its own. Where it cannot run containers (in a container without the rights for that,
    with control groups that its runtime does not know), buildah runs commands in the image's root."""

    def __init__(self, folder):
        if not shutil.which("podman"):
            raise NotRun("podman is missing: apt-get install podman")
        self.folder, self.contained = folder, True
        self.places = ["--storage-driver=vfs", f"--root={folder}/storage", f"--runroot={folder}/run"]
        self.command = ["podman", *PLAIN, *self.places, f"--tmpdir={folder}/tmp"]

    def __call__(self, *words):
        return packages.do(*self.command, *words)

    def run(self, image, *words, code=0):
        """What its entry point says of these words, without a network of its own where that can be."""
        if self.contained:
            command = [*self.command, "run", "--rm", "--network=none", "--cgroups=disabled", image, *words]
        else:
            [name] = packages.do("buildah", *self.places, "from", "--pull-never", image).split()
            chroot = ["buildah", *self.places, "run", "--isolation=chroot", name, "--"]
            command = [*chroot, *([] if image == BASE else ["env", "HOME=/eyrie", "eyrie-pod"]), *words]
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=300)
        assert done.returncode == code, f"{words}: {done.returncode}\n{done.stdout}{done.stderr}"
        return done.stdout if code == 0 else done.stderr

    def base(self):
        """What the Containerfile begins with; or why nothing can be run of it."""
        tree = packages.clean_root()
        archive = os.path.join(self.folder, "base.tar")
        packages.do("tar", "-C", tree, "-cf", archive, ".")
        self("import", "-q", archive, BASE)
        os.remove(archive)
        try:
            self.run(BASE, "true")
        except AssertionError as why:
            if not shutil.which("buildah"):
                raise NotRun(f"podman runs no containers here: {str(why).splitlines()[-1]}; buildah is missing") from None
            self.contained = False

    def build(self, name, file, context, *options):
        # Without namespaces, with the machine's network: apt is called in it.
        self("build", "-q", "--isolation=chroot", "--pull=never", *options, "-t", name, "-f", file, context)

    def close(self):
        # As root, since files in it belong to others.
        if not self.contained:
            packages.do("buildah", *self.places, "rm", "-a")
        self("rmi", "-a", "-f")


def context_of_the_image(folder):
    """Of this repository what the Containerfile copies: not all of it, with all that is built."""
    context = os.path.join(folder, "context")
    os.makedirs(f"{context}/build/packages")
    packages.packages("tar", f"{context}/build/packages")
    os.makedirs(f"{context}/packaging/kubernetes")
    shutil.copy(f"{PACKAGING}/eyrie-pod", f"{context}/packaging/kubernetes")
    return context


def test_the_image_of_the_containerfile(folder):
    podman = Podman(folder)
    podman.base()
    try:
        context = context_of_the_image(folder)
        options = [f"--build-arg=BASE={BASE}"]
        podman.build("eyrie", f"{PACKAGING}/Containerfile", context, *options)
        with open(f"{folder}/Own", "w") as file:
            file.write(OWN)
        for path in glob.glob(f"{folder}/context/*"):
            shutil.rmtree(path)
        for name in "heat.c", "common.h":
            shutil.copy(os.path.join(ROOT, "examples", name), context)
        podman.build("heat", f"{folder}/Own", context)
        # An ordinary user's, with what pods need, and no key of the machine on which it was built.
        text = "id -u; for tool in eyrie mpicc ssh eyrie-pod; do command -v $tool; done; ls /usr/sbin/sshd"
        text += "; ls /etc/ssh | grep -c host_ || true"
        said = podman.run("heat", "sh", "-c", text).split()
        tools = [f"/usr/local/bin/{name}" for name in ("eyrie", "mpicc")] + ["/usr/bin/ssh", "/usr/local/bin/eyrie-pod"]
        assert said == ["1000", *tools, "/usr/sbin/sshd", "0"], said
        assert "eyrie-pod worker" in podman.run("heat", code=2)
        # A rank is killed once it has a checkpoint; what is printed is an undisturbed run's.
        program = f"PROGRAM=./heat --steps {packages.STEPS}"
        job = ["env", program, "sh", "-c", packages.JOB, "job", "/eyrie", "eyrie", "run"]
        printed = podman.run("heat", *job)
        assert printed == packages.undisturbed(folder), printed
    finally:
        podman.close()
