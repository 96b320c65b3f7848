//! Which process began which one, also of those that are gone by now: the kernel tells of each that
//! begins and ends (its process connector), where this process may administer the network and is in
//! no container.
//!
//! Kept true: that a process began is told before it does anything, so what has been taken here
//! tells of all who did what was told elsewhere by then, unless some was lost, which is said.

use crate::kernel::remote_descriptors;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

/// Group, and number, of the connector's messages on processes.
const ON_PROCESSES: u32 = 1;
const LISTEN: u32 = 1;
const IGNORE: u32 = 2;
/// Kinds of messages: the answer to a request, a process that began, one that ended.
const ANSWER: u32 = 0;
const BEGAN: u32 = 1;
const ENDED: u32 = 0x8000_0000;
/// Where in a message what is: behind the headers of netlink (16) and the connector (20), and of
/// what is told its kind, processor and time (16).
const ANSWERED_AT: usize = 28;
const KIND_AT: usize = 36;
const DATA_AT: usize = 52;
const HEADER_BYTES: u32 = 36;
const MESSAGE_BYTES: usize = 256;
/// What the kernel keeps for us until it is taken: some 20,000 messages.
const QUEUE_BYTES: libc::c_int = 16 << 20;

/// What is told of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Told {
    /// It began, as a child of another one.
    Began { pid: libc::pid_t, parent: libc::pid_t },
    /// Its first thread ended.
    Ended { pid: libc::pid_t },
    /// Nobody knows what was told besides.
    Lost,
}

/// Tells.
#[derive(Debug)]
pub(crate) struct Forks(OwnedFd);

impl Forks {
    /// Begins; `None` where the kernel does not tell.
    pub fn begin() -> Option<Forks> {
        let kind = libc::SOCK_DGRAM | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
        // SAFETY: numbers only.
        let fd = unsafe { libc::socket(libc::AF_NETLINK, kind, libc::NETLINK_CONNECTOR) };
        let forks = Forks(remote_descriptors::made(fd.into()).ok()?);
        forks.only_processes().ok()?;
        forks.set(libc::SO_RCVBUFFORCE, &QUEUE_BYTES).ok()?;
        // SAFETY: a `sockaddr_nl` of zeros is one.
        let mut address: libc::sockaddr_nl = unsafe { std::mem::zeroed() };
        (address.nl_family, address.nl_groups) = (libc::AF_NETLINK as u16, ON_PROCESSES);
        let bytes = size_of_val(&address) as libc::socklen_t;
        // SAFETY: a live address of this length.
        if unsafe { libc::bind(forks.0.as_raw_fd(), (&raw const address).cast(), bytes) } < 0 {
            return None;
        }
        // All who listen are told of each answer.
        let ours = forks.0.as_raw_fd() as u32 ^ std::process::id() << 10;
        forks.say(LISTEN, ours).ok()?;
        // It is there by now, or there will be none.
        let mut buffer = [0; MESSAGE_BYTES];
        while let Ok(message) = forks.receive(&mut buffer) {
            let answered = Some(ours.wrapping_add(1));
            if (word(message, KIND_AT), word(message, ANSWERED_AT)) == (Some(ANSWER), answered) {
                return (word(message, DATA_AT) == Some(0)).then_some(forks);
            }
        }
        None
    }

    /// All that was told since.
    pub fn take(&self, mut told: impl FnMut(Told)) {
        let mut buffer = [0; MESSAGE_BYTES];
        loop {
            match self.receive(&mut buffer) {
                Ok(message) => parse(message).into_iter().for_each(&mut told),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return,
                Err(e) => {
                    told(Told::Lost);
                    if e.raw_os_error() != Some(libc::ENOBUFS) {
                        return;
                    }
                }
            }
        }
    }

    fn receive<'a>(&self, buffer: &'a mut [u8]) -> io::Result<&'a [u8]> {
        // SAFETY: a live buffer of this length.
        let n =
            unsafe { libc::recv(self.0.as_raw_fd(), buffer.as_mut_ptr().cast(), buffer.len(), 0) };
        let n = usize::try_from(n).map_err(|_| io::Error::last_os_error())?;
        Ok(&buffer[..n])
    }

    fn say(&self, what: u32, number: u32) -> io::Result<()> {
        let mut request = Vec::new();
        request.extend_from_slice(&(HEADER_BYTES + 4).to_ne_bytes());
        request.extend_from_slice(&(libc::NLMSG_DONE as u16).to_ne_bytes());
        request.extend_from_slice(&[0; 10]);
        // struct cn_msg: index, value, sequence, number of what is answered, length, flags.
        for number in [ON_PROCESSES, 1, 0, number] {
            request.extend_from_slice(&number.to_ne_bytes());
        }
        request.extend_from_slice(&4u16.to_ne_bytes());
        request.extend_from_slice(&[0; 2]);
        request.extend_from_slice(&what.to_ne_bytes());
        // SAFETY: a live buffer with its length.
        let sent =
            unsafe { libc::send(self.0.as_raw_fd(), request.as_ptr().cast(), request.len(), 0) };
        if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    fn set<T>(&self, option: libc::c_int, value: &T) -> io::Result<()> {
        let (fd, bytes) = (self.0.as_raw_fd(), size_of::<T>() as libc::socklen_t);
        // SAFETY: a live value of this length.
        let set = unsafe {
            libc::setsockopt(fd, libc::SOL_SOCKET, option, (&raw const *value).cast(), bytes)
        };
        if set < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    /// Has the kernel pass over all but answers, and the beginning and end of processes: threads
    /// and names would be many.
    fn only_processes(&self) -> io::Result<()> {
        let load = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
        let to_x = (libc::BPF_MISC | libc::BPF_TAX) as u16;
        let is = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
        let is_x = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_X) as u16;
        let end = (libc::BPF_RET | libc::BPF_K) as u16;
        let line = |code, jt, jf, k| libc::sock_filter { code, jt, jf, k };
        let at = |offset: usize| line(load, 0, 0, offset as u32);
        let (x, same) = (line(to_x, 0, 0, 0), |jt, jf| line(is_x, jt, jf, 0));
        // What is loaded counts as big-endian.
        let kind = |kind: u32, jt, jf| line(is, jt, jf, u32::from_be_bytes(kind.to_ne_bytes()));
        // How many lines are left out if it is so, and if not. A thread's number is not that of its
        // process.
        let mut program = [
            at(KIND_AT),
            kind(ANSWER, 10, 0),
            kind(BEGAN, 1, 0),
            kind(ENDED, 4, 9),
            at(DATA_AT + 8),
            x,
            at(DATA_AT + 12),
            same(4, 5),
            at(DATA_AT),
            x,
            at(DATA_AT + 4),
            same(0, 1),
            line(end, 0, 0, u32::MAX),
            line(end, 0, 0, 0),
        ];
        let length = program.len() as u16;
        let program = libc::sock_fprog { len: length, filter: program.as_mut_ptr() };
        self.set(libc::SO_ATTACH_FILTER, &program)
    }
}

impl Drop for Forks {
    fn drop(&mut self) {
        // Or an older kernel goes on to tell nobody.
        let _ = self.say(IGNORE, 0);
    }
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

fn parse(message: &[u8]) -> Option<Told> {
    let number = |index: usize| word(message, DATA_AT + 4 * index).map(|n| n as libc::pid_t);
    match word(message, KIND_AT)? {
        // Thread and process that began it, its first thread, it.
        BEGAN => Some(Told::Began { pid: number(3)?, parent: number(1)? }),
        ENDED => Some(Told::Ended { pid: number(1)? }),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn children_that_are_gone_are_known_with_their_parents() {
        let Some(forks) = Forks::begin() else { return };
        // Threads are none.
        std::thread::spawn(|| ()).join().unwrap();
        let mut shell = Command::new("sh").args(["-c", "(true; true) & wait"]).spawn().unwrap();
        shell.wait().unwrap();
        let (shell, this) = (shell.id() as libc::pid_t, std::process::id() as libc::pid_t);
        let mut all = Vec::new();
        forks.take(|told| all.push(told));
        assert!(all.contains(&Told::Began { pid: shell, parent: this }), "{all:?}");
        assert!(all.contains(&Told::Ended { pid: shell }), "{all:?}");
        let child = |told: &Told| match told {
            Told::Began { pid, parent } if *parent == shell => Some(*pid),
            _ => None,
        };
        let child = all.iter().find_map(child).unwrap();
        assert!(all.contains(&Told::Ended { pid: child }), "{all:?}");
    }
}
