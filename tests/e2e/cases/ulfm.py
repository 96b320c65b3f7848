"""Failures that the program handles itself (`--on-failure report`): deaths before, in and after each call, spares
that take the place of who is lost, nodes that are lost, programs that handle nothing."""

import os
import random
import subprocess
import tempfile

import harness
from bad_input import program
from harness import Job, run_to_end

REPORT = ["--on-failure", "report"]
CALLS = (
    "barrier bcast reduce allreduce allreduce_large gather scatter allgather alltoall scan reduce_scatter ibarrier "
    "iallreduce ibcast sendrecv large ssend any iany waitall waitany test probe iprobe persistent dup split "
    "neighbours agree iagree shrink ishrink agree_failed iagree_failed fence lock pscw file file_shared"
).split()
WHEN = "before", "in", "after"
SIZES = 2, 3, 4, 8, 16


def is_handled(call, when, ranks, victim, *options):
    """All others get an error, agree, and go on without the one."""
    with tempfile.TemporaryDirectory(prefix="eyrie-test-") as folder:
        env = {"ULFM_FILE": os.path.join(folder, "data")}
        command = [*program("ulfm"), call, when, str(victim)]
        code, out, err = run_to_end(command, ranks=ranks, options=[*REPORT, *options], env=env)
    assert code == 0 and out == f"ok {call}\n", (code, out, err[-2000:])
    assert f"rank {victim} died" in err and "the others are told" in err, err


def more(what, ranks, *options):
    """What a part of the other program says, rank 0 at the end."""
    code, out, err = run_to_end([*program("ulfm_more"), what], ranks=ranks, options=[*REPORT, *options])
    assert code == 0 and f"ok {what}\n" in out, (code, out, err[-2000:])
    return out


def stencil(*words, name="stencil_ulfm"):
    return [*harness.example(name), "--size", "96", "--every", "20", *words]


def checksum(ranks, *words):
    """Of a run in which nobody is lost."""
    code, out, err = run_to_end(stencil(*words), ranks=ranks, options=REPORT)
    assert code == 0 and out.startswith("stencil "), (code, out, err)
    return out


def test_the_table_has_all_calls():
    env = {**os.environ, "LD_LIBRARY_PATH": os.path.join(harness.BUILD, "lib")}
    done = subprocess.run([*program("ulfm"), "all"], capture_output=True, text=True, env=env, check=True)
    assert done.stdout.split() == CALLS


def test_a_lost_rank_is_handled():
    is_handled("allreduce", "in", 4, 1)


def test_a_lost_rank_is_handled_over_nodes():
    is_handled("sendrecv", "in", 4, 2, "--nodes", "2")


def test_spares_take_the_place_of_who_is_lost():
    """Two losses, the second of a place whose neighbour came from a spare: the same bits."""
    want = checksum(5, "--spares", "1", "--steps", "300")
    kills = ["--kill", "1@130", "--kill", "2@210"]
    code, out, err = run_to_end(stencil("--spares", "2", "--steps", "300", *kills), ranks=6, options=REPORT)
    assert code == 0 and out == want, (code, out, want, err)
    assert err.count("ranks go on from step") == 2 and "from step 120" in err, err


def in_all_languages(*words):
    """The same line from each, in which the kills of the last two show in no bit."""
    want = checksum(4, "--spares", "1", *words)
    for name, kill in ("stencil_ulfm_f", "1@50"), ("stencil_ulfm.py", "2@30"):
        options = [*REPORT, "--spare-ranks", "1"]
        code, out, err = run_to_end(stencil(*words, "--kill", kill, name=name), ranks=3, options=options)
        assert code == 0 and out == want and f"{name}: 3 ranks go on from step" in err, (name, code, out, want, err)


def test_programs_in_all_languages_handle_losses():
    in_all_languages("--steps", "90")


def test_spare_ranks_are_the_last_ones_on_nodes_of_their_own():
    out = more("spares", 4, "--spare-ranks", "3", "--nodes", "2", "--spares", "1")
    assert "3 spares of 7, 3 on the last one's node" in out, out


def test_a_loss_revokes_as_far_as_was_asked_for():
    more("group", 4)
    more("universe", 4)


def test_errors_are_the_same_on_all_where_that_was_asked_for():
    more("create", 4)
    more("coll", 4)


def test_a_program_that_ranks_start_takes_the_place_of_who_is_lost():
    out = more("spawn", 4, "--nodes", "2", "--spares", "1", "--spawn-room", "2")
    assert "rank 1 of 4 is there again, 1 on its node" in out, out


def test_a_node_with_ranks_is_lost():
    """Both ranks of the node are reported; their rows are made anew, as neighbours are lost together."""
    want = checksum(6, "--spares", "2", "--steps", "60000")
    command = stencil("--spares", "2", "--steps", "60000")
    with Job(command, ranks=6, options=[*REPORT, "--nodes", "3"]) as job:
        # From here on errors are returned.
        job.says("4 places, 2 spares")
        job.eyrie("inject", "last", "kill-node", "1")
        assert job.wait() == 0 and job.stdout() == want, job.report()
        assert job.count("node-lost") == 1 and not job.count("restored"), job.report()


def test_when_no_spare_is_left_the_program_says_so():
    code, out, err = run_to_end(stencil("--spares", "0", "--kill", "1@10"), ranks=3, options=REPORT)
    assert code == 4 and "no spare is left for place 1" in err, (code, out, err)


def test_errors_that_are_fatal_end_the_job():
    with Job([*harness.example("heat"), "--steps", "100000000"], ranks=3, options=REPORT) as job:
        job.until(lambda: job.count("started") >= 3, "start of all ranks")
        job.kill_ranks([1])
        # A call on several requests tells that their statuses have it.
        assert job.wait() in (19, 101) and "MPI_ERR_" in job.stderr(), job.report()


def test_a_loss_that_nobody_handles_ends_the_job():
    words = 'test "$EYRIE_RANK" = 1 && kill -9 $$; exec sleep 600'
    options = [*REPORT, "--failure-grace", "200ms"]
    code, _, err = run_to_end(["sh", "-c", words], ranks=3, options=options)
    assert code == 1 and "rank 1 was lost" in err and "--failure-grace" in err, (code, err)


def test_the_last_rank_ends_the_job():
    code, _, err = run_to_end(["sh", "-c", "kill -9 $$"], ranks=1, options=REPORT)
    assert code == 137 and "no rank is left" in err, (code, err)


def storm(seed):
    """Several ranks are lost at any steps, some in the same, some while others recover."""
    chance = random.Random(seed)
    places, spares, steps = chance.randint(2, 5), chance.randint(1, 3), 400
    kills = []
    at = chance.randrange(steps)
    for place in chance.sample(range(places), chance.randint(1, min(places - 1, 3))):
        if chance.random() < 0.6:
            at = chance.randrange(steps)
        kills += ["--kill", f"{place}@{at}"]
    words = ["--spares", str(spares), "--steps", str(steps)]
    options = [*REPORT, *(["--nodes", "2"] if seed % 3 == 0 else [])]
    want = checksum(places + spares, *words)
    code, out, err = run_to_end(stencil(*words, *kills), ranks=places + spares, options=options)
    if len(kills) // 2 > spares:
        assert code == 4 and "no spare is left" in err, (code, out, err)
    else:
        assert code == 0 and out == want, (kills, code, out, want, err)


def generated():
    if "EYRIE_TEST_ALL" not in os.environ:
        return
    for seed in range(60):
        yield f"storm_{seed}", lambda s=seed: storm(s)
    yield "languages_3d", lambda: in_all_languages("--dims", "3", "--size", "24", "--steps", "90")
    for at, call in enumerate(CALLS):
        for when in WHEN:
            for ranks in SIZES:
                victim = (at + ranks) % ranks
                yield f"{call}_{when}_on_{ranks}", lambda c=call, w=when, r=ranks, v=victim: is_handled(c, w, r, v)
            yield (
                f"{call}_{when}_over_nodes",
                lambda c=call, w=when, v=at % 4: is_handled(c, w, 4, v, "--nodes", "2"),
            )
