//! Data of the program's that is written in a file in another representation than memory's.
//!
//! It is converted as a whole, into memory of the library's and back, so that the program's
//! functions are called once for each access. Of data that was read in part, the elements that are
//! there as a whole go to the program.

use std::rc::Rc;

use super::datarep::Rep;
use crate::datatype::predefined::BYTE;
use crate::datatype::{Basic, Datatype};
use crate::error::{Res, class};
use crate::handle::Handle;
use crate::machine::Machine;
use crate::request::Data;

/// What is converted: the program's data, and its bytes in the file.
pub(super) struct Converted {
    rep: Rep,
    data: Data,
    dt: Handle,
    bytes: Vec<u8>,
    byte: Rc<Datatype>,
}

impl Converted {
    /// The bytes as data. Its address is good until something else is done with them.
    pub(super) fn plain(&mut self) -> Data {
        Data::new(self.bytes.as_mut_ptr(), self.bytes.len() as u64, self.byte.clone())
    }

    /// Bytes of the program's data in memory.
    pub(super) fn memory_bytes(&self) -> u64 {
        self.data.bytes
    }
}

impl Machine {
    /// Room for the bytes in the file of some data, and that as data.
    pub(super) fn converted(
        &mut self,
        rep: &Rep,
        data: Data,
        dt: Handle,
    ) -> Res<(Converted, Data)> {
        let shape = self.file_type(rep, &data.dt)?;
        let len = shape.bytes(data.count).ok_or(class::COUNT)?;
        let mut bytes = Vec::new();
        let room = usize::try_from(len).map_err(|_| class::NO_MEM)?;
        bytes.try_reserve_exact(room).map_err(|_| class::NO_MEM)?;
        bytes.resize(room, 0);
        let byte = self.types.get(BYTE)?;
        let mut converted = Converted { rep: rep.clone(), data, dt, bytes, byte };
        let plain = converted.plain();
        Ok((converted, plain))
    }

    /// From the program's memory to the bytes.
    ///
    /// # Safety
    /// The program's memory is as the data says.
    pub(super) unsafe fn encode(&mut self, of: &mut Converted) -> Res<()> {
        let Converted { rep, data, dt, bytes, .. } = of;
        let at = bytes.as_mut_ptr();
        match rep {
            Rep::Registered(rep) => match &rep.write {
                Some(f) => {
                    let (buf, dt, n) = (data.buf, *dt, elements(data)?);
                    self.lend(|| f(buf, dt, n, at))
                }
                None if bytes.len() as u64 == data.bytes => {
                    // SAFETY: the caller's promise; there is room for all of it.
                    unsafe { data.gather(0, bytes) };
                    Ok(())
                }
                None => Err(class::CONVERSION),
            },
            // SAFETY: the caller's promise.
            _ => unsafe { data.dt.pack_external(rep.name(), data.buf, data.count, bytes, &mut 0) },
        }
    }

    /// From the first `got` of the bytes to the program's memory; returns how many bytes of its
    /// data are there.
    ///
    /// # Safety
    /// The program's memory is as the data says.
    pub(super) unsafe fn decode(&mut self, of: &mut Converted, got: u64) -> Res<u64> {
        let (whole, memory) = self.whole_elements(of, got)?;
        let Converted { rep, data, dt, bytes, .. } = of;
        let there = got.min(bytes.len() as u64) as usize;
        match rep {
            Rep::Registered(rep) => match &rep.read {
                Some(f) if whole > 0 => {
                    let (buf, dt, at) = (data.buf, *dt, bytes.as_mut_ptr());
                    self.lend(|| f(buf, dt, whole, at))?;
                }
                Some(_) => {}
                None if bytes.len() as u64 == data.bytes => {
                    // SAFETY: the caller's promise.
                    unsafe { data.scatter(0, &bytes[..there]) };
                    return Ok(there as u64);
                }
                None => return Err(class::CONVERSION),
            },
            // SAFETY: the caller's promise.
            _ => unsafe {
                data.dt.unpack_external_part(&bytes[..there], data.buf, data.count);
            },
        }
        Ok(memory)
    }

    /// Elements that the first `got` bytes hold as a whole, and their bytes in memory.
    fn whole_elements(&mut self, of: &Converted, got: u64) -> Res<(i64, u64)> {
        let (data, all) = (&of.data, of.bytes.len() as u64);
        if got >= all {
            return Ok((elements(data)?, data.bytes));
        }
        let mut sizes: Vec<(Basic, u64)> = Vec::new();
        let runs = |f: &mut dyn FnMut(Basic, u64)| {
            let told: Result<(), ()> = data.dt.signature().for_each_run(data.count, &mut |b, n| {
                f(b, n);
                Ok(())
            });
            debug_assert!(told.is_ok());
        };
        let mut kinds: Vec<Basic> = Vec::new();
        runs(&mut |kind, _| {
            if !kinds.contains(&kind) {
                kinds.push(kind);
            }
        });
        for kind in &kinds {
            sizes.push((*kind, self.element_bytes(of, *kind, kinds.len() == 1)?));
        }
        let (mut left, mut count, mut memory) = (got, 0, 0);
        let mut open = true;
        runs(&mut |kind, n| {
            let each = sizes.iter().find(|(of, _)| *of == kind).map_or(0, |(_, bytes)| *bytes);
            let here = left.checked_div(each).unwrap_or(n).min(n);
            if open {
                left -= here * each;
                count += here;
                memory += here * kind.size();
                open = here == n;
            }
        });
        Ok((i64::try_from(count).map_err(|_| class::COUNT)?, memory))
    }

    /// Bytes in the file of an element of this kind; `only`: all are of it.
    fn element_bytes(&mut self, of: &Converted, kind: Basic, only: bool) -> Res<u64> {
        if matches!(of.rep, Rep::External32) {
            return Ok(kind.foreign_size());
        }
        if only {
            let n = elements(&of.data)? as u64;
            return Ok((of.bytes.len() as u64).checked_div(n).unwrap_or(0));
        }
        let leaf = of.data.dt.leaves().into_iter().find(|leaf| leaf.uniform() == Some(kind));
        let leaf = leaf.ok_or(class::CONVERSION)?;
        self.leaf_bytes(&of.rep, &leaf)
    }
}

/// Basic elements of some data.
fn elements(data: &Data) -> Res<i64> {
    let n = data.dt.signature().elements().checked_mul(data.count);
    n.and_then(|n| i64::try_from(n).ok()).ok_or(class::COUNT)
}
