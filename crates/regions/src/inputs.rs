//! What a process finds out by itself: what is in files, whether something could be written, random
//! numbers. A process that `eyrie run` restores alone repeats what it did, and has to tell the
//! others the same; so what it found out then is recorded with its MPI, and told to it again.
//!
//! Kept true: whatever is done with a value goes by what `settle` returned.

use crate::error::RegionsError;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::io;
use std::rc::Rc;

/// Bytes that are recorded in one call; more goes in several.
const MAX_PIECE_BYTES: usize = 64 << 10;
/// Of the length that stands before what is recorded.
const LENGTH_BYTES: usize = 8;

/// Where a process's findings are recorded.
pub trait Inputs {
    /// What was found out, or was when this was done first.
    fn settle(&self, own: &[u8]) -> Result<Vec<u8>, RegionsError>;
    /// Whether the next call of `settle` will return what was recorded.
    fn repeats(&self) -> bool;
    /// What was done then cannot be done again: nothing of this process counts any more.
    fn diverge(&self, why: &str);
    /// Does something with files that no image of the process is to be taken in the middle of, as
    /// it could not be restored when they are gone. Nothing is asked of other processes meanwhile.
    fn undisturbed(&self, work: &mut dyn FnMut());
}

/// [`Inputs::undisturbed`], with a result.
pub fn undisturbed<T>(inputs: &dyn Inputs, work: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    let (mut work, mut done) = (Some(work), None);
    inputs.undisturbed(&mut || done = work.take().map(|work| work()));
    done.unwrap_or_else(|| Err(io::Error::other("the MPI library does not let it be done")))
}

/// Whether this process may be restored by itself and repeat what it did, by what `eyrie run` says.
pub fn is_repeated() -> bool {
    std::env::var("EYRIE_REPEATS").is_ok_and(|repeats| repeats == "1")
}

/// Where the findings of this process are recorded, if they have to be and can.
pub fn found() -> Option<Rc<dyn Inputs>> {
    let recorder = if is_repeated() { Recorder::find() } else { None };
    recorder.map(|recorder| Rc::new(recorder) as Rc<dyn Inputs>)
}

type Input = unsafe extern "C" fn(*mut c_void, *mut c_int, c_int) -> c_int;
type Repeats = unsafe extern "C" fn(*mut c_int) -> c_int;
type Diverge = unsafe extern "C" fn(*const c_char) -> c_int;
type Work = unsafe extern "C" fn(*mut c_void);
type Undisturbed = unsafe extern "C" fn(Option<Work>, *mut c_void) -> c_int;

/// Functions of Eyrie's MPI library.
pub struct Recorder {
    input: Input,
    repeats: Repeats,
    diverge: Diverge,
    undisturbed: Undisturbed,
}

/// A function of any library that this process has loaded: not all have those that they need in
/// common (Python loads each module's for itself).
fn symbol(name: &CStr) -> Option<*mut c_void> {
    unsafe extern "C" fn take(
        info: *mut libc::dl_phdr_info,
        _: libc::size_t,
        names: *mut c_void,
    ) -> c_int {
        // SAFETY: the loader hands over a description with a name, or without; `names` is ours.
        unsafe {
            let name = (*info).dlpi_name;
            if !name.is_null() {
                (*names.cast::<Vec<CString>>()).push(CStr::from_ptr(name).to_owned());
            }
        }
        0
    }
    // SAFETY: a handle that stands for what is loaded, and a name that ends with zero.
    let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
    let mut names: Vec<CString> = Vec::new();
    if found.is_null() {
        // SAFETY: the function takes what it is given.
        unsafe { libc::dl_iterate_phdr(Some(take), std::ptr::from_mut(&mut names).cast()) };
    }
    let of = |library: &CString| {
        let how = libc::RTLD_NOW | libc::RTLD_NOLOAD;
        // SAFETY: names that end with zero; nothing is loaded that is not there, and the count of
        // its users is given back.
        unsafe {
            let handle = libc::dlopen(library.as_ptr(), how);
            if handle.is_null() {
                return None;
            }
            let found = libc::dlsym(handle, name.as_ptr());
            libc::dlclose(handle);
            Some(found).filter(|found| !found.is_null())
        }
    };
    let named = names.iter().filter(|name| !name.is_empty());
    Some(found).filter(|found| !found.is_null()).or_else(|| named.filter_map(of).next())
}

impl Recorder {
    /// `None`: the program's MPI records nothing.
    pub fn find() -> Option<Recorder> {
        let (input, repeats) = (symbol(c"MPIX_Eyrie_input")?, symbol(c"MPIX_Eyrie_repeats")?);
        let diverge = symbol(c"MPIX_Eyrie_diverge")?;
        let undisturbed = symbol(c"MPIX_Eyrie_undisturbed")?;
        // SAFETY: these are the types of Eyrie's functions of these names.
        unsafe {
            Some(Recorder {
                input: std::mem::transmute::<*mut c_void, Input>(input),
                repeats: std::mem::transmute::<*mut c_void, Repeats>(repeats),
                diverge: std::mem::transmute::<*mut c_void, Diverge>(diverge),
                undisturbed: std::mem::transmute::<*mut c_void, Undisturbed>(undisturbed),
            })
        }
    }

    fn piece(&self, own: &[u8]) -> Result<Vec<u8>, RegionsError> {
        let mut room = vec![0u8; MAX_PIECE_BYTES];
        room[..own.len()].copy_from_slice(own);
        let most = c_int::try_from(room.len()).unwrap_or(c_int::MAX);
        let mut count = c_int::try_from(own.len()).unwrap_or(c_int::MAX);
        // SAFETY: there is as much room, and MPI is running, as the others are asked through it.
        match unsafe { (self.input)(room.as_mut_ptr().cast(), &raw mut count, most) } {
            0 => {}
            code => return Err(RegionsError::Peers(code)),
        }
        room.truncate(usize::try_from(count).unwrap_or(0));
        Ok(room)
    }
}

impl Inputs for Recorder {
    fn settle(&self, own: &[u8]) -> Result<Vec<u8>, RegionsError> {
        // With its length: what was found then may be longer or shorter than what is found now.
        let (first, mut rest) = own.split_at(own.len().min(MAX_PIECE_BYTES - LENGTH_BYTES));
        let mut piece = self.piece(&[&(own.len() as u64).to_le_bytes(), first].concat())?;
        let unread = || RegionsError::Use("what was recorded cannot be read".into());
        let length = piece.first_chunk().copied().map(u64::from_le_bytes).ok_or_else(unread)?;
        let mut settled = piece.split_off(LENGTH_BYTES);
        while (settled.len() as u64) < length {
            let (next, more) = rest.split_at(rest.len().min(MAX_PIECE_BYTES));
            let piece = self.piece(next)?;
            if piece.is_empty() {
                return Err(unread());
            }
            settled.extend(piece);
            rest = more;
        }
        Ok(settled)
    }

    fn repeats(&self) -> bool {
        let mut flag = 0;
        // SAFETY: a place for a number.
        unsafe { (self.repeats)(&raw mut flag) == 0 && flag != 0 }
    }

    fn diverge(&self, why: &str) {
        let why = CString::new(why.replace('\0', "?")).unwrap_or_default();
        // SAFETY: a text that ends with zero.
        unsafe { (self.diverge)(why.as_ptr()) };
    }

    fn undisturbed(&self, work: &mut dyn FnMut()) {
        unsafe extern "C" fn call(work: *mut c_void) {
            // SAFETY: it is what `undisturbed` handed over.
            unsafe { (*work.cast::<&mut dyn FnMut()>())() }
        }
        let mut work = work;
        // SAFETY: it is called before this returns, with what it is given.
        unsafe { (self.undisturbed)(Some(call), std::ptr::from_mut(&mut work).cast()) };
    }
}
