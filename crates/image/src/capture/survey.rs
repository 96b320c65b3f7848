//! What frozen processes have open, and whether that can be brought back.
//!
//! Processes that are frozen together are looked at together: a pipe between two of them is theirs,
//! one to anybody else is not. Nothing is taken from what is looked at: contents are copied and
//! stay where they are. How each kind is read and made again stands in a file of its own.

use crate::capture::cost::MAX_COPY_BYTES;
use crate::capture::freeze::Frozen;
use crate::capture::process_tree;
use crate::error::CaptureError;
use crate::kernel::ptrace::Tracee;
use crate::kernel::remote_calls::Agent;
use crate::kernel::remote_descriptors::{self, RemoteDescriptors};
use crate::resources;
use crate::resources::file_locks;
use crate::resources::files::links::Linked;
use crate::resources::files::stored::Room;
use crate::resources::files::watch::Touched;
use crate::resources::known::{Known, Mounts};
use crate::resources::limits;
use crate::resources::open::{Open, Table, open_in, refused};
use crate::resources::resource::Look;
use crate::resources::shared_memory::named::Named;
use crate::resources::shared_memory::objects::AnonymousObjects;
use crate::resources::sockets::between_images::Between;
use crate::write::time_limit::Stand;
use eyrie_image_format::state::{Description, Descriptor, Owner};
use std::cell::RefCell;
use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

const KCMP_FILE: libc::c_int = 0;
/// What the kernel shows in `flags` besides what `F_GETFL` returns.
const CLOEXEC: u32 = libc::O_CLOEXEC as u32;
const F_GETSIG: i32 = 11;
const F_GETOWN_EX: i32 = 16;

/// All that a family of frozen processes has open.
pub struct Survey {
    /// Their numbers, and those of the twins that are made of them.
    pub family: Rc<RefCell<Vec<libc::pid_t>>>,
    /// Shared objects that one of them holds the content of.
    pub anonymous: BTreeSet<u64>,
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

impl Survey {
    /// Looks at what a frozen process and its descendants have open.
    pub fn of_tree(frozen: &Frozen) -> Result<Survey, CaptureError> {
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
            let open = open_in(pid, left_out).map_err(|e| process_tree::gone_or(pid, e));
            all.extend(open.map_err(|e| match Some(&pid) == pids.first() {
                true => e,
                false => process_tree::of_child(pid, e),
            })?);
        }
        number(&mut all);
        limits::refuse_too_many(limits::distinct(all.iter().map(|o| o.id)))?;
        let linked = by_their_names(&mut all)?;
        let family = Rc::new(RefCell::new(pids.to_vec()));
        let between = Arc::clone(between);
        let (named, processes) = (Named::of(pids, &all)?, pids.iter().copied().collect());
        let mounts = Mounts::read();
        let known = Known { named, linked, between, processes, mounts, ..Known::default() };
        let (anonymous, room, called_off) = (BTreeSet::new(), MAX_COPY_BYTES, None);
        let stand = Stand::default();
        let (files, touched) = (Room::new(0), Vec::new());
        Ok(Survey { family, anonymous, room, files, touched, called_off, stand, all, known })
    }

    /// What one of them has open. `anonymous` are the shared objects that it has mapped; those that
    /// only descriptors lead to are added.
    pub fn table(
        &mut self,
        pid: libc::pid_t,
        anonymous: &mut AnonymousObjects,
    ) -> Result<Table, CaptureError> {
        table(pid, &self.all, anonymous, &mut self.known)
    }

    /// There is a twin of a process. It closes all that it has: as long as it had that, who is at
    /// the other ends of sockets, pipes and terminals would not see that the process closes them,
    /// their addresses would stay taken when that has died, files would stay locked, and an epoll
    /// instance would go on watching what the process has closed.
    pub fn twin(&self, agent: &Agent, twin: libc::pid_t) -> Result<Agent, CaptureError> {
        self.family.borrow_mut().push(twin);
        let agent = agent.of_twin(Tracee(twin));
        agent.call(libc::SYS_close_range, &[0, u64::from(u32::MAX), 0])?;
        Ok(agent)
    }
}

/// Has files go by the names that they have now, and refuses what is written to and whose name is
/// not found.
fn by_their_names(all: &mut [Open]) -> Result<Linked, CaptureError> {
    let mut linked = Linked::default();
    for this in all {
        let Some(file) = linked.look(this.pid, this.fd, &this.link, &this.meta) else { continue };
        if let Some(name) = linked.name(file) {
            this.link = name.to_vec();
        } else if linked.is_elsewhere(file) && this.writes() {
            let what = format!(
                "a file that has another name than {} by now, which is not found near there: open \
                 it by that name, or close it",
                this.shown()
            );
            return Err(refused(this, what));
        }
    }
    Ok(linked)
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
    anonymous: &mut AnonymousObjects,
    known: &mut Known,
) -> Result<Table, CaptureError> {
    let mut table = Table { descriptors: vec![], descriptions: vec![] };
    let remote = RemoteDescriptors::new(pid)?;
    // The first descriptor of each description.
    let mut firsts: Vec<&Open> = Vec::new();
    for this in all.iter().filter(|o| o.pid == pid) {
        let twin = table.descriptions.iter().position(|d| d.id == this.id);
        let description = match twin {
            Some(j) => j,
            None => {
                let mut look = Look { all, remote: &remote, anonymous, known };
                table.descriptions.push(describe(this, &mut look)?);
                firsts.push(this);
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
    let ids: Vec<u64> = table.descriptions.iter().map(|d| d.id).collect();
    for (description, this) in table.descriptions.iter_mut().zip(firsts) {
        resources::kind_mut(&mut description.target).complete(this, all, &ids)?;
    }
    Ok(table)
}

fn describe(this: &Open, look: &mut Look<'_>) -> Result<Description, CaptureError> {
    let target = resources::capture(this, look)?;
    // A file that got its name later is opened as any other.
    let nameless = if this.kind() == libc::S_IFREG { libc::O_TMPFILE as u32 } else { 0 };
    let flags = this.info.flags & !CLOEXEC & !nameless;
    let owner = match flags & libc::O_ASYNC as u32 {
        0 => None,
        _ => owner(this, look.remote)?,
    };
    Ok(Description {
        id: this.id,
        target,
        flags,
        offset: this.info.pos,
        owner,
        shared: false,
        locks: file_locks::parse(this)?,
    })
}

/// Who gets the signal of a file with `O_ASYNC`.
fn owner(this: &Open, remote: &RemoteDescriptors) -> Result<Option<Owner>, CaptureError> {
    let fd = remote.borrow(this.fd)?;
    let mut owner = [0i32; 2];
    // SAFETY: writes a live `struct f_owner_ex`.
    let r = unsafe { libc::fcntl(fd.as_raw_fd(), F_GETOWN_EX, owner.as_mut_ptr()) };
    // SAFETY: a query.
    let signal = unsafe { libc::fcntl(fd.as_raw_fd(), F_GETSIG) };
    if r < 0 || signal < 0 {
        return Err(remote_descriptors::os("ask for the owner of a file"));
    }
    Ok((owner[1] != 0).then_some(Owner { kind: owner[0], pid: owner[1], signal }))
}
