//! Pseudo-terminals whose master is in the image.
//!
//! What is in flight in them cannot be looked at without taking it. It is taken and put back while
//! the processes stand still: what was typed by writing it to the master once more with all
//! treatment of input switched off, what was printed by writing it to the slave with all treatment
//! of output switched off. The same way puts it into the new pair at restore.

use crate::error::{CaptureError, RestoreError};
use crate::kernel::procfs::Stat;
use crate::kernel::remote_descriptors::{self, RemoteDescriptors, ioctl, poll};
use crate::kernel::script::Plan;
use crate::resources::open::{CONTROLLING_TERMINAL, OPEN_FLAGS, Open, cannot};
use crate::resources::resource::{Common, Look, Made, Making, Place, Resource};
use eyrie_image_format::state::resources::{Stdio, Terminal};
use eyrie_image_format::state::{Description, Target, terminal};
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::time::{Duration, Instant};

const MASTER: (u32, u32) = (5, 2);
const SLAVE_MAJOR: u32 = 136;
const TCGETS2: u64 = 0x802c_542a;
const TCSETS2: u64 = 0x402c_542b;
const TIOCGPTLCK: u64 = 0x8004_5439;
const TIOCGPKT: u64 = 0x8004_5438;
const TIOCGEXCL: u64 = 0x8004_5440;
const TIOCGPTPEER: u64 = 0x5441;
/// Every file that was opened by its path has it; `libc` takes it for 0.
const O_LARGEFILE: i32 = 0o100_000;
const TERMIOS_BYTES: usize = 44;
/// Where in `struct termios2` what lies: four words of flags, the line discipline, characters.
const INPUT: usize = 0;
const OUTPUT: usize = 4;
const LOCAL: usize = 12;
const CHARACTERS: usize = 17;
const CHARACTERS_END: usize = 36;
/// Highest number of a terminal that is tried for.
const MAX_INDEX: u32 = 4096;
/// How long what was put back may take to arrive.
const ARRIVAL_LIMIT: Duration = Duration::from_secs(2);

type Termios = [u8; TERMIOS_BYTES];

impl Resource for Terminal {
    fn capture(this: &Open, look: &mut Look<'_>) -> Result<Option<Target>, CaptureError> {
        if this.kind() != libc::S_IFCHR {
            return Ok(None);
        }
        let rdev = this.meta.rdev();
        if (libc::major(rdev), libc::minor(rdev)) == CONTROLLING_TERMINAL {
            // The same terminal as a standard stream, by another name.
            let is_terminal = |o: &&Open| is_terminal(o.meta.rdev()) && o.fd <= 2;
            let mut standard = look.all.iter().filter(|o| o.is_standard(look.all));
            if let Some(stream) = standard.find(is_terminal) {
                return Ok(Some(Target::Stdio(Stdio { which: stream.fd })));
            }
        }
        Ok(own(this, look.all, look.remote)?.map(Target::Terminal))
    }

    fn restore(
        &self,
        description: &Description,
        making: &mut Making<'_>,
    ) -> Result<Made, RestoreError> {
        let pairs = making.common.of::<Pairs>();
        let made = side(&mut pairs.0, description, self);
        made.map_err(|e| cannot("make its pseudo-terminal again", e)).map(Made::New)
    }

    /// Gives the leader of a session its controlling terminal back.
    fn finish(&self, plan: &mut Plan, place: &Place<'_>) {
        if self.flags & terminal::CONTROLLING == 0 {
            return;
        }
        let fd = place.fd;
        let name = "take its controlling terminal again";
        plan.step(name, libc::SYS_ioctl, &[fd, libc::TIOCSCTTY, 0]);
        let group = if self.group == place.state.pid { place.pid } else { self.group };
        let at = plan.words(&[u64::from(group as u32)]);
        plan.tolerant("set the foreground group", libc::SYS_ioctl, &[fd, libc::TIOCSPGRP, at]);
    }
}

/// Whether a device is a terminal: a console, a serial line, or the slave of a pseudo-terminal.
fn is_terminal(rdev: u64) -> bool {
    matches!(libc::major(rdev), 4 | 136..=143) || (libc::major(rdev), libc::minor(rdev)) == (5, 1)
}

fn is_master(this: &Open) -> bool {
    let rdev = this.meta.rdev();
    (libc::major(rdev), libc::minor(rdev)) == MASTER
}

/// Number of the slave behind `this`, which may have been opened as `/dev/tty`.
fn slave_index(this: &Open) -> Option<u32> {
    let rdev = this.meta.rdev();
    let (major, minor) = match (libc::major(rdev), libc::minor(rdev)) {
        CONTROLLING_TERMINAL => controlling(&Stat::read(this.pid).ok()?),
        other => other,
    };
    (major == SLAVE_MAJOR).then_some(minor)
}

/// The controlling terminal of a process. The kernel writes the low part of the minor number below
/// the major one.
fn controlling(stat: &Stat) -> (u32, u32) {
    let number = stat.field(7) as u32;
    (number >> 8 & 0xfff, number & 0xff | number >> 12 & 0xf_ff00)
}

fn master_index(fd: &OwnedFd) -> io::Result<u32> {
    ioctl(fd, libc::TIOCGPTN)
}

fn failed(source: io::Error) -> CaptureError {
    CaptureError::Os { what: "look into a pseudo-terminal", source }
}

/// What the terminal behind `this` is, if its master is in the image.
fn own(
    this: &Open,
    all: &[Open],
    remote: &RemoteDescriptors,
) -> Result<Option<Terminal>, CaptureError> {
    let master = if is_master(this) {
        remote.borrow(this.fd)?
    } else {
        match slave_index(this).map(|index| find_master(all, index)) {
            Some(found) => match found? {
                Some(master) => master,
                None => return Ok(None),
            },
            None => return Ok(None),
        }
    };
    let index = master_index(&master).map_err(failed)?;
    let mut found = look(&master, index).map_err(failed)?;
    found.master = is_master(this);
    if !found.master && controls(this)? {
        found.flags |= terminal::CONTROLLING;
    }
    let slave = all.iter().find(|o| slave_index(o) == Some(index));
    if found.master && (slave.is_some() || found.flags & terminal::HUNG_UP != 0) {
        let (input, output) = flight(&master, found.flags).map_err(failed)?;
        (found.input, found.output) = (input, output);
    }
    Ok(Some(found))
}

fn find_master(all: &[Open], index: u32) -> Result<Option<OwnedFd>, CaptureError> {
    for master in all.iter().filter(|o| is_master(o)) {
        let fd = RemoteDescriptors::new(master.pid)?.borrow(master.fd)?;
        if master_index(&fd).is_ok_and(|found| found == index) {
            return Ok(Some(fd));
        }
    }
    Ok(None)
}

/// Whether the process leads its session with this as its controlling terminal.
fn controls(this: &Open) -> Result<bool, CaptureError> {
    let stat = Stat::read(this.pid)?;
    let led = stat.field(6) == this.pid as u64;
    Ok(led && slave_index(this).is_some_and(|index| controlling(&stat) == (SLAVE_MAJOR, index)))
}

fn look(master: &OwnedFd, index: u32) -> io::Result<Terminal> {
    let termios: Termios = ioctl(master, TCGETS2)?;
    let size: [u8; 8] = ioctl(master, libc::TIOCGWINSZ)?;
    let mut flags = 0;
    for (request, flag) in [
        (TIOCGPTLCK, terminal::LOCKED),
        (TIOCGPKT, terminal::PACKETS),
        (TIOCGEXCL, terminal::EXCLUSIVE),
    ] {
        if ioctl::<i32>(master, request).is_ok_and(|on| on != 0) {
            flags |= flag;
        }
    }
    if poll(master, 0) & libc::POLLHUP != 0 {
        flags |= terminal::HUNG_UP;
    }
    Ok(Terminal {
        id: u64::from(index) + 1,
        master: true,
        index,
        termios: termios.to_vec(),
        size: u64::from_le_bytes(size),
        flags,
        group: ioctl(master, libc::TIOCGPGRP).unwrap_or(0),
        input: Vec::new(),
        output: Vec::new(),
    })
}

/// Takes what is in flight and puts it back.
fn flight(master: &OwnedFd, flags: u32) -> io::Result<(Vec<u8>, Vec<u8>)> {
    let slave = peer(master)?;
    let before: Termios = ioctl(master, TCGETS2)?;
    let packets = flags & terminal::PACKETS != 0;
    if packets {
        set(master, libc::TIOCPKT, &0i32)?;
    }
    // What is on its way is to arrive under the settings that it was sent under; it is there when
    // nothing is left to be read. It may be echoed.
    let read = take_as_read(&slave, &before);
    let output = take(master);
    // Not by lines: then what is left of all that is there can be read.
    let left = set(master, TCSETS2, &plain(&before, false)).and_then(|()| take(&slave));
    let result = set(master, TCSETS2, &before)
        .and_then(|()| Ok(([read?, left?].concat(), output?)))
        .and_then(|(input, output)| {
            put(master, &slave, &before, &input, &output)?;
            Ok((input, output))
        });
    if packets {
        set(master, libc::TIOCPKT, &1i32)?;
    }
    result
}

/// Sets a plain value by `ioctl`.
fn set<T>(fd: &impl AsRawFd, request: u64, value: &T) -> io::Result<()> {
    // SAFETY: reads a live value of the type that the request takes.
    let r = unsafe { libc::ioctl(fd.as_raw_fd(), request, std::ptr::from_ref(value)) };
    if r < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Opens the slave of a master, for ourselves.
fn peer(master: &impl AsRawFd) -> io::Result<OwnedFd> {
    open_peer(master, libc::O_RDWR | libc::O_NONBLOCK | libc::O_CLOEXEC)
}

/// The same, for a program.
fn peer_of_program(master: &impl AsRawFd, flags: i32) -> io::Result<OwnedFd> {
    let fd = open_peer(master, flags)?;
    // Not on opening: with this call it would stay among the status flags, for whoever has the
    // description, and `/proc/PID/fdinfo` tells both by one bit.
    // SAFETY: numbers only.
    unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_SETFD, libc::FD_CLOEXEC) };
    Ok(fd)
}

fn open_peer(master: &impl AsRawFd, flags: i32) -> io::Result<OwnedFd> {
    let flags = flags | libc::O_NOCTTY;
    // SAFETY: numbers only.
    remote_descriptors::made(unsafe { libc::ioctl(master.as_raw_fd(), TIOCGPTPEER, flags) }.into())
}

/// Reads what is there now.
fn take(fd: &OwnedFd) -> io::Result<Vec<u8>> {
    let mut file = File::from(fd.try_clone()?);
    let mut all = Vec::new();
    let mut part = [0; 4096];
    while poll(fd, libc::POLLIN) & libc::POLLIN != 0 {
        match file.read(&mut part) {
            Ok(0) => break,
            Ok(n) => all.extend_from_slice(&part[..n]),
            // The other side is closed, and all is read.
            Err(e) if e.raw_os_error() == Some(libc::EIO) => break,
            Err(e) => return Err(e),
        }
    }
    Ok(all)
}

/// The same as a program reads it with these settings.
fn take_as_read(slave: &OwnedFd, settings: &Termios) -> io::Result<Vec<u8>> {
    if !by_lines(settings) {
        return take(slave);
    }
    let mut file = File::from(slave.try_clone()?);
    let mut all = Vec::new();
    let mut line = [0; 4096];
    let ends = [libc::VEOL, libc::VEOL2].map(|at| settings[CHARACTERS + at]);
    while poll(slave, libc::POLLIN) & libc::POLLIN != 0 {
        let count = file.read(&mut line)?;
        all.extend_from_slice(&line[..count]);
        // The kernel keeps the end of a file as such a character.
        let whole = |last: &u8| *last == b'\n' || ends.contains(last);
        if count < line.len() && !line[..count].last().is_some_and(whole) {
            all.push(0);
        }
    }
    Ok(all)
}

/// The same settings without any treatment of what goes through, by lines or not.
fn plain(termios: &Termios, lines: bool) -> Termios {
    let mut plain = *termios;
    plain[INPUT..INPUT + 4].fill(0);
    plain[OUTPUT..OUTPUT + 4].fill(0);
    let canonical = if lines { libc::ICANON } else { 0 };
    plain[LOCAL..LOCAL + 4].copy_from_slice(&canonical.to_le_bytes());
    plain[CHARACTERS..CHARACTERS_END].fill(0);
    plain
}

fn by_lines(termios: &Termios) -> bool {
    let local = termios[LOCAL..LOCAL + 4].iter().rev().fold(0, |w, &b| w << 8 | u32::from(b));
    local & libc::ICANON != 0
}

/// Puts `input` where the slave reads it and `output` where the master does, and leaves the
/// settings `after`.
fn put(
    master: &OwnedFd,
    slave: &OwnedFd,
    after: &Termios,
    input: &[u8],
    output: &[u8],
) -> io::Result<()> {
    if input.is_empty() && output.is_empty() {
        return Ok(());
    }
    let lines = by_lines(after);
    set(master, TCSETS2, &plain(after, lines))?;
    let result = put_plain(master, slave, lines, input, output);
    set(master, TCSETS2, after).and(result)
}

fn put_plain(
    master: &OwnedFd,
    slave: &OwnedFd,
    lines: bool,
    input: &[u8],
    output: &[u8],
) -> io::Result<()> {
    if !output.is_empty() {
        let mut file = File::from(slave.try_clone()?);
        match file.write_all(output) {
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                // Output was stopped by the user: let it go for a moment.
                // SAFETY: numbers only.
                unsafe { libc::ioctl(slave.as_raw_fd(), libc::TCXONC, libc::TCOON) };
                let result = file.write_all(output);
                // SAFETY: as above.
                unsafe { libc::ioctl(slave.as_raw_fd(), libc::TCXONC, libc::TCOOFF) };
                result
            }
            result => result,
        }?;
    }
    if input.is_empty() {
        return Ok(());
    }
    File::from(master.try_clone()?).write_all(input)?;
    // It arrives on its own time, and must do so under these settings.
    let whole = match lines {
        true => input.iter().rposition(|&b| b == b'\n').map_or(0, |at| at + 1),
        false => input.len(),
    };
    let end = Instant::now() + ARRIVAL_LIMIT;
    loop {
        // Looking lets the kernel deliver what is on its way.
        poll(slave, libc::POLLIN);
        if ioctl::<i32>(slave, libc::FIONREAD)? as usize >= whole {
            return Ok(());
        }
        if Instant::now() >= end {
            return Err(io::ErrorKind::TimedOut.into());
        }
        std::thread::yield_now();
    }
}

/// All pairs, by their numbers.
#[derive(Default)]
struct Pairs(HashMap<u64, Pair>);

impl Common for Pairs {
    fn settle(&mut self) {
        self.0.drain().for_each(|(_, pair)| pair.settle());
    }
}

/// A pair being made again.
struct Pair {
    master: OwnedFd,
    slave: Option<OwnedFd>,
    /// What is known from the master's description.
    known: Option<Terminal>,
}

/// Makes the side that a description has.
fn side(
    all: &mut HashMap<u64, Pair>,
    description: &Description,
    terminal: &Terminal,
) -> io::Result<OwnedFd> {
    let pair = match all.entry(terminal.id) {
        Entry::Occupied(known) => known.into_mut(),
        Entry::Vacant(new) => {
            let master = new_master(terminal.index)?;
            new.insert(Pair { master, slave: None, known: None })
        }
    };
    let flags = description.flags as i32 & (OPEN_FLAGS | libc::O_ACCMODE | O_LARGEFILE);
    if terminal.master {
        let needed = !terminal.input.is_empty() || !terminal.output.is_empty();
        if pair.slave.is_none() && (needed || terminal.flags & terminal::HUNG_UP != 0) {
            pair.slave = Some(peer(&pair.master)?);
        }
        pair.known = Some(terminal.clone());
        return pair.master.try_clone();
    }
    let slave = peer_of_program(&pair.master, flags)?;
    if pair.slave.is_none() {
        pair.slave = Some(peer(&pair.master)?);
    }
    Ok(slave)
}

/// A new master, with the number that it had if that is free.
fn new_master(index: u32) -> io::Result<OwnedFd> {
    let mut tried = Vec::new();
    loop {
        let flags = libc::O_NOCTTY | libc::O_CLOEXEC;
        let mut how = OpenOptions::new();
        how.read(true).write(true).custom_flags(flags);
        let master = OwnedFd::from(how.open("/dev/ptmx")?);
        let number = master_index(&master)?;
        // The lowest free number is given.
        if number >= index.min(MAX_INDEX) {
            set(&master, libc::TIOCSPTLCK, &0i32)?;
            return Ok(master);
        }
        tried.push(master);
    }
}

impl Pair {
    /// Puts in what was in flight and sets it up as it was.
    fn settle(self) {
        let Some(known) = self.known else { return };
        let Ok(termios) = Termios::try_from(known.termios.as_slice()) else { return };
        let _ = set(&self.master, TCSETS2, &termios);
        let _ = set(&self.master, libc::TIOCSWINSZ, &known.size);
        if let Some(slave) = &self.slave {
            let _ = put(&self.master, slave, &termios, &known.input, &known.output);
        }
        for (flag, request) in
            [(terminal::PACKETS, libc::TIOCPKT), (terminal::LOCKED, libc::TIOCSPTLCK)]
        {
            if known.flags & flag != 0 {
                let _ = set(&self.master, request, &1i32);
            }
        }
        if known.flags & terminal::EXCLUSIVE != 0 {
            let _ = set(&self.master, libc::TIOCEXCL, &0i32);
        }
    }
}

#[cfg(test)]
#[path = "terminals_tests.rs"]
mod tests;
