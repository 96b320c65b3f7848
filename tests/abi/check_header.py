#!/usr/bin/env python3
"""Writes a C program that compiles only if our mpi.h agrees with another header of the standard ABI.

usage: check_header.py OTHER_MPI_ABI_H NAMES_FILE > check_header.c

Every constant becomes a static assertion of equality, every typedef and prototype is declared once
more as the other header has it, which the compiler refuses if the types differ. Exits with an error
if the other header declares a function that NAMES_FILE does not list.
"""

import re
import sys

# Functions of the standard that the other header is known to lack.
ABSENT = {"MPI_Psend_init_c", "MPI_Precv_init_c"}
# Not constants: include guard, and macros that only select types.
NOT_VALUES = re.compile(r"MPI_H_ABI|MPI_ABI_(Aint|Offset|Count)$")


def main() -> None:
    other, names_file = sys.argv[1:]
    with open(other, encoding="utf-8") as f:
        text = re.sub(r"/\*.*?\*/", "", f.read(), flags=re.S)
    with open(names_file, encoding="utf-8") as f:
        names = {line.strip() for line in f if line.strip() and not line.startswith("#")}

    out = ['#include "mpi.h"', "#define SAME(x, y) _Static_assert((x) == (y), #x)"]
    constants = 0
    for name, value in re.findall(r"^#define[ \t]+(MPI_\w+)[ \t]+(\S.*?)[ \t]*$", text, flags=re.M):
        if NOT_VALUES.match(name):
            continue
        pointer = re.fullmatch(r"\(\(([\w\*]+)\)(-?\w+)\)", value)
        if pointer:
            kind, number = pointer.groups()
            out.append(f"SAME((intptr_t){name}, (intptr_t){number});")
            out.append(f"_Static_assert(__builtin_types_compatible_p(__typeof__({name}), "
                       f'{kind}), "type of {name}");')
        else:
            out.append(f"SAME((intptr_t){name}, (intptr_t){value});")
        constants += 1
    for body in re.findall(r"\benum\b[^{;]*\{(.*?)\}", text, flags=re.S):
        for name, value in re.findall(r"\b(MPI_\w+)\s*=\s*(-?\w+)", body):
            out.append(f"SAME((long long){name}, (long long)({value}));")
            constants += 1

    typedefs = 0
    for line in re.findall(r"^typedef[^{};]*;", text, flags=re.M):
        if "MPIX_" not in line and "MPI_ABI_Aint" not in line:
            line = re.sub(r"MPI_ABI_Offset", "int64_t", line)
            line = re.sub(r"MPI_ABI_Count", "MPI_Offset", line)
            out.append(" ".join(line.split()))
            typedefs += 1
    out.append("_Static_assert(sizeof(MPI_Status) == 32, \"status\");")

    prototypes = set()
    pattern = r"^(?!typedef)\w[\w ]*?[\s\*]+(P?MPI_\w+)\([^;{}]*\)[^;{}]*;"
    for match in re.finditer(pattern, text, flags=re.M):
        out.append(" ".join(match.group(0).split()))
        prototypes.add(match.group(1))
    base = {n for n in prototypes if n.startswith("MPI_")}
    if base != names - ABSENT or {"P" + n for n in base} != prototypes - base:
        sys.exit(f"names differ: {sorted(base ^ (names - ABSENT))}")
    for name in sorted(names):
        out.append(f"void *const use_{name}[2] = {{(void *){name}, (void *)P{name}}};")
    print("\n".join(out))
    print(f"{constants} constants, {typedefs} types, {len(prototypes)} prototypes", file=sys.stderr)
    if constants < 350 or len(prototypes) != 1324:
        sys.exit("the other header was not understood")


main()
