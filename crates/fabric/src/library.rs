//! The shared library: opened once, by name, when somebody wants it.
//!
//! Kept true: functions are asked for by the version of the interface that `sys` lays out; later
//! releases keep those versions, so a later default is never mistaken for it.

use std::ffi::{CStr, c_int, c_void};
use std::mem::transmute;
use std::sync::OnceLock;

use crate::Error;
use crate::sys::{DupInfo, FreeInfo, GetInfo, OpenFabric, StrError};

const LIBRARY: &CStr = c"libfabric.so.1";

/// The functions of the library.
#[derive(Debug)]
pub struct Library {
    pub getinfo: GetInfo,
    pub freeinfo: FreeInfo,
    pub dupinfo: DupInfo,
    pub fabric: OpenFabric,
    strerror: StrError,
}

/// Why there is none.
#[derive(Clone, Copy)]
enum Without {
    Library,
    Function(&'static str),
}

/// The library, opened when it is asked for first.
pub fn load() -> Result<&'static Library, Error> {
    static LOADED: OnceLock<Result<Library, Without>> = OnceLock::new();
    LOADED.get_or_init(open).as_ref().map_err(|why| match why {
        Without::Library => Error::Missing,
        Without::Function(name) => Error::Lacks(name),
    })
}

fn open() -> Result<Library, Without> {
    // SAFETY: a name that ends with zero; the library stays open for ever.
    let handle = unsafe { libc::dlopen(LIBRARY.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
    if handle.is_null() {
        return Err(Without::Library);
    }
    let find = |name: &'static CStr, version: &CStr| {
        // SAFETY: a handle that is open and names that end with zero.
        let found = unsafe { libc::dlvsym(handle, name.as_ptr(), version.as_ptr()) };
        let name = name.to_str().unwrap_or_default();
        if found.is_null() { Err(Without::Function(name)) } else { Ok(found) }
    };
    // SAFETY: these are the functions' types by rdma/fabric.h, in these versions.
    unsafe {
        Ok(Library {
            getinfo: transmute::<*mut c_void, GetInfo>(find(c"fi_getinfo", c"FABRIC_1.3")?),
            freeinfo: transmute::<*mut c_void, FreeInfo>(find(c"fi_freeinfo", c"FABRIC_1.3")?),
            dupinfo: transmute::<*mut c_void, DupInfo>(find(c"fi_dupinfo", c"FABRIC_1.3")?),
            fabric: transmute::<*mut c_void, OpenFabric>(find(c"fi_fabric", c"FABRIC_1.1")?),
            strerror: transmute::<*mut c_void, StrError>(find(c"fi_strerror", c"FABRIC_1.0")?),
        })
    }
}

impl Library {
    /// What a call returned, if that is an error.
    pub fn check(&self, call: &'static str, returned: impl Into<i64>) -> Result<(), Error> {
        let returned = returned.into();
        if returned >= 0 {
            return Ok(());
        }
        Err(self.error(call, c_int::try_from(-returned).unwrap_or(libc::EIO)))
    }

    /// An error by its number.
    pub fn error(&self, call: &'static str, code: c_int) -> Error {
        // SAFETY: it returns a text that lasts, for any number.
        let text = unsafe { CStr::from_ptr((self.strerror)(code)) };
        Error::Call { call, code, text: text.to_string_lossy().into_owned() }
    }
}
