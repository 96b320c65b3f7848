//! The thread that fills a process which runs already: it brings in what the process waits for and
//! all else in time, and keeps account of where its memory has been moved meanwhile.

use crate::PAGE_BYTES;
use crate::error::RestoreError;
use crate::kernel::holder::DescriptorHolder;
use crate::kernel::missing_pages::{Copied, Event, Report, Uffd};
use crate::kernel::procfs;
use crate::restore::lazy::account::{Account, Disorder};
use crate::restore::lazy::urgent;
use crate::restore::lazy::{Shared, is_permitted, lock, not_filling, ranges, within};
use eyrie_image_format::error::ImageError;
use eyrie_image_format::read::blocks::{Blocks, Wanted};
use eyrie_image_format::read::image::Image;
use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long to wait for a report that must come, or for a thread to go on that has reported.
const REPORT_WAIT: Duration = Duration::from_millis(1);

/// How long a process that was killed may take to end.
const END_WAIT: Duration = Duration::from_secs(5);

/// All processes below one.
fn descendants(pid: libc::pid_t) -> Vec<libc::pid_t> {
    let mut all = vec![pid];
    let mut next = 0;
    while let Some(&pid) = all.get(next) {
        next += 1;
        for thread in procfs::numbers(pid, "task").unwrap_or_default() {
            let text = procfs::read(pid, &format!("task/{thread}/children")).unwrap_or_default();
            let text = String::from_utf8_lossy(&text);
            all.extend(text.split_ascii_whitespace().filter_map(|n| n.parse::<i32>().ok()));
        }
    }
    all.split_off(1)
}

/// For each wanted block, whether part of it belongs in the ranges.
fn wanted_within(image: &Image, ranges: &[(u64, u64)]) -> Vec<bool> {
    let blocks = image.wants.blocks.iter();
    let any = |w: &Wanted| image.wants.pieces_of(w).iter().any(|p| within(ranges, p.address));
    blocks.map(any).collect()
}

/// The blocks with the first content of each range, in the order of the addresses. The kernel joins
/// neighbours that have become alike only if their memory began as one: each range has to have some
/// of it before the process can split it.
fn first_of_each(image: &Image, ranges: &[(u64, u64)]) -> Vec<usize> {
    let first =
        |&(start, end): &(u64, u64)| block_at(image, image.extents_in(start, end).first()?.start);
    ranges.iter().filter_map(first).collect()
}

/// The wanted blocks that have to be in before a process runs whose ranges these are; some may be
/// named twice.
pub(crate) fn needed_first(image: &Image, ranges: &[(u64, u64)]) -> Vec<usize> {
    [first_of_each(image, ranges), urgent::blocks(image)].concat()
}

/// A process being filled: the restored one, or one that it has forked meanwhile.
struct Target {
    uffd: Uffd,
    account: Account,
    /// For each wanted block, whether it is in.
    filled: Vec<bool>,
    next: usize,
    dead: bool,
}

impl Target {
    fn new(uffd: Uffd, account: Account, blocks: usize) -> Target {
        Target { uffd, account, filled: vec![false; blocks], next: 0, dead: false }
    }

    /// Whether the account holds. If not, changes are still to be reported.
    fn is_settled(&mut self) -> Result<bool, RestoreError> {
        if self.account.is_unsettled() {
            if !self.uffd.is_quiet().map_err(failed)? {
                return Ok(false);
            }
            self.account.settle().map_err(|Disorder| disorder())?;
        }
        Ok(true)
    }
}

/// The thread that does it.
pub(crate) struct Filler {
    image: Arc<Image>,
    targets: Vec<Target>,
    wanted: Vec<bool>,
    /// What has to be in before it runs; some may be named twice.
    hot: Vec<usize>,
    blocks: Blocks,
    shared: Arc<Shared>,
    pid: libc::pid_t,
    process: OwnedFd,
    begun: Instant,
    limit: Duration,
    faults: u64,
    /// Faults that were reported and not served yet: target and page.
    waiting: VecDeque<(usize, u64)>,
}

impl Filler {
    /// Will fill the ranges of the process, given with a descriptor of it, through `uffd`, within
    /// `limit`.
    pub fn new(
        image: &Arc<Image>,
        uffd: Uffd,
        (pid, process): (libc::pid_t, OwnedFd),
        shared: &Arc<Shared>,
        ranges: &[(u64, u64)],
        limit: Duration,
    ) -> Filler {
        Filler {
            targets: vec![Target::new(uffd, Account::new(ranges), image.wants.blocks.len())],
            wanted: wanted_within(image, ranges),
            hot: needed_first(image, ranges),
            image: Arc::clone(image),
            blocks: Blocks::default(),
            shared: Arc::clone(shared),
            pid,
            process,
            begun: Instant::now(),
            limit,
            faults: 0,
            waiting: VecDeque::new(),
        }
    }

    /// Fills it to the end.
    pub fn run(mut self, holder: DescriptorHolder) {
        let result = self.fill_all();
        // One that has died is filled no further.
        let filled = |target: &Target| target.next >= self.wanted.len();
        let whole = result.is_ok() && self.targets.first().is_some_and(filled);
        if result.is_err() {
            self.kill();
        }
        drop(holder);
        self.targets.clear();
        not_filling(self.pid);
        let mut progress = lock(&self.shared.progress);
        progress.filled.all = self.begun.elapsed();
        progress.filled.faults = self.faults;
        progress.failure = result.err();
        progress.whole = whole;
        progress.over = true;
        self.shared.changed.notify_all();
    }

    /// Ends the process and all that it has forked. One that lives on gets no page any more.
    fn kill(&mut self) {
        let forked = descendants(self.pid);
        let (process, info) = (self.process.as_raw_fd(), std::ptr::null::<libc::siginfo_t>());
        // SAFETY: numbers and no information; the descriptor stands for this very process.
        unsafe {
            libc::syscall(libc::SYS_pidfd_send_signal, process, libc::SIGKILL, info, 0);
        }
        for pid in forked {
            // SAFETY: numbers only; they were children just now.
            unsafe { libc::kill(pid, libc::SIGKILL) };
        }
        let end = Instant::now() + END_WAIT;
        for target in std::mem::take(&mut self.targets) {
            while !target.uffd.is_gone() {
                if Instant::now() >= end {
                    // Closed, it would let the process go on with zeros.
                    std::mem::forget(target);
                    break;
                }
                std::thread::sleep(REPORT_WAIT);
            }
        }
    }

    fn fill_all(&mut self) -> Result<(), RestoreError> {
        for block in std::mem::take(&mut self.hot) {
            self.fill(0, block)?;
        }
        {
            let mut progress = lock(&self.shared.progress);
            progress.hot = true;
            progress.filled.hot = self.begun.elapsed();
            self.shared.changed.notify_all();
        }
        let total = self.wanted.iter().filter(|w| **w).count().max(1) as u32;
        let mut done = 0;
        // A process that was forked has never had a chance to be filled slowly.
        while let Some(target) = (0..self.targets.len()).rev().find(|&t| self.is_unfilled(t)) {
            if target == 0 {
                done += 1;
                self.pause_until(self.begun + self.limit * done / total)?;
            }
            let next = self.targets[target].next;
            if next < self.wanted.len() {
                self.fill(target, next)?;
                self.targets[target].next += 1;
            }
            self.events(Duration::ZERO)?;
            self.serve_all()?;
        }
        Ok(())
    }

    fn is_unfilled(&mut self, target: usize) -> bool {
        let target = &mut self.targets[target];
        while target.next < self.wanted.len()
            && (!self.wanted[target.next] || target.filled[target.next])
        {
            target.next += 1;
        }
        !target.dead && target.next < self.wanted.len()
    }

    /// Serves faults until it is time to go on.
    fn pause_until(&mut self, time: Instant) -> Result<(), RestoreError> {
        loop {
            let left = time.saturating_duration_since(Instant::now());
            let others = self.targets.iter().skip(1).any(|t| !t.dead && t.next < self.wanted.len());
            let gone = self.targets.iter().all(|t| t.dead);
            if left.is_zero() || others || gone || lock(&self.shared.progress).haste {
                return Ok(());
            }
            self.events(left)?;
            self.serve_all()?;
        }
    }

    /// Brings a block in. What has content there by now is left alone.
    fn fill(&mut self, target: usize, block: usize) -> Result<(), RestoreError> {
        if self.targets[target].filled[block] || self.targets[target].dead || !self.wanted[block] {
            return Ok(());
        }
        let image = Arc::clone(&self.image);
        let wanted = &image.wants.blocks[block];
        let mut blocks = std::mem::take(&mut self.blocks);
        let pages = blocks.wanted(&image.parts, wanted)?;
        let complete = loop {
            let complete = self.copy_pieces(target, &image, block, pages)?;
            if complete || self.targets[target].dead {
                break complete;
            }
            // Reports of what is being changed come at any moment.
            self.events(REPORT_WAIT)?;
        };
        self.blocks = blocks;
        self.targets[target].filled[block] = complete;
        Ok(())
    }

    /// Copies to where the pieces of a block belong by now. False if that is changing.
    fn copy_pieces(
        &mut self,
        target: usize,
        image: &Image,
        block: usize,
        pages: &[u8],
    ) -> Result<bool, RestoreError> {
        let target = &mut self.targets[target];
        if !target.is_settled()? {
            return Ok(false);
        }
        for piece in image.wants.pieces_of(&image.wants.blocks[block]) {
            let end = piece.address + piece.bytes as u64;
            for (origin, bytes, at) in target.account.now(piece.address, end) {
                let offset = piece.offset + (origin - piece.address) as usize;
                match copy(&target.uffd, at, &pages[offset..offset + bytes as usize])? {
                    Copied::Changing => return Ok(false),
                    Copied::Dead => {
                        target.dead = true;
                        return Ok(false);
                    }
                    _ => {}
                }
            }
        }
        Ok(true)
    }

    /// Waits for reports, at most so long. What they say of the mappings is noted at once, all and
    /// in its order, before anything is copied: the kernel holds copies back only until a
    /// report is read. Faults are put on the list.
    fn events(&mut self, wait: Duration) -> Result<(), RestoreError> {
        let entry = |fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
        let mut polled: Vec<libc::pollfd> =
            self.targets.iter().filter(|t| !t.dead).map(|t| entry(t.uffd.fd())).collect();
        polled.push(entry(self.process.as_raw_fd()));
        polled.push(entry(self.shared.bell.as_raw_fd()));
        let millis = wait.as_micros().div_ceil(1000).min(1000) as i32;
        // SAFETY: the list is live and as long as said.
        unsafe { libc::poll(polled.as_mut_ptr(), polled.len() as libc::nfds_t, millis) };
        if polled[polled.len() - 2].revents != 0 {
            self.targets[0].dead = true;
        }
        if polled[polled.len() - 1].revents != 0 {
            let mut count = 0u64;
            // SAFETY: reads eight bytes to a live integer.
            unsafe { libc::read(self.shared.bell.as_raw_fd(), (&raw mut count).cast(), 8) };
        }
        let ready = |t: &Target| polled.iter().any(|p| p.fd == t.uffd.fd() && p.revents != 0);
        let ready: Vec<usize> = (0..self.targets.len())
            .filter(|&t| !self.targets[t].dead && ready(&self.targets[t]))
            .collect();
        for target in ready {
            while let Some(event) = self.targets[target].uffd.event().map_err(failed)? {
                let forked = matches!(event, Event::Fork(_));
                self.note(target, event);
                if forked {
                    self.forked(target)?;
                }
            }
        }
        Ok(())
    }

    /// What another thread was moving when the process was copied is reported later, and not to
    /// the copy: nobody can tell where it is there.
    fn forked(&mut self, target: usize) -> Result<(), RestoreError> {
        let others = target == 0 && procfs::numbers(self.pid, "task").is_ok_and(|t| t.len() > 1);
        if !others {
            return Ok(());
        }
        if self.targets[target].account.is_held() {
            return Err(disorder());
        }
        while !self.targets[target].uffd.is_quiet().map_err(failed)? {
            match self.targets[target].uffd.event().map_err(failed)? {
                Some(Event::Changed(Report::Moved { .. }) | Event::Fork(_)) => {
                    return Err(disorder());
                }
                Some(event) => self.note(target, event),
                None => std::thread::yield_now(),
            }
        }
        Ok(())
    }

    fn note(&mut self, target: usize, event: Event) {
        match event {
            Event::Fault(page) => self.waiting.push_back((target, page)),
            Event::Changed(report) => self.targets[target].account.note(report),
            Event::Fork(uffd) => {
                let parent = &self.targets[target];
                let (account, filled) = (parent.account.clone(), parent.filled.clone());
                self.targets.push(Target { uffd, account, filled, next: 0, dead: false });
            }
        }
    }

    fn serve_all(&mut self) -> Result<(), RestoreError> {
        while let Some((target, page)) = self.waiting.pop_front() {
            self.serve(target, page)?;
        }
        Ok(())
    }

    /// Brings in the page that the process waits for. If that cannot be done yet it is woken all
    /// the same, and reports it again.
    fn serve(&mut self, target: usize, page: u64) -> Result<(), RestoreError> {
        self.faults += 1;
        if !self.targets[target].is_settled()? {
            self.events(REPORT_WAIT)?;
        } else {
            let origin = self.targets[target].account.origin(page);
            match origin.and_then(|origin| block_at(&self.image, origin)) {
                Some(block) if !self.targets[target].filled[block] => self.fill(target, block)?,
                // New, or given up without a report (`MADV_FREE`), unless it has come meanwhile.
                _ => {
                    let target = &mut self.targets[target];
                    target.dead |= target.uffd.zero(page).map_err(failed)? == Copied::Dead;
                }
            }
        }
        self.targets[target].uffd.wake(page);
        Ok(())
    }
}

fn failed(source: io::Error) -> RestoreError {
    RestoreError::Os { what: "fill the restored process's memory", source }
}

fn disorder() -> RestoreError {
    let what = "its threads moved memory at the same time, and no order of that is certain; do not \
                restore it lazily";
    RestoreError::Os { what: "fill the restored process's memory", source: io::Error::other(what) }
}

/// Copies what has no content yet. Only `All`, `Changing` and `Dead` are returned.
fn copy(uffd: &Uffd, at: u64, pages: &[u8]) -> Result<Copied, RestoreError> {
    let (mut done, mut single) = (0, false);
    while done < pages.len() {
        let end = if single { done + PAGE_BYTES as usize } else { pages.len() };
        match uffd.copy(at + done as u64, &pages[done..end]).map_err(failed)? {
            Copied::All => (done, single) = (end, false),
            // No content is lost: it is there, or the next attempt tells more.
            Copied::Until(0) => done += PAGE_BYTES as usize,
            Copied::Until(bytes) => done += bytes as usize,
            // Not mapped (any more), or is that still to be reported?
            Copied::Split(0) if single && !uffd.is_quiet().map_err(failed)? => {
                return Ok(Copied::Changing);
            }
            Copied::Split(0) if single => (done, single) = (end, false),
            // At the end of a mapping.
            Copied::Split(bytes) => (done, single) = (done + bytes as usize, true),
            other => return Ok(other),
        }
    }
    Ok(Copied::All)
}

/// The wanted block that holds the content of an address.
pub(crate) fn block_at(image: &Image, address: u64) -> Option<usize> {
    let extent = image.extent_at(address)?;
    let part = extent.home as usize;
    let block = image.parts[part].block_of(extent.first + (address - extent.start) / PAGE_BYTES);
    let blocks = &image.wants.blocks;
    blocks.binary_search_by_key(&(part, block), |w| (w.part, w.block)).ok()
}

/// Waits until all is there of which a restore has the process wait: with `late`, where pages
/// may come late, what is needed first and what cannot; else everything.
pub fn wait_for_first(image: &Image, late: bool) -> Result<(), ImageError> {
    let late = late && image.children.is_empty() && is_permitted();
    let ranges = if late { ranges(image) } else { Vec::new() };
    let now = |w: &Wanted| image.wants.pieces_of(w).iter().any(|p| !within(&ranges, p.address));
    let all = image.wants.blocks.iter().enumerate();
    let mut first: Vec<usize> = all.filter(|(_, w)| now(w)).map(|(i, _)| i).collect();
    if late {
        first.extend(needed_first(image, &ranges));
    }
    image.wait_for(first)?;
    image.children.iter().try_for_each(Image::wait_for_all)
}
