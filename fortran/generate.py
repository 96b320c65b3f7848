#!/usr/bin/env python3
"""Writes the Fortran interface from the C header: mpif.h, the module's parts, entry points in C.

usage: generate.py INCLUDE_DIR OUT_DIR

Reads mpi.h, mpi_functions.h and mpi-ext.h. Writes to OUT_DIR:
  mpif.h            constants and common blocks; right in fixed and in free form
  mpi_constants.h   the same without the externals, for the module
  mpi_interfaces.h  explicit interfaces, for the module
  mpi_by_hand.h     those of mpi_by_hand.f90, with their profiling names
  mpi_sizeof.h      the generic MPI_Sizeof
  entries.c         one function mpi_NAME_ for each routine, on the C interface alone

What the C prototypes do not tell (index bases, callbacks, attributes) stands in special.c, large.c,
attributes.c, datareps.c and ulfm.c beside this file, written by hand; the names defined there are left out here.
"""

import platform
import re
import sys

# Lengths of handle arrays that the prototype does not name by `count` or `incount`.
LENGTHS = [
    (r"MPI_I?[Aa]lltoallw(_init)?(_c)? \w+", "comm_size(*comm)"),
    (r"MPI_I?[Nn]eighbor_alltoallw(_init)?(_c)? send\w+", "destinations(*comm)"),
    (r"MPI_I?[Nn]eighbor_alltoallw(_init)?(_c)? recv\w+", "sources(*comm)"),
    (r"MPI_\w*some \w+", "*incount"),
    (r".*", "*count"),
]
# Of these names, but integers.
INTEGERS = re.compile(r"MPIX?_Comm_i?agree flag")
# Of functions for failures: written when the request is complete.
WRITTEN_LATER = re.compile(r"MPIX?_Comm_(ishrink newcomm|iagree flag|iagree_failed failedgrp)")
LOGICALS = {"flag", "commute", "reorder", "high", "periods", "remain_dims", "provided_flag",
            "weighted"}
# Arrays that may be MPI_UNWEIGHTED or MPI_WEIGHTS_EMPTY.
WEIGHTS = {"weights", "sourceweights", "destweights"}
# Names that this does not translate, and why. tests/abi/fortran_names.py compares all others with
# what there is.
BY_VALUE_IN_C = "for C only: a Fortran handle is an INTEGER, or holds one"
NOT_TRANSLATED = [
    (r"T_.*", "the tool interface has no Fortran binding"),
    (r".*_(toint|fromint|c2f|f2c)", BY_VALUE_IN_C),
    (r"Abi_[gs]et_fortran_.*", "for C only: tells a library of the Fortran compiler"),
    (r"(Buffer_detach|(Comm|Session)_detach_buffer)_c", "mpi_f08 calls C, for the address"),
    (r"Register_datarep_c", "Fortran's conversions count in INTEGER alone yet"),
]
# Functions (not subroutines) of the Fortran binding: declared by hand.
FUNCTIONS = {"MPI_Wtime", "MPI_Wtick", "MPI_Aint_add", "MPI_Aint_diff"}
HANDLES = {"Comm", "Group", "Datatype", "Op", "Request", "Errhandler", "Info", "Message", "Win",
           "File", "Session"}
# Handles by address that a routine reads as well: all others are only given back.
READ_AND_WRITTEN = re.compile(
    r"MPI_(\w+_(free|commit|disconnect|close|finalize)|Cancel|Start|Test|Wait) \w+|"
    r"MPI_(M|Im)recv(_c)? message")
# Forms with counts of 64 bits, which the standard has in mpi_f08 alone: MPI_Send takes either there.
LARGE = re.compile(r"MPI_\w+_c")
# Strings of which blanks in front count as well: names of objects and error strings.
BLANKS_COUNT = re.compile(r"MPI_(\w+_set_name|Add_error_string) \w+")
NULL_FUNCTIONS = ["MPI_DUP_FN", "MPI_NULL_COPY_FN", "MPI_NULL_DELETE_FN"] + [
    f"MPI_{kind}_{what}" for kind in ("COMM", "TYPE", "WIN")
    for what in ("DUP_FN", "NULL_COPY_FN", "NULL_DELETE_FN")] + ["MPI_CONVERSION_FN_NULL"]
# A dummy argument of any type and rank.
ANYTHING = "!GCC$ ATTRIBUTES NO_ARG_CHECK :: {0}\ntype(*), dimension(*) :: {0}"
COMMONS = [  # common block, Fortran name, declaration
    ("eyrie_mpi_bottom", "MPI_BOTTOM", "INTEGER MPI_BOTTOM"),
    ("eyrie_mpi_in_place", "MPI_IN_PLACE", "INTEGER MPI_IN_PLACE"),
    ("eyrie_mpi_status_ignore", "MPI_STATUS_IGNORE", "INTEGER MPI_STATUS_IGNORE(8)"),
    ("eyrie_mpi_statuses_ignore", "MPI_STATUSES_IGNORE", "INTEGER MPI_STATUSES_IGNORE(8,1)"),
    ("eyrie_mpi_errcodes_ignore", "MPI_ERRCODES_IGNORE", "INTEGER MPI_ERRCODES_IGNORE(1)"),
    ("eyrie_mpi_unweighted", "MPI_UNWEIGHTED", "INTEGER MPI_UNWEIGHTED(1)"),
    ("eyrie_mpi_weights_empty", "MPI_WEIGHTS_EMPTY", "INTEGER MPI_WEIGHTS_EMPTY(1)"),
    ("eyrie_mpi_argv_null", "MPI_ARGV_NULL", "CHARACTER*1 MPI_ARGV_NULL(1)"),
    ("eyrie_mpi_argvs_null", "MPI_ARGVS_NULL", "CHARACTER*1 MPI_ARGVS_NULL(1,1)"),
]


def constants(header):
    """(name, value, kind of handle or "") of every integer constant and handle of mpi.h, as Fortran
    sees it."""
    found = []
    values = {}
    for name, value in re.findall(r"^#define (MPIX?_\w+) +(\S.*?) *$", header, flags=re.M):
        if value in values:
            number, kind = values[value]
        else:
            m = re.fullmatch(r"\(?(?:\((MPI_\w+)\))?(-?\w+)\)?", value)
            if not m or (m.group(1) and m.group(1)[4:] not in HANDLES):
                continue
            try:
                number, kind = int(m.group(2), 0), (m.group(1) or "")[4:]
            except ValueError:
                continue
        values[name] = number, kind
        if name.startswith("MPI_T_") or re.match(r"MPI_F_|MPI_MAX_", name):
            continue
        found.append((name, number, kind))
    # In Fortran there is no zero at the end (MPI 5.0 section 2.6.2).
    for name, value in re.findall(r"^#define (MPI_MAX_\w+) +(\d+)$", header, flags=re.M):
        found.append((name, int(value) - 1, ""))
    found += [(name, value, "") for name, value in (
        ("MPI_STATUS_SIZE", 8), ("MPI_SOURCE", 1), ("MPI_TAG", 2), ("MPI_ERROR", 3),
        ("MPI_ADDRESS_KIND", 8), ("MPI_OFFSET_KIND", 8), ("MPI_COUNT_KIND", 8),
        ("MPI_INTEGER_KIND", 4))]
    return found


def write_constants(out_dir, header):
    lines = ["! Generated from mpi.h: constants of MPI for Fortran, in fixed and in free form."]
    for name, value, _ in constants(header):
        lines.append(f"      INTEGER {name}")
        if len(f"      PARAMETER ({name}={value})") > 72:
            sys.exit(f"{name} is too long for fixed form")
        lines.append(f"      PARAMETER ({name}={value})")
    for name, value in (("MPI_ASYNC_PROTECTS_NONBLOCKING", ".FALSE."),
                        ("MPI_SUBARRAYS_SUPPORTED", ".FALSE.")):
        lines.append(f"      LOGICAL {name}")
        lines.append(f"      PARAMETER ({name}={value})")
    lines.append("      INTEGER(8) MPI_DISPLACEMENT_CURRENT")
    lines.append("      PARAMETER (MPI_DISPLACEMENT_CURRENT=-1)")
    for block, name, declaration in COMMONS:
        lines.append(f"      {declaration}")
        lines.append(f"      COMMON /{block}/ {name}")
    for name in NULL_FUNCTIONS:
        lines.append(f"      EXTERNAL {name}")
    text = "\n".join(lines) + "\n"
    with open(f"{out_dir}/mpi_constants.h", "w", encoding="ascii") as f:
        f.write(text)
    externals = []
    for name, kind in (("WTIME", "DOUBLE PRECISION"), ("WTICK", "DOUBLE PRECISION"),
                       ("AINT_ADD", "INTEGER(8)"), ("AINT_DIFF", "INTEGER(8)")):
        for full in (f"MPI_{name}", f"PMPI_{name}"):
            externals += [f"      {kind} {full}", f"      EXTERNAL {full}"]
    with open(f"{out_dir}/mpif.h", "w", encoding="ascii") as f:
        f.write(text + "\n".join(externals) + "\n")


class Argument:
    """One argument of a routine: how it is declared and passed on both sides."""

    def __init__(self, text, function):
        m = re.fullmatch(r"(const )?(\w+) ?(\*?)(\w+)((?:\[\d*\])*)", text.strip())
        if not m:
            raise ValueError(text)
        const, kind, star, self.name, array = m.groups()
        # The header says `MPI_Status *` also where there are many.
        if self.name == "array_of_statuses":
            array = array or "[]"
        self.name = {"indx": "index"}.get(self.name, self.name)
        self.const, self.function = bool(const), function
        pointer, self.array = bool(star), bool(array)
        handle = kind[4:] if kind.startswith("MPI_") else ""
        self.hidden = False
        self.handle = handle
        if kind == "void":
            self.kind = "choice"
        elif kind == "char":
            self.kind, self.hidden = ("text in" if const else "text out"), True
        elif handle in HANDLES:
            self.kind = "handles" if array else "handle out" if pointer else "handle"
        elif handle == "Status":
            self.kind = "statuses" if array else "status"
        elif handle in {"Aint", "Offset", "Count"} or kind == "int":
            self.kind = "pass" if pointer or array else "value"
            if self.name in WEIGHTS:
                self.kind, self.array = "weights", True
        else:
            raise ValueError(text)
        self.wide = handle in {"Aint", "Offset", "Count"}
        self.ranges = array == "[][3]"

    def fortran(self):
        """Declaration in an interface."""
        n = self.name
        if self.kind == "choice":
            if n == "baseptr":
                return [f"integer(8) :: {n}"]
            return ANYTHING.format(n).split("\n")
        if self.kind.startswith("text"):
            return [f"character(len=*) :: {n}"]
        if self.kind == "status":
            return [f"integer :: {n}(8)"]
        if self.kind == "statuses":
            return [f"integer :: {n}(8,*)"]
        is_logical = n in LOGICALS and not INTEGERS.fullmatch(f"{self.function} {n}")
        base = "logical" if is_logical else "integer(8)" if self.wide else "integer"
        shape = "(3,*)" if self.ranges else "(*)" if self.array else ""
        return [f"{base} :: {n}{shape}"]

    def parameter(self):
        if self.kind in ("choice", "status", "statuses"):
            return f"void *{self.name}"
        if self.hidden:
            return f"char *{self.name}"
        c = "int64_t" if self.wide else "int"
        return f"{c} *{self.name}"

    def convert(self):
        """(statements before, expression, statements after)"""
        n, short = self.name, "Type" if self.handle == "Datatype" else self.handle
        if self.kind == "choice":
            return [], f"choice_at({n})", []
        if self.kind == "value":
            return [], f"*{n}", []
        if self.kind == "pass":
            cast = f"(MPI_{self.handle} *)" if self.wide else ""
            cast = "(int (*)[3])" if self.ranges else cast
            return [], f"{cast}{n}", []
        if self.kind == "weights":
            return [], f"weights_at({n})", []
        if self.kind == "status":
            return [], f"status_at({n})", []
        if self.kind == "statuses":
            return [], f"statuses_at({n})", []
        if self.kind == "handle":
            return [], f"MPI_{short}_fromint(*{n})", []
        if self.kind == "handle out":
            return self.convert_handle_out(short)
        if self.kind == "text in":
            how = "name_in" if BLANKS_COUNT.fullmatch(f"{self.function} {n}") else "text_in"
            return [f"char *c_{n} = {how}({n}, l_{n});"], f"c_{n}", [f"free(c_{n});"]
        if self.kind == "text out":
            return ([f"char *c_{n} = text_room(l_{n});"], f"c_{n}",
                    [f"text_out(c_{n}, {n}, l_{n}, *ierror);"])
        return self.convert_handles(short)

    def convert_handle_out(self, short):
        n = self.name
        given_back = f"*{n} = MPI_{short}_toint(c_{n});"
        if READ_AND_WRITTEN.fullmatch(f"{self.function} {n}"):
            first = f"MPI_{short}_fromint(*{n})"
        else:
            # The program's variable may hold anything, and keeps it if the call fails.
            first = f"MPI_{self.handle.upper()}_NULL"
            given_back = "if (*ierror == MPI_SUCCESS) " + given_back
        return [f"MPI_{self.handle} c_{n} = {first};"], f"&c_{n}", [given_back]

    def convert_handles(self, short):
        n = self.name
        whose = f"{self.function} {n}"
        length = next(length for what, length in LENGTHS if re.fullmatch(what, whose))
        if n == "sendtypes":
            length = f"choice_at(sendbuf) == MPI_IN_PLACE ? 0 : {length}"
        before = [f"int n_{n} = {length};",
                  f"MPI_{self.handle} *c_{n} = room(n_{n}, sizeof *c_{n});",
                  f"for (int i = 0; i < n_{n}; i++) c_{n}[i] = MPI_{short}_fromint({n}[i]);"]
        after = [f"for (int i = 0; i < n_{n}; i++) {n}[i] = MPI_{short}_toint(c_{n}[i]);"]
        return before, f"c_{n}", ([] if self.const else after) + [f"free(c_{n});"]


def routine(name, arguments):
    """The C entry point."""
    parts = [a.convert() for a in arguments]
    parameters = [a.parameter() for a in arguments] + ["int *ierror"]
    parameters += [f"size_t l_{a.name}" for a in arguments if a.hidden]
    lower = name.lower() + "_"
    lines = [f"ENTRY(p{lower}, {lower}, ({', '.join(parameters)}))", "{"]
    lines += ["    " + s for before, _, _ in parts for s in before]
    lines.append(f"    *ierror = {name}({', '.join(e for _, e, _ in parts)});")
    lines += ["    " + s for _, _, after in parts for s in after]
    return lines + ["}", ""]


def wrapped(head, names, tail=""):
    """A statement of free form, continued where it gets long."""
    line, lines = head + "(", []
    for i, n in enumerate(names):
        piece = n + (", " if i + 1 < len(names) else ")" + tail)
        if len(line) + len(piece) > 90:
            lines.append(line + "&")
            line = "      "
        line += piece
    return lines + [line]


# Arrays that do not count at MPI_IN_PLACE or at ranks that are not the root: programs pass a 0 there.
MAY_NOT_COUNT = re.compile(r"P?MPI_I?(Gatherv|Scatterv|Allgatherv|Alltoall[vw]|Reduce_scatter)(_init)? "
                           r"\w+", re.IGNORECASE)


def interface(name, arguments):
    names = [a.name for a in arguments] + ["ierror"]
    lines = wrapped(f"    subroutine {name}", names)
    for a in arguments:
        declared = a.fortran()
        if a.array and MAY_NOT_COUNT.fullmatch(f"{name} {a.name}"):
            declared = ANYTHING.format(a.name).split("\n")
        lines += ["      " + d for d in declared]
    return lines + ["      integer :: ierror", f"    end subroutine {name}"]


def profiled(lines):
    """Interfaces of routines, and the same under their profiling names."""
    named = re.compile(r"^(    (?:end )?(?:subroutine|.* function) )(MPIX?_\w+)")
    return lines + [named.sub(r"\1P\2", line) for line in lines]


def kinds_of_numbers():
    """(type, bytes of one) of all that MPI_Sizeof takes."""
    wide = platform.machine() in ("x86_64", "i686")
    for size in (1, 2, 4, 8, 16):
        yield f"integer({size})", size
        yield f"logical({size})", size
    for kind, size in ((4, 4), (8, 8), *([(10, 16)] if wide else []), (16, 16)):
        yield f"real({kind})", size
        yield f"complex({kind})", 2 * size
    yield "character(len=*)", 1


def write_sizeof(out_dir):
    """MPI_Sizeof, one routine for each type: the module and C."""
    lines = ["! Generated: MPI_Sizeof of all intrinsic types, scalars and arrays.", "  interface MPI_Sizeof"]
    code, names = [], []
    for at, (kind, size) in enumerate(kinds_of_numbers()):
        name = f"eyrie_mpi_sizeof_{at}"
        names.append(name)
        lines += [f"    subroutine {name}(x, size, ierror)", f"      {kind}, dimension(..) :: x",
                  "      integer :: size", "      integer, optional :: ierror", f"    end subroutine {name}"]
        code += [f"void {name}_(const void *x, int *size, int *ierror)", "{", "    (void)x;",
                 f"    *size = {size};", "    if (ierror)", "        *ierror = MPI_SUCCESS;", "}", ""]
    lines += ["  end interface MPI_Sizeof", "  interface PMPI_Sizeof"]
    lines += [f"    procedure {name}" for name in names] + ["  end interface PMPI_Sizeof"]
    with open(f"{out_dir}/mpi_sizeof.h", "w", encoding="ascii") as f:
        f.write("\n".join(lines) + "\n")
    return code


def why_not(name):
    """Why a name (without MPI_) is not translated, or None."""
    return next((why for what, why in NOT_TRANSLATED if re.fullmatch(what, name)), None)


def routines(include, by_hand):
    """(name, arguments) of every routine of the Fortran binding that the prototypes tell, without
    those of these names (in lower case)."""
    with open(f"{include}/mpi_functions.h", encoding="ascii") as f:
        functions = " ".join(f.read().split())
    for name, args in re.findall(r"EYRIE_MPI\(\w+, (\w+), \((.*?)\)\)", functions):
        if why_not(name):
            continue
        name = "MPI_" + name
        if name in FUNCTIONS or name.lower() in by_hand:
            continue
        try:
            arguments = [Argument(a, name) for a in args.split(",") if a.strip() != "void"]
        except ValueError as e:
            sys.exit(f"{name}: cannot translate the argument {e}")
        yield name, arguments


def extensions(include):
    """(name, arguments) of every routine for failures, under both of its names."""
    with open(f"{include}/mpi-ext.h", encoding="ascii") as f:
        functions = re.findall(r"^EYRIE_MPIX\((\w+), \((.*)\)\)$", f.read(), flags=re.M)
    if not functions:
        sys.exit("mpi-ext.h was not understood")
    for prefix in "MPI_", "MPIX_":
        for name, args in functions:
            yield prefix + name, [Argument(a, prefix + name) for a in args.split(",")]


def headers(include):
    """What defines constants."""
    text = []
    for name in "mpi.h", "mpi-ext.h":
        with open(f"{include}/{name}", encoding="ascii") as f:
            text.append(f.read())
    return "\n".join(text)


def main():
    include, out_dir = sys.argv[1:]
    here = re.sub(r"[^/]*$", "", sys.argv[0])
    write_constants(out_dir, headers(include))
    by_hand = {f"mpi_{kind}_{what}" for kind in ("comm", "type", "win")
               for what in ("create_keyval", "set_attr", "get_attr")}
    for source in ("special.c", "attributes.c", "datareps.c", "spawn.c", "large.c",
                   "ulfm.c"):
        with open(f"{here}{source}", encoding="ascii") as f:
            by_hand |= set(re.findall(r"^ENTRY\(p(mpix?_\w+)_,", f.read(), flags=re.M))
    entries = ['/* Generated from mpi_functions.h: entry points for Fortran. */',
               '#include "entry.h"', '#include "mpi-ext.h"', ""]
    interfaces = ["! Generated from mpi_functions.h: explicit interfaces.", "  interface"]
    for name, arguments in routines(include, by_hand):
        entries += routine(name, arguments)
        if not LARGE.fullmatch(name):
            interfaces += profiled(interface(name, arguments))
    for name, arguments in extensions(include):
        if name.lower() not in by_hand:
            entries += routine(name, arguments)
        interfaces += profiled(interface(name, arguments))
    interfaces.append("  end interface")
    entries += write_sizeof(out_dir)
    with open(f"{here}mpi_by_hand.f90", encoding="ascii") as f:
        declared = f.read().rstrip("\n").split("\n")
    with open(f"{out_dir}/mpi_by_hand.h", "w", encoding="ascii") as f:
        f.write("\n".join(profiled(declared)) + "\n")
    with open(f"{out_dir}/entries.c", "w", encoding="ascii") as f:
        f.write("\n".join(entries))
    with open(f"{out_dir}/mpi_interfaces.h", "w", encoding="ascii") as f:
        f.write("\n".join(interfaces) + "\n")


if __name__ == "__main__":
    main()
