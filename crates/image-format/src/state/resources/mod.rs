//! What an open file description refers to: one file a kind, and the table of all kinds. Part of
//! the file format of the `STATE` section (`docs/formats/image.md`): the fields of each kind, in
//! order, are its bytes behind its tag.
//!
//! A kind knows its own bytes, whether they can be believed, and how to tell a reader what it is.
//! How it is captured and made again is the affair of `eyrie-image`, which has a file a kind of the
//! same name. A new kind is a file here and a line in the table; a tag is never used again.

pub mod described;
pub mod devices;
pub mod epoll;
pub mod eventfd;
pub mod files;
pub mod inotify;
pub mod objects;
pub mod pidfds;
pub mod pipes;
pub mod rings;
pub mod segments;
pub mod signalfd;
pub mod sockets;
pub mod standard_streams;
pub mod terminals;
pub mod timerfd;

use crate::bytes::encoding::{Malformed, Reader, Wire};
pub use crate::state::resources::described::{Around, Described};
pub use crate::state::resources::devices::Device;
pub use crate::state::resources::epoll::{Poll, PollItem};
pub use crate::state::resources::eventfd::Event;
pub use crate::state::resources::files::OpenFile;
pub use crate::state::resources::inotify::{Inotify, Watch};
pub use crate::state::resources::objects::Object;
pub use crate::state::resources::pidfds::{Process, Relative};
pub use crate::state::resources::pipes::Pipe;
pub use crate::state::resources::rings::Ring;
pub use crate::state::resources::segments::Segment;
pub use crate::state::resources::signalfd::Signals;
pub use crate::state::resources::sockets::{Apart, Between, Message, Reach, Socket, SocketOption};
pub use crate::state::resources::standard_streams::Stdio;
pub use crate::state::resources::terminals::{Terminal, terminal};
pub use crate::state::resources::timerfd::Timer;

/// Defines [`Target`] together with its encoding: a tag byte, then the kind's own fields.
macro_rules! kinds {
    ($($(#[$doc:meta])* $variant:ident($kind:ty) = $tag:literal,)*) => {
        /// What an open file description refers to.
        #[derive(Debug, Clone, PartialEq, Eq)]
        pub enum Target {
            $($(#[$doc])* $variant($kind),)*
        }

        impl Wire for Target {
            const MIN_BYTES: usize = 1;
            fn put(&self, out: &mut Vec<u8>) {
                match self {
                    $(Target::$variant(kind) => {
                        out.push($tag);
                        kind.put(out);
                    })*
                }
            }
            fn get(from: &mut Reader<'_>) -> Result<Self, Malformed> {
                match u8::get(from)? {
                    $($tag => Ok(Target::$variant(<$kind>::get(from)?)),)*
                    _ => Err(Malformed::Tag),
                }
            }
        }

        impl Target {
            fn kind(&self) -> &dyn Described {
                match self {
                    $(Target::$variant(kind) => kind,)*
                }
            }
        }
    };
}

kinds! {
    /// What the process had as standard input, output or error.
    Stdio(Stdio) = 0,
    /// A regular file or directory.
    File(OpenFile) = 1,
    /// A memory device such as `/dev/null`.
    Device(Device) = 2,
    /// A shared segment handed over at restore.
    Segment(Segment) = 3,
    /// An end of a pipe.
    Pipe(Pipe) = 4,
    /// A socket.
    Socket(Socket) = 5,
    /// An event counter.
    Event(Event) = 6,
    /// A timer.
    Timer(Timer) = 7,
    /// Signals as a file.
    Signals(Signals) = 8,
    /// An epoll instance.
    Poll(Poll) = 9,
    /// A file without a path.
    Object(Object) = 10,
    /// An inotify instance.
    Inotify(Inotify) = 11,
    /// A side of a pseudo-terminal.
    Terminal(Terminal) = 12,
    /// The process itself (pidfd).
    Process(Process) = 13,
    /// A socket connected to one of a process whose image is another one of the same set.
    Between(Between) = 14,
    /// A socket of TCP connected to one of a process on another node.
    Apart(Apart) = 15,
    /// Another process of the same set (pidfd).
    Relative(Relative) = 16,
    /// A ring of `io_uring` at rest.
    Ring(Ring) = 17,
}

impl Target {
    /// Whether it can be believed.
    pub fn holds(&self, around: &Around<'_>) -> bool {
        self.kind().holds(around)
    }

    /// Its kind, in a word, and what tells it from others.
    pub fn describe(&self, around: &Around<'_>) -> (&'static str, String) {
        self.kind().describe(around)
    }

    /// Addresses of the process that it takes, besides its regions.
    pub fn ranges(&self) -> Vec<(u64, u64)> {
        self.kind().ranges()
    }

    /// The file or folder that it is.
    pub fn file(&self) -> Option<&OpenFile> {
        match self {
            Target::File(file) => Some(file),
            _ => None,
        }
    }

    /// The socket that it is, and where that leads.
    pub fn socket(&self) -> Option<(&Socket, Reach<'_>)> {
        match self {
            Target::Socket(socket) => Some((socket, Reach::Here)),
            Target::Between(between) => Some((&between.socket, Reach::Between)),
            Target::Apart(apart) => Some((&apart.socket, Reach::Apart(apart))),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bytes::encoding::{decode, encode};
    use crate::state::files::FileId;
    use crate::state::resources::rings::RingMap;

    /// A socket, and its bytes.
    fn socket() -> Socket {
        Socket {
            id: 1,
            family: 2,
            kind: 3,
            protocol: 4,
            name: vec![5, 6],
            listens: Some(7),
            peer: 8,
            peer_name: vec![9],
            connected: true,
            shut: 2,
            options: vec![SocketOption { level: 10, name: 11, value: vec![12] }],
            received: vec![Message { data: vec![13, 14], from: vec![15] }],
        }
    }

    const SOCKET: &str = "\
        010000000000000002000000030000000400000002000000050601070000000800000000000000010000000901\
        02000000010000000a0000000b000000010000000c01000000020000000d0e010000000f";

    fn kinds() -> Vec<(Target, String)> {
        [first_kinds(), later_kinds()].concat()
    }

    fn first_kinds() -> Vec<(Target, String)> {
        let id = FileId { path: b"/a".to_vec(), dev: 1, ino: 2, size: 3, mtime_ns: -4 };
        let content = vec![vec![1], vec![2, 3]];
        let pipe = Pipe { id: 1, path: vec![], capacity: 4096, packets: true, content };
        let timer = Timer { clock: 1, flags: 2, interval_ns: 3, left_ns: 4, at_ns: 5, ticks: 6 };
        let item = PollItem { fd: 1, events: 2, data: 3, description: 4 };
        let file =
            "01020000002f61010000000000000002000000000000000300000000000000fcffffffffffffff01";
        vec![
            (Target::Stdio(Stdio { which: 2 }), "0002000000".into()),
            (Target::File(OpenFile { id, dir: true }), file.into()),
            (
                Target::Device(Device { path: b"/dev/null".to_vec(), rdev: 259 }),
                "02090000002f6465762f6e756c6c0301000000000000".into(),
            ),
            (
                Target::Segment(Segment { name: b"eyrie-job:x".to_vec() }),
                "030b00000065797269652d6a6f623a78".into(),
            ),
            (
                Target::Pipe(pipe),
                "040100000000000000000000000010000001020000000100000001020000000203".into(),
            ),
            (Target::Socket(socket()), format!("05{SOCKET}")),
            (Target::Event(Event { count: 5, semaphore: true }), "06050000000000000001".into()),
            (
                Target::Timer(timer),
                format!(
                    "0701000000020000000300000000000000{}",
                    "040000000000000005000000000000000600000000000000"
                ),
            ),
            (Target::Signals(Signals { mask: 0x4000 }), "080040000000000000".into()),
            (
                Target::Poll(Poll { items: vec![item] }),
                "09010000000100000002000000030000000000000004000000".into(),
            ),
        ]
    }

    fn later_kinds() -> Vec<(Target, String)> {
        let watch = Watch { wd: 1, mask: 2, ino: 3, path: b"/w".to_vec() };
        let terminal = Terminal {
            id: 1,
            master: true,
            index: 0,
            termios: vec![8; 44],
            size: 2,
            flags: 3,
            group: 4,
            input: vec![5],
            output: vec![6],
        };
        let (kept, socket_apart) = (vec![17], socket());
        let apart = Apart { socket: socket_apart, link: 16, kept, kept_from: 18, arrived: 19 };
        let termios = "08".repeat(44);
        let ring = Ring {
            requests: 1,
            answers: 2,
            answers_at: 3,
            numbers_at: 4,
            taken: 5,
            shared: vec![6],
            entries: vec![7, 8],
            maps: vec![RingMap { start: 9, end: 10, prot: 11, offset: 12, dont_fork: true }],
        };
        vec![
            (Target::Object(Object { object: 7 }), "0a07000000".into()),
            (
                Target::Inotify(Inotify { watches: vec![watch] }),
                "0b0100000001000000020000000300000000000000020000002f77".into(),
            ),
            (
                Target::Terminal(terminal),
                format!(
                    "0c010000000000000001000000002c000000{termios}\
                     0200000000000000030000000400000001000000050100000006"
                ),
            ),
            (Target::Process(Process { pid: 42 }), "0d2a000000".into()),
            (Target::Between(Between { socket: socket() }), format!("0e{SOCKET}")),
            (Target::Apart(apart), format!("0f{SOCKET}100000000000000001000000111200000013000000")),
            (Target::Relative(Relative { pid: 43 }), "102b000000".into()),
            (
                Target::Ring(ring),
                "1101000000020000000300000004000000050000000100000006020000000708010000000900000000\
                 0000000a000000000000000b0000000c0000000000000001"
                    .into(),
            ),
        ]
    }

    #[test]
    fn the_bytes_of_no_kind_change() {
        let all = kinds();
        for (at, (target, golden)) in all.iter().enumerate() {
            let bytes = encode(target);
            let hex: String = bytes.iter().map(|b| format!("{b:02x}")).collect();
            assert_eq!(hex, *golden, "{target:?}");
            assert_eq!(usize::from(bytes[0]), at, "a kind is missing here");
            assert_eq!(decode::<Target>(&bytes).as_ref(), Ok(target));
        }
        let unknown = [all.len() as u8];
        assert_eq!(
            decode::<Target>(&unknown),
            Err(Malformed::Tag),
            "the last kind is missing here"
        );
    }
}
