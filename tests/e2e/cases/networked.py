"""Jobs over the hosts of a test network (tests/net)."""

import contextlib
import re
import tempfile

from hosts import Hosted, shell
from netns import needs_root
from network import Network


@contextlib.contextmanager
def networked(name, text, options=(), make=Hosted, clusters=True, first=None, **more):
    """A job over the hosts of the network that `text` describes, and that network. Without `clusters`
    its hosts are in none. `first` is done with the network before the job begins."""
    needs_root()
    with Network(text) as network, shell(network.remote_shell()) as rsh:
        if first:
            first(network)
        hosts = network.host_file()
        with tempfile.NamedTemporaryFile("w", prefix="eyrie-test-") as file:
            file.write(hosts if clusters else re.sub(" cluster=.*", "", hosts))
            file.flush()
            how = dict(hosts=file.name, address=None, wrap=network.hub.enter, **more)
            with make(name, rsh, options, **how) as job:
                yield network, job
