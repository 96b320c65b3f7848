"""How pytest finds and runs end-to-end tests: real jobs of the built Eyrie, real kills.

A test is a function `test_*` of a module in `cases/`, or one that its `generated()` yields with a
name, a case of a table. `-k drain.x` finds `test_x` of `cases/drain.py`. Of cases of tables a part is
run that meets each row and column, with `--all` all are. Tests run side by side as `schedule.py` says.

A test that cannot be run on this machine fails, unless EYRIE_TESTS_WITHOUT names it (comma-separated).
One that takes root is skipped for others (`harness.NotRun`)."""

import os
import signal
import subprocess
import sys

import pytest

HERE = os.path.dirname(os.path.abspath(__file__))
for folder in (HERE, *(os.path.join(HERE, *at) for at in (("cases",), ("..", "net"), ("..", "pick")))):
    sys.path.insert(0, folder)
# Whoever starts us in the background may have them ignored, and programs inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)
for number in (signal.SIGHUP, signal.SIGQUIT):
    signal.signal(number, signal.SIG_DFL)


def interrupt(*_):
    """Asked to end: as from the keyboard, so that a test ends what it has started."""
    raise KeyboardInterrupt


signal.signal(signal.SIGTERM, interrupt)
# Before a test's module is imported: a worker's jobs bear its mark.
WORKER = os.environ.get("PYTEST_XDIST_WORKER", "").removeprefix("gw")
if WORKER:
    # Those that follow a worker that has died take its place among the eight that share out ports.
    os.environ["EYRIE_TEST_LANE"] = str(int(WORKER) % 6 + 1)

import covering  # noqa: E402
import harness  # noqa: E402
import schedule  # noqa: E402

harness.shorten_waits()

TABLE = pytest.StashKey[bool]()
LATER = pytest.StashKey[int]()


def pytest_addoption(parser):
    parser.addoption("--all", action="store_true", help="all cases of tables, not a part that covers them")


def pytest_configure(config):
    for line in (
        "alone: needs the machine for itself",
        "table: a case of a table, of which a part is run without --all",
    ):
        config.addinivalue_line("markers", line)
    if config.getoption("--all"):
        # Workers are processes of their own.
        os.environ["EYRIE_TEST_ALL"] = "1"


class Cases(pytest.Module):
    """A module of cases, with those that its tables make."""

    def collect(self):
        yield from super().collect()
        for name, function in getattr(self.obj, "generated", lambda: [])():
            made = pytest.Function.from_parent(self, name=f"test_{name}", callobj=function)
            made.stash[TABLE] = True
            made.add_marker("table")
            yield made


def pytest_pycollect_makemodule(module_path, parent):
    return Cases.from_parent(parent, path=module_path)


def pytest_itemcollected(item):
    name = schedule.name_of(item.nodeid)
    item.extra_keyword_matches.add(name)
    if name in schedule.ALONE:
        item.add_marker("alone")


def order_of(item):
    """Those that take longest come first, so that no worker is left with them at the end."""
    module = schedule.module_of(schedule.name_of(item.nodeid))
    return schedule.FIRST.index(module) if module in schedule.FIRST else len(schedule.FIRST)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config, items):
    names = {schedule.name_of(item.nodeid) for item in items}
    whole = all(os.path.isdir(word) for word in config.args)
    missing = [n for n in schedule.ALONE if n not in names]
    if whole and missing:
        raise pytest.UsageError(f"tests/e2e/schedule.py names tests that are not there: {missing}")
    if whole and not config.getoption("keyword") and not config.getoption("--all"):
        made = [schedule.name_of(i.nodeid) for i in items if i.stash.get(TABLE, False)]
        later = set(made) - covering.covering(made, schedule.PART, schedule.module_of)
        left = [i for i in items if schedule.name_of(i.nodeid) in later]
        config.hook.pytest_deselected(items=left)
        config.stash[LATER] = len(left)
        items[:] = [i for i in items if schedule.name_of(i.nodeid) not in later]
    items.sort(key=order_of)


WORKERS = []


def pytest_xdist_make_scheduler(config, log):
    return schedule.Workers(config, log)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodeready(node):
    WORKERS.append(node)


def pytest_keyboard_interrupt():
    """Workers are asked as well: they have jobs to end. Then xdist gives them ten seconds."""
    for node in WORKERS:
        process = node.gateway._io.popen
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)


def pytest_sessionstart(session):
    if not WORKER and not session.config.getoption("collectonly"):
        build_programs()


def build_programs():
    """Compiles the tests' own programs with Eyrie's compiler wrapper."""
    target = os.path.join(harness.BUILD, "tests")
    os.makedirs(target, exist_ok=True)
    for folder in ("mpi", "programs"):
        for source in sorted(os.listdir(os.path.join(HERE, folder))):
            if source.endswith(".c") and not source.startswith("foreign"):
                harness.compile_program(os.path.join(HERE, folder, source))
    folder, library = os.path.join(HERE, "programs"), os.path.join(target, "liboshmem.so.40")
    run = lambda *words: subprocess.run(words, check=True)
    name = "-Wl,-soname,liboshmem.so.40"
    run("cc", "-shared", "-fPIC", name, "-o", library, os.path.join(folder, "foreign_library.c"))
    run("cc", "-o", os.path.join(target, "foreign"), os.path.join(folder, "foreign.c"), library)


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem):
    if schedule.name_of(pyfuncitem.nodeid) in os.environ.get("EYRIE_TESTS_WITHOUT", "").split(","):
        pytest.skip("left out on request (EYRIE_TESTS_WITHOUT)")
    try:
        return (yield)
    except harness.NotRun as reason:
        pytest.skip(f"NOT RUN: {reason}")


@pytest.hookimpl(trylast=True)
def pytest_runtest_logreport(report):
    """Why a test failed is shown at once, not when all others are over."""
    if WORKER or not report.failed:
        return
    print(f"\n{report.longreprtext}\n", flush=True)


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(session):
    """So it is not shown again at the end, where names are enough."""
    if not WORKER:
        session.config.option.tbstyle = "no"


def pytest_terminal_summary(terminalreporter, config):
    """What `tests/run` counts."""
    count = lambda kind: len(terminalreporter.stats.get(kind, []))
    if config.getoption("collectonly"):
        return
    if count("skipped"):
        terminalreporter.write_line(f"e2e: {count('skipped')} not run")
    # Said once, though there are two runs of pytest.
    if config.stash.get(LATER, 0) and config.getoption("markexpr") != "alone":
        terminalreporter.write_line(f"e2e: {config.stash[LATER]} more with ALL=1")
    failed = count("failed") + count("error")
    terminalreporter.write_line(f"e2e: {count('passed')} passed, {failed} failed")
