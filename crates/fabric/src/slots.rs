//! The memory that messages are received into and sent from, in slots of one size.
//!
//! Kept true: a slot's bytes are touched only by its owner: the provider while it is posted, else
//! who holds the lock of its direction.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::ffi::c_void;
use std::ptr::NonNull;

/// Bytes of a message at most: a piece of a log with its head goes into one.
pub(crate) const SLOT_BYTES: usize = 68 * 1024;
/// Messages that may arrive before their receiver looks.
pub(crate) const RECEIVES: usize = 16;
/// Messages under way before their sender waits.
pub(crate) const SENDS: usize = 16;
pub(crate) const SLOTS: usize = RECEIVES + SENDS;

const PAGE_BYTES: usize = 4096;

/// What providers may use as their own while an operation is posted.
#[derive(Clone, Copy, Default)]
#[repr(C)]
struct Context([usize; 8]);

/// Slots for receiving first, then those for sending.
pub(crate) struct Slots {
    at: NonNull<u8>,
    contexts: NonNull<Context>,
}

// SAFETY: plain memory, which lasts until it is dropped; who may touch which part is said above.
unsafe impl Send for Slots {}
// SAFETY: as above.
unsafe impl Sync for Slots {}

fn layouts() -> (Layout, Layout) {
    let memory = Layout::new::<[u8; SLOTS * SLOT_BYTES]>();
    // A page is a power of two, and small.
    let memory = memory.align_to(PAGE_BYTES).unwrap_or(memory);
    (memory, Layout::new::<[Context; SLOTS]>())
}

impl Slots {
    pub fn new() -> Slots {
        let (memory, contexts) = layouts();
        // SAFETY: both have a size. Pages that are never used are never there.
        let (at, context) = unsafe { (alloc_zeroed(memory), alloc_zeroed(contexts)) };
        match (NonNull::new(at), NonNull::new(context)) {
            (Some(at), Some(context)) => Slots { at, contexts: context.cast() },
            _ => handle_alloc_error(memory),
        }
    }

    /// All of it, for being registered.
    pub fn memory(&self) -> (*const c_void, usize) {
        (self.at.as_ptr().cast_const().cast(), SLOTS * SLOT_BYTES)
    }

    pub fn slot(&self, slot: usize) -> *mut u8 {
        assert!(slot < SLOTS);
        // SAFETY: inside of the memory.
        unsafe { self.at.as_ptr().add(slot * SLOT_BYTES) }
    }

    /// What an operation with this slot is known by.
    pub fn context(&self, slot: usize) -> *mut c_void {
        assert!(slot < SLOTS);
        // SAFETY: inside of the memory.
        unsafe { self.contexts.as_ptr().add(slot).cast() }
    }

    /// The slot that is known by this.
    pub fn of_context(&self, context: *mut c_void) -> Option<usize> {
        let offset = (context as usize).checked_sub(self.contexts.as_ptr() as usize)?;
        let slot = offset / size_of::<Context>();
        (slot < SLOTS && offset % size_of::<Context>() == 0).then_some(slot)
    }
}

impl Drop for Slots {
    fn drop(&mut self) {
        let (memory, contexts) = layouts();
        // SAFETY: allocated with these layouts.
        unsafe {
            dealloc(self.at.as_ptr(), memory);
            dealloc(self.contexts.as_ptr().cast(), contexts);
        }
    }
}
