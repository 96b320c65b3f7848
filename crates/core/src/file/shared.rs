//! Shared file pointers (MPI 5.0 section 14.4.4).
//!
//! The first rank of a file keeps its pointer in memory. Who moves it asks that rank by a message,
//! and is answered with the offset before. The keeper answers in any call of MPI, as for windows
//! (`rma::target`): that, and when, it did so is recorded, and repeated in a replay; what it
//! answers is a message that follows from it. So each offset is given once, to a rank that died
//! the same one again, and where all ranks go back to a snapshot the pointer goes back with them.
//!
//! Views and seeks are collective, and set the pointer. Kept true: all ranks count them alike, and
//! each message says the count and where the pointer was set. So the keeper need not be first to
//! know, and nobody waits for it.

use super::disk::Place;
use super::pointer::{Asked, Pointer};
use super::{File, FileTable, SEEK_CUR, SEEK_END, SEEK_SET};
use crate::consts::COMM_SELF;
use crate::datatype::predefined::BYTE;
use crate::error::{Res, class};
use crate::handle::Handle;
use crate::machine::Machine;
use crate::request::{Data, Op, RecvOp};

/// Who keeps the pointer: rank of the file's communicator.
const KEEPER: u32 = 0;
impl FileTable {
    /// Whether this rank keeps the pointer of any file that others may move.
    #[inline]
    pub(crate) fn keeps_pointers(&self) -> bool {
        !self.kept.is_empty()
    }

    /// The contexts in which others ask for that.
    pub(crate) fn pointer_contexts(&self) -> impl Iterator<Item = u32> {
        self.kept.iter().map(|(ctx, _)| *ctx)
    }

    pub(crate) fn pointer_in(&self, ctx: u32) -> Option<Handle> {
        self.kept.iter().find(|(of, _)| *of == ctx).map(|(_, fh)| *fh)
    }

    /// The file is open; others may ask from now on.
    pub(super) fn keep(&mut self, fh: Handle) {
        let Some(file) = self.slab.get(fh) else { return };
        let (rank, ranks) = (file.ranks.rank, file.ranks.size());
        if file.pointer.is_some() && rank == KEEPER && ranks > 1 {
            self.kept.push((file.ranks.ctx(), fh));
        }
    }

    /// All ranks are closing the file.
    pub(super) fn give_up(&mut self, fh: Handle) {
        self.kept.retain(|(_, of)| *of != fh);
    }
}

impl File {
    fn pointer(&self) -> Res<&Pointer> {
        self.pointer.as_ref().ok_or(class::UNSUPPORTED_OPERATION)
    }

    fn pointer_mut(&mut self) -> Res<&mut Pointer> {
        self.pointer.as_mut().ok_or(class::UNSUPPORTED_OPERATION)
    }

    /// A view begins, or a seek is done: the pointer is there, if the file has one.
    pub(super) fn set_shared(&mut self, to: i64) {
        if let Some(pointer) = &mut self.pointer {
            pointer.set(to);
        }
    }
}

impl Machine {
    /// Does what another rank of the file has asked for.
    pub(crate) fn serve_pointer(&mut self, fh: Handle, source: u32) -> Res<()> {
        let ranks = self.files.get(fh)?.ranks.clone();
        let asked = Asked::parse(&self.receive_asked(&ranks, source)?)?;
        let to = ranks.rank_of_world(source).ok_or(class::INTERN)?;
        let file = self.files.slab.get_mut(fh).ok_or(class::FILE)?;
        let was = file.pointer_mut()?.moved(asked);
        let ctx = ranks.partitioned_ctx(true);
        self.post_bytes(&ranks, ctx, to, 0, was.to_ne_bytes().to_vec())
    }

    /// Moves the pointer so many etypes on; returns where it was.
    pub(super) fn shared_moved(&mut self, fh: Handle, by: i64) -> Res<i64> {
        let file = self.files.get(fh)?;
        let (ranks, asked) = (file.ranks.clone(), file.pointer()?.asked(by));
        if ranks.rank == KEEPER {
            // What others ask for comes before or after it, as before or after a message.
            self.pass_place();
            let file = self.files.slab.get_mut(fh).ok_or(class::FILE)?;
            return Ok(file.pointer_mut()?.moved(asked));
        }
        self.post_bytes(&ranks, ranks.ctx(), KEEPER, 0, asked.bytes())?;
        let mut was = Box::new([0u8; 8]);
        let data = Data::new(was.as_mut_ptr(), was.len() as u64, self.types.get(BYTE)?);
        let (ctx, keeper) = (ranks.partitioned_ctx(true), ranks.world_rank(KEEPER));
        let op = RecvOp { open: true, ..self.recv_op(ctx, data, Some(keeper), 0) };
        let req = self.new_request(&ranks, COMM_SELF, Op::Recv(op))?;
        self.post_recv(req);
        self.coll_wait(&[req])?;
        Ok(i64::from_ne_bytes(*was))
    }

    /// The offset of each rank whose data follows that of the ranks before it; they all ask at one
    /// time, each for its number of etypes.
    pub(super) fn shared_ordered(&mut self, fh: Handle, etypes: i64) -> Res<i64> {
        let file = self.files.get(fh)?;
        file.pointer()?;
        let (comm, ranks) = (file.comm, file.ranks.clone());
        let byte = self.types.get(BYTE)?;
        let own = etypes.to_ne_bytes();
        let mut all = vec![0u8; own.len() * ranks.size() as usize];
        // SAFETY: `all` has room for what each rank says.
        unsafe {
            self.allgather_bytes(&ranks, &byte, own.as_ptr(), all.as_mut_ptr(), own.len())?;
        }
        let counts: Vec<i64> =
            all.as_chunks().0.iter().map(|word| i64::from_ne_bytes(*word)).collect();
        let sum = |part: &[i64]| part.iter().try_fold(0i64, |sum, n| sum.checked_add(*n));
        let before = sum(&counts[..ranks.rank as usize]).ok_or(class::ARG)?;
        let total = sum(&counts).ok_or(class::ARG)?;
        let first = if ranks.rank == KEEPER { self.shared_moved(fh, total)? } else { 0 };
        self.file_told(comm, first)?.checked_add(before).ok_or(class::ARG)
    }

    /// `MPI_File_get_position_shared`.
    pub fn file_position_shared(&mut self, fh: Handle) -> Res<i64> {
        self.shared_moved(fh, 0)
    }

    /// `MPI_File_seek_shared`: of all ranks, which give the same.
    pub fn file_seek_shared(&mut self, fh: Handle, offset: i64, whence: i32) -> Res<()> {
        let file = self.files.get(fh)?;
        let (comm, view, place) = (file.comm, file.view.clone(), file.place.clone());
        let first = file.ranks.rank == KEEPER;
        let mut known = file.not_sequential().and_then(File::pointer).map(drop);
        if ![SEEK_SET, SEEK_CUR, SEEK_END].contains(&whence) {
            known = known.and(Err(class::ARG));
        }
        self.file_agree(comm, i64::from(whence), known)?;
        let from = match whence {
            SEEK_CUR if first => self.shared_moved(fh, 0),
            SEEK_END if first => self.shared_end(&view, &place),
            _ => Ok(0),
        };
        let target = |from: i64| {
            let to = from.checked_add(offset).filter(|&to| to >= 0).ok_or(class::ARG)?;
            view.start(to).map(|_| to)
        };
        let mut to = if first { from.and_then(target) } else { Ok(0) };
        self.file_agree(comm, offset, to.map(drop))?;
        to = to.and_then(|to| self.file_told(comm, to));
        self.files.slab.get_mut(fh).ok_or(class::FILE)?.set_shared(to?);
        Ok(())
    }

    fn shared_end(&mut self, view: &super::view::View, place: &Place) -> Res<i64> {
        view.end(self.file_once(|| place.size())?)
    }

    /// Position in the file where the next one will read or write through the shared pointer: what
    /// `MPI_DISPLACEMENT_CURRENT` stands for.
    pub(super) fn shared_displacement(&mut self, fh: Handle) -> Res<i64> {
        let file = self.files.get(fh)?;
        let (comm, view, first) = (file.comm, file.view.clone(), file.ranks.rank == KEEPER);
        let found = match first {
            true => self.shared_moved(fh, 0).and_then(|at| view.byte_offset(at)),
            false => Ok(0),
        };
        self.file_agree(comm, 0, found.map(drop))?;
        self.file_told(comm, found?)
    }
}
