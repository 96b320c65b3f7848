//! Barrier and broadcast.

use std::rc::Rc;

use super::brief::BRIEF_BYTES;
use super::data::{Data, Scratch, check_buffer, pack, unpack};
use super::{Block, How};
use super::{FEW_RANKS, LARGE_BYTES};
use crate::comm::Comm;
use crate::consts::REQUEST_NULL;
use crate::datatype::Datatype;
use crate::datatype::predefined::BYTE;
use crate::error::Res;
use crate::handle::Handle;
use crate::machine::Machine;

/// Fewer ranks broadcast large data down the tree too.
pub(super) const SCATTER_RANKS_MIN: u32 = 4;

/// Part `rank` of `bytes` bytes cut for `n` ranks: offset and length.
pub(super) fn part(bytes: u64, n: u32, rank: u32) -> (u64, u64) {
    let share = bytes.div_ceil(u64::from(n)).next_multiple_of(64);
    let start = (share * u64::from(rank)).min(bytes);
    (start, share.min(bytes - start))
}

impl Machine {
    /// Few ranks hear from all others at once. Else dissemination: in round `k` every rank hears
    /// from the one `2^k` below.
    pub fn barrier(&mut self, comm: Handle) -> Res<()> {
        let (handle, (comm, tag)) = (comm, self.start_collective(comm)?);
        if comm.is_inter() {
            let begun = self.barrier_begun(How::Now, handle);
            return self.in_one_call(begun);
        }
        self.begin_collective(&comm, tag)?;
        let (n, me) = (comm.size(), comm.rank);
        let byte = self.types.get(BYTE)?;
        if n <= FEW_RANKS {
            return self.meet(&comm, tag, &byte);
        }
        if let Some(groups) = comm.groups.get() {
            return self.barrier_wide(&comm, groups, tag, &byte);
        }
        let mut step = 1;
        while step < n {
            let (to, from) = ((me + step) % n, (me + n - step) % n);
            // SAFETY: nothing is read or written at the addresses, as the counts are 0.
            unsafe {
                let sent = self.coll_isend(&comm, std::ptr::null(), 0, &byte, to, tag)?;
                let received = self.coll_recv(&comm, std::ptr::null_mut(), 0, &byte, from, tag);
                received.and(self.coll_wait(&[sent]))?;
            }
            step <<= 1;
        }
        Ok(())
    }

    /// Every rank hears from each other one of a few.
    fn meet(&mut self, comm: &Rc<Comm>, tag: i32, byte: &Rc<Datatype>) -> Res<()> {
        let (n, me) = (comm.size(), comm.rank);
        let mut begun = [REQUEST_NULL; 2 * FEW_RANKS as usize];
        for (k, pair) in (1..n).zip(begun.chunks_exact_mut(2)) {
            let (to, from) = ((me + k) % n, (me + n - k) % n);
            // SAFETY: nothing is read or written at the addresses, as the counts are 0.
            unsafe {
                pair[0] = self.coll_irecv(comm, std::ptr::null_mut(), 0, byte, from, tag)?;
                pair[1] = self.coll_isend(comm, std::ptr::null(), 0, byte, to, tag)?;
            }
        }
        self.coll_wait(&begun)
    }

    /// # Safety
    /// `buf` is valid for the type, as MPI requires.
    pub unsafe fn bcast(
        &mut self,
        buf: *mut u8,
        count: i64,
        dt: Handle,
        root: i32,
        comm: Handle,
    ) -> Res<()> {
        let (handle, (comm, tag)) = (comm, self.start_collective(comm)?);
        if comm.is_inter() {
            // SAFETY: the caller's promise.
            let begun =
                unsafe { self.bcast_begun(How::Now, Block { buf, count, dt }, root, handle) };
            return self.in_one_call(begun);
        }
        let (count, dt) = self.checked_type(count, dt)?;
        let root = comm.root(root)?;
        check_buffer(buf, count, &dt)?;
        self.begin_collective(&comm, tag)?;
        let data = Data::new(buf, count, &dt);
        if data.bytes() == 0 || comm.size() == 1 {
            return Ok(());
        }
        // SAFETY: the caller's promise.
        unsafe {
            let brief = data.bytes() <= BRIEF_BYTES && comm.size() <= FEW_RANKS;
            if let Some(groups) = comm.groups.get().filter(|_| !brief) {
                self.bcast_wide(&comm, groups, tag, data, root)
            } else if data.bytes() >= 4 * LARGE_BYTES && comm.size() >= SCATTER_RANKS_MIN {
                self.bcast_parts(&comm, tag, data, root)
            } else if brief {
                match comm.rank == root {
                    true => self.distribute(&comm, tag, &|_| data),
                    false => self.receive(&comm, tag, data, root),
                }
            } else {
                self.bcast_tree(&comm, tag, data, root)
            }
        }
    }

    /// Gives all of a communicator the bytes of its rank 0; all have as many.
    pub(crate) fn bcast_bytes(&mut self, comm: &Rc<Comm>, bytes: &mut [u8]) -> Res<()> {
        let (tag, byte) = (comm.next_tag(), self.types.get(BYTE)?);
        let data = Data::new(bytes.as_mut_ptr(), bytes.len() as u64, &byte);
        // SAFETY: `bytes` is borrowed until all of it has been sent or received.
        unsafe {
            match comm.groups.get() {
                Some(groups) => self.bcast_wide(comm, groups, tag, data, 0),
                None => self.bcast_tree(comm, tag, data, 0),
            }
        }
    }

    /// Binomial tree.
    unsafe fn bcast_tree(&mut self, comm: &Rc<Comm>, tag: i32, data: Data, root: u32) -> Res<()> {
        let n = comm.size();
        let rank = |relative: u32| (relative + root) % n;
        let me = (comm.rank + n - root) % n;
        let mut step = 1;
        while step < n && me & step == 0 {
            step <<= 1;
        }
        // SAFETY: the buffer is valid by the caller's promise.
        unsafe {
            let mut result = Ok(());
            if me != 0 {
                result = self.receive(comm, tag, data, rank(me & !step));
            }
            let mut sends = [REQUEST_NULL; u32::BITS as usize];
            let mut used = 0;
            while step > 1 {
                step >>= 1;
                if me + step >= n {
                    continue;
                }
                let to = rank(me + step);
                match self.coll_isend(comm, data.ptr, data.count, data.dt, to, tag) {
                    Ok(request) => {
                        sends[used] = request;
                        used += 1;
                    }
                    Err(e) => result = result.and(Err(e)),
                }
            }
            result.and(self.coll_wait(&sends[..used]))
        }
    }

    /// Each rank gets one part from the root and the others from each other.
    unsafe fn bcast_parts(&mut self, comm: &Rc<Comm>, tag: i32, data: Data, root: u32) -> Res<()> {
        let (n, me, bytes) = (comm.size(), comm.rank, data.bytes());
        let byte = self.types.get(BYTE)?;
        // What goes out as bytes is cleared of padding when it is packed.
        let run = data.dt.contiguous_run(data.count).filter(|_| !data.dt.is_padded());
        let mut temporary = Scratch::bytes(if run.is_some() { 0 } else { bytes })?;
        let base = match run {
            Some(at) => data.ptr.wrapping_offset(at as isize),
            None => {
                temporary.zero();
                temporary.ptr()
            }
        };
        let of = |rank: u32| {
            let (start, len) = part(bytes, n, rank);
            Data::new(base.wrapping_add(start as usize), len, &byte)
        };
        let nothing = Data::new(base, 0, &byte);
        // SAFETY: the parts tile the `bytes` bytes at `base`, which are the program's run or ours.
        unsafe {
            let mut result;
            if me == root {
                if run.is_none() {
                    pack(data, base);
                }
                result = self.distribute(comm, tag, &of);
            } else {
                result = self.receive(comm, tag, of(me), root);
            }
            // The root has all parts, and passes on only its own.
            let to = |rank: u32| if rank == root { nothing } else { of(me) };
            let from = |rank: u32| if me == root { nothing } else { of(rank) };
            result = result.and(self.pairwise(comm, tag, &to, &from, false));
            if run.is_none() && me != root {
                result = result.and(unpack(base, bytes, data));
            }
            result
        }
    }
}

#[cfg(test)]
mod tests {
    use super::part;

    #[test]
    fn parts_tile_the_buffer() {
        for bytes in [1u64, 63, 64, 65, 1000, 131_072, 131_073] {
            for n in 1..20 {
                let mut at = 0;
                for rank in 0..n {
                    let (start, len) = part(bytes, n, rank);
                    assert_eq!(start, at);
                    at += len;
                }
                assert_eq!(at, bytes);
            }
        }
    }
}
