"""Kubernetes: the manifests against what the API knows, and what the image's pods run, with scripts in
place of ssh and sshd."""

import glob
import os
import subprocess
import time

import manifests

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
PACKAGING = os.path.join(ROOT, "packaging", "kubernetes")
POD = os.path.join(PACKAGING, "eyrie-pod")


def read(name):
    with open(os.path.join(PACKAGING, name)) as file:
        return file.read()


def test_manifests_are_what_the_api_knows(folder):
    files = glob.glob(f"{PACKAGING}/*.yaml")
    assert len(files) == 3, files
    for path in files:
        found = manifests.check(read(path))
        assert not found, (path, found)
    # All that is named in them, and nothing else, is what pods find.
    jobs = list(manifests.documents(read("indexed-job.yaml"))) + list(manifests.documents(read("mpijob.yaml")))
    (claim,) = manifests.documents(read("storage.yaml"))
    for it in jobs:
        for pod in manifests.pods(it["kind"], it["spec"]):
            claims = [v["persistentVolumeClaim"]["claimName"] for v in pod["volumes"] if "secret" not in v]
            assert claims == [claim["metadata"]["name"]], claims


def test_mistakes_in_manifests_are_found(folder):
    """The check against itself: each of these is a mistake that the API refuses, or drops."""
    job, mpi = read("indexed-job.yaml"), read("mpijob.yaml")
    cases = [
        (job, "completions: 4", "completion: 4", "completion: is not known"),
        (job, "completionMode: Indexed", "completionMode: indexed", "is none of"),
        (job, "  backoffLimit: 1000", '  backoffLimit: "1000"', "is no int"),
        (job, 'value: "4"', "value: 4", "is no str"),
        (job, 'value: "4"', 'value: "5"', "EYRIE_PODS is 5"),
        (job, "clusterIP: None", "clusterIP: 10.0.0.1", "no headless service"),
        (job, "mountPath: /jobs", "mountpath: /jobs", "mountPath: is missing"),
        (job, "memory: 4Gi", "memory: 4 GB", "does not look right"),
        (job, "- name: jobs\n              mountPath", "- name: job\n              mountPath", "no volume is called job"),
        (job, "restartPolicy: Never", "restartPolicy: Always", "restartPolicy Never"),
        (mpi, "kubeflow.org/v2beta1", "kubeflow.org/v1", "is not known"),
        (mpi, "    Worker:", "    Workers:", "Worker: is missing"),
        (mpi, "mpiImplementation: MPICH", "mpiImplementation: Eyrie", "is none of"),
        (mpi, 'args: ["worker"]', "args: worker", "not a list"),
    ]
    for text, good, bad, told in cases:
        assert good in text, good
        found = manifests.check(text.replace(good, bad))
        assert any(told in fault for fault in found), (bad, found)


def test_what_pods_run(folder):
    """Pod 0 waits until others can be reached, then runs its command; others serve. The launcher of an
    MPIJob runs it at once."""
    tools = {
        "uname": 'echo "heat-$JOB_COMPLETION_INDEX"',
        "ssh-keygen": "touch \"$HOME/.host-key\"",
        "sshd": 'echo "sshd $3" >> "$HOME/log"; cp "$HOME/.sshd-config" "$HOME/config"\n'
        '[ ! -e "$HOME/stays" ] || exec /bin/sleep 1000',
        # Nodes are there, and then are not.
        "eyrie": 'echo "eyrie $*" >> "$HOME/log"; [ "$(grep -c eyrie "$HOME/log")" = 1 ]',
        # Each host answers the second time.
        "ssh": 'for host do case $host in heat-*) break ;; esac; done\necho "ssh $host" >> "$HOME/log"\n'
        '[ "$(grep -c "$host" "$HOME/log")" = 2 ]',
        "sleep": ":",
    }
    for name, body in tools.items():
        with open(os.path.join(folder, name), "w") as file:
            os.chmod(file.fileno(), 0o755)
            file.write(f"#!/bin/sh\n{body}\n")
    hosts = os.path.join(folder, "hosts")
    with open(hosts, "w") as file:
        file.write("10.1.0.7\theat-0.heat.lab.svc.cluster.local\theat-0\n")

    def pod(*words, **variables):
        log = os.path.join(folder, "log")
        if os.path.exists(log):
            os.remove(log)
        env = {"PATH": f"{folder}:/usr/bin:/bin", "HOME": folder, "EYRIE_HOSTS": hosts, "EYRIE_HOME": "/jobs"}
        done = subprocess.run([POD, *words], env={**env, **variables}, capture_output=True, text=True)
        said = open(log).read().split("\n")[:-1] if os.path.exists(log) else []
        return done, said

    indexed = {"EYRIE_PODS": "2", "EYRIE_KEYS": "/keys"}
    done, said = pod("sh", "-c", "echo $EYRIE_RSH", **indexed, JOB_COMPLETION_INDEX="0")
    assert done.returncode == 0 and done.stdout.startswith("ssh -i /keys/id_rsa "), done
    names = [f"ssh heat-{n}.heat.lab.svc.cluster.local" for n in (0, 0, 1, 1)]
    assert said == ["sshd ", *names], said
    with open(os.path.join(folder, "config")) as file:
        config = file.read()
    assert "AuthorizedKeysFile /keys/authorized_keys" in config and "SetEnv EYRIE_HOME=/jobs" in config, config
    done, said = pod("sh", "-c", "echo ran", **indexed, JOB_COMPLETION_INDEX="1")
    assert (done.returncode, done.stdout, said) == (0, "", ["sshd -De"]), (done, said)
    done, said = pod("worker")
    assert (done.returncode, said) == (0, ["sshd -De"]), (done, said)
    done, said = pod("sh", "-c", "echo ran")
    assert (done.stdout, said) == ("ran\n", []), (done, said)
    done, said = pod("true", **{**indexed, "EYRIE_PODS": "3", "EYRIE_POD_LIMIT": "0"}, JOB_COMPLETION_INDEX="0")
    assert done.returncode == 1 and "heat-0.heat" in done.stderr and "cannot be reached" in done.stderr, done
    assert pod()[0].returncode == 2
    # A worker that is told to end has its nodes leave, and waits until they have.
    os.remove(os.path.join(folder, "config"))
    open(os.path.join(folder, "stays"), "w").close()
    env = {"PATH": f"{folder}:/usr/bin:/bin", "HOME": folder}
    worker = subprocess.Popen([POD, "worker"], env=env)
    try:
        while not os.path.exists(os.path.join(folder, "config")) or not os.path.exists(os.path.join(folder, "log")):
            time.sleep(0.01)
        worker.terminate()
        assert worker.wait(60) == 0
    finally:
        worker.kill()
    with open(os.path.join(folder, "log")) as file:
        assert file.read().split("\n")[:-1] == ["sshd -De", "eyrie notice", "eyrie notice"]
