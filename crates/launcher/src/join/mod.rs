//! `eyrie join`: a job whose nodes are where another launcher (mpiexec, srun) has started
//! processes. Each of these calls the first one (`board`), which starts the controller; one on each
//! node then runs what a remote shell would run there (`placement`). The controller speaks with it
//! through a helper (`call`) that stands for the remote shell.
//!
//! Kept true: only who knows the ticket's key gets a seat; when the first process is gone, or the
//! controller has no use for a node any more, what was started there ends.

pub mod board;
pub mod call;
pub mod placement;
pub mod pmix;

use eyrie_control::auth::{KEY_BYTES, Key};
use eyrie_control::{Decoder, encode};
use eyrie_process::cores;
use eyrie_protocol::timing::Limits;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::io::{self, Read, Write};
use std::net::{IpAddr, TcpStream};
use std::time::Duration;

/// Longest silence while a connection begins.
const GREETING: Duration = Duration::from_secs(20);
/// Bytes passed on at once.
const PIECE_BYTES: usize = 64 * 1024;

/// How the other processes find the first one; the launcher passes it on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ticket {
    pub job: String,
    pub key: Key,
    pub port: u16,
    /// The machine that the first one is on.
    pub machine: String,
    /// Where it may be reached.
    pub addresses: Vec<IpAddr>,
}

impl Ticket {
    /// Without blanks.
    pub fn encode(&self) -> String {
        let key: String = self.key.0.iter().map(|b| format!("{b:02x}")).collect();
        let addresses: Vec<String> = self.addresses.iter().map(IpAddr::to_string).collect();
        let (job, port, machine) = (&self.job, self.port, &self.machine);
        format!("{job}/{key}/{port}/{machine}/{}", addresses.join(","))
    }

    /// `None`: it is none.
    pub fn decode(text: &str) -> Option<Ticket> {
        let mut parts = text.split('/');
        let (job, hex) = (parts.next()?, parts.next()?);
        let (port, machine, list) = (parts.next()?, parts.next()?, parts.next()?);
        let plain = |text: &str| text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-');
        if parts.next().is_some() || !plain(job) || !plain(machine) || !plain(hex) {
            return None;
        }
        if job.is_empty() || hex.len() != 2 * KEY_BYTES {
            return None;
        }
        let mut key = [0; KEY_BYTES];
        for (at, byte) in key.iter_mut().enumerate() {
            *byte = u8::from_str_radix(&hex[2 * at..2 * at + 2], 16).ok()?;
        }
        let addresses = list.split(',').filter(|a| !a.is_empty()).map(|a| a.parse().ok());
        Some(Ticket {
            job: job.to_string(),
            key: Key(key),
            port: port.parse().ok()?,
            machine: machine.to_string(),
            addresses: addresses.collect::<Option<_>>()?,
        })
    }
}

/// What a process says of itself when it has called.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Card {
    pub rank: u32,
    /// Its node's name.
    pub host: String,
    /// Processors that its launcher lets it use.
    pub processors: Vec<u32>,
}

/// Where launchers say how they call the node that a process is on.
const NODES_NAMES: [&str; 4] =
    ["SLURMD_NODENAME", "PMI_HOSTNAME", "PMIX_HOSTNAME", placement::OLDER_HYDRAS];

/// The launcher's name for the node that this process is on; several may be one machine.
pub fn host_name() -> String {
    let given = |name: &str| std::env::var(name).ok();
    named(given)
        .unwrap_or_else(|| rustix::system::uname().nodename().to_string_lossy().into_owned())
}

fn named(given: impl Fn(&str) -> Option<String>) -> Option<String> {
    NODES_NAMES.iter().find_map(|name| given(name).filter(|n| !n.is_empty()))
}

impl Card {
    pub fn new(rank: u32, host: String) -> io::Result<Card> {
        let processors = cores::allowed(0)?.into_iter().map(|n| n as u32).collect();
        Ok(Card { rank, host, processors })
    }
}

/// To a seat, and from a helper to the board.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
enum Order {
    /// The node's processes may use these processors.
    Use { processors: Vec<u32> },
    /// The helper speaks for this host.
    Call { host: String },
    /// Standard input of the keeper, which is started by the first of it. Its end is that of the
    /// connection.
    Input(Vec<u8>),
}

/// From a seat to the helper.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
enum News {
    /// What the keeper writes.
    Said(Vec<u8>),
    Ended {
        code: i32,
    },
}

fn send<T: Serialize>(stream: &mut impl Write, message: &T) -> io::Result<()> {
    stream.write_all(&encode(message).map_err(io::Error::other)?)
}

/// Messages as they come.
struct Incoming<R> {
    stream: R,
    decoder: Decoder,
    buffer: Vec<u8>,
}

impl<R: Read> Incoming<R> {
    fn new(stream: R) -> Incoming<R> {
        Incoming { stream, decoder: Decoder::new(), buffer: vec![0; PIECE_BYTES] }
    }

    /// The next one; `None` at the end of the connection, however it came.
    fn next<T: DeserializeOwned>(&mut self) -> io::Result<Option<T>> {
        loop {
            if let Some(message) = self.decoder.next_message().map_err(io::Error::other)? {
                return Ok(Some(message));
            }
            match self.stream.read(&mut self.buffer) {
                Ok(0) => return Ok(None),
                Ok(count) => self.decoder.push(&self.buffer[..count]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::ConnectionReset => return Ok(None),
                Err(error) => return Err(error),
            }
        }
    }
}

/// Which machine this is, also where several have one name.
fn machine() -> String {
    let id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    id.trim().to_string()
}

/// Gives a connection as much time as it takes; the kernel notices an end that is gone.
fn settle(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    stream.set_read_timeout(None)?;
    stream.set_write_timeout(None)?;
    // There is no job yet that says otherwise.
    let silence = Duration::from_millis(Limits::DEFAULT.link_silence_ms);
    eyrie_link::set_silence(stream, silence)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_have_the_names_that_their_launcher_gives_them() {
        let of = |all: &'static [(&str, &str)]| {
            named(|name| all.iter().find(|(n, _)| *n == name).map(|(_, value)| value.to_string()))
        };
        // hydra 4.0, which does not say it otherwise, and those from 4.1 on.
        const OLDER: (&str, &str) = ("MPIR_CVAR_CH3_INTERFACE_HOSTNAME", "beta");
        assert_eq!(of(&[("PMI_RANK", "1"), OLDER]).as_deref(), Some("beta"));
        assert_eq!(
            of(&[("MPIR_CVAR_CH3_INTERFACE_HOSTNAME", "x"), ("PMI_HOSTNAME", "b")]).as_deref(),
            Some("b")
        );
        assert_eq!(of(&[("PMI_HOSTNAME", "")]), None);
        assert!(placement::is_launchers(OLDER.0) && !placement::is_launchers("MPIR_CVAR_X"));
    }

    #[test]
    fn tickets_go_around_as_text() {
        let ticket = Ticket {
            job: "k7mq".into(),
            key: Key::new().unwrap(),
            port: 4711,
            machine: "0123-ab".into(),
            addresses: vec!["10.0.0.7".parse().unwrap(), "fd00::5".parse().unwrap()],
        };
        let text = ticket.encode();
        assert!(!text.contains(' ') && Ticket::decode(&text).as_ref() == Some(&ticket), "{text}");
        let alone = Ticket { addresses: vec![], ..ticket };
        assert_eq!(Ticket::decode(&alone.encode()), Some(alone.clone()));
        let text = alone.encode();
        for bad in [
            String::new(),
            "-".into(),
            text.replace("k7mq", ""),
            text.replace("4711", "99999"),
            text.replacen("/", "/g", 1),
            text.replacen("/", "//", 1),
            format!("{text}10.0.0"),
            format!("{text}/x"),
            text.replacen("/", "/é", 1),
        ] {
            assert_eq!(Ticket::decode(&bad), None, "{bad}");
        }
    }
}
