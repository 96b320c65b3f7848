"""Which end-to-end tests run beside which.

Workers take one module after the other. Some tests need the machine for themselves and come last.
`tests/e2e/conftest.py` makes a marker of it (`alone`) and hands the tests out."""

from xdist.scheduler import LoadScopeScheduling

# They look at what crosses the loopback device, of whomever.
ALONE = frozenset(("tls.nothing_of_a_message_is_read_on_the_network", "tls.without_it_is"))

# Not beside each other: they clear away what MPICH left in shared memory; each has a Slurm of its own, or
# binds ranks to cores, which another then does not get.
TOGETHER = (("regions", "regions_apart", "regions_far", "regions_repeated"), ("slurm", "join", "notice", "binding"))
# They take longest: begun first, so that no lane is left with them at the end.
FIRST = ("ha", "hosts", "programs", "vault_steps", "clusters", "wan_only", "wan_links", "vault_leave")
# Of the cases that tables make one of so many is run without --all.
PART = 4


def name_of(nodeid):
    """`cases/drain.py::test_x` -> `drain.x`, as SPECIFICATION.md names it."""
    path, _, test = nodeid.partition("::")
    return f"{path.rsplit('/', 1)[-1].removesuffix('.py')}.{test.removeprefix('test_')}"


def module_of(name):
    return name.split(".")[0]


def group_of(name):
    """What one worker runs in one go: a module, or modules that must not run beside each other."""
    module = module_of(name)
    return next((among[0] for among in TOGETHER if module in among), module)


class Workers(LoadScopeScheduling):
    """Hands groups of tests out."""

    def _split_scope(self, nodeid):
        return group_of(name_of(nodeid))
