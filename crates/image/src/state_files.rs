//! What an image holds of open files, sockets, timers and the like. Part of the file format of the
//! `STATE` section (`docs/formats/image.md`): a change here is a change of version.
//!
//! An open file description has a number of its own (`id`), and so has what lies behind several of
//! them (a pipe, a socket, a pair of terminals, a file without a path). Processes that were frozen
//! together use the same numbers for the same things, so that what they share is made once.

use crate::wire::{wire_enum, wire_struct};

/// Kinds of [`Lock::kind`].
pub mod lock {
    /// POSIX record lock, held by the process.
    pub const POSIX: u8 = 0;
    /// `flock`, held through the open file description.
    pub const FLOCK: u8 = 1;
    /// Record lock held through the open file description.
    pub const OFD: u8 = 2;
}

wire_struct! {
    /// Identity of a file, checked before it is used again.
    pub struct FileId {
        /// Absolute path.
        pub path: Vec<u8>,
        /// Device number.
        pub dev: u64,
        /// Inode number.
        pub ino: u64,
        /// Size in bytes.
        pub size: u64,
        /// Modification time, nanoseconds since 1970.
        pub mtime_ns: i64,
    }
}

wire_enum! {
    /// What tells the content of a mapped file, together with its size.
    pub enum Fingerprint {
        /// Nothing: only that very file counts.
        Unknown = 0 {},
        /// XXH3-128 of what is mapped of it, in the order of the file.
        Hash = 1 {
            /// The hash.
            hash: [u8; 16],
        },
        /// The build-id of an ELF file of which too much is mapped to be hashed.
        Build = 2 {
            /// The build-id.
            id: Vec<u8>,
        },
    }
}

wire_struct! {
    /// One end of a pipe or FIFO whose other end is in the image too or closed.
    pub struct Pipe {
        /// Number of the pipe.
        pub id: u64,
        /// Path of a FIFO; empty for a pipe.
        pub path: Vec<u8>,
        /// Capacity in bytes.
        pub capacity: u32,
        /// Whether it keeps packets apart (`O_DIRECT`).
        pub packets: bool,
        /// What was in it, packet by packet, or in one piece. Held by one end only.
        pub content: Vec<Vec<u8>>,
    }
}

wire_struct! {
    /// An option of a socket, as `setsockopt` takes it.
    pub struct SocketOption {
        /// Level, such as `SOL_SOCKET`.
        pub level: u32,
        /// Its number.
        pub name: u32,
        /// Its value.
        pub value: Vec<u8>,
    }
}

wire_struct! {
    /// What a socket had received and the program not read.
    pub struct Message {
        /// Its bytes; of a stream, all of them.
        pub data: Vec<u8>,
        /// Address of the sender, as `recvfrom` returns it; empty if it has none.
        pub from: Vec<u8>,
    }
}

wire_struct! {
    /// A socket.
    pub struct Socket {
        /// Its number.
        pub id: u64,
        /// `AF_*`.
        pub family: u32,
        /// `SOCK_*`.
        pub kind: u32,
        /// Protocol.
        pub protocol: u32,
        /// Its address; empty if it has none.
        pub name: Vec<u8>,
        /// Length of the queue of a socket that listens.
        pub listens: Option<u32>,
        /// Number of the socket that it is connected to; 0 if that is closed or there is none.
        pub peer: u64,
        /// Address of that one; empty if it has none.
        pub peer_name: Vec<u8>,
        /// Whether it is connected, or was to one that is closed now.
        pub connected: bool,
        /// Which directions were shut: 1 receiving, 2 sending.
        pub shut: u32,
        /// Its options.
        pub options: Vec<SocketOption>,
        /// What has been received and not read.
        pub received: Vec<Message>,
    }
}

wire_struct! {
    /// A timer behind a descriptor.
    pub struct FdTimer {
        /// Clock.
        pub clock: i32,
        /// Flags of `timerfd_settime`.
        pub flags: u32,
        /// Interval in nanoseconds, 0 for none.
        pub interval_ns: u64,
        /// Nanoseconds until it expires, 0 if it is not armed.
        pub left_ns: u64,
        /// When that is on its clock.
        pub at_ns: u64,
        /// Expirations that were not read.
        pub ticks: u64,
    }
}

wire_struct! {
    /// A file that an epoll instance watches.
    pub struct PollItem {
        /// Number under which it was registered.
        pub fd: u32,
        /// Events.
        pub events: u32,
        /// The program's own word.
        pub data: u64,
        /// Index of its description.
        pub description: u32,
    }
}

wire_struct! {
    /// A file or folder that an inotify instance watches.
    pub struct Watch {
        /// Watch descriptor.
        pub wd: i32,
        /// Events.
        pub mask: u32,
        /// Inode number.
        pub ino: u64,
        /// Path.
        pub path: Vec<u8>,
    }
}

wire_struct! {
    /// One side of a pseudo-terminal whose master is in the image.
    pub struct Terminal {
        /// Number of the pair.
        pub id: u64,
        /// Whether this is the master.
        pub master: bool,
        /// Number in `/dev/pts`.
        pub index: u32,
        /// `struct termios2` of the slave.
        pub termios: Vec<u8>,
        /// `struct winsize`: rows, columns, width, height in pixels.
        pub size: u64,
        /// Bits of [`terminal`].
        pub flags: u32,
        /// Process group in the foreground, 0 for none.
        pub group: i32,
        /// What was written to the master and not read on the slave. Held by the master.
        pub input: Vec<u8>,
        /// What was written to the slave and not read on the master. Held by the master.
        pub output: Vec<u8>,
    }
}

/// Bits of [`Terminal::flags`].
pub mod terminal {
    /// The slave may not be opened.
    pub const LOCKED: u32 = 1 << 0;
    /// Packet mode.
    pub const PACKETS: u32 = 1 << 1;
    /// Not to be opened again (`TIOCEXCL`).
    pub const EXCLUSIVE: u32 = 1 << 2;
    /// The slave was open once and is closed.
    pub const HUNG_UP: u32 = 1 << 3;
    /// It is the controlling terminal of this process, which leads its session.
    pub const CONTROLLING: u32 = 1 << 4;
    /// All bits that have a meaning.
    pub const ALL: u32 = (1 << 5) - 1;
}

wire_enum! {
    /// What an open file description refers to.
    pub enum Target {
        /// What the process had as standard input, output or error.
        Stdio = 0 {
            /// 0, 1 or 2.
            which: u32,
        },
        /// A regular file or directory.
        File = 1 {
            /// Its identity; the size matters for files opened for writing.
            id: FileId,
            /// Whether it is a directory.
            dir: bool,
        },
        /// A memory device such as `/dev/null`.
        Device = 2 {
            /// Its path.
            path: Vec<u8>,
            /// Its device number.
            rdev: u64,
        },
        /// A shared segment handed over at restore.
        Segment = 3 {
            /// Name of its memfd.
            name: Vec<u8>,
        },
        /// An end of a pipe.
        Pipe = 4 {
            /// The pipe.
            pipe: Pipe,
        },
        /// A socket.
        Socket = 5 {
            /// The socket.
            socket: Socket,
        },
        /// An event counter.
        Event = 6 {
            /// Its value.
            count: u64,
            /// Whether reading takes one.
            semaphore: bool,
        },
        /// A timer.
        Timer = 7 {
            /// The timer.
            timer: FdTimer,
        },
        /// Signals as a file.
        Signals = 8 {
            /// Which.
            mask: u64,
        },
        /// An epoll instance.
        Poll = 9 {
            /// What it watches.
            items: Vec<PollItem>,
        },
        /// A file without a path.
        Orphan = 10 {
            /// Index in [`crate::state::State::orphans`].
            orphan: u32,
        },
        /// An inotify instance.
        Inotify = 11 {
            /// What it watches.
            watches: Vec<Watch>,
        },
        /// A side of a pseudo-terminal.
        Terminal = 12 {
            /// The terminal.
            terminal: Terminal,
        },
        /// The process itself (pidfd).
        Process = 13 {
            /// Its number.
            pid: i32,
        },
        /// A socket connected to one of a process whose image is another one of the same set. It
        /// comes back with that one only.
        Between = 14 {
            /// The socket.
            socket: Socket,
        },
        /// A socket of TCP connected to one of a process on another node, whose image is another
        /// one of the same set. It comes back with that one only.
        Apart = 15 {
            /// The socket.
            socket: Socket,
            /// Number of the connection in the set.
            link: u64,
            /// What had been sent and was not known to have arrived ...
            kept: Vec<u8>,
            /// ... and TCP's number of its first byte.
            kept_from: u32,
            /// TCP's number of the byte after those received, if the other end kept anything.
            arrived: u32,
        },
        /// Another process of the same set (pidfd).
        Relative = 16 {
            /// Its number; 0 if it has ended and was collected.
            pid: i32,
        },
    }
}

wire_struct! {
    /// A file lock.
    pub struct Lock {
        /// One of [`lock`].
        pub kind: u8,
        /// Whether it excludes others.
        pub exclusive: bool,
        /// First byte.
        pub start: u64,
        /// Number of bytes, 0 to the end of the file.
        pub bytes: u64,
    }
}

wire_struct! {
    /// Who is told by a signal that a file has become ready (`F_SETOWN_EX`, `F_SETSIG`).
    pub struct Owner {
        /// Thread, process or group.
        pub kind: i32,
        /// Its number.
        pub pid: i32,
        /// Signal, 0 for `SIGIO`.
        pub signal: i32,
    }
}

wire_struct! {
    /// An open file description.
    pub struct Description {
        /// Its number.
        pub id: u64,
        /// What it refers to.
        pub target: Target,
        /// Access mode and status flags as `F_GETFL` returns them.
        pub flags: u32,
        /// File offset.
        pub offset: u64,
        /// Who is told that it has become ready.
        pub owner: Option<Owner>,
        /// Whether other processes had the file open for writing at the checkpoint too.
        pub shared: bool,
        /// Locks held through it.
        pub locks: Vec<Lock>,
    }
}

wire_struct! {
    /// A file descriptor.
    pub struct Descriptor {
        /// Its number.
        pub fd: u32,
        /// Whether it is closed on exec.
        pub cloexec: bool,
        /// Index in [`crate::state::State::descriptions`].
        pub description: u32,
    }
}

wire_struct! {
    /// A timer made by `timer_create`.
    pub struct PosixTimer {
        /// Its number.
        pub id: i32,
        /// Clock.
        pub clock: i32,
        /// Thread whose time a clock of thread time counts; 0 for other clocks.
        pub clock_tid: i32,
        /// `SIGEV_*`.
        pub notify: u32,
        /// Signal.
        pub signal: u32,
        /// The value that comes with it.
        pub value: u64,
        /// Thread that is told with `SIGEV_THREAD_ID`.
        pub tid: i32,
        /// Interval in nanoseconds, 0 for none.
        pub interval_ns: u64,
        /// Nanoseconds until it expires, 0 if it is not armed.
        pub left_ns: u64,
        /// Whether its signal is pending.
        pub pending: bool,
    }
}
