#!/usr/bin/env python3
"""Makes a wheel of an installed tree: `pip install` puts its bin, lib, libexec and include into the
environment, as the wheels of MPICH and Open MPI do. Wheels know no symbolic links: libraries that
are links become linker scripts, scripts that are links become copies, and other names of `eyrie` a script.

usage: build.py TREE VERSION OUT
"""

import base64
import hashlib
import os
import stat
import sys
import time
import zipfile

NAME = "eyrie_mpi"
# The C library that this machine compiles for.
PLATFORM = "manylinux_%s_x86_64" % os.confstr("CS_GNU_LIBC_VERSION").split()[1].replace(".", "_")
METADATA = """Metadata-Version: 2.1
Name: eyrie-mpi
Version: {version}
Summary: MPI library and job runtime for programs that must outlive the machines they run on
License: MIT OR Apache-2.0
Requires-Python: >=3.8
Classifier: Operating System :: POSIX :: Linux
Description-Content-Type: text/markdown

"""
WHEEL = "Wheel-Version: 1.0\nGenerator: eyrie\nRoot-Is-Purelib: false\nTag: py3-none-{platform}\n"
OTHER_NAME = """#!/bin/sh
exec "$(dirname "$(readlink -f "$0")")/eyrie" mpiexec "$@"
"""


def content(path):
    """Bytes and mode of what a file becomes."""
    if os.path.islink(path) and ".so" in os.path.basename(path):
        target = os.path.basename(os.path.realpath(path))
        return f"/* GNU ld script */\nINPUT({target})\n".encode(), 0o644
    if os.path.islink(path) and os.path.basename(os.path.realpath(path)) == "eyrie":
        return OTHER_NAME.encode(), 0o755
    with open(path, "rb") as file:
        return file.read(), 0o755 if os.stat(path).st_mode & stat.S_IXUSR else 0o644


def files(tree):
    for folder, folders, names in sorted(os.walk(tree)):
        folders.sort()
        for name in sorted(names):
            path = os.path.join(folder, name)
            # A library under another name that programs look for is needed under that name.
            if os.path.islink(path) and name.endswith(".so.12"):
                yield os.path.relpath(path, tree), *content(os.path.realpath(path))
            else:
                yield os.path.relpath(path, tree), *content(path)


def main():
    if len(sys.argv) != 4:
        sys.exit(__doc__.rpartition("usage: ")[2].strip())
    tree, version, out = sys.argv[1:]
    readme = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "README.md")
    with open(readme) as file:
        metadata = METADATA.format(version=version) + file.read()
    info = f"{NAME}-{version}.dist-info"
    parts = [(f"{NAME}-{version}.data/data/{path}", data, mode) for path, data, mode in files(tree)]
    parts.append((f"{info}/METADATA", metadata.encode(), 0o644))
    parts.append((f"{info}/WHEEL", WHEEL.format(platform=PLATFORM).encode(), 0o644))
    record = []
    for path, data, _ in parts:
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        record.append(f"{path},sha256={digest},{len(data)}\n")
    record.append(f"{info}/RECORD,,\n")
    parts.append((f"{info}/RECORD", "".join(record).encode(), 0o644))
    # Zip files know no date before 1980.
    when = time.gmtime(max(int(os.environ.get("SOURCE_DATE_EPOCH", "0")), 315532800))[:6]
    path = os.path.join(out, f"{NAME}-{version}-py3-none-{PLATFORM}.whl")
    with zipfile.ZipFile(path + ".part", "w", zipfile.ZIP_DEFLATED) as wheel:
        for name, data, mode in parts:
            entry = zipfile.ZipInfo(name, when)
            entry.external_attr = (stat.S_IFREG | mode) << 16
            wheel.writestr(entry, data, zipfile.ZIP_DEFLATED)
    os.replace(path + ".part", path)
    print(path)


if __name__ == "__main__":
    main()
