//! Operations on memory of other ranks that this one maps, where nothing is recorded of what ranks
//! do (`--ft none`, `--ft coordinated`): they are done when the call returns, and their targets
//! have no part in them.
//!
//! Kept true: elements of 1, 2, 4 and 8 bytes are changed by atomic instructions, so the program's
//! own count, too; all others under the lock beside the memory, which nobody holds while he waits.

use std::rc::Rc;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64};

use super::message::{Kind, Message};
use super::origin::Target;
use super::window::{Flavor, Window};
use crate::error::{Res, class};
use crate::machine::Machine;
use crate::op::{NO_OP, REPLACE};
use crate::request::Data;

/// Looks at a lock before another process gets the core.
const LOOKS: u32 = 200;
/// Bytes of the largest element that is changed by an atomic instruction.
const WORD_BYTES: usize = 8;

/// Bytes of an element, at an address that every element may have.
#[repr(C, align(16))]
#[derive(Clone, Copy)]
struct Element([u8; WORD_BYTES]);

impl Machine {
    /// Puts or gets what lies in one run on both sides, if it can be reached. False: it is no such
    /// operation.
    ///
    /// # Safety
    /// The program's buffer holds the data.
    #[inline]
    pub(super) unsafe fn rma_copy(
        &self,
        (window, rank): &(Rc<Window>, u32),
        data: &Data,
        there: &Target,
        kind: Kind,
    ) -> Res<bool> {
        if !window.is_near(*rank) || !data.is_plain() {
            return Ok(false);
        }
        let Some(here) = data.flat else { return Ok(false) };
        let dt = self.types.get_committed(there.dt)?;
        let count = u64::try_from(there.count).map_err(|_| class::COUNT)?;
        let Some(begin) = dt.contiguous_run(count) else { return Ok(false) };
        if dt.bytes(count).ok_or(class::COUNT)? != data.bytes {
            return Err(class::ARG);
        }
        let start = there.disp.checked_mul(window.shown[*rank as usize].1);
        let first = start.and_then(|s| s.checked_add(begin)).filter(|f| *f >= 0);
        let place = first.and_then(|first| window.place(*rank, first, data.bytes));
        let place = place.ok_or(class::RMA_RANGE)?;
        let bytes = data.bytes as usize;
        // SAFETY: the place is in memory that is mapped here, and the caller promises the other;
        // they may be the same.
        unsafe {
            match kind {
                Kind::Put => std::ptr::copy(here, place, bytes),
                _ => std::ptr::copy(place, here, bytes),
            }
        }
        Ok(true)
    }

    /// An operation on a rank that is near; what was there before.
    pub(super) fn rma_near(&mut self, window: &Window, rank: u32, m: &Message) -> Res<Vec<u8>> {
        debug_assert!(window.flavor != Flavor::Dynamic);
        match m.kind {
            Kind::Put => window.scatter_at(rank, m, &m.data).map(|()| Vec::new()),
            Kind::Get => window.gather_at(rank, m),
            Kind::Accumulate | Kind::GetAccumulate => self.combine_near(window, rank, m),
            Kind::CompareAndSwap => self.swap_near(window, rank, m),
            _ => Err(class::INTERN),
        }
    }

    fn combine_near(&mut self, window: &Window, rank: u32, m: &Message) -> Res<Vec<u8>> {
        let dt = self.types.get(m.element)?;
        let size = dt.size as usize;
        let kernel = self.ops.get(m.op)?.kernel_of(&dt);
        if m.op != NO_OP && m.data.len() as u64 != m.target_bytes() {
            return Err(class::INTERN);
        }
        let known = kernel.is_some() || m.op == REPLACE || m.op == NO_OP;
        if !known || !window.is_of_words(rank, m, size)? {
            let holder = self.holder();
            return window.locked(rank, &holder, || self.rma_combine_at(window, rank, m));
        }
        let mut before = vec![0u8; m.target_bytes() as usize];
        window.each_run_at(rank, m, |place, at, bytes| {
            for i in (0..bytes).step_by(size) {
                let operand = Element::of(m.data.get(at + i..at + i + size).unwrap_or_default());
                // SAFETY: an element of mapped memory, aligned to its size.
                let was = unsafe {
                    change(place.wrapping_add(i), size, |was| match (m.op, kernel) {
                        (NO_OP, _) => was,
                        (REPLACE, _) | (_, None) => operand,
                        (_, Some(kernel)) => {
                            let mut after = was;
                            kernel(operand.0.as_ptr(), after.0.as_mut_ptr(), 1);
                            after
                        }
                    })
                };
                before[at + i..at + i + size].copy_from_slice(&was.0[..size]);
            }
        })?;
        Ok(before)
    }

    fn swap_near(&mut self, window: &Window, rank: u32, m: &Message) -> Res<Vec<u8>> {
        let size = m.target_bytes() as usize;
        let (new, compare) = m.data.split_at(size.min(m.data.len()));
        if compare.len() != size {
            return Err(class::INTERN);
        }
        if !window.is_of_words(rank, m, size)? {
            return window.locked(rank, &self.holder(), || {
                let before = window.gather_at(rank, m)?;
                if before == compare {
                    window.scatter_at(rank, m, new)?;
                }
                Ok(before)
            });
        }
        let mut before = vec![0u8; size];
        window.each_run_at(rank, m, |place, at, _| {
            // SAFETY: as in `combine_near`.
            let was = unsafe {
                change(place, size, |was| match &was.0[..size] == compare {
                    true => Element::of(new),
                    false => was,
                })
            };
            before[at..at + size].copy_from_slice(&was.0[..size]);
        })?;
        Ok(before)
    }
}

/// Who takes a lock, and whether another who has it is lost.
struct Holder<F> {
    own: u32,
    is_lost: F,
}

impl Machine {
    fn holder(&self) -> Holder<impl Fn(u32) -> bool + use<>> {
        Holder { own: self.endpoint.rank() + 1, is_lost: self.endpoint.lost_ranks() }
    }
}

impl Window {
    /// Whether all that a message concerns are whole elements of this size which instructions can
    /// change.
    fn is_of_words(&self, rank: u32, m: &Message, size: usize) -> Res<bool> {
        let mut fit = matches!(size, 1 | 2 | 4 | 8);
        self.each_run_at(rank, m, |place, _, bytes| {
            fit = fit && bytes % size == 0 && place.addr() % size == 0;
        })?;
        Ok(fit)
    }

    /// Runs `f` while nobody else does in memory of this rank. Of a rank that is lost the lock is
    /// taken over.
    fn locked<T, F: Fn(u32) -> bool>(
        &self,
        rank: u32,
        holder: &Holder<F>,
        f: impl FnOnce() -> T,
    ) -> T {
        let lock = self.reach.locks[rank as usize].cast::<u32>();
        // SAFETY: the first word of the page before the memory, which is mapped with it and used
        // for nothing else.
        let lock = unsafe { AtomicU32::from_ptr(lock) };
        let mut looks = 0u32;
        let mut from = 0;
        while let Err(now) = lock.compare_exchange_weak(from, holder.own, Acquire, Relaxed) {
            from = 0;
            looks += 1;
            match looks % LOOKS {
                0 if now > 0 && (holder.is_lost)(now - 1) => from = now,
                0 => std::thread::yield_now(),
                _ => std::hint::spin_loop(),
            }
        }
        let result = f();
        lock.store(0, Release);
        result
    }
}

impl Element {
    fn of(bytes: &[u8]) -> Element {
        let mut all = [0; WORD_BYTES];
        all[..bytes.len()].copy_from_slice(bytes);
        Element(all)
    }
}

/// Changes an element in one step; what it was.
///
/// # Safety
/// It is 1, 2, 4 or 8 bytes long, at a multiple of that, and readable and writable.
unsafe fn change(at: *mut u8, size: usize, to: impl Fn(Element) -> Element) -> Element {
    macro_rules! by {
        ($atomic:ty, $word:ty) => {{
            // SAFETY: the caller's promise.
            let place = unsafe { <$atomic>::from_ptr(at.cast::<$word>()) };
            let mut was = place.load(Acquire);
            loop {
                let element = Element::of(&was.to_ne_bytes());
                let mut bytes = [0; size_of::<$word>()];
                bytes.copy_from_slice(&to(element).0[..size_of::<$word>()]);
                let new = <$word>::from_ne_bytes(bytes);
                match place.compare_exchange_weak(was, new, AcqRel, Acquire) {
                    Ok(_) => return element,
                    Err(now) => was = now,
                }
            }
        }};
    }
    match size {
        1 => by!(AtomicU8, u8),
        2 => by!(AtomicU16, u16),
        4 => by!(AtomicU32, u32),
        _ => by!(AtomicU64, u64),
    }
}
