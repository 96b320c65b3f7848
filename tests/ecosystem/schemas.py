"""The manifests of Kubernetes against its own schemas, the strict ones, which refuse fields that they do not
know: those of the oldest version that the manifests are for, and of the newest that kubernetes-validate (PyPI)
brings.

Of an MPIJob, which is the mpi-operator's and not Kubernetes', the pods are checked so; its other fields are
those of `manifests.py`. What no schema says (words of an enum, names that refer to each other) stands there,
too. That a cluster takes them is not tried."""

import copy
import glob
import json
import os
import subprocess

import kubernetes
import manifests

CACHE = os.environ.get("EYRIE_CACHE", os.path.expanduser("~/.cache/eyrie"))
PYTHON = os.path.join(CACHE, "venv", "bin", "python")
# docs/guides/kubernetes.md
OLDEST = "1.31"
# Reads objects, a line each; prints of each what is wrong with it, or an empty line.
CHECK = """
import json, sys
import kubernetes_validate as kubernetes
for line in sys.stdin:
    it, told = json.loads(line), ""
    for version in sys.argv[1], kubernetes.latest_version():
        try:
            kubernetes.validate(it, version, strict=True)
        except (kubernetes.ValidationError, kubernetes.SchemaNotFoundError) as error:
            told += f"{version}: {'.'.join(map(str, getattr(error, 'path', [])))}: {error.message}; "
    print(told.replace(chr(10), " "))
"""


def checked(objects):
    """What the schemas say of each object."""
    assert os.path.exists(PYTHON), f"{PYTHON} is missing: ALL=1 scripts/setup --test"
    lines = "".join(json.dumps(it) + "\n" for it in objects)
    done = subprocess.run([PYTHON, "-c", CHECK, OLDEST], input=lines, capture_output=True, text=True)
    assert done.returncode == 0, f"{done.stderr}\nis kubernetes-validate there? ALL=1 scripts/setup --test"
    told = done.stdout.split("\n")[:-1]
    assert len(told) == len(objects), (told, done.stderr)
    return told


def of_kubernetes(it):
    """What of an object Kubernetes has a schema for."""
    if it["kind"] != "MPIJob":
        return [it]
    parts = it["spec"]["mpiReplicaSpecs"].values()
    named = {"apiVersion": "v1", "kind": "PodTemplate", "metadata": {"name": it["metadata"]["name"]}}
    return [{**named, "template": part["template"]} for part in parts]


def objects():
    files = sorted(glob.glob(f"{kubernetes.PACKAGING}/*.yaml"))
    found = [it for path in files for it in manifests.documents(kubernetes.read(os.path.basename(path)))]
    return [part for it in found for part in of_kubernetes(it)]


def test_manifests_are_what_kubernetes_own_schemas_take(folder):
    found = objects()
    assert sorted(it["kind"] for it in found) == ["Job", "PersistentVolumeClaim", "PodTemplate", "PodTemplate", "Service"]
    told = checked(found)
    assert not any(told), told


def test_the_schemas_refuse_mistakes(folder):
    """Each of these in an object that is otherwise right."""
    by_kind = {it["kind"]: it for it in objects()}
    cases = [
        ("Service", ("spec", "clusterIp"), "None"),
        ("Service", ("spec", "ports", 0, "port"), "ssh"),
        ("Job", ("spec", "completion"), 4),
        ("Job", ("spec", "backoffLimit"), "1000"),
        ("Job", ("spec", "template", "spec", "restartPolicies"), "Never"),
        ("PersistentVolumeClaim", ("spec", "accessModes"), "ReadWriteMany"),
        ("PodTemplate", ("template", "spec", "containers", 0, "args"), "worker"),
        ("PodTemplate", ("template", "spec", "containers", 0, "volumeMounts", 0, "mountpath"), "/jobs"),
    ]
    wrong = []
    for kind, path, value in cases:
        it = copy.deepcopy(by_kind[kind])
        at = it
        for step in path[:-1]:
            at = at[step]
        at[path[-1]] = value
        wrong.append(it)
    for case, told in zip(cases, checked(wrong)):
        assert f"{OLDEST}: " in told, (case, told)
