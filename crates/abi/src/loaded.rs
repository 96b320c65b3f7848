//! Objects that are loaded into this process: where they lie, and their dynamic sections.

use std::ffi::c_int;

/// Numbers of a dynamic section's entries.
pub const NEEDED: i64 = 1;
pub const STRINGS: i64 = 5;

/// What is done with one object; true: with the next as well.
type Visit<'a> = &'a mut dyn FnMut(&Object) -> bool;

/// An object that is loaded.
pub struct Object {
    pub base: usize,
    headers: &'static [libc::Elf64_Phdr],
    dynamic: Option<*const [i64; 2]>,
}

impl Object {
    /// Whether the object is mapped at this address.
    pub fn contains(&self, at: usize) -> bool {
        self.headers.iter().filter(|h| h.p_type == libc::PT_LOAD).any(|h| {
            let from = self.base + h.p_vaddr as usize;
            (from..from + h.p_memsz as usize).contains(&at)
        })
    }

    /// The values of all entries of this number.
    pub fn values(&self, wanted: i64) -> impl Iterator<Item = usize> {
        // SAFETY: the dynamic section of a loaded object is mapped and ends with an entry of zeros.
        let at = |first: *const [i64; 2]| (0..).map(move |at| unsafe { *first.add(at) });
        let entries = self.dynamic.into_iter().flat_map(at).take_while(|[tag, _]| *tag != 0);
        entries.filter(move |[tag, _]| *tag == wanted).map(|[_, value]| value as usize)
    }

    /// The address that an entry has. The loader has put it there, or left its place in the object.
    pub fn address(&self, tag: i64) -> Option<usize> {
        self.values(tag).next().map(|at| if at < self.base { self.base + at } else { at })
    }
}

/// Visits the objects that are loaded, the program first.
pub fn visit(mut each: impl FnMut(&Object) -> bool) {
    let mut each: Visit = &mut each;
    // SAFETY: the function is called with the objects that are loaded, and with the place that is
    // given, which lives until it returns.
    unsafe { libc::dl_iterate_phdr(Some(look), (&raw mut each).cast()) };
}

unsafe extern "C" fn look(
    info: *mut libc::dl_phdr_info,
    _bytes: usize,
    each: *mut std::ffi::c_void,
) -> c_int {
    // SAFETY: by the contract of `dl_iterate_phdr`: headers of a loaded object, which stay as long
    // as this runs; `each` is ours.
    let (base, headers, each) = unsafe {
        let info = &*info;
        let count = usize::from(info.dlpi_phnum);
        let headers = std::slice::from_raw_parts(info.dlpi_phdr, count);
        (info.dlpi_addr as usize, headers, &mut *each.cast::<Visit>())
    };
    let dynamic = headers.iter().find(|h| h.p_type == libc::PT_DYNAMIC);
    let dynamic = dynamic.map(|header| (base + header.p_vaddr as usize) as *const [i64; 2]);
    c_int::from(!each(&Object { base, headers, dynamic }))
}
