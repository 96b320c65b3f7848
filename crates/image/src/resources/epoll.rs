//! epoll instances: which files they watch, under which numbers, for what.
//!
//! A registration belongs to a file, not to the number it was made under: the number may be closed
//! or mean another file by now. `kcmp` tells which file it is. At restore the file is given that
//! number for the moment of its registration, if it does not have it.

use crate::error::{CaptureError, RestoreError};
use crate::kernel::descriptor_moves::Table;
use crate::kernel::remote_descriptors;
use crate::kernel::script::Plan;
use crate::resources::open::{Open, cannot, refused, unclear};
use crate::resources::resource::{Look, Made, Making, Resource};
use eyrie_image_format::state::resources::{Poll, PollItem};
use eyrie_image_format::state::{Description, State, Target};

const KCMP_EPOLL_TFD: libc::c_int = 7;

impl Resource for Poll {
    fn capture(this: &Open, _: &mut Look<'_>) -> Result<Option<Target>, CaptureError> {
        let is_it = this.anonymous_inode() == Some(b"[eventpoll]");
        Ok(is_it.then(|| Target::Poll(Poll { items: vec![] })))
    }

    /// What it watches may be any description of the process.
    fn complete(&mut self, this: &Open, all: &[Open], ids: &[u64]) -> Result<(), CaptureError> {
        self.items = watched(this, all, ids)?;
        Ok(())
    }

    fn restore(&self, _: &Description, _: &mut Making<'_>) -> Result<Made, RestoreError> {
        // SAFETY: numbers only.
        let fd = unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) };
        let made = remote_descriptors::made(fd.into());
        made.map_err(|e| cannot("make its epoll instance again", e)).map(Made::New)
    }

    fn numbers(&self) -> Vec<u32> {
        self.items.iter().map(|item| item.fd).collect()
    }

    fn register(
        &self,
        plan: &mut Plan,
        table: &mut Table,
        state: &State,
        places: &[Option<u64>],
        own: u64,
    ) {
        for item in &self.items {
            if let Some(file) = places[item.description as usize] {
                watch_again(plan, table, state, item, (file, own));
            }
        }
    }
}

/// What an epoll instance watches. Of one that several processes have each registration is with the
/// first of them that has the file, too: it is made again once.
fn watched(this: &Open, all: &[Open], ids: &[u64]) -> Result<Vec<PollItem>, CaptureError> {
    let (mut items, mut seen): (Vec<PollItem>, Vec<u32>) = (Vec::new(), Vec::new());
    let holders: Vec<&Open> = all.iter().filter(|o| o.id == this.id).collect();
    for line in this.info.lines.iter().filter(|(key, _)| key == "tfd") {
        let (fd, events, data) = parse(&line.1).ok_or_else(|| unclear(this))?;
        let same = seen.iter().filter(|&&other| other == fd).count() as u32;
        seen.push(fd);
        let its = |pid: libc::pid_t| all.iter().filter(move |o| o.pid == pid);
        let mut found = holders.iter().flat_map(|holder| {
            // Most often the number still means the file.
            let its = || its(holder.pid);
            its().filter(|o| o.fd == fd).chain(its().filter(|o| o.fd != fd))
        });
        let Some(file) = found.find(|o| watches(this, fd, same, o)) else {
            let what = format!(
                "an epoll instance that watches a file (registered as {fd}) which the process \
                 has closed, and another one still holds"
            );
            return Err(refused(this, what));
        };
        if file.pid != this.pid {
            continue;
        }
        if let Some(index) = ids.iter().position(|id| *id == file.id) {
            items.push(PollItem { fd, events, data, description: index as u32 });
        }
    }
    Ok(items)
}

/// Parses `5 events:       19 data:                5  pos:0 ino:61 sdev:8`.
fn parse(line: &str) -> Option<(u32, u32, u64)> {
    let mut fields = line.split_ascii_whitespace();
    let fd = fields.next()?.parse().ok()?;
    (fields.next()? == "events:").then_some(())?;
    let events = u32::from_str_radix(fields.next()?, 16).ok()?;
    (fields.next()? == "data:").then_some(())?;
    let data = u64::from_str_radix(fields.next()?, 16).ok()?;
    Some((fd, events, data))
}

/// Whether the `nth` registration of number `fd` is for the file behind `file`.
fn watches(this: &Open, fd: u32, nth: u32, file: &Open) -> bool {
    let slot = [this.fd, fd, nth];
    // SAFETY: numbers, and a live `struct kcmp_epoll_slot`.
    let r = unsafe {
        let at = slot.as_ptr();
        libc::syscall(libc::SYS_kcmp, file.pid, this.pid, KCMP_EPOLL_TFD, file.fd, at)
    };
    // A kernel without kcmp: the number must still mean the file.
    r == 0 || (r < 0 && !kcmp_is_there() && file.fd == fd)
}

fn kcmp_is_there() -> bool {
    // SAFETY: numbers only.
    unsafe {
        let own = libc::getpid();
        libc::syscall(libc::SYS_kcmp, own, own, 1, 0, 0) >= 0
    }
}

/// Registers one file again, which has the descriptor `file`, with the instance that has
/// `instance`.
fn watch_again(
    plan: &mut Plan,
    table: &mut Table,
    state: &State,
    item: &PollItem,
    (file, mut instance): (u64, u64),
) {
    let fd = u64::from(item.fd);
    let name = format!("watch file descriptor {fd} again");
    let now = state.descriptors.binary_search_by_key(&item.fd, |d| d.fd).ok();
    let now = now.map(|n| &state.descriptors[n]);
    let means_it = now.is_some_and(|d| d.description == item.description);
    // What has that number now goes elsewhere for the moment, the instance itself, too.
    let aside = (!means_it && table.has(fd)).then(|| table.copy_aside(plan, fd));
    if !means_it {
        table.copy(plan, file, fd, true);
        instance = if instance == fd { aside.unwrap_or(instance) } else { instance };
    }
    // struct epoll_event is packed: events, data.
    let event = [&item.events.to_le_bytes()[..], &item.data.to_le_bytes()[..]].concat();
    let event = plan.put(&event);
    let add = libc::EPOLL_CTL_ADD as u64;
    plan.step(&*name, libc::SYS_epoll_ctl, &[instance, add, fd, event]);
    match (aside, now) {
        (Some(aside), now) => {
            table.copy(plan, aside, fd, now.is_some_and(|d| d.cloexec));
            table.close(plan, aside);
        }
        (None, _) if !means_it => table.close(plan, fd),
        (None, _) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_fdinfo() {
        let line = "        5 events:       19 data:     deadbeef00000005  pos:0 ino:61 sdev:8";
        assert_eq!(parse(line), Some((5, 0x19, 0xdead_beef_0000_0005)));
        assert_eq!(parse("x events: 1 data: 2"), None);
    }
}
