//! Reading and writing files (MPI 5.0 section 14.4), through a rank's view.
//!
//! All is done in the call that begins it; forms that are completed later find it done. Each run of
//! the view is one access at its position, whatever gaps there are in memory, and nothing between
//! runs is read or written.

use std::rc::Rc;

use super::File;
use super::convert::Converted;
use super::disk::{self, Place, Way};
use super::past::{self, Found};
use super::view::View;
use crate::error::{Res, class};
use crate::handle::Handle;
use crate::machine::Machine;
use crate::request::Data;
use crate::status::Status;

/// Most bytes of memory with gaps that are put together for one access.
const STAGE_BYTES: u64 = 4 << 20;

/// The split collectives, of which a file has one at a time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Split {
    ReadAll,
    ReadAtAll,
    WriteAll,
    WriteAtAll,
    ReadOrdered,
    WriteOrdered,
}

/// Where an access begins, in etypes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Start {
    /// At the individual file pointer, which moves on.
    Pointer,
    Offset(i64),
    /// Where the shared file pointer was.
    Shared(i64),
}

impl From<Option<i64>> for Start {
    fn from(offset: Option<i64>) -> Start {
        offset.map_or(Start::Pointer, Start::Offset)
    }
}

/// What the program reads or writes: a buffer, a count, a datatype.
type Given = (*mut u8, i64, Handle);
/// Whether a file is for that.
type Allow = fn(&File) -> Res<&File>;

/// One access: which data, and where its stream lies in the file.
struct Access {
    place: Rc<Place>,
    view: Rc<View>,
    start: u64,
    /// As it is in the file: where that is not as in memory, what is converted.
    data: Data,
    converted: Option<Converted>,
    alone: bool,
}

impl Access {
    fn stage(&self) -> Res<Vec<u8>> {
        let bytes = if self.data.is_plain() { 0 } else { self.data.bytes.min(STAGE_BYTES) };
        let mut stage = Vec::new();
        stage.try_reserve_exact(bytes as usize).map_err(|_| class::NO_MEM)?;
        stage.resize(bytes as usize, 0);
        Ok(stage)
    }

    /// # Safety
    /// The program's memory is as the data says.
    unsafe fn write(&self) -> Res<Found> {
        if self.data.bytes == 0 {
            return Ok(Found::default());
        }
        let file = self.place.open(Way::Write, self.alone)?;
        let mut stage = self.stage()?;
        let mut done = 0;
        self.view.runs(self.start, self.data.bytes, &mut |at, len| {
            let mut from = 0;
            while from < len {
                let piece = match self.data.flat {
                    Some(flat) if self.data.is_plain() => {
                        let rest = (len - from) as usize;
                        // SAFETY: the data's stream is in one run here, of which this is a part.
                        unsafe {
                            std::slice::from_raw_parts(flat.add((done + from) as usize), rest)
                        }
                    }
                    _ => {
                        let n = (len - from).min(STAGE_BYTES) as usize;
                        // SAFETY: the runs are as long as the data in all.
                        unsafe { self.data.gather(done + from, &mut stage[..n]) };
                        &stage[..n]
                    }
                };
                disk::write(&file, at + from, piece)?;
                from += piece.len() as u64;
            }
            done += len;
            Ok(true)
        })?;
        Ok(Found { value: done, mark: 0 })
    }

    /// Reads the first `limit` bytes of the data, or what there is before the end of the file.
    ///
    /// # Safety
    /// The program's memory is as the data says.
    unsafe fn read(&self, limit: u64) -> Res<Found> {
        if self.data.bytes.min(limit) == 0 {
            return Ok(Found::default());
        }
        let file = self.place.open(Way::Read, self.alone)?;
        let mut stage = self.stage()?;
        let mut found = Found::default();
        self.view.runs(self.start, self.data.bytes.min(limit), &mut |at, len| {
            let mut from = 0;
            while from < len {
                let to = match self.data.flat {
                    Some(flat) if self.data.is_plain() => {
                        let rest = (len - from) as usize;
                        // SAFETY: the data's stream is in one run here, of which this is a part.
                        unsafe {
                            std::slice::from_raw_parts_mut(flat.add(found.value as usize), rest)
                        }
                    }
                    _ => &mut stage[..(len - from).min(STAGE_BYTES) as usize],
                };
                let got = disk::read(&file, at + from, to)?;
                let there = &to[..got];
                if got > 0 {
                    found.mark = past::mark(found.mark, there);
                }
                if !self.data.is_plain() {
                    // SAFETY: the runs are no longer than the data in all.
                    unsafe { self.data.scatter(found.value, there) };
                }
                found.value += got as u64;
                from += got as u64;
                if got < to.len() {
                    return Ok(false);
                }
            }
            Ok(true)
        })?;
        Ok(found)
    }
}

impl Machine {
    /// The file's data of an access, which may be converted.
    fn file_data(
        &mut self,
        fh: Handle,
        (buf, count, dt): Given,
        allow: Allow,
    ) -> Res<(Data, Option<Converted>)> {
        let view = allow(self.files.get(fh)?)?.view.clone();
        let data = self.data(buf, count, dt)?;
        data.dt.bytes(data.count).ok_or(class::COUNT)?;
        let (data, converted) = match view.rep.converts() {
            false => (data, None),
            true => {
                let (converted, data) = self.converted(&view.rep, data, dt)?;
                (data, Some(converted))
            }
        };
        let whole = data.bytes.is_multiple_of(view.etype.size.max(1));
        if whole { Ok((data, converted)) } else { Err(class::IO) }
    }

    fn file_access(
        &mut self,
        (fh, from): (Handle, Start),
        given: Given,
        allow: Allow,
    ) -> Res<(Access, i64)> {
        self.file_usable(fh)?;
        let file = self.files.get(fh)?;
        let offset = match from {
            Start::Shared(offset) => offset,
            Start::Offset(offset) => file.not_sequential().map(|_| offset)?,
            Start::Pointer => file.not_sequential()?.position,
        };
        let (data, converted) = self.file_data(fh, given, allow)?;
        let file = self.files.get(fh)?;
        let start = file.view.start(offset)?;
        let (place, view) = (file.place.clone(), file.view.clone());
        Ok((Access { place, view, start, data, converted, alone: file.atomic }, offset))
    }

    /// `there`: bytes in the file and in memory.
    fn file_moved(
        &mut self,
        (fh, from): (Handle, Start),
        offset: i64,
        (there, bytes): (u64, u64),
    ) -> Res<Status> {
        if from == Start::Pointer {
            let file = self.files.slab.get_mut(fh).ok_or(class::FILE)?;
            file.position = file.passed(offset, there);
        }
        Ok(Status { bytes, ..Status::EMPTY })
    }

    /// `offset`: that of the call, or none for the individual file pointer.
    ///
    /// # Safety
    /// The buffer is as the count and the datatype say.
    pub unsafe fn file_write(
        &mut self,
        fh: Handle,
        offset: Option<i64>,
        buf: *const u8,
        count: i64,
        dt: Handle,
    ) -> Res<Status> {
        // SAFETY: the caller's promise.
        unsafe { self.write_from(fh, offset.into(), (buf.cast_mut(), count, dt)) }
    }

    /// Writes where the shared file pointer is, which moves on.
    ///
    /// # Safety
    /// The buffer is as the count and the datatype say.
    pub unsafe fn file_write_shared(
        &mut self,
        fh: Handle,
        buf: *const u8,
        count: i64,
        dt: Handle,
    ) -> Res<Status> {
        let given = (buf.cast_mut(), count, dt);
        let from = self.shared_start(fh, given, File::writable)?;
        // SAFETY: the caller's promise.
        unsafe { self.write_from(fh, from, given) }
    }

    /// The same of all ranks, in their order.
    ///
    /// # Safety
    /// The buffer is as the count and the datatype say.
    pub unsafe fn file_write_ordered(
        &mut self,
        fh: Handle,
        buf: *const u8,
        count: i64,
        dt: Handle,
    ) -> Res<Status> {
        let given = (buf.cast_mut(), count, dt);
        let from = self.ordered_start(fh, given, File::writable)?;
        // SAFETY: the caller's promise.
        unsafe { self.write_from(fh, from, given) }
    }

    /// Where the shared file pointer was, which moves on by an access.
    fn shared_start(&mut self, fh: Handle, given: Given, allow: Allow) -> Res<Start> {
        let etypes = self.shared_etypes(fh, given, allow)?;
        self.shared_moved(fh, etypes).map(Start::Shared)
    }

    /// The same of all ranks, in their order. Who asks for what cannot be has its error, and moves
    /// the pointer by nothing.
    fn ordered_start(&mut self, fh: Handle, given: Given, allow: Allow) -> Res<Start> {
        let etypes = self.shared_etypes(fh, given, allow);
        let start = self.shared_ordered(fh, etypes.unwrap_or(0))?;
        etypes.map(|_| Start::Shared(start))
    }

    /// How many etypes the shared file pointer moves on for an access.
    fn shared_etypes(&mut self, fh: Handle, given: Given, allow: Allow) -> Res<i64> {
        let (data, _) = self.file_data(fh, given, allow)?;
        let each = self.files.get(fh)?.view.etype.size.max(1);
        i64::try_from(data.bytes / each).map_err(|_| class::COUNT)
    }

    unsafe fn write_from(&mut self, fh: Handle, from: Start, given: Given) -> Res<Status> {
        let (mut access, offset) = self.file_access((fh, from), given, File::writable)?;
        if let Some(converted) = &mut access.converted {
            // SAFETY: the caller's promise.
            unsafe { self.encode(converted)? };
            access.data = converted.plain();
        }
        let machine = self.files.get(fh)?.machine;
        let outcome = match self.file_before() {
            Some(outcome) => {
                if outcome.is_ok() && !disk::is_still(machine) {
                    // If the file is gone by now, nobody misses it: the call did succeed.
                    // SAFETY: the caller's promise.
                    let _ = unsafe { access.write() };
                }
                outcome
            }
            None => {
                // SAFETY: the caller's promise.
                let written = unsafe { access.write() };
                self.file_now(written)
            }
        };
        let there = outcome?.value;
        let memory = access.converted.as_ref().map_or(there, Converted::memory_bytes);
        self.file_moved((fh, from), offset, (there, memory))
    }

    /// `offset`: that of the call, or none for the individual file pointer.
    ///
    /// # Safety
    /// The buffer is as the count and the datatype say.
    pub unsafe fn file_read(
        &mut self,
        fh: Handle,
        offset: Option<i64>,
        buf: *mut u8,
        count: i64,
        dt: Handle,
    ) -> Res<Status> {
        // SAFETY: the caller's promise.
        unsafe { self.read_from(fh, offset.into(), (buf, count, dt)) }
    }

    /// Reads where the shared file pointer is, which moves on by as much as is asked for.
    ///
    /// # Safety
    /// The buffer is as the count and the datatype say.
    pub unsafe fn file_read_shared(
        &mut self,
        fh: Handle,
        buf: *mut u8,
        count: i64,
        dt: Handle,
    ) -> Res<Status> {
        let given = (buf, count, dt);
        let from = self.shared_start(fh, given, File::readable)?;
        // SAFETY: the caller's promise.
        unsafe { self.read_from(fh, from, given) }
    }

    /// The same of all ranks, in their order.
    ///
    /// # Safety
    /// The buffer is as the count and the datatype say.
    pub unsafe fn file_read_ordered(
        &mut self,
        fh: Handle,
        buf: *mut u8,
        count: i64,
        dt: Handle,
    ) -> Res<Status> {
        let given = (buf, count, dt);
        let from = self.ordered_start(fh, given, File::readable)?;
        // SAFETY: the caller's promise.
        unsafe { self.read_from(fh, from, given) }
    }

    unsafe fn read_from(&mut self, fh: Handle, from: Start, given: Given) -> Res<Status> {
        let (mut access, offset) = self.file_access((fh, from), given, File::readable)?;
        let outcome = match self.file_before() {
            Some(Ok(found)) => {
                // SAFETY: the caller's promise.
                let again = unsafe { access.read(found.value) };
                if again != Ok(found) {
                    let shown = access.place.shown();
                    self.diverge(&format!("what it read of {shown} is not there any more"));
                }
                Ok(found)
            }
            Some(error) => error,
            None => {
                // SAFETY: the caller's promise.
                let read = unsafe { access.read(u64::MAX) };
                self.file_now(read)
            }
        };
        let there = outcome?.value;
        let memory = match &mut access.converted {
            // SAFETY: the caller's promise.
            Some(converted) => unsafe { self.decode(converted, there)? },
            None => there,
        };
        self.file_moved((fh, from), offset, (there, memory))
    }

    /// A request of an access that is done.
    pub fn file_request(&mut self, fh: Handle, status: Status) -> Res<Handle> {
        let ranks = self.files.get(fh)?.ranks.clone();
        self.finished_request(&ranks, fh, status)
    }

    /// Whether a split collective may begin.
    pub fn file_may_begin(&self, fh: Handle) -> Res<()> {
        self.files.get(fh)?.is_idle()
    }

    pub fn file_begun(&mut self, fh: Handle, split: Split, status: Status) -> Res<()> {
        self.files.slab.get_mut(fh).ok_or(class::FILE)?.split = Some((split, status));
        Ok(())
    }

    /// The status of the split collective that had begun.
    pub fn file_ended(&mut self, fh: Handle, split: Split) -> Res<Status> {
        let file = self.files.slab.get_mut(fh).ok_or(class::FILE)?;
        match file.split.take_if(|(begun, _)| *begun == split) {
            Some((_, status)) => Ok(status),
            None => Err(class::IO),
        }
    }
}
