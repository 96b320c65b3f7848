//! Reading and writing the arguments of C functions.

use std::ffi::{CStr, c_char, c_int};

use eyrie_core::error::{Res, class};
use eyrie_core::handle::Handle;
use eyrie_core::status::Status as CoreStatus;

use crate::check::level;
use crate::repr::{CHandle, ConstBuf, Num, Status, is_status_ignore, put_status};

/// Length of an array argument.
pub fn len(n: c_int) -> Res<usize> {
    usize::try_from(n).map_err(|_| class::ARG)
}

/// Stores a result; a null pointer is the program's mistake.
///
/// # Safety
/// `at` is null or points to a `T` that may be written.
#[inline]
pub unsafe fn put<T>(at: *mut T, value: T) -> Res<()> {
    if at.is_null() {
        return Err(class::ARG);
    }
    // SAFETY: by the caller's word.
    unsafe { at.write(value) };
    Ok(())
}

/// Reads an argument passed by address.
///
/// # Safety
/// `at` is null or points to a `T`.
#[inline]
pub unsafe fn get<T: Copy>(at: *const T) -> Res<T> {
    if at.is_null() {
        return Err(class::ARG);
    }
    // SAFETY: by the caller's word.
    Ok(unsafe { at.read() })
}

/// Stores a number in a field that may be too narrow: `MPI_UNDEFINED` then.
///
/// # Safety
/// As `put`.
pub unsafe fn put_num<T: Num>(at: *mut T, value: i64) -> Res<()> {
    let undefined = i64::from(eyrie_core::consts::UNDEFINED);
    let value = T::narrow(value).or(T::narrow(undefined)).ok_or(class::VALUE_TOO_LARGE)?;
    // SAFETY: by the caller's word.
    unsafe { put(at, value) }
}

/// An array argument.
///
/// # Safety
/// `at` is null or points to `n` elements that live as long as the result.
pub unsafe fn array<'a, T>(at: *const T, n: usize) -> Res<&'a [T]> {
    match (n, at.is_null()) {
        (0, _) => Ok(&[]),
        (_, true) => Err(class::ARG),
        // SAFETY: by the caller's word.
        _ => Ok(unsafe { std::slice::from_raw_parts(at, n) }),
    }
}

/// An array argument that is written.
///
/// # Safety
/// As `array`, and nothing else refers to the elements.
pub unsafe fn array_mut<'a, T>(at: *mut T, n: usize) -> Res<&'a mut [T]> {
    match (n, at.is_null()) {
        (0, _) => Ok(&mut []),
        (_, true) => Err(class::ARG),
        // SAFETY: by the caller's word.
        _ => Ok(unsafe { std::slice::from_raw_parts_mut(at, n) }),
    }
}

/// Array of counts or displacements, widened.
///
/// # Safety
/// As `array`.
pub unsafe fn wide<T: Num>(at: *const T, n: usize) -> Res<Vec<i64>> {
    // SAFETY: by the caller's word.
    Ok(unsafe { array(at, n) }?.iter().map(|v| v.wide()).collect())
}

/// Array of handles, in the machine's form.
///
/// # Safety
/// As `array`.
pub unsafe fn handles<H: CHandle>(at: *const H, n: usize) -> Res<Vec<Handle>> {
    // SAFETY: by the caller's word.
    Ok(unsafe { array(at, n) }?.iter().map(|h| h.core()).collect())
}

/// Writes handles back to the array they came from.
///
/// # Safety
/// `at` points to as many handles as there are in `from`.
pub unsafe fn put_handles<H: CHandle>(at: *mut H, from: &[Handle]) {
    for (i, h) in from.iter().enumerate() {
        // SAFETY: `i` is within the array.
        unsafe { at.add(i).write(H::of(*h)) };
    }
}

/// Writes an array of statuses, unless the program ignores them.
///
/// # Safety
/// `at` is "ignore" or points to as many statuses as there are in `from`.
pub unsafe fn put_statuses(at: *mut Status, from: &[CoreStatus], with_errors: bool) {
    if is_status_ignore(at) {
        return;
    }
    for (i, status) in from.iter().enumerate() {
        // SAFETY: `i` is within the array.
        unsafe { put_status(at.add(i), status, with_errors) };
    }
}

/// A C string argument.
///
/// # Safety
/// `s` is null or a string that lives as long as the result.
pub unsafe fn bytes<'a>(s: *const c_char) -> Res<&'a [u8]> {
    if s.is_null() {
        return Err(class::ARG);
    }
    // SAFETY: by the caller's word.
    Ok(unsafe { CStr::from_ptr(s) }.to_bytes())
}

/// Copies `text` with a zero at its end into `to`, which holds `room` bytes; what does not fit is
/// cut. Returns the length without the zero.
///
/// # Safety
/// `to` is null or has `room` bytes.
pub unsafe fn put_text(to: *mut c_char, room: usize, text: &[u8]) -> Res<c_int> {
    if to.is_null() || room == 0 {
        return Err(class::ARG);
    }
    let n = text.len().min(room - 1);
    // SAFETY: n + 1 <= room.
    unsafe {
        std::ptr::copy_nonoverlapping(text.as_ptr().cast(), to, n);
        to.add(n).write(0);
    }
    Ok(n as c_int)
}

/// Refuses a null buffer for data of a predefined type. (Null is `MPI_BOTTOM`: right with a derived
/// type of absolute addresses.)
#[inline]
pub fn check_buf(buf: ConstBuf, count: i64, datatype: Handle) -> Res<()> {
    if buf.is_null() && count > 0 && !datatype.is_dynamic() && !level::is_off() {
        return Err(class::BUFFER);
    }
    Ok(())
}
