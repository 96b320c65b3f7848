"""What is for the system: units of systemd, files that it makes, the recipe for Spack."""

import os
import re
import shutil
import stat
import subprocess

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD = os.path.join(ROOT, "build")
RECIPE = os.path.join(ROOT, "packaging", "spack", "package.py")


def do(*command, **more):
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, **more)
    said = done.stdout + done.stderr
    assert done.returncode == 0, f"{' '.join(command)}: {done.returncode}\n{said}"
    return said


def test_units_of_systemd(folder):
    """Each is what systemd understands, with a program that is there and takes these words."""
    for tool in "systemd-analyze", "systemd-tmpfiles":
        assert shutil.which(tool), f"{tool} is missing: apt-get install systemd"
    prefix = os.path.join(folder, "eyrie")
    do(os.path.join(ROOT, "scripts", "install"), BUILD, prefix)
    units = os.path.join(prefix, "lib", "systemd", "system")
    assert sorted(os.listdir(units)) == ["eyrie-notice.service", "eyrie-standby@.service"]
    shutil.copy(f"{units}/eyrie-standby@.service", f"{folder}/eyrie-standby@heat.service")
    for unit in f"{units}/eyrie-notice.service", f"{folder}/eyrie-standby@heat.service":
        said = do("systemd-analyze", "verify", "--man=no", unit)
        assert unit not in said and os.path.basename(unit) not in said, said
        with open(unit) as file:
            (line,) = re.findall(r"^ExecStart=(.*)$", file.read(), re.M)
        words = line.replace("$EYRIE_STANDBY", "etcd://h:1/p/j").split()
        assert "Usage" in do(*words, "--help"), words
    root = os.path.join(folder, "root")
    os.mkdir(root)
    shutil.copytree(f"{prefix}/lib/tmpfiles.d", f"{root}/usr/lib/tmpfiles.d")
    os.mkdir(f"{root}/etc")
    for name in "passwd", "group":
        with open(f"{root}/etc/{name}", "w") as file:
            file.write("root:x:0:0:root:/root:/bin/sh\n" if name == "passwd" else "root:x:0:\n")
    do("systemd-tmpfiles", f"--root={root}", "--create", "eyrie.conf")
    assert stat.S_IMODE(os.stat(f"{root}/run/eyrie").st_mode) == 0o1777


class Recorded:
    """In the place of Spack's: what a recipe says is written down."""

    said = {}

    @classmethod
    def directive(cls, name):
        return lambda *words, **more: cls.said.setdefault(name, []).append((words, more))


# Those that Spack's `package` module has, of which the recipe may use some.
DIRECTIVES = ("version", "variant", "provides", "depends_on", "conflicts", "license", "maintainers", "patch")


def test_the_recipe_for_spack(folder):
    """It is Python that Spack's directives are enough for; with Spack here, Spack's own check."""
    with open(RECIPE) as file:
        text = file.read()
    commands = []
    names = {name: Recorded.directive(name) for name in DIRECTIVES}
    names |= {
        "Package": object,
        "join_path": os.path.join,
        "make": lambda *words: commands.append(("make", *words)),
        "Executable": lambda path: lambda *words: commands.append((path, *words)),
    }
    assert text.count("from spack.package import *") == 1
    exec(compile(text.replace("from spack.package import *", ""), RECIPE, "exec"), names)
    recipe = names["Eyrie"]()
    spec = type("Spec", (), {"satisfies": lambda self, what: what == "+fortran"})()
    recipe.install(spec, "/prefix")
    assert commands == [("make", "fortran"), ("scripts/install", "build", "/prefix")], commands
    # These targets are there, and so is what is needed of Rust.
    with open(os.path.join(ROOT, "Makefile")) as file:
        targets = re.findall(r"^(\w+):", file.read(), re.M)
    assert {"fortran", "libraries"} <= set(targets), targets
    with open(os.path.join(ROOT, "scripts", "setup")) as file:
        (least,) = re.findall(r"^least_minor=(\d+)", file.read(), re.M)
    assert (f"rust@1.{least}:",) in [words for words, _ in Recorded.said["depends_on"]], Recorded.said
    if shutil.which("spack"):
        do("spack", "style", "--no-mypy", RECIPE)
