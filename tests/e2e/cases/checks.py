"""`--check`: a wrong call is told by function, argument and value; in full also collectives that do not fit
together, and what is never freed."""

import re

from bad_input import program
from conformance import comes_through, survives_kills
from harness import Job, run_to_end

WRONG = {
    "rank": ["MPI_Send: MPI_ERR_RANK", "dest is 99", "has 2 ranks"],
    "tag": ["MPI_Send: MPI_ERR_TAG", "tag is -7"],
    "count": ["MPI_Bcast: MPI_ERR_COUNT", "count is -3"],
    "type": ["MPI_Recv: MPI_ERR_TYPE", "datatype is MPI_DATATYPE_NULL"],
    "buffer": ["MPI_Allreduce: MPI_ERR_BUFFER", "recvbuf is null"],
    "root": ["MPI_Reduce: MPI_ERR_ROOT", "root is 44", "has 2 ranks"],
    "op": ["MPI_Allreduce: MPI_ERR_OP", "op is MPI_OP_NULL"],
    "comm": ["MPI_Barrier: MPI_ERR_COMM", "comm is MPI_COMM_NULL"],
}

UNLIKE = {
    "root": ["MPI_Bcast (root 1, 16 bytes)", "MPI_Bcast (root 0, 16 bytes)"],
    "op": ["MPI_Allreduce (MPI_MAX, 16 bytes)", "MPI_Allreduce (MPI_SUM, 16 bytes)"],
    "size": ["MPI_Allreduce (MPI_SUM, 20 bytes)", "MPI_Allreduce (MPI_SUM, 16 bytes)"],
    "order": ["MPI_Barrier", "MPI_Bcast (root 0, 16 bytes)"],
}


def wrong(what, words, *options):
    code, out, err = run_to_end(program("wrongs") + [what], ranks=2, options=list(options))
    assert code != 0 and "done" not in out, (code, out, err)
    for word in words:
        assert word in err, f"'{word}' is not in: {err}"
    return err


def wrong_argument(what):
    err = wrong(what, WRONG[what])
    assert "called at" not in err, err


def unlike(what):
    theirs, first = UNLIKE[what]
    err = wrong(f"other-{what}", ["MPI_ERR_NOT_SAME"], "--check", "full")
    told = f"rank 1 of the communicator called {theirs}, rank 0 {first}"
    assert told in err, err
    # The function at least; the line where the program was compiled with -g.
    assert re.search(r"called at (in (main|unlike)|\S*wrongs\.c:\d+)", err), err


def generated():
    for what in WRONG:
        yield f"a_wrong_{what}_is_named", lambda w=what: wrong_argument(w)
    for what in UNLIKE:
        yield f"another_{what}_is_found", lambda w=what: unlike(w)


def test_off_tells_the_class_alone():
    err = wrong("rank", ["MPI_Send: MPI_ERR_RANK"], "--check", "off")
    assert "dest" not in err, err


def test_the_variable_does_the_same():
    with Job(program("wrongs") + ["rank"], ranks=2, env={"EYRIE_CHECK": "off"}) as job:
        assert job.wait() != 0 and "dest" not in job.stderr(), job.report()


def test_a_returned_error_has_its_text():
    code, out, err = run_to_end(program("wrongs") + ["returned"], ranks=2)
    first, second, _ = out.splitlines()
    assert code == 0, (code, err)
    assert first.endswith("MPI_Send: dest is 1234; the communicator has 2 ranks"), out
    assert second == "MPI_ERR_TAG: invalid tag argument", out


def test_what_is_not_freed_is_told():
    code, out, err = run_to_end(program("wrongs") + ["leaks"], ranks=2, options=["--check", "full"])
    assert code == 0 and out == "done\n", (code, out, err)
    told = sorted(re.findall(r"eyrie: rank (\d): MPI_Finalize: (\d) (\w+) of (\w+) not freed", err))
    each = [
        ("1", "datatype", "MPI_Type_vector"),
        ("1", "request", "MPI_Send_init"),
        ("2", "communicators", "MPI_Comm_dup"),
    ]
    assert told == sorted((str(rank), *one) for rank in range(2) for one in each), err


def test_on_tells_nothing_of_leaks():
    code, out, err = run_to_end(program("wrongs") + ["leaks"], ranks=2)
    assert code == 0 and "not freed" not in err, err


def test_right_programs_pass_in_full():
    for name in ("coll", "comms", "intercomm"):
        comes_through(name, 4, options=["--check", "full"])


def test_right_programs_survive_kills_in_full():
    survives_kills("coll", "--check", "full")
