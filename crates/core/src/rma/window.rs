//! Windows: making and freeing them, their attributes and hints.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;

use super::reach::{Arena, Reach, Room};
use crate::attr::AttrKind;
use crate::comm::Comm;
use crate::consts::{ERRORS_ARE_FATAL, WIN_NULL};
use crate::errhandler::ErrKind;
use crate::error::{Res, class};
use crate::handle::{Handle, Kind, Slab};
use crate::info::Info;
use crate::machine::Machine;

/// `MPI_WIN_FLAVOR_*`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Flavor {
    Create,
    Allocate,
    Dynamic,
    Shared,
}

/// The attributes of a window (`MPI_WIN_BASE` and so on).
pub const WIN_BASE: i32 = 601;
pub const WIN_DISP_UNIT: i32 = 602;
pub const WIN_SIZE: i32 = 603;
pub const WIN_CREATE_FLAVOR: i32 = 604;
pub const WIN_MODEL: i32 = 605;

/// What a rank shows of its memory.
#[derive(Clone, Copy, Debug)]
pub struct Memory {
    pub base: *mut u8,
    pub bytes: u64,
    pub unit: i32,
}

/// A lock that this rank holds at a target.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Held {
    No,
    Shared,
    Exclusive,
    /// `MPI_MODE_NOCHECK`: nobody was asked.
    Unchecked,
}

/// What goes on in a window.
pub(super) struct Epochs {
    /// Since a fence, operations may follow.
    pub fenced: bool,
    /// Fences that this rank has come to, and that each other one has.
    pub fences: u64,
    pub marks: Vec<u64>,
    /// Ranks that may be accessed (`MPI_Win_start`), and that may access (`MPI_Win_post`).
    pub access: Option<Vec<u32>>,
    pub exposed: Option<Vec<u32>>,
    /// Of each rank: exposures that it has begun and accesses that it has ended, not yet used.
    pub posts: Vec<u32>,
    pub completes: Vec<u32>,
    /// Locks that this rank holds, by target; `MPI_Win_lock_all` was called.
    pub held: Vec<Held>,
    pub all: bool,
    /// Whom the lock of this rank's memory belongs to, who waits for it (and whether exclusively).
    pub owner: Option<u32>,
    pub sharers: Vec<u32>,
    pub queue: VecDeque<(u32, bool)>,
    /// By target: whether operations without a reply were sent since the last flush, and receives
    /// of replies, with whether the program has their requests.
    pub sent: Vec<bool>,
    pub replies: Vec<Vec<(Handle, bool)>>,
    /// Number of the next reply, by target.
    pub numbers: Vec<i32>,
}

/// One window.
pub struct Window {
    /// Of its own: operations on its first context, replies on its third.
    pub(crate) comm: Rc<Comm>,
    pub(crate) handle: Cell<Handle>,
    /// The communicator's handle, which goes with the window.
    pub(super) comm_handle: Handle,
    pub flavor: Flavor,
    pub(super) own: Memory,
    /// What every rank shows: bytes and unit.
    pub(super) shown: Vec<(u64, i64)>,
    /// The memory of all ranks, as far as this one reaches it; what the library made goes with it.
    pub(super) reach: Reach,
    /// Operations go straight into the memory that is reached.
    pub(super) direct: bool,
    pub(super) attached: RefCell<Vec<(usize, u64)>>,
    pub(super) epochs: RefCell<Epochs>,
    pub(crate) errhandler: Cell<Handle>,
    hints: RefCell<Info>,
    name: RefCell<Vec<u8>>,
    /// The program gets addresses into this box: size, unit, flavor, model.
    attributes: Box<(isize, [i32; 3])>,
}

/// How the program's ABI writes flavors, in the order of `Flavor`, and `MPI_WIN_UNIFIED`.
#[derive(Clone, Copy, Debug)]
pub struct Numbers {
    pub flavors: [i32; 4],
    pub unified: i32,
}

/// All windows of this rank.
pub struct WindowTable {
    pub(crate) slab: Slab<Rc<Window>>,
    numbers: Numbers,
    /// Of this rank.
    pub(super) arena: Arena,
}

impl Default for WindowTable {
    fn default() -> Self {
        let numbers = Numbers { flavors: [311, 312, 313, 314], unified: 321 };
        WindowTable { slab: Slab::new(Kind::Win), numbers, arena: Arena::default() }
    }
}

impl WindowTable {
    pub(crate) fn get(&self, win: Handle) -> Res<&Rc<Window>> {
        self.slab.get(win).ok_or(class::WIN)
    }

    pub fn set_numbers(&mut self, numbers: Numbers) {
        self.numbers = numbers;
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.slab.is_empty()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Rc<Window>> {
        self.slab.iter().map(|(_, w)| w)
    }
}

impl Epochs {
    fn new(ranks: usize) -> Epochs {
        Epochs {
            fenced: false,
            fences: 0,
            marks: vec![0; ranks],
            access: None,
            exposed: None,
            posts: vec![0; ranks],
            completes: vec![0; ranks],
            held: vec![Held::No; ranks],
            all: false,
            owner: None,
            sharers: Vec::new(),
            queue: VecDeque::new(),
            sent: vec![false; ranks],
            replies: vec![Vec::new(); ranks],
            numbers: vec![0; ranks],
        }
    }
}

/// Bytes of what a rank tells of its memory.
const SHOWN_BYTES: usize = 16;

impl Machine {
    /// `MPI_Win_create`, `MPI_Win_create_dynamic`: of memory that the program has.
    pub fn win_create(
        &mut self,
        flavor: Flavor,
        memory: Memory,
        info: Handle,
        comm: Handle,
    ) -> Res<Handle> {
        self.make_window(flavor, memory, info, comm)
    }

    /// `MPI_Win_allocate` and `MPI_Win_allocate_shared`: memory of the library's, which goes with
    /// the window; returns its address, too.
    pub fn win_allocate(
        &mut self,
        flavor: Flavor,
        bytes: u64,
        unit: i32,
        info: Handle,
        comm: Handle,
    ) -> Res<(*mut u8, Handle)> {
        let memory = Memory { base: std::ptr::null_mut(), bytes, unit };
        let win = self.make_window(flavor, memory, info, comm)?;
        Ok((self.windows.get(win)?.own.base, win))
    }

    fn make_window(
        &mut self,
        flavor: Flavor,
        mut own: Memory,
        info: Handle,
        comm: Handle,
    ) -> Res<Handle> {
        let parent = self.comms.intra(comm)?;
        let hints = self.infos.get_optional(info)?.cloned().unwrap_or_default();
        if own.unit <= 0 {
            return Err(class::DISP);
        }
        let mut comm_handle = self.comm_dup_bare(&parent)?;
        let comm = self.comms.get(comm_handle)?;
        let reach = match flavor {
            Flavor::Create | Flavor::Dynamic => {
                Ok(Reach::own(comm.size(), comm.rank, own.base, Room::Programs))
            }
            Flavor::Allocate | Flavor::Shared => {
                let apart = hints.get(b"alloc_shared_noncontig") == Some(b"true");
                self.make_memory(flavor, &comm, own, apart)
            }
        };
        let reach = match reach {
            Ok(reach) => reach,
            Err(e) => {
                self.comm_free(&mut comm_handle)?;
                return Err(e);
            }
        };
        own.base = reach.bases[comm.rank as usize];
        let shown = self.show_memory(&comm, own)?;
        let Numbers { flavors, unified } = self.windows.numbers;
        let numbers = [own.unit, flavors[flavor as usize], unified];
        let attributes = Box::new((own.bytes as isize, numbers));
        let window = Rc::new(Window {
            epochs: RefCell::new(Epochs::new(comm.size() as usize)),
            handle: Cell::new(WIN_NULL),
            comm,
            comm_handle,
            flavor,
            own,
            shown,
            direct: reach.is_mapped() && self.endpoint.is_unrecorded(),
            reach,
            attached: RefCell::default(),
            errhandler: Cell::new(ERRORS_ARE_FATAL),
            hints: RefCell::new(hints),
            name: RefCell::default(),
            attributes,
        });
        let handle = self.windows.slab.insert(window.clone())?;
        window.handle.set(handle);
        // Nobody's operations come before the window is there.
        self.barrier(comm_handle)?;
        Ok(handle)
    }

    /// What all ranks show.
    fn show_memory(&mut self, comm: &Rc<Comm>, own: Memory) -> Res<Vec<(u64, i64)>> {
        let mut said = [0; SHOWN_BYTES];
        said[..8].copy_from_slice(&own.bytes.to_ne_bytes());
        said[8..].copy_from_slice(&i64::from(own.unit).to_ne_bytes());
        let mut all = vec![0; SHOWN_BYTES * comm.size() as usize];
        let byte = self.types.get(crate::datatype::predefined::BYTE)?;
        // SAFETY: `all` has room for what each rank says.
        unsafe {
            let (from, to) = (said.as_ptr(), all.as_mut_ptr());
            self.allgather_bytes(comm, &byte, from, to, SHOWN_BYTES)?;
        }
        Ok(all.chunks_exact(SHOWN_BYTES).map(|b| (word(b), word(&b[8..]) as i64)).collect())
    }

    /// All operations of all ranks are done, and it is gone.
    pub fn win_free(&mut self, win: &mut Handle) -> Res<()> {
        let window = self.windows.get(*win)?.clone();
        if window.is_in_epoch() {
            return Err(class::RMA_SYNC);
        }
        self.attr_delete_all(AttrKind::Win, *win)?;
        match self.barrier(window.comm_handle) {
            // Its memory goes all the same: of who is lost nothing comes any more.
            Err(class::PROC_FAILED | class::REVOKED) => {}
            done => done?,
        }
        self.windows.slab.remove(*win);
        self.errhandlers.release(window.errhandler.get());
        self.comm_free(&mut { window.comm_handle })?;
        self.give_back_memory(&window);
        *win = WIN_NULL;
        Ok(())
    }

    /// Memory of a dynamic window (`MPI_Win_attach`); its displacements are addresses.
    pub fn win_attach(&mut self, win: Handle, at: usize, bytes: u64) -> Res<()> {
        let window = self.dynamic(win)?;
        window.attached.borrow_mut().push((at, bytes));
        Ok(())
    }

    pub fn win_detach(&mut self, win: Handle, at: usize) -> Res<()> {
        let window = self.dynamic(win)?;
        let mut attached = window.attached.borrow_mut();
        let found = attached.iter().position(|(base, _)| *base == at).ok_or(class::RMA_ATTACH)?;
        attached.remove(found);
        Ok(())
    }

    fn dynamic(&self, win: Handle) -> Res<Rc<Window>> {
        let window = self.windows.get(win)?;
        if window.flavor == Flavor::Dynamic { Ok(window.clone()) } else { Err(class::RMA_FLAVOR) }
    }

    /// `MPI_Win_shared_query`: of shared windows where each rank's memory is; of others only this
    /// rank's own can be reached by load and store, and of another rank's it tells so, by no bytes
    /// at no address. No rank is the lowest one that shows any.
    pub fn win_shared_query(&self, win: Handle, rank: Option<u32>) -> Res<Memory> {
        let window = self.windows.get(win)?;
        if window.flavor == Flavor::Dynamic {
            return Err(class::RMA_FLAVOR);
        }
        let own = window.comm.rank;
        let lowest = || window.shown.iter().position(|(bytes, _)| *bytes > 0);
        let rank = rank.or_else(|| lowest().map(|r| r as u32)).unwrap_or(own);
        if rank >= window.comm.size() {
            return Err(class::RANK);
        }
        if rank != own && window.flavor != Flavor::Shared {
            let base = std::ptr::null_mut();
            return Ok(Memory { base, bytes: 0, unit: window.own.unit });
        }
        Ok(window.memory_of(rank))
    }

    /// A new handle of its group.
    pub fn win_group(&mut self, win: Handle) -> Res<Handle> {
        let group = self.windows.get(win)?.comm.group.clone();
        self.groups.insert(group)
    }

    /// The value of one of its own attributes: `MPI_WIN_BASE` is the address itself, the others are
    /// addresses of numbers.
    pub(crate) fn win_attribute(&self, win: Handle, keyval: i32) -> Option<usize> {
        let window = self.windows.get(win).ok()?;
        let numbers = &window.attributes.1;
        match keyval {
            WIN_BASE => Some(window.own.base.expose_provenance()),
            WIN_SIZE => Some((&raw const window.attributes.0) as usize),
            WIN_DISP_UNIT => Some((&raw const numbers[0]) as usize),
            WIN_CREATE_FLAVOR => Some((&raw const numbers[1]) as usize),
            WIN_MODEL => Some((&raw const numbers[2]) as usize),
            _ => None,
        }
    }

    pub fn win_set_name(&mut self, win: Handle, name: &[u8]) -> Res<()> {
        let window = self.windows.get(win)?;
        *window.name.borrow_mut() = name[..name.len().min(crate::comm::MAX_NAME_BYTES)].to_vec();
        Ok(())
    }

    pub fn win_get_name(&self, win: Handle) -> Res<Vec<u8>> {
        if win == WIN_NULL {
            return Ok(b"MPI_WIN_NULL".to_vec());
        }
        Ok(self.windows.get(win)?.name.borrow().clone())
    }

    pub fn win_set_info(&mut self, win: Handle, info: Handle) -> Res<()> {
        let window = self.windows.get(win)?.clone();
        let info = self.infos.get(info)?;
        let mut hints = window.hints.borrow_mut();
        info.iter().for_each(|(key, value)| hints.set(key, value));
        Ok(())
    }

    /// A new info object with the hints in use.
    pub fn win_get_info(&mut self, win: Handle) -> Res<Handle> {
        let window = self.windows.get(win)?;
        let mut info = Info::default();
        let defaults: [(&[u8], &[u8]); 5] = [
            (b"no_locks", b"false"),
            (b"accumulate_ordering", b"rar,raw,war,waw"),
            (b"accumulate_ops", b"same_op_no_op"),
            (b"same_size", b"false"),
            (b"same_disp_unit", b"false"),
        ];
        defaults.iter().for_each(|(key, value)| info.set(key, value));
        window.hints.borrow().iter().for_each(|(key, value)| info.set(key, value));
        self.infos.insert(info)
    }

    pub fn win_set_errhandler(&mut self, win: Handle, eh: Handle) -> Res<()> {
        let window = self.windows.get(win)?.clone();
        self.errhandler_check(ErrKind::Win, eh)?;
        self.errhandlers.acquire(eh)?;
        let before = window.errhandler.replace(eh);
        self.errhandlers.release(before);
        Ok(())
    }

    /// The program has to free the handle.
    pub fn win_get_errhandler(&mut self, win: Handle) -> Res<Handle> {
        let eh = self.windows.get(win)?.errhandler.get();
        self.errhandlers.acquire(eh)?;
        Ok(eh)
    }
}

impl Window {
    /// What a rank shows, where this one reaches it.
    pub(super) fn memory_of(&self, rank: u32) -> Memory {
        let (bytes, unit) = self.shown[rank as usize];
        Memory { base: self.reach.bases[rank as usize], bytes, unit: unit as i32 }
    }

    /// Whether operations on a rank go straight into its memory.
    #[inline]
    pub(super) fn is_near(&self, rank: u32) -> bool {
        self.direct && !self.reach.bases[rank as usize].is_null()
    }
}

/// The word that these bytes begin with.
pub(super) fn word(b: &[u8]) -> u64 {
    u64::from_ne_bytes([b[0], b[1], b[2], b[3], b[4], b[5], b[6], b[7]])
}
