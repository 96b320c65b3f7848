"""The regions API found by CMake: `find_package(eyrie-regions)`, in C and Fortran, also after the prefix
was moved."""

import os
import shutil
import subprocess

HERE = os.path.dirname(os.path.abspath(__file__))
BUILD = os.path.join(os.path.dirname(os.path.dirname(HERE)), "build")


def do(*command, **more):
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, **more)
    assert done.returncode == 0, f"{' '.join(command)}: {done.returncode}\n{done.stdout}{done.stderr}"
    return done.stdout


def test_cmake_finds_the_regions_api(folder):
    assert shutil.which("cmake"), "cmake is missing: apt-get install cmake"
    prefix = os.path.join(folder, "a prefix")
    for part in "lib/cmake", "include":
        shutil.copytree(f"{BUILD}/{part}", f"{prefix}/{part}")
    for name in "libeyrie_regions.so.1", "libeyrie_regions.so":
        shutil.copy(f"{BUILD}/lib/{name}", f"{prefix}/lib/{name}", follow_symlinks=False)
    out = os.path.join(folder, "out")
    options = [f"-DCMAKE_PREFIX_PATH={prefix}", "-S", f"{HERE}/cmake-regions", "-B", out]
    do("cmake", *options)
    do("cmake", "--build", out)
    for name in "counter_c", "counter_f":
        env = {**os.environ, "EYRIE_VAULT_FOLDERS": os.path.join(folder, name)}
        os.mkdir(env["EYRIE_VAULT_FOLDERS"])
        said = [do(os.path.join(out, name), env=env).strip() for _ in range(3)]
        assert said == ["run 1", "run 2", "run 3"], said
    # Another minor version may be another API.
    project = os.path.join(folder, "later")
    os.mkdir(project)
    with open(f"{project}/CMakeLists.txt", "w") as file:
        file.write("cmake_minimum_required(VERSION 3.10)\nproject(later NONE)\n")
        file.write("find_package(eyrie-regions 0.9 REQUIRED)\n")
    later = ["cmake", f"-DCMAKE_PREFIX_PATH={prefix}", "-S", project, "-B", f"{project}/out"]
    done = subprocess.run(later, capture_output=True, text=True)
    assert done.returncode != 0 and "0.9" in done.stderr, done
