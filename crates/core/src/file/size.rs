//! Sizes of files, and bringing them to the storage (MPI 5.0 sections 14.2.4 to 14.2.6, 14.6.1).

use super::disk::{self, Place};
use crate::error::{Res, class};
use crate::handle::Handle;
use crate::machine::Machine;

impl Machine {
    /// In bytes; as this rank finds it.
    pub fn file_size(&mut self, fh: Handle) -> Res<i64> {
        let place = self.files.get(fh)?.place.clone();
        let size = self.file_once(|| place.size())?;
        i64::try_from(size).map_err(|_| class::IO)
    }

    pub fn file_set_size(&mut self, fh: Handle, size: i64) -> Res<()> {
        self.resize(fh, size, Place::set_size)
    }

    pub fn file_preallocate(&mut self, fh: Handle, size: i64) -> Res<()> {
        self.resize(fh, size, Place::preallocate)
    }

    /// Done by rank 0 alone, when all ask for it.
    fn resize(&mut self, fh: Handle, size: i64, resize: fn(&Place, u64) -> Res<()>) -> Res<()> {
        let file = self.files.get(fh)?;
        let (comm, place) = (file.comm, file.place.clone());
        let first = file.ranks.rank == 0;
        let asked = file.writable().and(u64::try_from(size).map_err(|_| class::ARG));
        let asked = file.is_idle().and(asked);
        self.file_agree(comm, size, asked.map(drop))?;
        let bytes = asked?;
        let done = if first { self.file_once(|| resize(&place, bytes).map(|()| 0)) } else { Ok(0) };
        self.file_agree(comm, 0, done.map(drop))
    }

    /// When it returns, what any rank has written is on the storage.
    pub fn file_sync(&mut self, fh: Handle) -> Res<()> {
        let file = self.files.get(fh)?;
        let (comm, place) = (file.comm, file.place.clone());
        let (idle, machine) = (file.is_idle(), file.machine);
        let synced = match self.file_before() {
            Some(outcome) => {
                if !disk::is_still(machine) {
                    // What was written again has to be brought there again; if it cannot be, that
                    // is not what came out the first time.
                    let _ = place.sync();
                }
                outcome
            }
            None => self.file_now(place.sync().map(|()| Default::default())),
        };
        self.file_agree(comm, 0, idle.and(synced.map(drop)))
    }
}
