//! Opening, closing and deleting files (MPI 5.0 sections 14.2.1 to 14.2.3).
//!
//! Rank 0 alone makes a file, or removes it, and tells the others. Kept true: what was there before
//! is asked, and recorded, before it is changed. So a rank that dies between the deed and its
//! record does not take its own deed for somebody else's when it comes back.

use std::rc::Rc;

use super::disk::{self, Place};
use super::past::Found;
use super::pointer::{self, Pointer};
use super::{
    File, MODE_APPEND, MODE_CREATE, MODE_DELETE_ON_CLOSE, MODE_EXCL, MODE_RDONLY, MODE_RDWR,
    MODE_SEQUENTIAL, MODE_WRONLY, MODES,
};
use crate::comm::{Comm, Inherit};
use crate::consts::FILE_NULL;
use crate::error::{Res, class};
use crate::handle::Handle;
use crate::info::Info;
use crate::machine::Machine;

fn check_mode(amode: i32) -> Res<()> {
    let ways = amode & (MODE_RDONLY | MODE_RDWR | MODE_WRONLY);
    let has = |mode| amode & mode != 0;
    let wrong = amode & !MODES != 0
        || ways.count_ones() != 1
        || (has(MODE_RDONLY) && has(MODE_CREATE | MODE_EXCL))
        || (has(MODE_RDWR) && has(MODE_SEQUENTIAL));
    if wrong { Err(class::AMODE) } else { Ok(()) }
}

fn place_of(name: Res<&[u8]>, amode: i32) -> Res<Place> {
    check_mode(amode)?;
    let name = name.map_err(|_| class::BAD_FILE)?;
    Place::new(name, amode & MODE_WRONLY == 0, amode & MODE_RDONLY == 0)
}

impl Machine {
    /// `MPI_File_open`.
    pub fn file_open(
        &mut self,
        comm: Handle,
        name: Res<&[u8]>,
        amode: i32,
        info: Handle,
    ) -> Res<Handle> {
        let parent = self.comms.intra(comm)?;
        let hints = self.infos.get_optional(info).map(Option::<&Info>::cloned);
        let asked = hints.and_then(|hints| Ok((place_of(name, amode)?, hints)));
        let wanted = asked.as_ref().map_or(true, |(_, hints)| pointer::wanted(hints.as_ref()));
        let same = i64::from(amode) | i64::from(!wanted) << 32;
        self.file_agree(comm, same, asked.as_ref().map(drop).map_err(|e| *e))?;
        let (place, hints) = asked?;
        let ctx = self.agree_context_of(&parent)?;
        let mut own = self.comm_install(&parent, ctx, parent.group.clone(), Inherit::default())?;
        let opened = self.open_as(own, Rc::new(place), amode);
        let kept = opened.and_then(|mut file| {
            file.take_hints(hints.as_ref());
            file.pointer = wanted.then(|| Pointer::new(file.position));
            self.errhandlers.acquire(file.errhandler)?;
            self.files.slab.insert(file)
        });
        match kept {
            Ok(fh) => self.files.keep(fh),
            Err(_) => self.comm_free(&mut own)?,
        }
        kept
    }

    fn open_as(&mut self, own: Handle, place: Rc<Place>, amode: i32) -> Res<File> {
        let ranks: Rc<Comm> = self.comms.get(own)?;
        let (first, create) = (ranks.rank == 0, amode & MODE_CREATE != 0);
        let exclusive = create && amode & MODE_EXCL != 0;
        let mut machine = if first { self.make(&place, create, exclusive) } else { Ok(0) };
        self.file_agree(own, 0, machine.map(drop))?;
        if !first {
            machine = self.file_once(|| place.try_open(false, false).map(|()| disk::machine()));
        }
        self.file_agree(own, 0, machine.map(drop))?;
        let mut position = 0;
        if amode & MODE_APPEND != 0 {
            let size = if first { self.file_once(|| place.size()) } else { Ok(0) };
            self.file_agree(own, 0, size.map(drop))?;
            position = self.file_told(own, i64::try_from(size?).map_err(|_| class::IO)?)?;
        }
        Ok(File {
            comm: own,
            ranks,
            place,
            amode,
            machine: machine?,
            view: Rc::new(self.plain_view()?),
            position,
            pointer: None,
            atomic: false,
            hints: Info::default(),
            errhandler: self.files.errhandler,
            split: None,
        })
    }

    /// Opens it first of all ranks.
    fn make(&mut self, place: &Place, create: bool, exclusive: bool) -> Res<u64> {
        let mut alone = false;
        if exclusive {
            let (there, first_time) = self.is_there(place)?;
            if there {
                return Err(class::FILE_EXISTS);
            }
            // One that is there by now, and was not the first time, this rank itself has made.
            alone = first_time;
        }
        self.file_once(|| place.try_open(create, alone).map(|()| disk::machine()))
    }

    /// Whether a file was there, and whether that was asked just now.
    pub(super) fn is_there(&mut self, place: &Place) -> Res<(bool, bool)> {
        let before = self.file_before();
        let first_time = before.is_none();
        let there = match before {
            Some(there) => there,
            None => {
                let found = |there: bool| Found { value: there.into(), mark: 0 };
                self.file_now(place.is_there().map(found))
            }
        };
        Ok((there?.value != 0, first_time))
    }

    /// `MPI_File_close`. When it returns, a file that is to be deleted is gone.
    pub fn file_close(&mut self, fh: &mut Handle) -> Res<()> {
        let file = self.files.get(*fh)?;
        let (mut comm, place) = (file.comm, file.place.clone());
        let (first, idle) = (file.ranks.rank == 0, file.is_idle());
        let delete = file.amode & MODE_DELETE_ON_CLOSE != 0;
        match self.file_agree(comm, 0, idle) {
            // It is closed all the same: of who is lost nothing comes any more.
            Err(class::PROC_FAILED | class::REVOKED) => {}
            agreed => agreed?,
        }
        self.files.give_up(*fh);
        let mut removed = Ok(());
        if delete {
            if first {
                let remove = || match place.remove() {
                    Ok(()) | Err(class::NO_SUCH_FILE) => Ok(0),
                    Err(other) => Err(other),
                };
                removed = self.file_once(remove).map(drop);
            }
            removed = self.file_agree(comm, 0, removed);
        }
        if let Some(file) = self.files.slab.remove(*fh) {
            self.errhandlers.release(file.errhandler);
        }
        *fh = FILE_NULL;
        self.comm_free(&mut comm)?;
        removed
    }

    /// `MPI_File_delete`.
    pub fn file_delete(&mut self, name: Res<&[u8]>, info: Handle) -> Res<()> {
        self.infos.get_optional(info)?;
        let place = place_of(name, MODE_WRONLY)?;
        let (there, first_time) = self.is_there(&place)?;
        if !there {
            return Err(class::NO_SUCH_FILE);
        }
        self.file_once(|| match place.remove() {
            // This rank itself has removed it, and died.
            Err(class::NO_SUCH_FILE) if !first_time => Ok(0),
            result => result.map(|()| 0),
        })
        .map(drop)
    }
}
