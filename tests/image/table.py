"""What the matrix is made of: programs, the ways they are built, and the ways they are frozen.

A program that Eyrie does not bring back yet says so with `refused`: the words of the refusal. The
test then asserts that the refusal comes, by these words, and that the program ends undisturbed; when
it does not come any more, the test fails until the line here is changed.
"""

import dataclasses

GCC = ("gcc", "-std=gnu11", "-O1", "-g", "-Wall", "-Wextra")
TAIL = ("-lpthread", "-lm", "-ldl")

ONE_PROCESS = (("streamed", "has child processes"),)

# How a C program is built: command, options behind the sources.
BUILDS = {
    "gcc": (GCC, TAIL),
    "nopie": ((*GCC, "-no-pie", "-fno-pie"), TAIL),
    "static": ((*GCC, "-static"), TAIL),
    "staticpie": ((*GCC, "-static-pie"), TAIL),
    "o3": ((*GCC, "-O3"), TAIL),
    "omp": ((*GCC, "-fopenmp"), TAIL),
    "clang": (("clang", "-std=gnu11", "-O2", "-g", "-Wall", "-Wextra"), TAIL),
    "musl": (("musl-gcc", "-std=gnu11", "-O1", "-g"), TAIL),
    "muslstatic": (("musl-gcc", "-std=gnu11", "-O1", "-g", "-static"), TAIL),
}
ALL_BUILDS = ("gcc", "nopie", "static", "staticpie", "o3", "clang", "musl", "muslstatic")


@dataclasses.dataclass(frozen=True)
class Program:
    """A source in `programs/`, built in one or more ways."""

    source: str
    builds: tuple = ("gcc",)
    args: tuple = ()
    # Frozen only once it has said that it is ready (what it does before cannot be done twice).
    ready: bool = False
    refused: str = ""
    # The same for one variant alone.
    refused_in: tuple = ()
    # Needed besides the compiler: name of a check in `builds.NEEDS`.
    needs: str = ""

    @property
    def name(self):
        return "-".join((self.source, *self.args[1:]))

    def refusal(self, variant):
        """The words of the refusal that is expected in a variant, or nothing."""
        return self.refused or dict(self.refused_in).get(variant, "")


PROGRAMS = (
    Program("plain.c", ALL_BUILDS),
    Program("threads.c", ALL_BUILDS),
    Program("fpu.c", ("gcc", "o3", "static", "clang")),
    Program("signals.c", ("gcc", "static", "musl", "clang")),
    Program("blocked.c", ("gcc", "static", "muslstatic")),
    Program("stacks.c", ("gcc", "nopie", "static", "clang")),
    Program("churn.c", ("gcc", "nopie", "static", "clang")),
    Program("owned.c", needs="numbers"),
    Program("openmp.c", ("omp",)),
    Program("threads.cpp", ("g++", "clang++")),
    Program("field.f90", ("gfortran",)),
    Program("goroutines.go", ("go",)),
    Program("threads.rs", ("rustc",)),
    Program("arrays.py", ("python",)),
    Program("amx.c"),
    Program("shared.c"),
    Program("sharing.c", ready=True, refused_in=ONE_PROCESS),
    Program("sysv.c"),
    Program("huge.c"),
    Program("hugetlb.c", needs="hugetlb"),
    Program("guards.c"),
    Program("locked.c"),
    Program("keys.c"),
    Program("mapped.c", ready=True),
    Program("sparse.c"),
    Program("restartable.c"),
    Program("forkless.c"),
    Program("files.c", ready=True),
    Program("deleted.c", ready=True),
    Program("linked.c", ready=True),
    Program("inplace.c", ready=True),
    Program("rotated.c", ready=True),
    Program("scratch.c", ready=True),
    Program("reshaped.c", ready=True),
    Program("direct.c", ready=True),
    Program("locks.c"),
    Program("pipes.c", ready=True),
    Program("pairs.c"),
    Program("eventfds.c"),
    Program("timerfds.c"),
    Program("signalfds.c"),
    Program("epolls.c"),
    Program("rings.c", ("gcc", "static"), ready=True),
    Program("memfds.c"),
    Program("ptys.c", ready=True),
    Program("itimers.c"),
    Program("ptimers.c"),
    Program("children.c", refused_in=ONE_PROCESS),
    Program("pidfds.c", ("gcc", "muslstatic"), refused_in=ONE_PROCESS),
    Program("commands.go", ("go",), ready=True, refused_in=ONE_PROCESS),
    Program("commands.py", ("python",), ready=True, refused_in=ONE_PROCESS),
    Program("attributes.c"),
    Program("budget.c", ready=True),
    Program("execs.c"),
    Program("selfless.c", ready=True),
    Program("crowded.c", ready=True),
    Program("crowded.c", ready=True, args=("200", "child"), refused_in=ONE_PROCESS),
    Program("tcp.c", ready=True, refused="has not accepted yet"),
    Program("tcp.c", ready=True, args=("3000", "early")),
    *(
        Program("refused.c", ready=True, args=("6000", what), refused=words)
        for what, words in (
            ("aio", "asynchronous I/O"),
            ("uring", "anon_inode:[io_uring]"),
            ("uffd", "anon_inode:[userfaultfd]"),
            ("seccomp", "a seccomp filter"),
            ("netlink", "a socket"),
            ("lease", "a file with a lease"),
            ("mqueue", "a message queue"),
        )
    ),
    Program("unixsockets.c", ready=True, refused_in=ONE_PROCESS),
)


@dataclasses.dataclass(frozen=True)
class Variant:
    """One way to freeze and restore: what the driver is told, image after image of one incarnation."""

    freezes: tuple
    restore: str = "whole"
    # The environment of the daemon that freezes and restores.
    env: tuple = ()


# Of a driver without privileges: it gives a program its numbers in a PID namespace of its own.
ORDINARY, ORDINARY_USER = "EYRIE_TEST_ORDINARY", 61234

VARIANTS = {
    # A twin is written while the program runs on.
    "twin": Variant(("twin",)),
    # The program stands still until the image is durable.
    "sync": Variant(("sync",)),
    # An image is sent while it is pulled, and received into a file.
    "streamed": Variant(("stream",)),
    # Chains in which changes are found by the kernel's write protection.
    "copied": Variant(("shot:copy",) * 3, env=(("EYRIE_IMAGE_TRACKING", "wp"),)),
    "incremental": Variant(("shot:twin",) * 3, env=(("EYRIE_IMAGE_TRACKING", "wp"),)),
    # What can be is stored while the program runs.
    "ahead": Variant(("shot:auto",) * 3, env=(("EYRIE_IMAGE_AHEAD", "always"),)),
    # By hashes, while the program stands still, and rewritten as one file at the end.
    "hashed": Variant(
        ("shot:auto", "shot:sync", "shot:auto+"), env=(("EYRIE_IMAGE_TRACKING", "hash"),)
    ),
    # Restored lazily: it runs while its memory is brought in.
    "lazy": Variant(("shot:auto",) * 2, env=(("EYRIE_IMAGE_LAZY", "3000"),)),
    # Compressed as hard as it gets; as on a kernel without PAGEMAP_SCAN and with another vdso.
    "foreign": Variant(
        ("twin",),
        env=(
            ("EYRIE_IMAGE_CODEC", "zstd"),
            ("EYRIE_IMAGE_NO_PAGEMAP_SCAN", "1"),
            ("EYRIE_IMAGE_FOREIGN_VDSO", "1"),
        ),
    ),
    # By a user without privileges: see ORDINARY_TOO.
    "ordinary": Variant(("shot:auto",) * 2, env=((ORDINARY, "1"),)),
}
# Programs, in their first build, that are worth that: families, threads, what knows its number.
ORDINARY_TOO = ("children.c", "pidfds.c", "owned.c", "threads.c")
