//! Views of files: which bytes of a file a rank sees, and in which order (MPI 5.0 section 14.3).

use std::rc::Rc;

use super::{File, SEEK_CUR, SEEK_END, SEEK_SET};
use crate::datatype::Datatype;
use crate::datatype::predefined::BYTE;
use crate::error::{Res, class};
use crate::handle::Handle;
use crate::machine::Machine;

/// Representations of data that are those of memory.
const DATAREPS: [&[u8]; 2] = [b"native", b"internal"];

/// From `disp` on the file is made of filetypes; their data, made of etypes, is what is seen.
#[derive(Clone)]
pub(super) struct View {
    disp: i64,
    pub(super) etype: Rc<Datatype>,
    filetype: Rc<Datatype>,
    datarep: &'static [u8],
}

impl View {
    /// All bytes of the file.
    pub(super) fn plain(byte: &Rc<Datatype>) -> View {
        let (etype, filetype) = (byte.clone(), byte.clone());
        View { disp: 0, etype, filetype, datarep: DATAREPS[0] }
    }

    fn new(disp: i64, etype: &Rc<Datatype>, filetype: &Rc<Datatype>, datarep: &[u8]) -> Res<View> {
        let datarep = DATAREPS.into_iter().find(|known| *known == datarep);
        let datarep = datarep.ok_or(class::UNSUPPORTED_DATAREP)?;
        if disp < 0 {
            return Err(class::ARG);
        }
        if etype.size == 0 || filetype.size == 0 || !filetype.size.is_multiple_of(etype.size) {
            return Err(class::TYPE);
        }
        if filetype.true_lb < 0 || filetype.extent <= 0 || !filetype.is_ascending() {
            return Err(class::TYPE);
        }
        Ok(View { disp, etype: etype.clone(), filetype: filetype.clone(), datarep })
    }

    /// Where the data at an offset, in etypes, is in the stream of all data.
    pub(super) fn start(&self, offset: i64) -> Res<u64> {
        let offset = u64::try_from(offset).map_err(|_| class::ARG)?;
        offset.checked_mul(self.etype.size).ok_or(class::ARG)
    }

    /// Tells the runs of a range of the stream, those that touch as one: position and length.
    pub(super) fn runs(
        &self,
        start: u64,
        bytes: u64,
        tell: &mut dyn FnMut(u64, u64) -> Res<bool>,
    ) -> Res<()> {
        start.checked_add(bytes).filter(|&end| i64::try_from(end).is_ok()).ok_or(class::ARG)?;
        let mut last: Option<(i64, u64)> = None;
        let mut pass = |(at, n): (i64, u64)| -> Res<bool> {
            let place = u64::try_from(at).map_err(|_| class::ARG)?;
            // The end of what is accessed is a position, too.
            place.checked_add(n).filter(|&end| i64::try_from(end).is_ok()).ok_or(class::ARG)?;
            tell(place, n)
        };
        let whole = self.filetype.runs(self.disp, start, bytes, &mut |at, n| {
            if let Some((from, length)) = &mut last
                && from.checked_add_unsigned(*length) == Some(at)
            {
                *length += n;
                return Ok(true);
            }
            last.replace((at, n)).map_or(Ok(true), &mut pass)
        })?;
        if whole && let Some(run) = last {
            pass(run)?;
        }
        Ok(())
    }

    /// Position in the file of the data at an offset.
    fn byte_offset(&self, offset: i64) -> Res<i64> {
        let mut found = 0;
        self.runs(self.start(offset)?, 1, &mut |at, _| {
            found = at;
            Ok(false)
        })?;
        i64::try_from(found).map_err(|_| class::ARG)
    }

    /// The first offset at or behind the end of a file of so many bytes.
    fn end(&self, size: u64) -> Res<i64> {
        let size = i64::try_from(size).map_err(|_| class::INTERN)?;
        let (low, extent) = (self.filetype.true_lb, self.filetype.extent);
        let high = low + self.filetype.true_extent;
        // Filetypes that lie in the file as a whole; then a run at a time.
        let inside = size.checked_sub(self.disp).and_then(|n| n.checked_sub(high));
        let whole = inside.filter(|&n| n >= 0).map_or(0, |n| (n / extent) as u64 + 1);
        let before = whole.checked_mul(self.filetype.size).ok_or(class::ARG)?;
        let room = i64::MAX as u64 - before.min(i64::MAX as u64);
        let mut seen = before;
        self.filetype.runs(self.disp, before, room, &mut |at, n| {
            let inside = u64::try_from(size.saturating_sub(at)).unwrap_or(0).min(n);
            seen += inside;
            Ok(inside == n)
        })?;
        i64::try_from(seen.div_ceil(self.etype.size)).map_err(|_| class::ARG)
    }
}

impl Machine {
    /// `MPI_File_set_view`; all individual file pointers then are at the beginning.
    pub fn file_set_view(
        &mut self,
        fh: Handle,
        disp: i64,
        [etype, filetype]: [Handle; 2],
        datarep: Res<&[u8]>,
        info: Handle,
    ) -> Res<()> {
        let comm = self.files.get(fh)?.comm;
        let made = datarep.and_then(|datarep| {
            self.infos.get_optional(info)?;
            let (etype, filetype) =
                (self.types.get_committed(etype)?, self.types.get_committed(filetype)?);
            self.files.get(fh)?.is_idle()?;
            View::new(disp, etype, filetype, datarep)
        });
        let extent = made.as_ref().map_or(0, |view| view.etype.extent);
        self.file_agree(comm, extent, made.as_ref().map(drop).map_err(|e| *e))?;
        let view = made?;
        let hints = self.infos.get_optional(info)?;
        let file = self.files.slab.get_mut(fh).ok_or(class::FILE)?;
        file.take_hints(hints);
        file.view = Rc::new(view);
        file.position = 0;
        Ok(())
    }

    /// Displacement, etype and filetype (new handles of those that are not predefined), datarep.
    pub fn file_get_view(&mut self, fh: Handle) -> Res<(i64, [Handle; 2], &'static [u8])> {
        let view = self.files.get(fh)?.view.clone();
        let types = [self.types.handle_of(&view.etype)?, self.types.handle_of(&view.filetype)?];
        Ok((view.disp, types, view.datarep))
    }

    /// As in memory, for the representations that there are.
    pub fn file_type_extent(&self, fh: Handle, dt: Handle) -> Res<i64> {
        self.files.get(fh)?;
        Ok(self.types.get_ref(dt)?.extent)
    }

    pub fn file_byte_offset(&self, fh: Handle, offset: i64) -> Res<i64> {
        self.files.get(fh)?.not_sequential()?.view.byte_offset(offset)
    }

    pub fn file_position(&self, fh: Handle) -> Res<i64> {
        Ok(self.files.get(fh)?.not_sequential()?.position)
    }

    pub fn file_seek(&mut self, fh: Handle, offset: i64, whence: i32) -> Res<()> {
        let file = self.files.get(fh)?.not_sequential()?;
        let (view, place) = (file.view.clone(), file.place.clone());
        let from = match whence {
            SEEK_SET => 0,
            SEEK_CUR => file.position,
            SEEK_END => view.end(self.file_once(|| place.size())?)?,
            _ => return Err(class::ARG),
        };
        let to = from.checked_add(offset).filter(|&to| to >= 0).ok_or(class::ARG)?;
        view.start(to)?;
        self.files.slab.get_mut(fh).ok_or(class::FILE)?.position = to;
        Ok(())
    }

    pub(super) fn plain_view(&self) -> Res<View> {
        Ok(View::plain(self.types.get_ref(BYTE)?))
    }
}

impl File {
    /// The file pointer after so many bytes from an offset on: at the etype behind the last one.
    pub(super) fn passed(&self, offset: i64, bytes: u64) -> i64 {
        offset.saturating_add_unsigned(bytes / self.view.etype.size.max(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::datatype::TypeTable;
    use crate::datatype::predefined::INT;

    fn view(t: &TypeTable, disp: i64, filetype: Handle) -> Res<View> {
        View::new(disp, t.get_ref(INT)?, t.get_ref(filetype)?, b"native")
    }

    fn runs(view: &View, start: u64, bytes: u64) -> Vec<(u64, u64)> {
        let mut list = Vec::new();
        view.runs(start, bytes, &mut |at, n| {
            list.push((at, n));
            Ok(true)
        })
        .unwrap();
        list
    }

    #[test]
    fn runs_that_touch_are_one() {
        let mut t = TypeTable::new();
        // The second and third int of four, then the first of the next four right behind them.
        let shape = t.indexed(&[1, 1], &[0, 3], INT).unwrap();
        let v = view(&t, 8, shape).unwrap();
        assert_eq!(runs(&v, 0, 24), [(8, 4), (20, 8), (36, 8), (52, 4)]);
        assert_eq!(runs(&v, 6, 3), [(22, 3)]);
        let flat = view(&t, 8, INT).unwrap();
        assert_eq!(runs(&flat, 4, 400), [(12, 400)]);
        assert_eq!(runs(&flat, 4, 0), []);
        assert!(flat.runs(u64::MAX, 1, &mut |_, _| Ok(true)).is_err());
        assert!(flat.runs(i64::MAX as u64 - 1, 1, &mut |_, _| Ok(true)).is_err());
    }

    #[test]
    fn offsets_and_ends() {
        let mut t = TypeTable::new();
        let pair = t.contiguous(2, INT).unwrap();
        let shape = t.resized(pair, 0, 20).unwrap();
        let v = view(&t, 4, shape).unwrap();
        let at: Vec<_> = (0..5).map(|i| v.byte_offset(i).unwrap()).collect();
        assert_eq!(at, [4, 8, 24, 28, 44]);
        let ends =
            [(0, 0), (4, 0), (5, 1), (8, 1), (12, 2), (24, 2), (25, 3), (32, 4), (1004, 100)];
        for (size, end) in ends {
            assert_eq!(v.end(size), Ok(end), "of {size} bytes");
        }
        assert!(v.byte_offset(-1).is_err());
    }

    #[test]
    fn what_is_no_view() {
        let mut t = TypeTable::new();
        let back = t.indexed(&[1, 1], &[3, 0], INT).unwrap();
        let before = t.hindexed(&[1], &[-4], INT).unwrap();
        let empty = t.contiguous(0, INT).unwrap();
        for bad in [back, before, empty, BYTE] {
            assert_eq!(view(&t, 0, bad).map(drop), Err(class::TYPE));
        }
        assert_eq!(view(&t, -1, INT).map(drop), Err(class::ARG));
        let int = t.get_ref(INT).unwrap();
        let foreign = View::new(0, int, int, b"external32").map(drop);
        assert_eq!(foreign, Err(class::UNSUPPORTED_DATAREP));
    }
}
