"""`--json`: which commands have it, and that what they say is what docs/schemas says."""

import glob
import json
import os
import re
import subprocess
import tempfile

import jsonschema

import harness
from grid import two, written
from harness import BUILD, EYRIE, ROOT, Gated, example
from hosts import Hosted, shell
from nodes import expected

SCHEMAS = os.path.join(ROOT, "docs", "schemas")
IMAGE = os.path.join(BUILD, "bin", "eyrie-image")
HEAT = example("heat") + ["--size", "128", "--steps", "300"]
# Commands to which it means nothing, and why.
WITHOUT = {
    "eyrie run": "its output is the program's",
    "eyrie join": "its output is the program's",
    "eyrie mpiexec": "its output is the program's",
    "eyrie verify": "its output is the program's; the exit code is the verdict",
    "eyrie restart": "its output is the program's",
    "eyrie resume": "its output is the program's",
    "eyrie standby": "its output is the program's",
    "eyrie top": "it draws on a terminal",
    "eyrie completions": "it prints a script",
    "eyrie manual": "it prints nothing",
    "eyrie-image run": "its output is the program's",
    "eyrie-image restart": "its output is the program's",
    "eyrie-image completions": "it prints a script",
    "eyrie-image manual": "it prints nothing",
}
# Which schema is of which command; `lines`: one object a line.
OF = {
    "eyrie ps": "ps",
    "eyrie status": "status",
    "eyrie history": "history",
    "eyrie events": "event lines",
    "eyrie explain": "explain",
    "eyrie checkpoint": "checkpoint",
    "eyrie grow": "grow",
    "eyrie drain": "leaving lines",
    "eyrie migrate": "leaving lines",
    "eyrie notice": "notice",
    "eyrie clusters block": "clusters",
    "eyrie clusters unblock": "clusters",
    "eyrie suspend": "suspend",
    "eyrie share": "share lines",
    "eyrie inject": "inject",
    "eyrie abort": "abort",
    "eyrie rm": "removed",
    "eyrie prune": "removed",
    "eyrie replay": "replay",
    "eyrie info": "info",
    "eyrie doctor": "doctor",
    "eyrie check": "check",
    "eyrie config": "config",
    "eyrie report": "report",
    "eyrie image inspect": "image-inspect",
    "eyrie image verify": "image-verify",
    "eyrie image extract": "image-extract",
    "eyrie topo show": "topo-show",
    "eyrie topo predict": "topo-predict",
    "eyrie topo place": "topo-place",
    "eyrie topo traffic": "topo-traffic",
    "eyrie topo probe": "topo-probe",
    "eyrie vault ls": "vault-ls",
    "eyrie vault verify": "vault-mend",
    "eyrie vault scrub": "vault-mend",
    "eyrie vault repair": "vault-mend",
    "eyrie vault export": "vault-export",
    "eyrie vault import": "vault-import",
    "eyrie-image list": "eyrie-image-list",
    "eyrie-image checkpoint": "eyrie-image-checkpoint",
}


def strict(schema):
    """The schema with what it refers to, and with nothing besides what it names."""
    if isinstance(schema, list):
        return [strict(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    if "$ref" in schema:
        return load(schema["$ref"].removesuffix(".json"))
    whole = {key: strict(value) for key, value in schema.items() if key != "$schema"}
    if "properties" in whole:
        whole["additionalProperties"] = False
    return whole


def load(name):
    with open(os.path.join(SCHEMAS, name + ".json")) as file:
        return strict(json.load(file))


def valid(value, name):
    schema = jsonschema.Draft202012Validator(load(name))
    try:
        schema.validate(value)
    except jsonschema.ValidationError as error:
        raise AssertionError(f"{name}: {error.json_path}: {error.message}") from None


def commands(program):
    """All commands by their names, and whether they have --json: what the manual pages say."""
    with tempfile.TemporaryDirectory(prefix="eyrie-test-") as folder:
        subprocess.run([program, "manual", folder], check=True)
        pages = {}
        for path in glob.glob(os.path.join(folder, "*.1")):
            with open(path) as file:
                pages[os.path.basename(path)[:-2]] = file.read()
    name = os.path.basename(program)
    named = lambda page: name + page.removeprefix(name).replace("-", " ")
    # Pages of groups have commands of their own, but for faults and what is explained.
    groups = {"", " image", " vault", " clusters", " topo"}
    own = {p: text for p, text in pages.items() if named(p).removeprefix(name) not in groups}
    inner = re.compile(rf"{name}-(inject|explain)-")
    return {named(p): "\\-\\-json" in text for p, text in own.items() if not inner.match(p)}


def test_every_command_has_it():
    found = {**commands(EYRIE), **commands(IMAGE)}
    assert len(found) > 40, found
    lacking = {name for name, has in found.items() if not has} - set(WITHOUT)
    assert not lacking, f"no --json, and no reason why not in this test: {sorted(lacking)}"
    assert set(WITHOUT) <= set(found), sorted(set(WITHOUT) - set(found))
    needless = {name for name in WITHOUT if found[name]}
    assert not needless, f"they have --json all the same: {sorted(needless)}"
    unknown = {name for name, has in found.items() if has} ^ set(OF)
    assert not unknown, f"commands without a schema here, or the other way: {sorted(unknown)}"
    with open(__file__) as file:
        text = file.read()
    untried = [name for name in OF if text.count(f'"{name}"') < 2]
    assert not untried, f"no test here has seen what they say: {untried}"
    named = {of.split()[0] for of in OF.values()} | {"stderr", "image-shared", "vault-job-mend"}
    there = {os.path.basename(path)[:-5] for path in glob.glob(os.path.join(SCHEMAS, "*.json"))}
    assert there == named, there ^ named
    for name in there:
        with open(os.path.join(SCHEMAS, name + ".json")) as file:
            jsonschema.Draft202012Validator.check_schema(json.load(file))


def said(command, words, env, code=0, schema=None, cwd=None):
    """What it says, held against the schema of its command."""
    program = EYRIE if command.startswith("eyrie ") else IMAGE
    line = [program, *command.split()[1:], *words, "--json"]
    done = subprocess.run(
        line, env=env, cwd=cwd, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=harness.TIMEOUT_S
    )
    assert code in (None, done.returncode), (line, done)
    for told in done.stderr.splitlines():
        valid(json.loads(told), "stderr")
    name, *lines = (schema or OF[command]).split()
    values = [json.loads(text) for text in done.stdout.splitlines()] if lines else [json.loads(done.stdout)]
    assert values, line
    for value in values:
        valid(value, name)
    return values if lines else values[0]


def failed(words, env, error, remedy, code=1, program=EYRIE):
    """How it fails: nothing on standard output, one object on standard error, the usual exit code."""
    for json_too in ([], ["--json"]):
        done = subprocess.run([program, *words, *json_too], env=env, capture_output=True, text=True, check=False)
        assert done.returncode == code and done.stdout == "", (words, done)
        assert done.stderr.count("\n") == 1, done
    told = json.loads(done.stderr)
    valid(told, "stderr")
    assert error in told["error"] and remedy in (told["remedy"] or ""), told


def test_of_one_node():
    with tempfile.TemporaryDirectory(prefix="eyrie-test-") as folder:
        options = ["--name", "heat-1", "--keep", "--ckpt", "full"]
        with Gated(HEAT, ckpt_every=3600, options=options) as job:
            env = job.env
            job.wait_running(4)
            taken = said("eyrie checkpoint", ["heat-1"], env)
            assert [c["rank"] for c in sorted(taken["checkpoints"], key=lambda c: c["rank"])] == [0, 1, 2, 3]
            assert not taken["saved"] and not taken["failed"], taken
            assert [j["job"] for j in said("eyrie ps", [], env)] == [taken["job"]]
            assert said("eyrie status", ["last"], env)["size"] == 4
            assert len(said("eyrie report", ["last"], env)["timeline"]["ranks"]) == 4
            for about in ([], ["rank", "2"]):
                found = said("eyrie explain", ["last", *about], env)
                assert found["findings"] and found["rank"] == (2 if about else None), found
            assert said("eyrie suspend", ["last"], env)["suspended"]
            job.eyrie("resume", "last")
            assert said("eyrie inject", ["last", "kill-rank", "1,3"], env)["numbers"] == [1, 3]
            job.wait_event("restored", count=2)
            code, out, err = job.eyrie("rm", "heat-1", "--json", check=False)
            assert code == 1 and json.loads(out) == {"removed": []}, (code, out)
            assert "is running" in json.loads(err)["error"] and "eyrie abort" in json.loads(err)["remedy"], err
            failed(["status", "no-such-job"], env, "no job 'no-such-job'", "see `eyrie ps`")
            failed(["status", "last", "--wrong"], env, "--wrong", "eyrie status --help", code=2)
            failed(["grow", "last"], env, "cannot grow", "start it with --nodes")
            images = os.path.join(job.folder(), "images")
            image = os.path.join(images, sorted(n for n in os.listdir(images) if n.startswith("rank-0.gen-"))[0])
            for command in ("eyrie image inspect", "eyrie image verify"):
                said(command, [image], env)
            core = os.path.join(folder, "core")
            assert said("eyrie image extract", [image, "-o", core], env)["bytes"] == os.path.getsize(core)
            said("eyrie image inspect", [image, "--shared", image], env, schema="image-shared")
            job.let_end()
            assert job.wait() == 0, job.report()
            assert len(said("eyrie events", ["last"], env)) > 10
            said("eyrie replay", [image], env)
            assert said("eyrie history", [], env)[0]["exit_code"] == 0
            assert said("eyrie rm", ["heat-1"], env)["removed"] == [taken["job"]]
            assert said("eyrie prune", [], env)["removed"] == []
            said("eyrie info", [], env)
            found = said("eyrie doctor", [], env, code=None)
            assert len(found["findings"]) > 10, found
            assert said("eyrie config", ["home"], env)["source"] == "environment"
            assert len(said("eyrie config", ["--all"], env)["values"]) > 40
            assert "values" in said("eyrie config", ["run"], env)
            assert said("eyrie config", [], env)["files"] is not None


def test_of_networks():
    env = dict(os.environ)
    with tempfile.TemporaryDirectory(prefix="eyrie-test-") as folder:
        file, switches = (os.path.join(folder, name) for name in ("k.topo", "topology.conf"))
        with open(file, "w") as out:
            out.write("tofu 1x1x6x2x3x2\nfold b*a z*c\nengines 4\nbandwidth 5G\nmemory 11.8G\n")
        with open(switches, "w") as out:
            out.write("SwitchName=s[0-1]x Nodes=n0\n")
        shown = said("eyrie topo show", [file, "--route", "0,0", "5,11"], env)
        assert (shown["kind"], shown["nodes"], shown["grid"]) == ("tofu", 72, [6, 12]), shown
        program = ["--pattern", "stencil:6x11", "--spares", "row", "--lost", "7"]
        picture = os.path.join(folder, "after.svg")
        found = said("eyrie topo predict", [file, *program, "--spare", "70", "--svg", picture], env)
        assert found["before"]["sharing"] == 1 and found["after"][0]["look"]["sharing"] > 1, found
        with open(picture) as drawn:
            assert drawn.read().count("<circle") == 144
        found = said("eyrie topo predict", [file, *program], env)
        assert len(found["after"]) == 6, found
        chosen = said("eyrie topo place", [file, *program], env)
        costs = [choice["total_seconds"] for choice in chosen["choices"]]
        assert costs == sorted(costs) and len(costs) >= 6, chosen
        places = said("eyrie topo place", [file, "--pattern", "stencil:6x10", "--count", "6"], env)["places"]
        assert {place["policy"] for place in places} == {"row", "face", "spread", "per-switch"}, places
        failed(["topo", "show", switches], env, "line 1: 'SwitchName' needs one name", "")
        failed(["topo", "predict", file, *program, "--spare", "n99"], env, "no node 'n99'", "use a name")


def test_of_several_nodes():
    expected("farm")
    with shell() as rsh, Hosted("farm", rsh, options=["--vault", "rs:1+1"], ckpt_every=0.5) as job:
        env = job.env
        job.all_checkpointed()
        job.wait_event("vaulted")
        assert said("eyrie vault ls", ["last", "--objects", "--why"], env)
        said("eyrie vault verify", ["last"], env, schema="vault-job-mend")
        said("eyrie vault scrub", ["last"], env, schema="vault-job-mend")
        assert said("eyrie grow", ["last", "delta"], env)["joined"]
        assert said("eyrie explain", ["last", "node", "1"], env)["node"] == 1
        assert said("eyrie topo traffic", ["last"], env)["sent"]
        probe = ["--hosts", "alpha,beta", "--rsh", rsh, "--address", "127.0.0.1", "--time", "20ms"]
        assert len(said("eyrie topo probe", probe, env)["pairs"]) == 2
        assert {r["step"] for r in said("eyrie migrate", ["last", "--from", "1", "--to", "3"], env)} >= {"spare"}
        steps = said("eyrie drain", ["all", "beta"], env)
        assert steps[-1]["step"] == "left" and steps[-1]["job"], steps
        failed(["drain", "last", "--cancel", "1"], env, "has left", "")
        assert said("eyrie abort", ["last"], env)["was"] == "running"


def test_of_a_grid_job():
    with shell() as rsh, written(two(rsh, rsh)) as path:
        found = said("eyrie check", [path, "--time", "0.1"], dict(os.environ), code=None)
        assert len(found["clusters"]) == 2 and len(found["links"]) == 1, found


def test_of_clusters_and_of_jobs_that_share():
    options = ["--nodes", "2", "--clusters", "2"]
    with Gated(HEAT, ckpt_every=3600, options=options) as job, Gated(HEAT, ckpt_every=3600) as other:
        job.wait_running(4)
        other.wait_running(4)
        assert said("eyrie clusters block", ["last", "0", "1"], job.env)["blocked"]
        assert not said("eyrie clusters unblock", ["last", "0", "1"], job.env)["blocked"]
        names = [each.status()["job"] for each in (job, other)]
        # Each has a home of its own here.
        os.symlink(other.folder(), os.path.join(job.home, "jobs", names[1]))
        with subprocess.Popen(
            [EYRIE, "share", *names, "--slice", "50ms", "-v", "--json"],
            env=job.env,
            stdout=subprocess.PIPE,
            text=True,
        ) as share:
            lines = [json.loads(share.stdout.readline()) for _ in range(3)]
            for each in (other, job):
                each.let_end()
                each.wait()
            lines += [json.loads(line) for line in share.stdout.read().splitlines()]
        for line in lines:
            valid(line, OF["eyrie share"].split()[0])
        assert lines[0]["turn"] == "over" and {line["turn"] for line in lines} & {"none", "last"}, lines


def test_of_vaults_in_folders_and_of_images():
    with tempfile.TemporaryDirectory(prefix="eyrie-test-") as folder:
        env = {**os.environ, "EYRIE_HOME": os.path.join(folder, "home")}
        os.makedirs(os.path.join(folder, "from", "node-0"))
        with open(os.path.join(folder, "from", "node-0", "a"), "wb") as file:
            file.write(os.urandom(200_000))
        members = ["n0", "n1", "n2"]
        of = lambda command, *words: said(command, [*words, *members], env, cwd=folder)
        assert of("eyrie vault import", "--vault", "rs:2+1", "--from", "from")["files"] == 1
        assert of("eyrie vault ls", "--objects")[0]["objects"][0]["bytes"] == 200_000
        for command in ("eyrie vault verify", "eyrie vault scrub", "eyrie vault repair"):
            assert of(command)["damaged"] == 0
        assert of("eyrie vault export", "--to", "to")["bytes"] == 200_000
        here = os.path.join(folder, "n0")
        subprocess.run(["rm", "-r", here], check=True)
        done = subprocess.run(
            [EYRIE, "vault", "verify", "n1", "n2", "--json"], cwd=folder, env=env, capture_output=True, text=True, check=False
        )
        assert done.returncode == 1 and json.loads(done.stdout)["generations"][0]["state"].startswith("degraded")
        *notes, error = [json.loads(line) for line in done.stderr.splitlines()]
        assert notes and all("note" in note for note in notes), done
        assert "degraded" in error["error"] and "eyrie vault scrub" in error["remedy"], error
        with subprocess.Popen([IMAGE, "run", "sleep", "60"], env=env, stdin=subprocess.DEVNULL) as program:
            running = lambda: said("eyrie-image list", [], env)
            entry = harness.soon(running, "a program that runs")[0]
            assert said("eyrie-image checkpoint", [entry["name"]], env)["bytes"] > 0
            program.terminate()
        failed(["checkpoint", "no-such"], env, "no-such", "", program=IMAGE)
        done = subprocess.run([EYRIE, "notice", "--json"], env=env, capture_output=True, text=True, check=False)
        valid(json.loads(done.stdout), OF["eyrie notice"])
        assert done.returncode == 1 and "no node" in json.loads(done.stderr)["error"], done
