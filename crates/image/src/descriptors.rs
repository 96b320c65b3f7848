//! What frozen processes have open, and whether that can be brought back.
//!
//! Processes that are frozen together are looked at together: a pipe between two of them is theirs,
//! one to anybody else is not. Nothing is taken from what is looked at: contents are copied and
//! stay where they are. How each kind is read and made again stands in a file of its own.

use crate::SEGMENT_PREFIX;
use crate::agent::Agent;
use crate::between::Between;
use crate::cost::MAX_COPY_BYTES;
use crate::error::CaptureError;
use crate::freeze::Frozen;
use crate::given::{GivenStreams, Stream};
use crate::inet::Patience;
use crate::kept::Room;
use crate::lend::{self, Lender};
use crate::locks;
use crate::named::Named;
use crate::open_files;
use crate::orphans::{DELETED, Orphans};
use crate::procfiles;
use crate::procfs::{self, FdInfo};
use crate::state::{Description, Descriptor, FileId, Owner, Target};
use crate::trace::Tracee;
use crate::until::Stand;
use crate::watch::Touched;
use crate::{counters, epoll, inotify, pidfds, pipes, sockets, terminals, tree};
use std::cell::RefCell;
use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::fs::{self, Metadata};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::MetadataExt;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

const KCMP_FILE: libc::c_int = 0;
/// Major number of `/dev/null`, `/dev/zero`, `/dev/urandom` and the like.
const MEM_MAJOR: u32 = 1;
/// `/dev/tty`.
pub const CONTROLLING_TERMINAL: (u32, u32) = (5, 0);
/// What the kernel shows in `flags` besides what `F_GETFL` returns.
const CLOEXEC: u32 = libc::O_CLOEXEC as u32;
/// Where message queues (`mq_open`) live.
const MQUEUE_MAGIC: i64 = 0x1980_0202;
/// How libraries name semaphores, and the files that become some. They have them open only while
/// `sem_open` makes one, under a name that is gone right after.
const SEMAPHORES: [&[u8]; 2] = [b"/dev/shm/sem.", b"/dev/shm/tmp-"];
const F_GETSIG: i32 = 11;
const F_GETOWN_EX: i32 = 16;

/// One descriptor as found.
#[derive(Clone)]
pub struct Open {
    /// Its process.
    pub pid: libc::pid_t,
    /// Its number.
    pub fd: u32,
    /// Where its link in `/proc` leads.
    pub link: Vec<u8>,
    /// What the file behind it is.
    pub meta: Metadata,
    /// Offset, flags, and more.
    pub info: FdInfo,
    /// Number of its open file description.
    pub id: u64,
}

impl Open {
    fn kind(&self) -> u32 {
        self.meta.mode() & libc::S_IFMT
    }

    /// Whether it is a pipe or FIFO.
    pub fn is_pipe(&self) -> bool {
        self.kind() == libc::S_IFIFO
    }

    /// Whether it is a socket.
    pub fn is_socket(&self) -> bool {
        self.kind() == libc::S_IFSOCK
    }

    /// Whether it is a standard stream of the first process, and so given anew at restore. Those of
    /// its descendants may be ends of the family's own pipes.
    pub fn is_standard(&self, all: &[Open]) -> bool {
        self.fd <= 2 && all.first().is_some_and(|first| first.pid == self.pid)
    }

    /// Whether it is the same file as a standard stream of the first process.
    pub fn is_handed_over(&self, all: &[Open]) -> bool {
        all.iter().any(|o| o.is_standard(all) && o.same_file(self))
    }

    /// Whether it can be read.
    pub fn reads(&self) -> bool {
        self.info.flags as i32 & libc::O_ACCMODE != libc::O_WRONLY
    }

    /// Whether it can be written.
    pub fn writes(&self) -> bool {
        self.info.flags as i32 & libc::O_ACCMODE != libc::O_RDONLY
    }

    /// Whether it and another refer to one file.
    pub fn same_file(&self, other: &Open) -> bool {
        self.meta.dev() == other.meta.dev() && self.meta.ino() == other.meta.ino()
    }

    /// Inode number, which tells pipes and sockets apart.
    pub fn inode(&self) -> u64 {
        self.meta.ino()
    }

    fn stream(&self) -> Stream {
        Stream::of(&self.meta)
    }

    /// Its link as text.
    pub fn shown(&self) -> String {
        String::from_utf8_lossy(&self.link).into_owned()
    }

    /// Whether others see that it is open.
    fn is_more_than_content(&self) -> bool {
        self.is_socket() || self.is_pipe() || self.link.starts_with(b"anon_inode:")
    }

    fn is_stream(&self) -> bool {
        match self.kind() {
            libc::S_IFIFO | libc::S_IFSOCK => true,
            libc::S_IFCHR => libc::major(self.meta.rdev()) != MEM_MAJOR,
            _ => false,
        }
    }
}

/// What one process has open.
pub struct Table {
    /// Descriptors in order of number.
    pub descriptors: Vec<Descriptor>,
    /// What they refer to.
    pub descriptions: Vec<Description>,
}

/// What must be told apart over all processes looked at.
#[derive(Default)]
pub struct Known {
    /// Pipes whose content was copied.
    pub copied: BTreeSet<u64>,
    /// Named shared memory.
    pub named: Named,
    /// What leads to processes whose images are others of the same set.
    pub between: Arc<Between>,
    /// For what is in flight.
    pub patience: Patience,
    /// Mounts that there are.
    pub mounts: Mounts,
    /// All processes that have a place in the images, also those that have ended.
    pub processes: BTreeSet<libc::pid_t>,
    /// The standard streams that the first process was given.
    pub given: GivenStreams,
}

/// The mounts of the namespace of this process and those it takes images of, by their numbers.
#[derive(Default)]
pub struct Mounts(BTreeSet<u64>);

impl Mounts {
    fn read() -> Mounts {
        let text = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        let number = |line: &str| line.split(' ').next()?.parse().ok();
        Mounts(text.lines().filter_map(number).collect())
    }

    /// Whether there is one; of a kernel that does not tell nothing is known.
    fn has(&self, number: u64) -> bool {
        self.0.is_empty() || self.0.contains(&number)
    }
}

/// All that a family of frozen processes has open.
pub struct Survey {
    /// Their numbers, and those of the twins that are made of them.
    pub family: Rc<RefCell<Vec<libc::pid_t>>>,
    /// Shared objects that one of them holds the content of.
    pub orphans: BTreeSet<u64>,
    /// How much more of these may be copied.
    pub room: u64,
    /// How much may be stored of files with a path.
    pub files: Room,
    /// Files that the first of them writes to without having them open.
    pub touched: Vec<Touched>,
    /// Once this is true, nothing is to be stored any more while they stand still.
    pub called_off: Option<Arc<AtomicBool>>,
    /// How long they stand still while nothing of these is stored that are too much to copy.
    pub stand: Stand,
    all: Vec<Open>,
    /// What is shared among them.
    pub known: Known,
}

/// Refuses a descriptor.
pub fn refused(this: &Open, what: String) -> CaptureError {
    CaptureError::Descriptor { fd: this.fd as i32, what }
}

/// What a process has open, but for the sockets with the inodes `left_out`.
fn open_in(pid: libc::pid_t, left_out: &[u64]) -> Result<Vec<Open>, CaptureError> {
    opened(pid, left_out, |_| true)
}

/// The sockets that a process has open, but for these.
pub fn sockets_in(pid: libc::pid_t, left_out: &[u64]) -> Result<Vec<Open>, CaptureError> {
    opened(pid, left_out, |link| link.starts_with(b"socket:["))
}

fn opened(
    pid: libc::pid_t,
    left_out: &[u64],
    wanted: impl Fn(&[u8]) -> bool,
) -> Result<Vec<Open>, CaptureError> {
    let left_out: Vec<String> = left_out.iter().map(|ino| format!("socket:[{ino}]")).collect();
    let mut all = Vec::new();
    for fd in procfs::numbers(pid, "fd")? {
        let link = procfs::link(pid, &format!("fd/{fd}"))?;
        if !wanted(&link) || left_out.iter().any(|socket| socket.as_bytes() == link) {
            continue;
        }
        let meta = fs::metadata(format!("/proc/{pid}/fd/{fd}"))
            .map_err(|source| CaptureError::Os { what: "examine a file descriptor", source })?;
        all.push(Open { pid, fd, link, meta, info: procfs::fdinfo(pid, fd)?, id: 0 });
    }
    Ok(all)
}

impl Survey {
    /// Looks at what a frozen process and its descendants have open.
    pub fn of_family(frozen: &Frozen) -> Result<Survey, CaptureError> {
        let mut survey = Survey::of(&frozen.pids(), &frozen.left_out, &frozen.between)?;
        survey.known.processes.extend(frozen.all_ended());
        survey.known.given = frozen.given;
        Ok(survey)
    }

    /// Looks at the processes `pids`, which must stand still. Sockets with the inodes `left_out`
    /// are as if they were not there; those of `between` were looked at before.
    pub fn of(
        pids: &[libc::pid_t],
        left_out: &[u64],
        between: &Arc<Between>,
    ) -> Result<Survey, CaptureError> {
        let mut all = Vec::new();
        for &pid in pids {
            let open = open_in(pid, left_out).map_err(|e| tree::gone_or(pid, e));
            all.extend(open.map_err(|e| match Some(&pid) == pids.first() {
                true => e,
                false => tree::of_child(pid, e),
            })?);
        }
        number(&mut all);
        open_files::refuse_too_many(open_files::distinct(all.iter().map(|o| o.id)))?;
        let family = Rc::new(RefCell::new(pids.to_vec()));
        let between = Arc::clone(between);
        let (named, processes) = (Named::of(pids, &all)?, pids.iter().copied().collect());
        let mounts = Mounts::read();
        let known = Known { named, between, processes, mounts, ..Known::default() };
        let (orphans, room, called_off) = (BTreeSet::new(), MAX_COPY_BYTES, None);
        let stand = Stand::default();
        let (files, touched) = (Room::new(0), Vec::new());
        Ok(Survey { family, orphans, room, files, touched, called_off, stand, all, known })
    }

    /// What one of them has open. `orphans` are the shared objects that it has mapped; those that
    /// only descriptors lead to are added.
    pub fn table(
        &mut self,
        pid: libc::pid_t,
        orphans: &mut Orphans,
    ) -> Result<Table, CaptureError> {
        table(pid, &self.all, orphans, &mut self.known)
    }

    /// There is a twin of a process. It closes its sockets, pipes, pidfds and the like: as long as
    /// it had them, who is at their other ends would not see that the process closes them, their
    /// addresses would stay taken when that has died, and an epoll instance would go on watching
    /// what the process has closed.
    pub fn twin(
        &self,
        pid: libc::pid_t,
        agent: &Agent,
        twin: libc::pid_t,
    ) -> Result<Agent, CaptureError> {
        self.family.borrow_mut().push(twin);
        let agent = agent.of_twin(Tracee(twin));
        let closed = self.all.iter().filter(|o| o.pid == pid && o.is_more_than_content());
        let closed: Vec<u32> = closed.map(|o| o.fd).collect();
        for run in closed.chunk_by(|a, b| a + 1 == *b) {
            let (first, last) = (u64::from(run[0]), u64::from(run[run.len() - 1]));
            agent.call(libc::SYS_close_range, &[first, last, 0])?;
        }
        Ok(agent)
    }
}

/// Gives each open file description a number, by the kernel's own order of them.
fn number(all: &mut [Open]) {
    let mut order: Vec<usize> = Vec::new();
    for i in 0..all.len() {
        match order.binary_search_by(|&j| compare(&all[j], &all[i])) {
            Ok(at) => all[i].id = all[order[at]].id,
            Err(at) => {
                all[i].id = i as u64 + 1;
                order.insert(at, i);
            }
        }
    }
}

/// Orders open file descriptions. Without `kcmp`, equal in all that can be seen counts as the same.
fn compare(a: &Open, b: &Open) -> Ordering {
    // SAFETY: kcmp takes numbers only.
    match unsafe { libc::syscall(libc::SYS_kcmp, a.pid, b.pid, KCMP_FILE, a.fd, b.fd) } {
        0 => Ordering::Equal,
        1 => Ordering::Less,
        2 => Ordering::Greater,
        _ => {
            let seen = |o: &Open| {
                (o.meta.dev(), o.meta.ino(), o.info.flags & !CLOEXEC, o.info.pos, o.link.clone())
            };
            let anonymous = a.link.starts_with(b"anon_inode:");
            let apart = if anonymous { (a.pid, a.fd).cmp(&(b.pid, b.fd)) } else { Ordering::Equal };
            seen(a).cmp(&seen(b)).then(apart)
        }
    }
}

fn table(
    pid: libc::pid_t,
    all: &[Open],
    orphans: &mut Orphans,
    known: &mut Known,
) -> Result<Table, CaptureError> {
    let mut table = Table { descriptors: vec![], descriptions: vec![] };
    let lender = Lender::new(pid)?;
    let own = || all.iter().filter(|o| o.pid == pid);
    for this in own() {
        let twin = table.descriptions.iter().position(|d| d.id == this.id);
        let description = match twin {
            Some(j) => j,
            None => {
                let new = describe(this, all, &lender, orphans, known)?;
                table.descriptions.push(new);
                table.descriptions.len() - 1
            }
        };
        table.descriptors.push(Descriptor {
            fd: this.fd,
            cloexec: this.info.flags & CLOEXEC != 0,
            description: description as u32,
        });
    }
    // Only now that all descriptions have their places.
    for i in 0..table.descriptions.len() {
        if !matches!(table.descriptions[i].target, Target::Poll { .. }) {
            continue;
        }
        if let Some(this) = own().find(|o| o.id == table.descriptions[i].id) {
            let items = epoll::capture(this, all, &table.descriptions)?;
            table.descriptions[i].target = Target::Poll { items };
        }
    }
    Ok(table)
}

/// Which of the standard streams this is, by identity of the pipe, socket or terminal.
fn stdio(this: &Open, all: &[Open], given: &GivenStreams) -> Option<u32> {
    let standard = all.iter().filter(|o| o.is_standard(all) && o.is_stream());
    let same = standard.filter(|o| o.stream() == this.stream());
    // Output and error may be one pipe: the descriptor's own number decides first.
    let mut numbers: Vec<u32> = same.map(|o| o.fd).collect();
    numbers.sort_by_key(|&n| n != this.fd);
    let found = numbers.first().copied();
    found.or_else(|| given.which(this.stream(), this.fd).filter(|_| this.is_stream()))
}

fn describe(
    this: &Open,
    all: &[Open],
    lender: &Lender,
    orphans: &mut Orphans,
    known: &mut Known,
) -> Result<Description, CaptureError> {
    let target = target(this, all, lender, orphans, known)?;
    let flags = this.info.flags & !CLOEXEC;
    let owner = if flags & libc::O_ASYNC as u32 != 0 { owner(this, lender)? } else { None };
    Ok(Description {
        id: this.id,
        target,
        flags,
        offset: this.info.pos,
        owner,
        shared: false,
        locks: locks::parse(this)?,
    })
}

fn target(
    this: &Open,
    all: &[Open],
    lender: &Lender,
    orphans: &mut Orphans,
    known: &mut Known,
) -> Result<Target, CaptureError> {
    let refuse = |what: String| Err(refused(this, what));
    if let Some(name) = segment_name(&this.link) {
        return Ok(Target::Segment { name });
    }
    if let Some(kind) = this.link.strip_prefix(b"anon_inode:") {
        return anonymous(this, kind, lender, known);
    }
    if SEMAPHORES.iter().any(|begin| this.link.starts_with(begin)) && this.writes() {
        let what = "a named semaphore that is just being opened; try again when it is";
        return Err(refused(this, what.into()));
    }
    if this.kind() == libc::S_IFREG && lend::file_system(&lender.borrow(this.fd)?) == MQUEUE_MAGIC {
        return refuse(format!("a message queue ({})", String::from_utf8_lossy(&this.link)));
    }
    if let Some(orphan) = orphans.of_descriptor(this.fd, &this.link, &this.meta, &known.named)? {
        return Ok(Target::Orphan { orphan });
    }
    match this.kind() {
        libc::S_IFREG | libc::S_IFDIR => file(this, known),
        libc::S_IFIFO => {
            let first = this.reads() && known.copied.insert(this.inode());
            match pipes::capture(this, all, first, lender)? {
                Some(pipe) => Ok(Target::Pipe { pipe }),
                None => handed_over(this, all, &known.given),
            }
        }
        libc::S_IFSOCK => match known.between.socket(this) {
            Some(looked_at) => looked_at,
            None => match sockets::capture(this, all, lender, &known.patience)? {
                Some(socket) => Ok(Target::Socket { socket }),
                None => handed_over(this, all, &known.given),
            },
        },
        libc::S_IFCHR => device(this, all, lender, &known.given),
        _ => refuse(format!("a special file, {}", this.shown())),
    }
}

/// A stream to somebody outside: only the standard ones can be given anew.
fn handed_over(this: &Open, all: &[Open], given: &GivenStreams) -> Result<Target, CaptureError> {
    if let Some(which) = stdio(this, all, given) {
        return Ok(Target::Stdio { which });
    }
    let shown = this.shown();
    Err(refused(
        this,
        match this.kind() {
            libc::S_IFIFO => format!("a pipe to a process outside ({shown})"),
            libc::S_IFSOCK => format!("a socket to a process outside ({shown})"),
            _ => format!("a terminal or device ({shown})"),
        },
    ))
}

fn anonymous(
    this: &Open,
    kind: &[u8],
    lender: &Lender,
    known: &Known,
) -> Result<Target, CaptureError> {
    match kind {
        b"[eventfd]" => counters::event(this, lender),
        b"[timerfd]" => counters::timer(this, lender),
        b"[signalfd]" => counters::signals(this),
        // What it watches is filled in when all descriptions are known.
        b"[eventpoll]" => Ok(Target::Poll { items: vec![] }),
        b"inotify" | b"[inotify]" => inotify::capture(this, lender),
        b"[pidfd]" => pidfds::capture(this, &known.processes),
        _ => Err(refused(this, format!("of the kind {}", this.shown()))),
    }
}

fn file(this: &Open, known: &Known) -> Result<Target, CaptureError> {
    if !this.link.starts_with(b"/") {
        return Err(refused(this, format!("of the kind {}", this.shown())));
    }
    procfiles::refuse_stranger(this, &known.processes)?;
    // Others may have been opened in another namespace, and be what their paths say all the same.
    let is_mount = this.info.flags as i32 & libc::O_PATH != 0 && this.meta.is_dir();
    let mount = this.info.number("mnt_id", 10).filter(|_| is_mount);
    if let Some(mount) = mount.filter(|id| !known.mounts.has(*id)) {
        let what = format!("{} of a mount ({mount}) that is attached nowhere", this.shown());
        return Err(refused(this, what));
    }
    if this.meta.nlink() == 0 {
        return Err(refused(this, format!("a folder that was deleted, {}", this.shown())));
    }
    let id = file_id(this.link.clone(), &this.meta);
    let path = std::ffi::OsString::from_vec(id.path.clone());
    if !fs::metadata(path).is_ok_and(|m| m.ino() == id.ino && m.dev() == id.dev) {
        let what = format!("a file that {} does not name any more", this.shown());
        return Err(refused(this, what));
    }
    Ok(Target::File { id, dir: this.meta.is_dir() })
}

fn device(
    this: &Open,
    all: &[Open],
    lender: &Lender,
    given: &GivenStreams,
) -> Result<Target, CaptureError> {
    let rdev = this.meta.rdev();
    if libc::major(rdev) == MEM_MAJOR {
        return Ok(Target::Device { path: this.link.clone(), rdev });
    }
    if (libc::major(rdev), libc::minor(rdev)) == CONTROLLING_TERMINAL {
        // The same terminal as a standard stream, by another name.
        let is_terminal = |o: &&Open| is_terminal(o.meta.rdev()) && o.fd <= 2;
        let standard = all.iter().filter(|o| o.is_standard(all)).find(is_terminal);
        if let Some(stream) = standard {
            return Ok(Target::Stdio { which: stream.fd });
        }
    }
    match terminals::capture(this, all, lender)? {
        Some(terminal) => Ok(Target::Terminal { terminal }),
        None => handed_over(this, all, given),
    }
}

/// Whether a device is a terminal: a console, a serial line, or the slave of a pseudo-terminal.
fn is_terminal(rdev: u64) -> bool {
    matches!(libc::major(rdev), 4 | 136..=143) || (libc::major(rdev), libc::minor(rdev)) == (5, 1)
}

/// Who gets the signal of a file with `O_ASYNC`.
fn owner(this: &Open, lender: &Lender) -> Result<Option<Owner>, CaptureError> {
    let fd = lender.borrow(this.fd)?;
    let mut owner = [0i32; 2];
    // SAFETY: writes a live `struct f_owner_ex`.
    let r = unsafe { libc::fcntl(fd.as_raw_fd(), F_GETOWN_EX, owner.as_mut_ptr()) };
    // SAFETY: a query.
    let signal = unsafe { libc::fcntl(fd.as_raw_fd(), F_GETSIG) };
    if r < 0 || signal < 0 {
        return Err(lend::os("ask for the owner of a file"));
    }
    Ok((owner[1] != 0).then_some(Owner { kind: owner[0], pid: owner[1], signal }))
}

/// Identity of a file by its metadata.
pub fn file_id(path: Vec<u8>, meta: &Metadata) -> FileId {
    FileId {
        path,
        dev: meta.dev(),
        ino: meta.ino(),
        size: meta.size(),
        mtime_ns: meta.mtime().saturating_mul(1_000_000_000).saturating_add(meta.mtime_nsec()),
    }
}

/// Name of the job's segment if the path is one: `/memfd:NAME (deleted)`, or `/NAME (deleted)` in a
/// file system that is mounted nowhere.
pub fn segment_name(path: &[u8]) -> Option<Vec<u8>> {
    let name = match path.strip_prefix(b"/memfd:") {
        Some(name) => name.strip_suffix(DELETED).unwrap_or(name),
        None => path.strip_prefix(b"/")?.strip_suffix(DELETED)?,
    };
    name.starts_with(SEGMENT_PREFIX.as_bytes()).then(|| name.to_vec())
}
