"""Checkpoints of numpy arrays: with mpi4py on any MPI, or without.

    regions = eyrie_regions.Regions("folders=/local/a:/local/b", comm=MPI.COMM_WORLD)
    regions.protect(0, field)
    step = regions.newest("heat")
    if step is not None:
        regions.restore("heat", step)
    ...
    regions.checkpoint("heat", step)

What is done where is in docs/guides/regions-api.md. Functions that all processes call together are those of
eyrie_regions.h. Whatever fails raises RegionsError. The library is libeyrie_regions.so.1 beside the
folder of this file, or EYRIE_REGIONS_LIBRARY, or wherever the linker finds it."""

import ctypes
import os

import numpy as np

ANY_VERSION = 2**63 - 1
_NONE, _FAILED = -1, -2
# By numpy's letters; `S` and `V` are bytes, and what else there is cannot be stored.
_KINDS = {"S": 0, "V": 0, "b": 2, "i": 1, "u": 2, "f": 3, "c": 4}
_MOST = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.c_void_p, ctypes.POINTER(ctypes.c_int64), ctypes.c_int
)
_GATHER = ctypes.CFUNCTYPE(
    ctypes.c_int,
    ctypes.c_void_p,
    ctypes.c_void_p,
    ctypes.POINTER(ctypes.c_int),
    ctypes.POINTER(ctypes.c_int),
    ctypes.c_void_p,
)
_SEND = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p, ctypes.c_int
)
_RECEIVE = ctypes.CFUNCTYPE(
    ctypes.c_int,
    ctypes.c_void_p,
    ctypes.c_void_p,
    ctypes.c_int,
    ctypes.POINTER(ctypes.c_int),
    ctypes.POINTER(ctypes.c_int),
)
_TAG = 1


class RegionsError(Exception):
    """Something was not done, and why."""


def _library():
    named = os.environ.get("EYRIE_REGIONS_LIBRARY")
    beside = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
    beside = os.path.join(beside, "libeyrie_regions.so.1")
    library = ctypes.CDLL(named or (beside if os.path.exists(beside) else "libeyrie_regions.so.1"))
    handle, number = ctypes.c_void_p, ctypes.c_int
    calls = {
        "eyrie_regions_open_apart": [
            ctypes.c_char_p,
            number,
            number,
            _MOST,
            _GATHER,
            _SEND,
            _RECEIVE,
            handle,
            handle,
        ],
        "eyrie_regions_close": [handle],
        "eyrie_protect": [handle, number, handle, number, ctypes.c_size_t, ctypes.c_size_t],
        "eyrie_unprotect": [handle, number],
        "eyrie_checkpoint": [handle, ctypes.c_char_p, ctypes.c_int64],
        "eyrie_wait": [handle],
        "eyrie_newest": [handle, ctypes.c_char_p, ctypes.c_int64],
        "eyrie_restore": [handle, ctypes.c_char_p, ctypes.c_int64],
        "eyrie_stored": [handle, number, handle, handle, handle],
        "eyrie_regions_error": [handle],
    }
    for name, arguments in calls.items():
        getattr(library, name).argtypes = arguments
        getattr(library, name).restype = number
    library.eyrie_newest.restype = ctypes.c_int64
    library.eyrie_regions_error.restype = ctypes.c_char_p
    return library


def _functions(comm):
    """The functions by which processes agree and pass bytes on, over a communicator of their own."""
    from mpi4py import MPI

    own = comm.Dup()
    sent = []

    def memory(at, count):
        return (ctypes.c_char * count).from_address(at) if count else b""

    def safe(work):
        # An exception must not pass through C.
        def done(_, *arguments):
            try:
                work(*arguments)
                return 0
            except Exception as error:  # whatever it is, the call fails
                os.write(2, f"eyrie-regions: {error}\n".encode())
                return 1

        return done

    def most(values, count):
        array = np.ctypeslib.as_array(values, shape=(count,))
        own.Allreduce(MPI.IN_PLACE, array, op=MPI.MAX)

    def gather(mine, counts, places, everything):
        lengths = counts[: own.size]
        to = [memory(everything, sum(lengths)), lengths, places[: own.size], MPI.BYTE]
        own.Allgatherv([memory(mine, lengths[own.rank]), MPI.BYTE], to)

    def send(to, data, count):
        if to < 0:
            MPI.Request.Waitall([request for request, _ in sent])
            sent.clear()
            return
        sent[:] = [(request, kept) for request, kept in sent if not request.Test()]
        kept = ctypes.string_at(data, count)
        sent.append((own.Isend([kept, MPI.BYTE], to, _TAG), kept))

    def receive(data, room, source, count):
        status = MPI.Status()
        own.Recv([memory(data, room), MPI.BYTE], MPI.ANY_SOURCE, _TAG, status)
        source[0], count[0] = status.Get_source(), status.Get_count(MPI.BYTE)

    kinds = (_MOST, most), (_GATHER, gather), (_SEND, send), (_RECEIVE, receive)
    return [kind(safe(work)) for kind, work in kinds]


class Regions:
    """The checkpoints of this process, and of those of its communicator. A context manager."""

    def __init__(self, options="", comm=None):
        self._handle = ctypes.c_void_p()
        self._library = _library()
        self._arrays = {}
        rank, size = (comm.rank, comm.size) if comm is not None else (0, 1)
        # Kept, as C calls it.
        none = [_MOST(), _GATHER(), _SEND(), _RECEIVE()]
        self._functions = _functions(comm) if comm is not None else none
        self._done(
            self._library.eyrie_regions_open_apart(
                options.encode(), rank, size, *self._functions, None, ctypes.byref(self._handle)
            )
        )

    def _done(self, code):
        if code == _FAILED:
            error = self._library.eyrie_regions_error(self._handle)
            raise RegionsError(error.decode(errors="replace"))
        return code

    def protect(self, number, array):
        """From now on the array is part of checkpoints; it is kept alive, and must stay of its size."""
        if not isinstance(array, np.ndarray) or array.dtype.kind not in _KINDS:
            raise RegionsError(f"region {number}: no array of numbers or bytes")
        if not array.dtype.isnative or not (array.flags.forc and array.flags.writeable):
            raise RegionsError(
                f"region {number}: the array must be contiguous, writable and of this machine's "
                "byte order"
            )
        if array.dtype.kind in "fc" and array.dtype.itemsize > {"f": 8, "c": 16}[array.dtype.kind]:
            raise RegionsError(f"region {number}: {array.dtype} is of this machine only")
        kind = _KINDS[array.dtype.kind]
        size = max(array.dtype.itemsize, 1)
        memory = array.ctypes.data if array.size else None
        self._done(
            self._library.eyrie_protect(self._handle, number, memory, kind, size, array.size)
        )
        self._arrays[number] = array

    def unprotect(self, number):
        self._done(self._library.eyrie_unprotect(self._handle, number))
        self._arrays.pop(number, None)

    def checkpoint(self, name, version):
        """Stores all regions, at all processes."""
        self._done(self._library.eyrie_checkpoint(self._handle, name.encode(), version))

    def wait(self):
        """With mode=async: until the last checkpoint is protected."""
        self._done(self._library.eyrie_wait(self._handle))

    def newest(self, name, most=ANY_VERSION):
        """The newest version that all processes can have, or None."""
        version = self._done(self._library.eyrie_newest(self._handle, name.encode(), most))
        return None if version == _NONE else version

    def stored(self, number):
        """After `newest`: kind, bytes of an element, and elements of a region; or None."""
        kind, size, count = ctypes.c_int(), ctypes.c_size_t(), ctypes.c_size_t()
        places = [ctypes.byref(place) for place in (kind, size, count)]
        code = self._library.eyrie_stored(self._handle, number, *places)
        return None if code == _NONE else ("Viufc"[kind.value], size.value, count.value)

    def restore(self, name, version):
        """Gets all regions back, into the arrays that are protected."""
        self._done(self._library.eyrie_restore(self._handle, name.encode(), version))

    def close(self):
        """Waits for what is left to a thread; says how that went."""
        handle, self._handle = self._handle, ctypes.c_void_p()
        if handle:
            self._done(self._library.eyrie_regions_close(handle))

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        # After a failure the others may not be there to agree with.
        if kind is None:
            self.close()
