"""Manifests of Kubernetes: read as the part of YAML that they are written in, and checked against what
the API knows of the objects in them: field for field, so that a misspelt one is found, which the API
would drop without a word.

The schema is a subset, written after Kubernetes 1.31 and version v2beta1 of the mpi-operator: what
manifests of this repository use, and what is near. A field that is not here has to be added first."""

import re

NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
QUANTITY = re.compile(r"[0-9]+(\.[0-9]+)?(m|k|[KMGTP]i?)?")


# ---- YAML: maps and lists by their indentation, lists on one line, strings, numbers, truths ----


def lines_of(text):
    for number, line in enumerate(text.splitlines(), 1):
        bare = re.sub(r"(^|\s)#.*", "", line).rstrip()
        if "\t" in bare:
            raise ValueError(f"line {number}: a tab")
        if bare:
            yield number, len(bare) - len(bare.lstrip()), bare.strip()


def scalar(text):
    text = text.strip()
    if text.startswith("["):
        assert text.endswith("]"), text
        return [scalar(part) for part in re.findall(r'"[^"]*"|[^,\s\[\]]+', text)]
    if text[:1] in "\"'":
        assert text[-1] == text[0] and len(text) > 1, text
        return text[1:-1]
    if text in ("true", "false"):
        return text == "true"
    return int(text) if re.fullmatch(r"-?[0-9]+", text) else text


def block(lines, indent):
    """The value whose lines begin at this column; takes them off the list."""
    if lines[0][2].startswith("- "):
        items = []
        while lines and lines[0][1] == indent and lines[0][2].startswith("- "):
            number, _, text = lines[0]
            rest = text[2:].lstrip()
            inner = indent + len(text) - len(rest)
            if re.match(r"[\w./-]+:( |$)", rest):
                lines[0] = (number, inner, rest)
                items.append(block(lines, inner))
            else:
                lines.pop(0)
                items.append(scalar(rest))
        return items
    found = {}
    while lines and lines[0][1] == indent:
        number, _, text = lines.pop(0)
        match = re.match(r"([\w./-]+):(?: (.*))?$", text)
        if not match or match.group(1) in found:
            raise ValueError(f"line {number}: '{text}' is no new field")
        key, value = match.groups()
        if value is not None:
            found[key] = scalar(value)
        elif lines and (lines[0][1] > indent or lines[0][2].startswith("- ") and lines[0][1] == indent):
            found[key] = block(lines, lines[0][1])
        else:
            raise ValueError(f"line {number}: '{key}' has no value")
    return found


def documents(text):
    for part in re.split(r"^---$", text, flags=re.M):
        lines = list(lines_of(part))
        if lines:
            yield block(lines, lines[0][1])
            if lines:
                raise ValueError(f"line {lines[0][0]}: '{lines[0][2]}' belongs nowhere")


# ---- what the API knows; a name that ends with * is needed ----

TEXT, NUMBER, TRUTH = str, int, bool
TEXTS = [TEXT]


class Map:
    """Fields of any name."""

    def __init__(self, of):
        self.of = of


class One:
    """One of these words."""

    def __init__(self, *words):
        self.words = words


class Like:
    """Text or a number that looks like that."""

    def __init__(self, pattern):
        self.pattern = pattern


META = {"name": Like(NAME), "namespace": Like(NAME), "labels": Map(TEXT), "annotations": Map(TEXT)}
AMOUNTS = Map(Like(QUANTITY))
RESOURCES = {"requests": AMOUNTS, "limits": AMOUNTS}
PROBE = {
    "tcpSocket": {"port*": NUMBER, "host": TEXT},
    "exec": {"command*": TEXTS},
    "initialDelaySeconds": NUMBER,
    "periodSeconds": NUMBER,
    "failureThreshold": NUMBER,
}
SECURITY = {
    "runAsUser": NUMBER,
    "runAsGroup": NUMBER,
    "runAsNonRoot": TRUTH,
    "privileged": TRUTH,
    "allowPrivilegeEscalation": TRUTH,
    "capabilities": {"add": TEXTS, "drop": TEXTS},
    "seccompProfile": {"type*": One("RuntimeDefault", "Unconfined", "Localhost"), "localhostProfile": TEXT},
}
FIELD = {"fieldRef": {"fieldPath*": TEXT}, "secretKeyRef": {"name*": TEXT, "key*": TEXT}}
CONTAINER = {
    "name*": Like(NAME),
    "image*": TEXT,
    "imagePullPolicy": One("Always", "IfNotPresent", "Never"),
    "command": TEXTS,
    "args": TEXTS,
    "workingDir": TEXT,
    "env": [{"name*": TEXT, "value": TEXT, "valueFrom": FIELD}],
    "ports": [{"containerPort*": NUMBER, "name": Like(NAME), "protocol": TEXT}],
    "resources": RESOURCES,
    "volumeMounts": [{"name*": TEXT, "mountPath*": TEXT, "readOnly": TRUTH, "subPath": TEXT}],
    "readinessProbe": PROBE,
    "livenessProbe": PROBE,
    "securityContext": SECURITY,
}
POD = {
    "containers*": [CONTAINER],
    "initContainers": [CONTAINER],
    "volumes": [
        {
            "name*": Like(NAME),
            "secret": {"secretName*": TEXT, "defaultMode": NUMBER},
            "configMap": {"name*": TEXT, "defaultMode": NUMBER},
            "emptyDir": {"medium": TEXT, "sizeLimit": Like(QUANTITY)},
            "persistentVolumeClaim": {"claimName*": TEXT, "readOnly": TRUTH},
        }
    ],
    "restartPolicy": One("Always", "OnFailure", "Never"),
    "subdomain": Like(NAME),
    "setHostnameAsFQDN": TRUTH,
    "terminationGracePeriodSeconds": NUMBER,
    "nodeSelector": Map(TEXT),
    "serviceAccountName": TEXT,
    "securityContext": {"runAsUser": NUMBER, "runAsGroup": NUMBER, "fsGroup": NUMBER, "runAsNonRoot": TRUTH},
}
TEMPLATE = {"metadata": META, "spec*": POD}
JOB = {
    "template*": TEMPLATE,
    "completionMode": One("Indexed", "NonIndexed"),
    "completions": NUMBER,
    "parallelism": NUMBER,
    "backoffLimit": NUMBER,
    "backoffLimitPerIndex": NUMBER,
    "activeDeadlineSeconds": NUMBER,
    "ttlSecondsAfterFinished": NUMBER,
    "suspend": TRUTH,
    "successPolicy": {"rules*": [{"succeededIndexes": TEXT, "succeededCount": NUMBER}]},
    "podFailurePolicy": {
        "rules*": [
            {
                "action*": One("FailJob", "FailIndex", "Ignore", "Count"),
                "onPodConditions": [{"type*": TEXT, "status": One("True", "False", "Unknown")}],
                "onExitCodes": {"operator*": One("In", "NotIn"), "values*": [NUMBER], "containerName": TEXT},
            }
        ]
    },
}
REPLICAS = {"replicas": NUMBER, "restartPolicy": One("Never", "OnFailure"), "template*": TEMPLATE}
MPIJOB = {
    "slotsPerWorker": NUMBER,
    "mpiImplementation": One("OpenMPI", "Intel", "MPICH"),
    "sshAuthMountPath": TEXT,
    "launcherCreationPolicy": One("AtStartup", "WaitForWorkersReady"),
    "runLauncherAsWorker": TRUTH,
    "runPolicy": {
        "cleanPodPolicy": One("None", "Running", "All"),
        "backoffLimit": NUMBER,
        "activeDeadlineSeconds": NUMBER,
        "ttlSecondsAfterFinished": NUMBER,
        "suspend": TRUTH,
    },
    "mpiReplicaSpecs*": {"Launcher*": REPLICAS, "Worker*": REPLICAS},
}
SERVICE = {
    "clusterIP": TEXT,
    "publishNotReadyAddresses": TRUTH,
    "selector": Map(TEXT),
    "ports": [{"port*": NUMBER, "name": Like(NAME), "targetPort": NUMBER, "protocol": TEXT}],
}
CLAIM = {
    "accessModes*": [One("ReadWriteOnce", "ReadWriteMany", "ReadOnlyMany", "ReadWriteOncePod")],
    "resources*": {"requests*": AMOUNTS},
    "storageClassName": TEXT,
    "volumeMode": One("Filesystem", "Block"),
}
KINDS = {
    ("v1", "Service"): SERVICE,
    ("v1", "PersistentVolumeClaim"): CLAIM,
    ("batch/v1", "Job"): JOB,
    ("kubeflow.org/v2beta1", "MPIJob"): MPIJOB,
}


def faults(value, schema, place):
    """What is wrong, each with its place."""
    if isinstance(schema, dict):
        if not isinstance(value, dict):
            return [f"{place}: not a map"]
        known = {name.rstrip("*"): of for name, of in schema.items()}
        needed = {name[:-1] for name in schema if name.endswith("*")}
        found = [f"{place}.{name}: is not known" for name in value if name not in known]
        found += [f"{place}.{name}: is missing" for name in sorted(needed - set(value))]
        parts = [(name, known[name]) for name in value if name in known]
        return found + [fault for name, of in parts for fault in faults(value[name], of, f"{place}.{name}")]
    if isinstance(schema, list):
        if not isinstance(value, list):
            return [f"{place}: not a list"]
        return [f for i, one in enumerate(value) for f in faults(one, schema[0], f"{place}[{i}]")]
    if isinstance(schema, Map):
        if not isinstance(value, dict):
            return [f"{place}: not a map"]
        return [f for name, one in value.items() for f in faults(one, schema.of, f"{place}.{name}")]
    if isinstance(schema, One):
        return [] if value in schema.words else [f"{place}: '{value}' is none of {schema.words}"]
    if isinstance(schema, Like):
        good = type(value) in (str, int) and schema.pattern.fullmatch(str(value))
        return [] if good else [f"{place}: '{value}' does not look right"]
    return [] if type(value) is schema else [f"{place}: '{value}' is no {schema.__name__}"]


def pods(kind, spec):
    """Pod templates of an object."""
    if kind == "Job":
        return [spec["template"]["spec"]]
    if kind == "MPIJob":
        return [part["template"]["spec"] for part in spec["mpiReplicaSpecs"].values()]
    return []


def check(text):
    """Faults of a file of manifests."""
    found, objects = [], list(documents(text))
    for number, it in enumerate(objects):
        kind = it.get("kind", "?")
        place = f"{kind}[{number}]"
        schema = KINDS.get((it.get("apiVersion"), kind))
        if schema is None:
            found.append(f"{place}: {it.get('apiVersion')} {kind} is not known")
            continue
        whole = {"apiVersion*": TEXT, "kind*": TEXT, "metadata*": {**META, "name*": META["name"]}, "spec*": schema}
        whole["metadata*"].pop("name")
        found += faults(it, whole, place)
    if found:
        return found
    for it in objects:
        found += by_meaning(it, objects)
    return found


def by_meaning(it, objects):
    """What the API refuses beyond types, or does not do what was meant."""
    kind, spec, name = it["kind"], it["spec"], it["metadata"]["name"]
    for pod in pods(kind, spec):
        volumes = {volume["name"] for volume in pod.get("volumes", [])}
        for container in pod["containers"]:
            for mount in container.get("volumeMounts", []):
                if mount["name"] not in volumes:
                    yield f"{name}: no volume is called {mount['name']}"
    if kind != "Job":
        return
    if spec.get("completionMode") == "Indexed" and "completions" not in spec:
        yield f"{name}: an Indexed Job needs completions"
    pod = spec["template"]["spec"]
    if pod.get("restartPolicy") not in ("Never", "OnFailure"):
        yield f"{name}: pods of a Job have restartPolicy Never or OnFailure"
    if "podFailurePolicy" in spec and pod.get("restartPolicy") != "Never":
        yield f"{name}: podFailurePolicy is for restartPolicy Never"
    services = {s["metadata"]["name"]: s["spec"] for s in objects if s["kind"] == "Service"}
    if "subdomain" in pod:
        service = services.get(pod["subdomain"], {})
        labels = spec["template"].get("metadata", {}).get("labels", {})
        if service.get("clusterIP") != "None" or not service["selector"].items() <= labels.items():
            yield f"{name}: no headless service '{pod['subdomain']}' has its pods"
    wanted = [v["value"] for c in pod["containers"] for v in c.get("env", []) if v["name"] == "EYRIE_PODS"]
    if wanted and wanted != [str(spec["completions"])]:
        yield f"{name}: EYRIE_PODS is {wanted[0]}, completions {spec['completions']}"
