"""What the events of a job say of kills, checkpoints, recoveries and roll-backs (`kill-storm`).

What it keeps true: whether a kill hit a checkpoint or a recovery is told by what was seen, not by
what was intended.
"""


# How the death of a rank is told that was killed because its recovery unit goes back.
WITH_ITS_UNIT = ", with its unit"
# How it is told that ranks come back that moved, or stood while others of their unit did.
MOVED = ("moved from node", "as its unit moves")
# How the leave of a node, or the move of its ranks, ends when nobody dies.
ENDS = ("node-left", "node-vacated", "node-stays")
# How it is told that all go back as some of them move: nobody computes anything again.
STOOD = "to go on elsewhere where they stood"


class History:
    """What the events of a job say up to now."""

    # The recovery unit of ranks that begin on a node.
    unit_of = staticmethod(lambda node: node)

    def __init__(self, events):
        self.checkpointing = set()
        self.recovering = set()
        self.deaths_in_checkpoint = 0
        self.injected_in_recovery = 0
        self.rollbacks = 0
        # Restored, though they had not died.
        self.re_executed = 0
        self.dead = set()
        # They stand, and come back as all ranks do, or as the job goes on (`eyrie suspend --swap`).
        self.stood = set()
        self.homes = {}
        # Those that were killed with their recovery unit, those that had ended, and, by the unit
        # that ranks began in, where one died of itself.
        self.fell, self.ended = set(), set()
        self.began_on, self.hurt = {}, set()
        # Nodes that leave, or whose ranks move; and how often each has left, stayed, or been vacated.
        self.moving, self.moved = set(), {}
        doomed = {}
        for event in events:
            kind, rank = event["event"], event["rank"]
            if kind in ("started", "restored"):
                self.homes[rank] = event["node"]
                self.began_on.setdefault(rank, History.unit_of(event["node"]))
            if kind == "node-leaving" or kind == "node-lost" or kind in ENDS:
                self.move(kind, event["node"])
            if kind == "node-lost" or (kind == "injected" and event["node"] is not None):
                self.node(event, doomed)
            elif kind == "checkpointing":
                self.checkpointing.add(rank)
            elif kind in ("checkpointed", "checkpoint-failed"):
                self.checkpointing.discard(rank)
            elif kind == "injected":
                # The death is a moment older than its detection: a checkpoint that begins in
                # between does not count.
                doomed[rank] = rank in self.checkpointing
                self.injected_in_recovery += bool(self.recovering)
            elif kind == "detected":
                self.death(event)
                self.deaths_in_checkpoint += doomed.pop(rank, True) and rank in self.checkpointing
                self.checkpointing.discard(rank)
                self.recovering.add(rank)
                self.dead.add(rank)
            elif kind == "exited":
                self.ended.add(rank)
            elif kind == "swapped-out":
                self.stood.add(rank)
            elif kind == "replaying":
                self.recovering.add(rank)
            elif kind in ("restored", "caught-up"):
                # A restored rank is recovering again as soon as it replays.
                self.recovering.discard(rank)
                if kind == "restored":
                    # Those that move go on where they stood.
                    moved = rank in self.stood or any(text in event["text"] for text in MOVED)
                    self.re_executed += not (moved or self.may_return(rank))
                    for ranks in (self.dead, self.fell, self.ended, self.stood):
                        ranks.discard(rank)
            elif kind == "rolled-back":
                stands = STOOD in event["text"]
                self.rollbacks += not stands
                self.stood = set(self.homes) if stands else set()
                self.checkpointing.clear()
                self.recovering.clear()

    def move(self, kind, node):
        """A node is to leave, or its ranks are to move; or that is over."""
        if kind == "node-leaving":
            self.moving.add(node)
        else:
            self.moving.discard(node)
            self.moved[node] = self.moved.get(node, 0) + (kind in ENDS)

    def in_move(self, later):
        """Whether a move that is under way now was so until `later`, or ended by a loss: what was
        killed in between was killed in it."""
        return any(self.moved.get(n, 0) == later.moved.get(n, 0) for n in self.moving)

    def death(self, event):
        """A rank has died, of itself or with its unit."""
        if event["text"].endswith(WITH_ITS_UNIT):
            self.fell.add(event["rank"])
        else:
            self.hurt.add(self.began_on.get(event["rank"]))

    def may_return(self, rank):
        """It has died. If it was killed with its unit, or had ended, another one of that has."""
        if rank in self.dead and rank not in self.fell:
            return True
        return rank in self.fell | self.ended and self.began_on.get(rank) in self.hurt

    def node(self, event, doomed):
        """A node is killed on request, or lost."""
        node = event["node"]
        there = {rank for rank, home in self.homes.items() if home == node}
        if event["event"] == "injected":
            doomed[f"node {node}"] = there & self.checkpointing
            self.injected_in_recovery += bool(self.recovering)
            return
        in_checkpoint = doomed.pop(f"node {node}", there) & self.checkpointing
        self.deaths_in_checkpoint += bool(in_checkpoint)
        self.checkpointing -= there
        self.recovering |= there
        self.dead |= there
        self.hurt |= {self.began_on.get(rank) for rank in there}
