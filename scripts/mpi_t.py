"""The reference page of MPI_T's variables: what the built library lists, as a tool sees it."""

import ctypes
import os

HEAD = """\
# Variables of MPI_T

This page is made from what the library lists (`scripts/reference`). Tools such as mpiP, TAU and Score-P see the same.
[Tools and checks](../guides/tools.md) says how to read them.
"""

# By the values of the standard ABI.
TYPES = {0x209: "int", 0x20F: "unsigned long long", 0x214: "double", 0x243: "char"}
SCOPES = {1: "constant", 2: "read only", 3: "may be set in each process"}
BINDS = {1: "", 2: "communicator"}
CLASSES = {
    1: "STATE",
    2: "LEVEL",
    3: "SIZE",
    4: "PERCENTAGE",
    7: "COUNTER",
    8: "AGGREGATE",
    9: "TIMER",
}


class Text:
    """A text that the library returns: the buffer, and its length by reference."""

    def __init__(self):
        self.buffer = ctypes.create_string_buffer(1024)
        self.length = ctypes.c_int(len(self.buffer))

    def arguments(self):
        return self.buffer, ctypes.byref(self.length)

    def __str__(self):
        return self.buffer.value.decode()


def numbers(count):
    made = [ctypes.c_int(0) for _ in range(count)]
    return made, [ctypes.byref(one) for one in made]


class Library:
    """The staged library's interface."""

    def __init__(self, build):
        self.mpi = ctypes.CDLL(os.path.join(build, "lib", "libmpi_abi.so.1"))
        self.call("init_thread", 0, ctypes.byref(ctypes.c_int(0)))

    def call(self, name, *arguments):
        code = getattr(self.mpi, f"MPI_T_{name}")(*arguments)
        if code:
            raise RuntimeError(f"MPI_T_{name} returned {code}")

    def count(self, what):
        (number,), (to,) = numbers(1)
        self.call(what, to)
        return number.value

    def choices(self, handle):
        """The values of an enumeration, in words."""
        if not handle.value:
            return ""
        (count, value), to = numbers(2)
        self.call("enum_get_info", handle, to[0], None, None)
        named = []
        for index in range(count.value):
            name = Text()
            self.call("enum_get_item", handle, ctypes.c_int(index), to[1], *name.arguments())
            named.append(f"{value.value} `{name}`")
        return ": " + ", ".join(named)

    def cvar(self, index):
        name, about, datatype, choices = Text(), Text(), ctypes.c_void_p(), ctypes.c_void_p()
        (_, bind, scope), to = numbers(3)
        self.call(
            "cvar_get_info",
            ctypes.c_int(index),
            *name.arguments(),
            to[0],
            ctypes.byref(datatype),
            ctypes.byref(choices),
            *about.arguments(),
            to[1],
            to[2],
        )
        kind = TYPES[datatype.value] + self.choices(choices)
        return f"| `{name}` | {kind} | {SCOPES[scope.value]} | {about} |"

    def pvar(self, index):
        name, about, datatype, choices = Text(), Text(), ctypes.c_void_p(), ctypes.c_void_p()
        (_, kind, bind, readonly, continuous, atomic), to = numbers(6)
        self.call(
            "pvar_get_info",
            ctypes.c_int(index),
            *name.arguments(),
            to[0],
            to[1],
            ctypes.byref(datatype),
            ctypes.byref(choices),
            *about.arguments(),
            *to[2:],
        )
        text = TYPES[datatype.value] + self.choices(choices)
        return f"| `{name}` | {CLASSES[kind.value]} | {text} | {BINDS[bind.value]} | {about} |"

    def event(self, index):
        name, about = Text(), Text()
        none = [None] * 6
        self.call(
            "event_get_info", ctypes.c_int(index), *name.arguments(), *none, *about.arguments(), None
        )
        return f"| `{name}` | {about} |"

    def categories(self):
        for index in range(self.count("category_get_num")):
            name, about = Text(), Text()
            self.call(
                "category_get_info", ctypes.c_int(index), *name.arguments(), *about.arguments(), None, None, None
            )
            yield f"| `{name}` | {about} |"


def table(title, head, rows):
    return f"\n## {title}\n\n{head}\n" + "".join(row + "\n" for row in rows)


def page(build):
    library = Library(build)

    def all_of(what):
        return [getattr(library, what)(index) for index in range(library.count(f"{what}_get_num"))]

    return (
        HEAD
        + table(
            "Control variables",
            "Those that are named like a variable of the [environment](environment.md) are that one. What is set holds for\n"
            "what reads it afterwards: checkpoints of regions that are opened then, or `MPI_Init`.\n\n"
            "| name | type | scope | meaning |\n|---|---|---|---|",
            all_of("cvar"),
        )
        + table(
            "Performance variables",
            "A handle of a COUNTER, an AGGREGATE or a TIMER counts from its start on; it may be stopped, set, and read and\n"
            "reset at once. The others are continuous and only read.\n\n"
            "| name | class | type | bound to | meaning |\n|---|---|---|---|---|",
            all_of("pvar"),
        )
        + table(
            "Events",
            "Each has one element, an unsigned long long: the number that the description names. Their source is\n"
            "`eyrie_rank`, with the clock of `MPI_Wtime` in nanoseconds.\n\n"
            "| name | meaning |\n|---|---|",
            all_of("event"),
        )
        + table("Categories", "| name | about |\n|---|---|", library.categories())
    )
