"""What the events of a job say of kills, checkpoints, recoveries and roll-backs (`kill-storm`).

What it keeps true: whether a kill hit a checkpoint or a recovery is told by what was seen, not by
what was intended.
"""


class History:
    """What the events of a job say up to now."""

    def __init__(self, events):
        self.checkpointing = set()
        self.recovering = set()
        self.deaths_in_checkpoint = 0
        self.injected_in_recovery = 0
        self.rollbacks = 0
        # Restored, though they had not died.
        self.re_executed = 0
        self.dead = set()
        self.homes = {}
        doomed = {}
        for event in events:
            kind, rank = event["event"], event["rank"]
            if kind in ("started", "restored"):
                self.homes[rank] = event["node"]
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
                self.deaths_in_checkpoint += doomed.pop(rank, True) and rank in self.checkpointing
                self.checkpointing.discard(rank)
                self.recovering.add(rank)
                self.dead.add(rank)
            elif kind == "replaying":
                self.recovering.add(rank)
            elif kind in ("restored", "caught-up"):
                # A restored rank is recovering again as soon as it replays.
                self.recovering.discard(rank)
                if kind == "restored":
                    self.re_executed += rank not in self.dead
                    self.dead.discard(rank)
            elif kind == "rolled-back":
                self.rollbacks += 1
                self.checkpointing.clear()
                self.recovering.clear()

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
