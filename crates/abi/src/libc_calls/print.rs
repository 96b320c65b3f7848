//! `dprintf` and its kin, which write inside the C library: to a file that is appended to they
//! write by `appends`.

use std::ffi::{c_char, c_int, c_void};
use std::ptr::null_mut;

use super::appends::{may_append, write_all};
use super::real::{self, call};
use super::told::fail;

/// Where a `va_list` is: how the platforms that we know hand one on.
type List = *mut c_void;

unsafe extern "C" {
    fn vasprintf(at: *mut *mut c_char, format: *const c_char, list: List) -> c_int;
}

/// Prints to a file that is appended to.
unsafe fn print(fd: c_int, format: *const c_char, list: List) -> c_int {
    let mut text = null_mut();
    // SAFETY: the program's own arguments; the text is ours then.
    unsafe {
        let count = vasprintf(&mut text, format, list);
        let Ok(length) = usize::try_from(count) else { return count };
        let written = write_all(fd, text, length);
        libc::free(text.cast());
        if written == length { count } else { -1 }
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn eyrie_libc_vdprintf(
    fd: c_int,
    format: *const c_char,
    list: List,
) -> c_int {
    let real = real::VDPRINTF.found();
    // SAFETY: the program's own arguments.
    unsafe {
        if may_append(fd) {
            return print(fd, format, list);
        }
        if real.is_null() {
            return fail(libc::ENOSYS);
        }
        call!(real, fn(c_int, *const c_char, List) -> c_int, fd, format, list)
    }
}

/// With `_FORTIFY_SOURCE`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn eyrie_libc___vdprintf_chk(
    fd: c_int,
    flag: c_int,
    format: *const c_char,
    list: List,
) -> c_int {
    let real = real::VDPRINTF_CHK.found();
    // SAFETY: the program's own arguments.
    unsafe {
        if may_append(fd) || real.is_null() {
            return eyrie_libc_vdprintf(fd, format, list);
        }
        call!(real, fn(c_int, c_int, *const c_char, List) -> c_int, fd, flag, format, list)
    }
}
