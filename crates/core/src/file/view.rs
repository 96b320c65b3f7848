//! Views of files: which bytes of a file a rank sees, and in which order (MPI 5.0 section 14.3).

use std::rc::Rc;

use super::datarep::Rep;
use super::past::mark;
use super::{File, MODE_SEQUENTIAL, SEEK_CUR, SEEK_END, SEEK_SET};
use crate::datatype::Datatype;
use crate::datatype::predefined::BYTE;
use crate::error::{Res, class};
use crate::handle::Handle;
use crate::machine::Machine;

/// Of files that are accessed in sequence: where the next access is. Its value in the standard ABI.
pub const DISPLACEMENT_CURRENT: i64 = -1;

/// From `disp` on the file is made of filetypes; their data, made of etypes, is what is seen.
#[derive(Clone)]
pub(super) struct View {
    disp: i64,
    /// As they lie in the file.
    pub(super) etype: Rc<Datatype>,
    filetype: Rc<Datatype>,
    /// As the program has given them.
    given: [Rc<Datatype>; 2],
    pub(super) rep: Rep,
}

impl View {
    /// All bytes of the file.
    pub(super) fn plain(byte: &Rc<Datatype>) -> View {
        let given = [byte.clone(), byte.clone()];
        View { disp: 0, etype: byte.clone(), filetype: byte.clone(), given, rep: Rep::Native }
    }

    /// Of types as they lie in the file.
    fn new(
        disp: i64,
        [etype, filetype]: [&Rc<Datatype>; 2],
        given: [Rc<Datatype>; 2],
        rep: Rep,
    ) -> Res<View> {
        if disp < 0 {
            return Err(class::ARG);
        }
        if etype.size == 0 || filetype.size == 0 || !filetype.size.is_multiple_of(etype.size) {
            return Err(class::TYPE);
        }
        if filetype.true_lb < 0 || filetype.extent <= 0 || !filetype.is_ascending() {
            return Err(class::TYPE);
        }
        Ok(View { disp, etype: etype.clone(), filetype: filetype.clone(), given, rep })
    }

    /// What is to be the same for all ranks.
    fn common(&self) -> i64 {
        self.etype.extent.wrapping_add(mark(0, self.rep.name()) as i64)
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
    pub(super) fn byte_offset(&self, offset: i64) -> Res<i64> {
        let mut found = 0;
        self.runs(self.start(offset)?, 1, &mut |at, _| {
            found = at;
            Ok(false)
        })?;
        i64::try_from(found).map_err(|_| class::ARG)
    }

    /// The first offset at or behind the end of a file of so many bytes.
    pub(super) fn end(&self, size: u64) -> Res<i64> {
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
    /// `MPI_File_set_view`; all file pointers then are at the beginning.
    pub fn file_set_view(
        &mut self,
        fh: Handle,
        disp: i64,
        [etype, filetype]: [Handle; 2],
        datarep: Res<&[u8]>,
        info: Handle,
    ) -> Res<()> {
        let comm = self.files.get(fh)?.comm;
        let sequential = self.files.get(fh)?.amode & MODE_SEQUENTIAL != 0;
        let made = self.infos.get_optional(info).map(drop).and(datarep).and_then(|datarep| {
            if (disp == DISPLACEMENT_CURRENT) != sequential {
                return Err(class::ARG);
            }
            let disp = if sequential { 0 } else { disp };
            self.view_of(fh, disp, [etype, filetype], datarep)
        });
        let same = made.as_ref().map_or(0, View::common);
        self.file_agree(comm, same, made.as_ref().map(drop).map_err(|e| *e))?;
        let mut view = made?;
        if sequential {
            view.disp = self.shared_displacement(fh)?;
        }
        let hints = self.infos.get_optional(info)?;
        let file = self.files.slab.get_mut(fh).ok_or(class::FILE)?;
        file.take_hints(hints);
        file.view = Rc::new(view);
        file.position = 0;
        file.set_shared(0);
        Ok(())
    }

    fn view_of(
        &mut self,
        fh: Handle,
        disp: i64,
        [etype, filetype]: [Handle; 2],
        datarep: &[u8],
    ) -> Res<View> {
        let given =
            [self.types.get_committed(etype)?.clone(), self.types.get_committed(filetype)?.clone()];
        self.files.get(fh)?.is_idle()?;
        let rep = self.rep_of(datarep)?;
        let [etype, filetype] =
            [self.file_type(&rep, &given[0])?, self.file_type(&rep, &given[1])?];
        View::new(disp, [&etype, &filetype], given, rep)
    }

    /// Displacement, etype and filetype (new handles of those that are not predefined), datarep.
    pub fn file_get_view(&mut self, fh: Handle) -> Res<(i64, [Handle; 2], Vec<u8>)> {
        let view = self.files.get(fh)?.view.clone();
        let [etype, filetype] = &view.given;
        let types = [self.types.handle_of(etype)?, self.types.handle_of(filetype)?];
        Ok((view.disp, types, view.rep.name().to_vec()))
    }

    /// As it lies in the file.
    pub fn file_type_extent(&mut self, fh: Handle, dt: Handle) -> Res<i64> {
        let view = self.files.get(fh)?.view.clone();
        let t = self.types.get(dt)?;
        Ok(self.file_type(&view.rep, &t)?.extent)
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
        let given = [t.get(INT)?, t.get(filetype)?];
        View::new(disp, [&given[0], &given[1]], given.clone(), Rep::Native)
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
    }
}
