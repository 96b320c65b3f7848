//! Files (MPI 5.0 chapter 14); representations of data that the program brings are in `datarep`.

use std::ffi::{c_char, c_int};

use eyrie_core::consts::FILE_NULL;
use eyrie_core::error::{Class, Res, class};
use eyrie_core::file::Split;
use eyrie_core::handle::Handle;

use crate::arg::{bytes, check_buf, get, put, put_text};
use crate::repr::*;
use crate::shim::shims;

/// `MPI_MAX_DATAREP_STRING`.
const MAX_DATAREP_BYTES: usize = 128;

/// Whose error handler an error goes to: a file's, or that of MPI_FILE_NULL.
#[derive(Clone, Copy)]
pub(crate) struct Of(File);

impl CHandle for Of {
    fn core(self) -> Handle {
        let handle = self.0.core();
        if handle == Handle(0) { FILE_NULL } else { handle }
    }
    fn of(handle: Handle) -> Self {
        Of(File::of(handle))
    }
}

/// The file behind an argument that is given back, if there is one.
fn behind(at: *const File) -> Of {
    // SAFETY: null, or the program's variable.
    Of(unsafe { get(at) }.unwrap_or(File::of(FILE_NULL)))
}

/// For errors that belong to no file.
pub(crate) fn nobody() -> Of {
    Of(File::of(FILE_NULL))
}

/// The offset of a call that has one.
fn given<const N: usize>(offset: [Offset; N]) -> Option<i64> {
    offset.first().copied()
}

/// A buffer that is read or written by a file.
fn data(buf: ConstBuf, count: i64, datatype: Datatype) -> Res<(*mut u8, i64, Handle)> {
    let dt = datatype.core();
    check_buf(buf, count, dt)?;
    Ok((buf.cast_mut().cast(), count, dt))
}

shims! {
    fn PMPI_File_open (comm: Comm, name: *const c_char, amode: c_int, info: Info, fh: *mut File)
        on nobody(); |m| {
        if fh.is_null() { Err(class::ARG)? }
        let opened = m.file_open(comm.core(), bytes(name), amode_in(amode), info.core())?;
        put(fh, File::of(opened))?;
    }
    fn PMPI_File_close (fh: *mut File) on behind(fh); |m| {
        let mut handle = get(fh)?.core();
        let result = m.file_close(&mut handle);
        put(fh, File::of(handle))?;
        result?;
    }
    fn PMPI_File_delete (name: *const c_char, info: Info) on nobody(); |m| {
        m.file_delete(bytes(name), info.core())?;
    }
    fn PMPI_File_set_size (fh: File, size: Offset) on Of(fh); |m| {
        m.file_set_size(fh.core(), size)?;
    }
    fn PMPI_File_preallocate (fh: File, size: Offset) on Of(fh); |m| {
        m.file_preallocate(fh.core(), size)?;
    }
    fn PMPI_File_get_size (fh: File, size: *mut Offset) on Of(fh); |m| {
        put(size, m.file_size(fh.core())?)?;
    }
    fn PMPI_File_get_group (fh: File, group: *mut Group) on Of(fh); |m| {
        put(group, Group::of(m.file_group(fh.core())?))?;
    }
    fn PMPI_File_get_amode (fh: File, amode: *mut c_int) on Of(fh); |m| {
        put(amode, amode_out(m.file_amode(fh.core())?))?;
    }
    fn PMPI_File_set_info (fh: File, info: Info) on Of(fh); |m| {
        m.file_set_info(fh.core(), info.core())?;
    }
    fn PMPI_File_get_info (fh: File, info: *mut Info) on Of(fh); |m| {
        put(info, Info::of(m.file_get_info(fh.core())?))?;
    }
    fn PMPI_File_set_view (fh: File, disp: Offset, etype: Datatype, filetype: Datatype,
                           datarep: *const c_char, info: Info) on Of(fh); |m| {
        let types = [etype.core(), filetype.core()];
        m.file_set_view(fh.core(), displacement_in(disp), types, bytes(datarep), info.core())?;
    }
    fn PMPI_File_get_view (fh: File, disp: *mut Offset, etype: *mut Datatype,
                           filetype: *mut Datatype, datarep: *mut c_char) on Of(fh); |m| {
        let (from, types, name) = m.file_get_view(fh.core())?;
        put(disp, from)?;
        put(etype, Datatype::of(types[0]))?;
        put(filetype, Datatype::of(types[1]))?;
        put_text(datarep, MAX_DATAREP_BYTES, &name)?;
    }
    fn PMPI_File_get_type_extent | PMPI_File_get_type_extent_c (
        fh: File, datatype: Datatype, extent: *mut Aint) on Of(fh); |m| {
        put(extent, m.file_type_extent(fh.core(), datatype.core())? as Aint)?;
    }
    fn PMPI_File_set_atomicity (fh: File, flag: c_int) on Of(fh); |m| {
        m.file_set_atomicity(fh.core(), flag != 0)?;
    }
    fn PMPI_File_get_atomicity (fh: File, flag: *mut c_int) on Of(fh); |m| {
        put(flag, m.file_atomicity(fh.core())?.into())?;
    }
    fn PMPI_File_sync (fh: File) on Of(fh); |m| {
        m.file_sync(fh.core())?;
    }
    fn PMPI_File_seek (fh: File, offset: Offset, whence: c_int) on Of(fh); |m| {
        m.file_seek(fh.core(), offset, whence_in(whence))?;
    }
    fn PMPI_File_get_position (fh: File, offset: *mut Offset) on Of(fh); |m| {
        put(offset, m.file_position(fh.core())?)?;
    }
    fn PMPI_File_seek_shared (fh: File, offset: Offset, whence: c_int) on Of(fh); |m| {
        m.file_seek_shared(fh.core(), offset, whence_in(whence))?;
    }
    fn PMPI_File_get_position_shared (fh: File, offset: *mut Offset) on Of(fh); |m| {
        put(offset, m.file_position_shared(fh.core())?)?;
    }
    fn PMPI_File_get_byte_offset (fh: File, offset: Offset, disp: *mut Offset) on Of(fh); |m| {
        put(disp, m.file_byte_offset(fh.core(), offset)?)?;
    }
    fn PMPI_File_set_errhandler (fh: File, eh: Errhandler) on Of(fh); |m| {
        m.file_set_errhandler(fh.core(), eh.core())?;
    }
    fn PMPI_File_get_errhandler (fh: File, eh: *mut Errhandler) on Of(fh); |m| {
        put(eh, Errhandler::of(m.file_get_errhandler(fh.core())?))?;
    }
    fn PMPI_File_call_errhandler (fh: File, code: c_int) on Of(fh); |m| {
        if fh.core() != FILE_NULL { m.file_amode(fh.core())?; }
        let code = code_in(code);
        crate::errhandler::call("PMPI_File_call_errhandler", m.raise(fh.core(), Class(code)), code);
    }
}

/// Data access: blocking, and the form with a request.
macro_rules! accesses {
    ($how:ident($buf:ty); $($name:ident $name_c:ident, $i:ident $i_c:ident ($($at:ident)?);)*)
    => {$(
        shims! {
            fn $name | $name_c (fh: File, $($at: Offset,)? buf: $buf, count: Count,
                                datatype: Datatype, status: *mut Status) on Of(fh); |m| {
                let (buf, count, dt) = data(ConstBuf::from(buf), count.wide(), datatype)?;
                let s = m.$how(fh.core(), given([$($at)?]), buf, count, dt)?;
                put_status(status, &s, false);
            }
            fn $i | $i_c (fh: File, $($at: Offset,)? buf: $buf, count: Count,
                          datatype: Datatype, request: *mut Request) on Of(fh); |m| {
                let (buf, count, dt) = data(ConstBuf::from(buf), count.wide(), datatype)?;
                let s = m.$how(fh.core(), given([$($at)?]), buf, count, dt)?;
                put(request, Request::of(m.file_request(fh.core(), s)?))?;
            }
        }
    )*};
}

/// Collective data access in two calls.
macro_rules! splits {
    ($how:ident($buf:ty); $($split:ident: $begin:ident $begin_c:ident $end:ident ($($at:ident)?);)*)
    => {$(
        shims! {
            fn $begin | $begin_c (fh: File, $($at: Offset,)? buf: $buf, count: Count,
                                  datatype: Datatype) on Of(fh); |m| {
                m.file_may_begin(fh.core())?;
                let (buf, count, dt) = data(ConstBuf::from(buf), count.wide(), datatype)?;
                let s = m.$how(fh.core(), given([$($at)?]), buf, count, dt)?;
                m.file_begun(fh.core(), Split::$split, s)?;
            }
            fn $end (fh: File, _buf: $buf, status: *mut Status) on Of(fh); |m| {
                put_status(status, &m.file_ended(fh.core(), Split::$split)?, false);
            }
        }
    )*};
}

accesses! {
    file_read(Buf);
    PMPI_File_read PMPI_File_read_c,
        PMPI_File_iread PMPI_File_iread_c ();
    PMPI_File_read_all PMPI_File_read_all_c,
        PMPI_File_iread_all PMPI_File_iread_all_c ();
    PMPI_File_read_at PMPI_File_read_at_c,
        PMPI_File_iread_at PMPI_File_iread_at_c (offset);
    PMPI_File_read_at_all PMPI_File_read_at_all_c,
        PMPI_File_iread_at_all PMPI_File_iread_at_all_c (offset);
}

accesses! {
    file_write(ConstBuf);
    PMPI_File_write PMPI_File_write_c,
        PMPI_File_iwrite PMPI_File_iwrite_c ();
    PMPI_File_write_all PMPI_File_write_all_c,
        PMPI_File_iwrite_all PMPI_File_iwrite_all_c ();
    PMPI_File_write_at PMPI_File_write_at_c,
        PMPI_File_iwrite_at PMPI_File_iwrite_at_c (offset);
    PMPI_File_write_at_all PMPI_File_write_at_all_c,
        PMPI_File_iwrite_at_all PMPI_File_iwrite_at_all_c (offset);
}

splits! {
    file_read(Buf);
    ReadAll:
        PMPI_File_read_all_begin PMPI_File_read_all_begin_c
        PMPI_File_read_all_end ();
    ReadAtAll:
        PMPI_File_read_at_all_begin PMPI_File_read_at_all_begin_c
        PMPI_File_read_at_all_end (offset);
}

splits! {
    file_write(ConstBuf);
    WriteAll:
        PMPI_File_write_all_begin PMPI_File_write_all_begin_c
        PMPI_File_write_all_end ();
    WriteAtAll:
        PMPI_File_write_at_all_begin PMPI_File_write_at_all_begin_c
        PMPI_File_write_at_all_end (offset);
}

/// Data access through the shared file pointer: of a rank, and the form with a request.
macro_rules! shared {
    ($how:ident($buf:ty): $name:ident $name_c:ident, $i:ident $i_c:ident) => {
        shims! {
            fn $name | $name_c (fh: File, buf: $buf, count: Count, datatype: Datatype,
                                status: *mut Status) on Of(fh); |m| {
                let (buf, count, dt) = data(ConstBuf::from(buf), count.wide(), datatype)?;
                put_status(status, &m.$how(fh.core(), buf, count, dt)?, false);
            }
            fn $i | $i_c (fh: File, buf: $buf, count: Count, datatype: Datatype,
                          request: *mut Request) on Of(fh); |m| {
                let (buf, count, dt) = data(ConstBuf::from(buf), count.wide(), datatype)?;
                let s = m.$how(fh.core(), buf, count, dt)?;
                put(request, Request::of(m.file_request(fh.core(), s)?))?;
            }
        }
    };
}

/// The same of all ranks in order: in one call, and in two.
macro_rules! ordered {
    ($how:ident($buf:ty): $name:ident $name_c:ident,
     $split:ident: $begin:ident $begin_c:ident $end:ident) => {
        shims! {
            fn $name | $name_c (fh: File, buf: $buf, count: Count, datatype: Datatype,
                                status: *mut Status) on Of(fh); |m| {
                let (buf, count, dt) = data(ConstBuf::from(buf), count.wide(), datatype)?;
                put_status(status, &m.$how(fh.core(), buf, count, dt)?, false);
            }
            fn $begin | $begin_c (fh: File, buf: $buf, count: Count, datatype: Datatype)
                on Of(fh); |m| {
                m.file_may_begin(fh.core())?;
                let (buf, count, dt) = data(ConstBuf::from(buf), count.wide(), datatype)?;
                let s = m.$how(fh.core(), buf, count, dt)?;
                m.file_begun(fh.core(), Split::$split, s)?;
            }
            fn $end (fh: File, _buf: $buf, status: *mut Status) on Of(fh); |m| {
                put_status(status, &m.file_ended(fh.core(), Split::$split)?, false);
            }
        }
    };
}

shared!(file_read_shared(Buf): PMPI_File_read_shared PMPI_File_read_shared_c,
        PMPI_File_iread_shared PMPI_File_iread_shared_c);
shared!(file_write_shared(ConstBuf): PMPI_File_write_shared PMPI_File_write_shared_c,
        PMPI_File_iwrite_shared PMPI_File_iwrite_shared_c);
ordered!(file_read_ordered(Buf): PMPI_File_read_ordered PMPI_File_read_ordered_c,
         ReadOrdered: PMPI_File_read_ordered_begin PMPI_File_read_ordered_begin_c
         PMPI_File_read_ordered_end);
ordered!(file_write_ordered(ConstBuf): PMPI_File_write_ordered PMPI_File_write_ordered_c,
         WriteOrdered: PMPI_File_write_ordered_begin PMPI_File_write_ordered_begin_c
         PMPI_File_write_ordered_end);
