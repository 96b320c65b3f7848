#!/usr/bin/env python3
"""Writes the module mpi_f08 from the C header: types, constants, one procedure for each routine.

usage: generate_f08.py INCLUDE_DIR OUT_DIR

Reads mpi.h, mpi_functions.h and mpi-ext.h, and beside this file what the prototypes do not tell: mpi_f08_head.h
and mpi_f08_tail.h, and what there is for several kinds of objects, interfaces and then procedures, in
mpi_f08_attributes.h and mpi_f08_errhandlers.h, and procedures with counts of 64 bits in mpi_f08_large.h.
Writes OUT_DIR/mpi_f08.f90. Each procedure has its plain and
its profiling name (with counts of 64 bits: those of the procedure with default ones) and calls the routine of the module mpi, by the profiling name, so that a program's own
mpi_NAME_ may call it; handles are structures of the INTEGER that they are there, and statuses of the same
eight, so arrays of both are passed on where they lie.
"""

import re
import sys

import generate

# Procedures that stand in mpi_f08_tail.h; those of operations, attributes and error handlers take
# procedures.
BY_HAND = ["Init", "Init_thread", "Pcontrol", "F_sync_reg", "Info_create_env", "Op_create",
           "Comm_create_errhandler", "Win_create_errhandler", "File_create_errhandler",
           "Session_create_errhandler", "Buffer_detach", "Comm_detach_buffer",
           "Session_detach_buffer", "Session_get_nth_pset", "Grequest_start",
           "Register_datarep", "Comm_spawn", "Comm_spawn_multiple"] + [
    f"{kind}_{what}" for kind in ("Comm", "Type", "Win")
    for what in ("create_keyval", "set_attr", "get_attr")]
# Not in this module: they are deprecated.
DEPRECATED = ["MPI_Keyval_create", "MPI_Keyval_free", "MPI_Attr_put", "MPI_Attr_get",
              "MPI_Attr_delete"]
# Of those with counts of 64 bits: in mpi_f08_large.h, some under names of their own.
LARGE_BY_HAND = ["Buffer_detach_c", "Comm_detach_buffer_c", "Session_detach_buffer_c", "Op_create_c",
                 "Type_get_contents_c"]
OWN_NAMES = ["MPI_Op_create_c"]
# Of the module mpi, as they are.
TAKEN = ["MPI_BOTTOM", "MPI_IN_PLACE", "MPI_UNWEIGHTED", "MPI_WEIGHTS_EMPTY", "MPI_ARGV_NULL",
         "MPI_ARGVS_NULL", "MPI_ERRCODES_IGNORE", "MPI_DISPLACEMENT_CURRENT",
         "MPI_ASYNC_PROTECTS_NONBLOCKING", "MPI_SUBARRAYS_SUPPORTED", "MPI_Sizeof", "PMPI_Sizeof"]
KINDS = sorted(generate.HANDLES)


class Parameter:
    """One argument: how it is declared, and how it is passed on."""

    def __init__(self, argument):
        self.name, self.argument = argument.name, argument

    def declared(self):
        lines = self.declared_alone()
        if generate.WRITTEN_LATER.fullmatch(f"{self.argument.function} {self.name}"):
            lines = [line.replace(" ::", ", asynchronous ::") for line in lines]
        return lines

    def declared_alone(self):
        a, n = self.argument, self.name
        if a.kind == "choice" and n == "baseptr":
            return [f"type(c_ptr) :: {n}"]
        if a.kind.startswith("handle"):
            known = ", intent(in)" if a.kind == "handle" or a.const else ""
            shape = "(*)" if a.kind == "handles" else ""
            target = ", target" if a.kind == "handles" else ""
            return [f"type(MPI_{a.handle}){known}{target} :: {n}{shape}"]
        if a.kind.startswith("status"):
            shape = "(*)" if a.kind == "statuses" else ""
            return [f"type(MPI_Status), target :: {n}{shape}"]
        lines = a.fortran()
        if a.kind == "value" or (a.const and a.kind != "choice"):
            lines = [line.replace(" ::", ", intent(in) ::") for line in lines]
        return lines

    def local(self):
        a, n = self.argument, self.name
        if a.kind == "choice" and n == "baseptr":
            return [f"integer(MPI_ADDRESS_KIND) :: i_{n}"]
        if a.kind in ("handles", "status", "statuses"):
            return [f"integer, pointer, contiguous :: i_{n}{'(:,:)' if a.kind == 'statuses' else '(:)'}"]
        return []

    def before(self):
        n, kind = self.name, self.argument.kind
        shape = {"handles": "[1]", "status": "[8]", "statuses": "[8, 1]"}.get(kind)
        return [f"call c_f_pointer(c_loc({n}), i_{n}, {shape})"] if shape else []

    def passed(self):
        a, n = self.argument, self.name
        if a.kind in ("handle", "handle out"):
            return f"{n}%MPI_VAL"
        return f"i_{n}" if self.local() else n

    def after(self):
        if self.argument.kind == "choice" and self.name == "baseptr":
            return [f"if (e == MPI_SUCCESS) {self.name} = transfer(i_{self.name}, c_null_ptr)"]
        return []


def statement(head, names, tail=""):
    """One of free form, continued where it gets long."""
    lines = generate.wrapped("    " + head, names, tail)
    return lines[:1] + ["    " + line for line in lines[1:]]


def shape(arguments):
    """What tells one form of a procedure from another: how many arguments, and of which kinds."""
    return [a.wide and not a.handle == "Status" for a in arguments]


def large_forms(routines):
    """Those with counts of 64 bits that a program can tell from the others."""
    small = dict(routines)
    for name, arguments in routines:
        if generate.LARGE.fullmatch(name) and shape(arguments) != shape(small[name[:-2]]):
            yield name, arguments


def external(name, arguments):
    """The interface of a routine that the module mpi has not."""
    lines = generate.interface("P" + name, arguments)
    return ["    " + lines[0].lstrip(), *lines[1:-1], lines[-1]]


def procedure(name, arguments):
    parameters = [Parameter(a) for a in arguments]
    names = [p.name for p in parameters]
    lines = ["", *statement(f"subroutine {name}_f08", names + ["ierror"])]
    for p in parameters:
        lines += ["      " + line for line in p.declared()]
    lines.append("      integer, optional, intent(out) :: ierror")
    lines.append("      integer :: e")
    for p in parameters:
        lines += ["      " + line for line in p.local()]
    for p in parameters:
        lines += ["      " + line for line in p.before()]
    routine = f"P{name}" if generate.LARGE.fullmatch(name) else f"f_{name}"
    lines += statement(f"  call {routine}", [p.passed() for p in parameters] + ["e"])
    for p in parameters:
        lines += ["      " + line for line in p.after()]
    return lines + ["      if (present(ierror)) ierror = e", f"    end subroutine {name}_f08"]


def listed(head, names):
    """A statement with a list, in several lines."""
    lines, line = [], head
    for i, n in enumerate(names):
        piece = f" {n}" + ("," if i + 1 < len(names) else "")
        if len(line) + len(piece) > 90:
            lines.append(line + " &")
            line = "      "
        line += piece
    return lines + [line]


def in_parts(head, names, most=100):
    """The same in several statements: there is a limit of continued lines."""
    return [line for at in range(0, len(names), most) for line in listed(head, names[at:at + most])]


def operators():
    lines = []
    for sign, what in (("==", "equal"), ("/=", "unequal")):
        lines.append(f"  interface operator ({sign})")
        lines += [f"    module procedure {what}_{kind}" for kind in KINDS]
        lines.append("  end interface")
    return lines


def comparisons():
    lines = []
    for sign, what in (("==", "equal"), ("/=", "unequal")):
        for kind in KINDS:
            lines += ["", f"    elemental logical function {what}_{kind}(a, b)",
                      f"      type(MPI_{kind}), intent(in) :: a, b",
                      f"      {what}_{kind} = a%MPI_VAL {sign} b%MPI_VAL",
                      f"    end function {what}_{kind}"]
    return lines


def of_kinds(text, kinds):
    """The interfaces and the procedures of a text in which the kind of object is left open."""
    parts = [], []
    for kind in kinds:
        type_of = {"Type": "Datatype"}.get(kind, kind)
        names = {"@Kind@": kind, "@kind@": kind.lower(), "@Type@": type_of,
                 "@object@": type_of.lower()}
        filled = re.sub("@\\w+@", lambda m: names[m.group()], text)
        for part, lines in zip(parts, filled.split("!----\n")):
            part += lines.rstrip("\n").split("\n")
    return parts


def main():
    include, out_dir = sys.argv[1:]
    here = re.sub(r"[^/]*$", "", sys.argv[0])
    constants = generate.constants(generate.headers(include))
    by_hand = [f"MPI_{name}" for name in BY_HAND]
    left_out = {name.lower() for name in by_hand + DEPRECATED}
    both = list(generate.routines(include, left_out | {f"mpi_{n.lower()}" for n in LARGE_BY_HAND}))
    large = list(large_forms(both))
    routines = [(n, a) for n, a in both if not generate.LARGE.fullmatch(n)]
    routines += generate.extensions(include)
    plain = [name for name, _, kind in constants if kind not in KINDS]
    handles = [(name, value, kind) for name, value, kind in constants if kind in KINDS]
    taken = plain + TAKEN + generate.NULL_FUNCTIONS + sorted(generate.FUNCTIONS) + [
        "P" + name for name in sorted(generate.FUNCTIONS)]
    names = [name for name, _ in routines] + by_hand
    text = {}
    for part in ("head", "tail", "attributes", "errhandlers", "large", "spawn"):
        with open(f"{here}mpi_f08_{part}.h", encoding="ascii") as f:
            text[part] = f.read()
    handlers = of_kinds(text["errhandlers"], ("Comm", "Win", "File", "Session"))
    attributes = of_kinds(text["attributes"], ("Comm", "Type", "Win"))
    head, tail = (text[part].rstrip("\n").split("\n") for part in ("head", "tail"))

    lines = ["! Generated by generate_f08.py.", "module mpi_f08",
             "  use, intrinsic :: iso_c_binding, only: c_ptr, c_int, c_int64_t, c_loc, &",
             "      c_f_pointer, c_null_ptr, c_funptr, c_funloc"]
    lines += in_parts("  use mpi, only:", taken)
    lines += in_parts("  use mpi, only:", [f"f_{name} => P{name}" for name in names], 60)
    lines += ["  implicit none", "  private"]
    lines += in_parts("  public ::", taken)
    lines += in_parts("  public ::", names + ["P" + name for name in names])
    lines += in_parts("  public ::", [name for name, _, _ in handles])
    lines += in_parts("  public ::", [f"MPI_{kind}" for kind in KINDS])
    lines.append("  public :: operator (==), operator (/=)")
    for kind in KINDS:
        lines += ["", f"  type, bind(C) :: MPI_{kind}", "    integer(c_int) :: MPI_VAL",
                  f"  end type MPI_{kind}"]
    lines.append("")
    lines += [f"  type(MPI_{kind}), parameter :: {name} = MPI_{kind}({value})"
              for name, value, kind in handles]
    lines += ["", *text["spawn"].rstrip("\n").split("\n"), "", "  interface"]
    for name, arguments in large:
        lines += external(name, arguments)
    lines += ["  end interface"]
    forms = {}
    for name in [n for n, _ in large] + [f"MPI_{n}" for n in LARGE_BY_HAND]:
        forms[name if name in OWN_NAMES else name[:-2]] = f"{name}_f08"
    large_head, large_tail = (part.rstrip("\n").split("\n") for part in text["large"].split("!----\n"))
    lines += in_parts("  public ::", OWN_NAMES + ["P" + name for name in OWN_NAMES])
    lines += operators() + large_head + head + handlers[0] + attributes[0] + ["  end interface", ""]
    for name in names + OWN_NAMES:
        of = ([] if name in OWN_NAMES else [f"{name}_f08"]) + ([forms[name]] if name in forms else [])
        for generic in (name, "P" + name):
            # Some of these are in objects of their own.
            lines += [f"  interface {generic}", f"    procedure {', '.join(of)}", "  end interface"]
    lines += ["", "contains"]
    for name, arguments in routines + large:
        lines += procedure(name, arguments)
    lines += comparisons() + large_tail + tail + handlers[1] + attributes[1] + ["end module mpi_f08"]
    with open(f"{out_dir}/mpi_f08.f90", "w", encoding="ascii") as f:
        f.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
