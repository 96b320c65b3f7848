//! Typed buffers of collectives: argument checks, local copies, temporaries.

use std::rc::Rc;

use crate::comm::Comm;
use crate::consts::IN_PLACE;
use crate::datatype::Datatype;
use crate::datatype::predefined::BYTE;
use crate::error::{Res, class};
use crate::handle::Handle;
use crate::machine::Machine;

/// `count` elements of a datatype at an address of the program or of a temporary.
#[derive(Clone, Copy)]
pub(super) struct Data<'a> {
    pub(super) ptr: *mut u8,
    pub(super) count: u64,
    pub(super) dt: &'a Rc<Datatype>,
}

impl<'a> Data<'a> {
    pub(super) fn new(ptr: *mut u8, count: u64, dt: &'a Rc<Datatype>) -> Self {
        Data { ptr, count, dt }
    }

    /// For a buffer that is only read.
    pub(super) fn source(ptr: *const u8, count: u64, dt: &'a Rc<Datatype>) -> Self {
        Data { ptr: ptr.cast_mut(), count, dt }
    }

    /// Bytes of data.
    pub(super) fn bytes(&self) -> u64 {
        self.count.wrapping_mul(self.dt.size)
    }
}

/// Address of element `index` of an array at `base`.
pub(super) fn element(base: *mut u8, index: i64, dt: &Datatype) -> *mut u8 {
    base.wrapping_offset(index.wrapping_mul(dt.extent) as isize)
}

pub(super) fn is_in_place(ptr: *const u8) -> bool {
    ptr as usize == IN_PLACE
}

/// Refuses `MPI_IN_PLACE`, null where the data cannot lie at absolute addresses, and more data
/// than can be addressed.
pub(super) fn check_buffer(ptr: *const u8, count: u64, dt: &Datatype) -> Res<()> {
    dt.bytes(count).ok_or(class::COUNT)?;
    let null = ptr.is_null() && count > 0 && dt.size > 0 && dt.true_lb == 0;
    if null || is_in_place(ptr) { Err(class::BUFFER) } else { Ok(()) }
}

/// The same for one of several blocks that lie at displacements from `base`: with `MPI_BOTTOM`
/// these are addresses.
pub(super) fn check_block(base: *const u8, block: Data) -> Res<()> {
    if is_in_place(base) {
        return Err(class::BUFFER);
    }
    check_buffer(block.ptr, block.count, block.dt)
}

/// Refuses one place given for both directions. Only what begins at the same byte is found, so that
/// no call is refused of which the standard says that it is right.
pub(super) fn check_alias(from: Data, to: Data) -> Res<()> {
    let first = |d: Data| d.ptr.wrapping_offset(d.dt.true_lb as isize);
    let both = from.bytes() > 0 && to.bytes() > 0;
    if both && first(from) == first(to) { Err(class::BUFFER) } else { Ok(()) }
}

pub(super) fn check_count(count: i64) -> Res<u64> {
    u64::try_from(count).map_err(|_| class::COUNT)
}

impl Machine {
    /// The communicator and the operation's tag, which is taken (`Comm::take_tag`) when all
    /// arguments are found right: a call that is refused has not been, and the same call with the
    /// right arguments fits to those of the other ranks.
    pub(super) fn start_collective(&self, comm: Handle) -> Res<(Rc<Comm>, i32)> {
        let comm = self.comms.get(comm)?;
        // One that has a single member sends nothing.
        comm.usable()?;
        let tag = comm.tag_ahead();
        Ok((comm, tag))
    }

    /// The same where each block has a type of its own: that of an empty one may be no type
    /// (MPI_DATATYPE_NULL), as in MPICH.
    pub(super) fn type_of_block(&self, count: i64, dt: Handle) -> Res<(u64, Rc<Datatype>)> {
        if count == 0 {
            return Ok((0, self.types.get(BYTE)?));
        }
        self.checked_type(count, dt)
    }

    /// A committed datatype; `count` elements of it are addressable.
    pub(super) fn checked_type(&self, count: i64, dt: Handle) -> Res<(u64, Rc<Datatype>)> {
        let count = check_count(count)?;
        let dt = self.types.get_committed(dt)?;
        dt.bytes(count).ok_or(class::COUNT)?;
        Ok((count, dt.clone()))
    }
}

/// Copies between two buffers of this process that do not overlap.
///
/// # Safety
/// Both buffers are valid for their types.
pub(super) unsafe fn copy(from: Data, to: Data) -> Res<()> {
    let bytes = from.bytes();
    if bytes > to.bytes() {
        return Err(class::TRUNCATE);
    }
    if bytes == 0 {
        return Ok(());
    }
    let runs = (from.dt.contiguous_run(from.count), to.dt.contiguous_run(to.count));
    let len = bytes as usize;
    // SAFETY: the runs are the whole data of the buffers, which the caller vouches for; a packed
    // slice covers exactly the bytes of a run or of the temporary.
    unsafe {
        match runs {
            (Some(a), Some(b)) => {
                let source = from.ptr.wrapping_offset(a as isize);
                source.copy_to(to.ptr.wrapping_offset(b as isize), len);
            }
            (Some(a), None) => {
                let source = from.ptr.wrapping_offset(a as isize);
                let packed = std::slice::from_raw_parts(source, len);
                to.dt.unpack_range(to.ptr, to.count, 0, packed);
            }
            (None, b) => {
                let mut temporary;
                let target = match b {
                    Some(b) => to.ptr.wrapping_offset(b as isize),
                    None => {
                        temporary = Scratch::bytes(bytes)?;
                        temporary.zero();
                        temporary.ptr()
                    }
                };
                let packed = std::slice::from_raw_parts_mut(target, len);
                from.dt.pack_range(from.ptr, from.count, 0, packed);
                if b.is_none() {
                    to.dt.unpack_range(to.ptr, to.count, 0, packed);
                }
            }
        }
    }
    Ok(())
}

/// Packs `from` to `at`.
///
/// # Safety
/// `from` is valid for its type; `at` has `from.bytes()` writable bytes elsewhere.
pub(super) unsafe fn pack(from: Data, at: *mut u8) {
    if from.bytes() != 0 {
        // SAFETY: the caller's promise.
        unsafe {
            let out = std::slice::from_raw_parts_mut(at, from.bytes() as usize);
            from.dt.pack_range(from.ptr, from.count, 0, out);
        }
    }
}

/// Unpacks `bytes` bytes at `at` into `to`, which may be larger.
///
/// # Safety
/// `to` is valid for its type; `at` has `bytes` readable bytes elsewhere.
pub(super) unsafe fn unpack(at: *const u8, bytes: u64, to: Data) -> Res<()> {
    if bytes > to.bytes() {
        return Err(class::TRUNCATE);
    }
    if bytes != 0 {
        // SAFETY: the caller's promise.
        unsafe {
            let data = std::slice::from_raw_parts(at, bytes as usize);
            to.dt.unpack_range(to.ptr, to.count, 0, data);
        }
    }
    Ok(())
}

const INLINE_WORDS: usize = 16;

/// Temporary memory: on the stack when small. Its address holds as long as it is not moved.
pub(super) struct Scratch {
    inline: [u128; INLINE_WORDS],
    heap: Vec<u128>,
    bytes: usize,
    /// From the first byte to the address that a typed buffer is named by.
    shift: isize,
}

impl Scratch {
    /// Room for `bytes` bytes.
    pub(super) fn bytes(bytes: u64) -> Res<Scratch> {
        Scratch::with(bytes, INLINE_WORDS)
    }

    /// The same, on the stack up to so many words.
    fn with(bytes: u64, inline_words: usize) -> Res<Scratch> {
        let bytes = usize::try_from(bytes).map_err(|_| class::NO_MEM)?;
        let words = bytes.div_ceil(size_of::<u128>());
        let mut heap = Vec::new();
        if words > inline_words {
            heap.try_reserve_exact(words).map_err(|_| class::NO_MEM)?;
        }
        Ok(Scratch { inline: [0; INLINE_WORDS], heap, bytes, shift: 0 })
    }

    /// Room for `count` elements of `dt`, gaps included.
    pub(super) fn typed(dt: &Datatype, count: u64) -> Res<Scratch> {
        Scratch::typed_with(dt, count, INLINE_WORDS)
    }

    /// Room for `count` elements of `dt` that stays where it is when this is moved.
    pub(super) fn lasting(dt: &Datatype, count: u64) -> Res<Scratch> {
        Scratch::typed_with(dt, count, 0)
    }

    fn typed_with(dt: &Datatype, count: u64, inline_words: usize) -> Res<Scratch> {
        if count == 0 {
            return Scratch::bytes(0);
        }
        let last = i64::try_from(count - 1).ok().and_then(|n| n.checked_mul(dt.extent));
        let last = last.ok_or(class::NO_MEM)?;
        let span = last.unsigned_abs().checked_add(dt.true_extent.unsigned_abs());
        let mut scratch = Scratch::with(span.ok_or(class::NO_MEM)?, inline_words)?;
        scratch.shift = -(last.min(0) + dt.true_lb) as isize;
        Ok(scratch)
    }

    /// Sets all bytes, where code other than raw copies will look at them.
    pub(super) fn zero(&mut self) {
        let bytes = self.bytes;
        // SAFETY: the first byte is `ptr() - shift`, and `bytes` bytes were reserved behind it.
        unsafe { self.ptr().wrapping_offset(-self.shift).write_bytes(0, bytes) }
    }

    pub(super) fn ptr(&mut self) -> *mut u8 {
        let first = if self.heap.capacity() == 0 {
            self.inline.as_mut_ptr().cast::<u8>()
        } else {
            self.heap.as_mut_ptr().cast::<u8>()
        };
        first.wrapping_offset(self.shift)
    }
}
