//! The thread that fills a process which runs already: it brings in what the process waits for and
//! all else in time, and keeps account of where its memory has been moved meanwhile.

use crate::PAGE_BYTES;
use crate::blocks::{Blocks, Wanted};
use crate::error::RestoreError;
use crate::format::Extent;
use crate::hot;
use crate::image::Image;
use crate::keeper::Keeper;
use crate::lazy::{Shared, lock, not_filling, within};
use crate::missing::{Copied, Event, Uffd};
use crate::moves::Moves;
use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long to wait for a report that must come.
const REPORT_WAIT: Duration = Duration::from_millis(100);

/// For each wanted block, whether part of it belongs in the ranges.
fn wanted_within(image: &Image, ranges: &[(u64, u64)]) -> Vec<bool> {
    let blocks = image.wants.blocks.iter();
    let any = |w: &Wanted| image.wants.pieces_of(w).iter().any(|p| within(ranges, p.address));
    blocks.map(any).collect()
}

/// A process being filled: the restored one, or one that it has forked meanwhile.
struct Target {
    uffd: Uffd,
    moves: Moves,
    /// For each wanted block, whether it is in.
    filled: Vec<bool>,
    next: usize,
    dead: bool,
}

impl Target {
    fn new(uffd: Uffd, blocks: usize) -> Target {
        Target { uffd, moves: Moves::default(), filled: vec![false; blocks], next: 0, dead: false }
    }
}

/// The thread that does it.
pub(crate) struct Filler {
    image: Arc<Image>,
    targets: Vec<Target>,
    wanted: Vec<bool>,
    hot: Vec<usize>,
    blocks: Blocks,
    shared: Arc<Shared>,
    process: OwnedFd,
    begun: Instant,
    limit: Duration,
    faults: u64,
    /// Faults that were reported and not served yet: target and page.
    waiting: VecDeque<(usize, u64)>,
}

impl Filler {
    /// Will fill the ranges of the process behind `process` through `uffd`, within `limit`.
    pub fn new(
        image: &Arc<Image>,
        uffd: Uffd,
        process: OwnedFd,
        shared: &Arc<Shared>,
        ranges: &[(u64, u64)],
        limit: Duration,
    ) -> Filler {
        Filler {
            targets: vec![Target::new(uffd, image.wants.blocks.len())],
            wanted: wanted_within(image, ranges),
            hot: hot::blocks(image),
            image: Arc::clone(image),
            blocks: Blocks::default(),
            shared: Arc::clone(shared),
            process,
            begun: Instant::now(),
            limit,
            faults: 0,
            waiting: VecDeque::new(),
        }
    }

    /// Fills it to the end.
    pub fn run(mut self, pid: libc::pid_t, keeper: Keeper) {
        let result = self.fill_all();
        if result.is_err() {
            let (process, info) = (self.process.as_raw_fd(), std::ptr::null::<libc::siginfo_t>());
            // SAFETY: numbers and no information; the descriptor stands for this very process.
            unsafe {
                libc::syscall(libc::SYS_pidfd_send_signal, process, libc::SIGKILL, info, 0);
            }
        }
        drop(keeper);
        self.targets.clear();
        not_filling(pid);
        let mut progress = lock(&self.shared.progress);
        progress.filled.all = self.begun.elapsed();
        progress.filled.faults = self.faults;
        progress.failure = result.err();
        progress.over = true;
        self.shared.changed.notify_all();
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
            // The mappings are being changed; that is reported at any moment.
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
        for piece in image.wants.pieces_of(&image.wants.blocks[block]) {
            let end = piece.address + piece.bytes as u64;
            for (origin, bytes, at) in target.moves.now(piece.address, end) {
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
            for event in self.targets[target].uffd.events().map_err(failed)? {
                self.note(target, event);
            }
        }
        Ok(())
    }

    fn note(&mut self, target: usize, event: Event) {
        match event {
            Event::Fault(page) => self.waiting.push_back((target, page)),
            Event::Moved { from, to, bytes } => self.targets[target].moves.moved(from, to, bytes),
            Event::Gone { start, end } => self.targets[target].moves.gone(start, end),
            Event::Fork(uffd) => {
                let parent = &self.targets[target];
                let (moves, filled) = (parent.moves.clone(), parent.filled.clone());
                self.targets.push(Target { uffd, moves, filled, next: 0, dead: false });
            }
        }
    }

    fn serve_all(&mut self) -> Result<(), RestoreError> {
        while let Some((target, page)) = self.waiting.pop_front() {
            self.serve(target, page)?;
        }
        Ok(())
    }

    /// Brings in the page that the process waits for.
    fn serve(&mut self, target: usize, page: u64) -> Result<(), RestoreError> {
        self.faults += 1;
        let origin = self.targets[target].moves.origin(page);
        match origin.and_then(|origin| block_at(&self.image, origin)) {
            Some(block) if !self.targets[target].filled[block] => self.fill(target, block)?,
            Some(_) => {}
            None => {
                let target = &mut self.targets[target];
                target.dead |= target.uffd.zero(page).map_err(failed)? == Copied::Dead;
            }
        }
        self.targets[target].uffd.wake(page);
        Ok(())
    }
}

fn failed(source: io::Error) -> RestoreError {
    RestoreError::Os { what: "fill the restored process's memory", source }
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
            // At the end of a mapping, or of what is still mapped.
            Copied::Split(0) if single => (done, single) = (end, false),
            Copied::Split(bytes) => (done, single) = (done + bytes as usize, true),
            other => return Ok(other),
        }
    }
    Ok(Copied::All)
}

/// The wanted block that holds the content of an address.
pub(crate) fn block_at(image: &Image, address: u64) -> Option<usize> {
    let after = image.extents.partition_point(|e| e.start <= address);
    let extent: &Extent = image.extents.get(after.checked_sub(1)?)?;
    let page = (address - extent.start) / PAGE_BYTES;
    if page >= extent.pages {
        return None;
    }
    let part = extent.home as usize;
    let block = image.parts[part].block_of(extent.first + page);
    let blocks = &image.wants.blocks;
    blocks.binary_search_by_key(&(part, block), |w| (w.part, w.block)).ok()
}
