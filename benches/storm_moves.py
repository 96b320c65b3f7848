"""What a storm asks for so that ranks move and nodes leave (`kill-storm --migrate`).

What it keeps true: nodes that ranks can be on stay, of a job over clusters those of another cluster;
whether a job may refuse what is asked for is the job's affair.
"""

from storm_nodes import live_nodes, takers

# Events that tell how long a move took.
MOVED = ("node-vacated", "node-left")
# So many nodes stay when one leaves, and so many when a cluster does.
LEAST_NODES = 3
LEAST_OUTSIDE = 2
# How often it is a whole cluster that leaves, and a node.
CLUSTER, NODE = 0.25, 0.2


def clusters_that_may_leave(record):
    """Numbers of clusters with nodes, where nodes of others can have their ranks."""
    there = set(live_nodes(record))
    may = takers(record)
    clusters = [set(c["nodes"]) & there for c in record["clusters"]]
    return [c for c, nodes in enumerate(clusters) if nodes and len(may - nodes) >= LEAST_OUTSIDE]


def move(record, rng):
    """What is to be asked of `eyrie`, so that ranks move; None: nothing can."""
    live = live_nodes(record) if record else []
    # Routers leave, but have no ranks, and take none.
    may = sorted(takers(record)) if record else []
    if len(may) < 2:
        return None
    clusters = clusters_that_may_leave(record)
    if clusters and rng.random() < CLUSTER:
        return ["drain", "last", f"cluster={rng.choice(clusters)}"]
    if len(may) > LEAST_NODES and rng.random() < NODE:
        return ["drain", "last", str(rng.choice(live))]
    homes = sorted({r["node"] for r in record["ranks"]} & set(may)) or may
    some = rng.sample(homes, rng.randint(1, min(len(homes), len(may) - 1)))
    others = [node for node in may if node not in some]
    to = rng.sample(others, rng.randint(1, len(others)))
    words = lambda nodes: ",".join(str(node) for node in nodes)
    return ["migrate", "last", "--from", words(some), "--to", words(to)]
