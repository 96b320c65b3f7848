//! The kernel of Intel's library ISA-L, through its C interface, where its shared library is
//! installed (`libisal2` of Debian): it is opened at run time, so nothing depends on it.
//!
//! Kept true: tables are made and used by the same library, as their layout is its own affair.

#![allow(unsafe_code)] // a C library that is opened at run time

use super::field::Matrix;
use super::kernel::{Kernel, Product};
use std::ffi::{CStr, c_int, c_uchar};
use std::sync::OnceLock;

const LIBRARY: &CStr = c"libisal.so.2";
/// Bytes of table for each factor.
const TABLE_BYTES: usize = 32;
/// Longest block that is handed over at once; the library counts in `int`.
const MAX_BLOCK_BYTES: usize = 1 << 30;

type Init = unsafe extern "C" fn(c_int, c_int, *const c_uchar, *mut c_uchar);
type Encode = unsafe extern "C" fn(
    c_int,
    c_int,
    c_int,
    *const c_uchar,
    *const *const c_uchar,
    *const *mut c_uchar,
);
type Update = unsafe extern "C" fn(
    c_int,
    c_int,
    c_int,
    c_int,
    *const c_uchar,
    *const c_uchar,
    *const *mut c_uchar,
);
type Cauchy = unsafe extern "C" fn(*mut c_uchar, c_int, c_int);

/// The functions of the library.
pub struct Isal {
    init: Init,
    encode: Encode,
    update: Update,
    cauchy: Cauchy,
}

/// The library, or why it is not used.
pub fn load() -> Result<&'static Isal, &'static str> {
    static LOADED: OnceLock<Result<Isal, &'static str>> = OnceLock::new();
    LOADED.get_or_init(open).as_ref().map_err(|why| *why)
}

fn open() -> Result<Isal, &'static str> {
    // SAFETY: a name that ends with zero; the library stays open for ever.
    let handle = unsafe { libc::dlopen(LIBRARY.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
    if handle.is_null() {
        return Err("libisal.so.2 is not installed");
    }
    let find = |name: &CStr| {
        // SAFETY: a handle that is open and a name that ends with zero.
        let found = unsafe { libc::dlsym(handle, name.as_ptr()) };
        if found.is_null() { Err("libisal.so.2 lacks a function") } else { Ok(found) }
    };
    // SAFETY: these are the functions' types by isa-l/erasure_code.h, unchanged since version 2.0.
    unsafe {
        Ok(Isal {
            init: std::mem::transmute::<*mut libc::c_void, Init>(find(c"ec_init_tables")?),
            encode: std::mem::transmute::<*mut libc::c_void, Encode>(find(c"ec_encode_data")?),
            update: std::mem::transmute::<*mut libc::c_void, Update>(find(
                c"ec_encode_data_update",
            )?),
            cauchy: std::mem::transmute::<*mut libc::c_void, Cauchy>(find(
                c"gf_gen_cauchy1_matrix",
            )?),
        })
    }
}

impl Isal {
    /// The matrix of a code with `k` members of data, of `rows` rows, as the library makes it.
    pub fn cauchy(&self, rows: usize, k: usize) -> Matrix {
        let mut cells = vec![0; rows * k];
        // SAFETY: it writes `rows` times `k` bytes.
        unsafe { (self.cauchy)(cells.as_mut_ptr(), rows as c_int, k as c_int) };
        Matrix { rows, columns: k, cells }
    }
}

struct Prepared {
    isal: &'static Isal,
    rows: usize,
    columns: usize,
    tables: Vec<u8>,
}

impl Kernel for Isal {
    fn name(&self) -> &'static str {
        "isa-l"
    }

    fn prepare(&self, factors: &Matrix) -> Box<dyn Product> {
        let (rows, columns) = (factors.rows, factors.columns);
        let mut tables = vec![0; TABLE_BYTES * rows * columns];
        // SAFETY: it reads `rows` times `columns` factors and writes a table for each.
        unsafe {
            let (from, to) = (factors.cells.as_ptr(), tables.as_mut_ptr());
            (self.init)(columns as c_int, rows as c_int, from, to);
        }
        // Whoever has one has loaded it.
        let Ok(isal) = load() else { unreachable!("a loaded library stays loaded") };
        Box::new(Prepared { isal, rows, columns, tables })
    }
}

impl Prepared {
    /// Addresses of the blocks of `sums`, which are all `bytes` long.
    fn targets(&self, sums: &mut [&mut [u8]], bytes: usize) -> Vec<*mut c_uchar> {
        assert!(sums.len() == self.rows && bytes <= MAX_BLOCK_BYTES);
        sums.iter_mut()
            .map(|sum| {
                assert_eq!(sum.len(), bytes, "blocks of one length");
                sum.as_mut_ptr()
            })
            .collect()
    }
}

impl Product for Prepared {
    fn set(&self, sources: &[&[u8]], sums: &mut [&mut [u8]]) {
        let bytes = sources.first().map_or(0, |source| source.len());
        let to = self.targets(sums, bytes);
        assert!(sources.len() == self.columns && sources.iter().all(|s| s.len() == bytes));
        let from: Vec<*const c_uchar> = sources.iter().map(|source| source.as_ptr()).collect();
        let (k, rows) = (self.columns as c_int, self.rows as c_int);
        // SAFETY: as many blocks of that length as are named, by what was asserted; the tables are
        // for as many factors.
        unsafe {
            let tables = self.tables.as_ptr();
            (self.isal.encode)(bytes as c_int, k, rows, tables, from.as_ptr(), to.as_ptr());
        }
    }

    fn add(&self, index: usize, source: &[u8], sums: &mut [&mut [u8]]) {
        let to = self.targets(sums, source.len());
        assert!(index < self.columns);
        let (k, rows) = (self.columns as c_int, self.rows as c_int);
        let (bytes, index) = (source.len() as c_int, index as c_int);
        // SAFETY: as above.
        unsafe {
            let (tables, from) = (self.tables.as_ptr(), source.as_ptr());
            (self.isal.update)(bytes, k, rows, index, tables, from, to.as_ptr());
        }
    }
}
