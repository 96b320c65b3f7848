//! Names of temporary files, which are chosen by chance.
//!
//! Recorded is the name that was free. A replay makes the file or folder of that name; if it is
//! there from the life before it is taken, a file empty as it was when it was made.
//!
//! Kept true: what is taken is this user's own, a file without other names, and no link.

use std::ffi::{CStr, c_char, c_int, c_uint};

use eyrie_ledger::door::What;

use super::real::{self, call};
use super::told::{LONGEST, asked, errno, fail};

/// Characters that are chosen.
const CHOSEN: usize = 6;
/// How often another is tried.
const TRIES: u32 = 62 * 62 * 62;
const LETTERS: &[u8; 62] = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";

/// What is made of the name.
#[derive(Clone, Copy)]
enum Kind {
    File(c_int),
    Folder,
    Name,
}

fn choose(place: &mut [u8]) {
    let mut bytes = [0; 2 * CHOSEN];
    // SAFETY: our variable. If there are none yet, names that are taken are found out.
    unsafe { libc::syscall(libc::SYS_getrandom, bytes.as_mut_ptr(), bytes.len(), 0) };
    for (to, two) in place.iter_mut().zip(bytes.chunks_exact(2)) {
        *to = LETTERS[usize::from(u16::from_ne_bytes([two[0], two[1]])) % LETTERS.len()];
    }
}

/// What this user owns: a file of one name, or a folder.
fn is_own(stat: &libc::stat, kind: u32) -> bool {
    // SAFETY: has no preconditions.
    let own = unsafe { libc::geteuid() };
    stat.st_uid == own
        && stat.st_mode & libc::S_IFMT == kind
        && (kind == libc::S_IFDIR || stat.st_nlink == 1)
}

/// Not by this library's `open`, as making the file is not told apart from its name.
unsafe fn open(path: *const c_char, flags: c_int) -> c_int {
    const OWN_FILE: c_uint = 0o600;
    let flags = flags | libc::O_RDWR;
    // SAFETY: a name.
    unsafe { libc::syscall(libc::SYS_openat, libc::AT_FDCWD, path, flags, OWN_FILE) as c_int }
}

impl Kind {
    fn make(self, name: &CStr) -> c_int {
        let at = name.as_ptr();
        // SAFETY: a name, and our variable.
        unsafe {
            match self {
                Kind::File(flags) => open(at, flags | libc::O_CREAT | libc::O_EXCL),
                Kind::Folder => {
                    libc::syscall(libc::SYS_mkdirat, libc::AT_FDCWD, at, 0o700) as c_int
                }
                Kind::Name => {
                    let mut stat: libc::stat = std::mem::zeroed();
                    if libc::lstat(at, &mut stat) == 0 {
                        return fail(libc::EEXIST);
                    }
                    if errno() == libc::ENOENT { 0 } else { -1 }
                }
            }
        }
    }

    /// Makes it in a replay.
    fn make_again(self, name: &CStr) -> c_int {
        if matches!(self, Kind::Name) {
            return 0;
        }
        let made = self.make(name);
        if made >= 0 || errno() != libc::EEXIST {
            return made;
        }
        // SAFETY: a name, our own descriptor, and our variable, which consists of numbers.
        unsafe {
            let mut stat: libc::stat = std::mem::zeroed();
            if let Kind::File(flags) = self {
                let fd = open(name.as_ptr(), flags | libc::O_NOFOLLOW);
                if fd < 0 || libc::fstat(fd, &mut stat) == 0 && is_own(&stat, libc::S_IFREG) {
                    return if fd < 0 || libc::ftruncate(fd, 0) == 0 { fd } else { -1 };
                }
                libc::close(fd);
            } else if libc::lstat(name.as_ptr(), &mut stat) == 0 && is_own(&stat, libc::S_IFDIR) {
                return 0;
            }
        }
        fail(libc::EEXIST)
    }
}

unsafe fn make(template: *mut c_char, suffix: c_int, kind: Kind) -> c_int {
    // SAFETY: a text of the program's that may be changed.
    let (count, text) = unsafe {
        let count = libc::strlen(template);
        (count, std::slice::from_raw_parts_mut(template.cast::<u8>(), count + 1))
    };
    let before = usize::try_from(suffix).ok().and_then(|s| count.checked_sub(CHOSEN + s));
    let Some(at) = before.filter(|at| text[*at..*at + CHOSEN] == *b"XXXXXX") else {
        return fail(libc::EINVAL);
    };
    let mut made = None;
    let mut name = [0; CHOSEN];
    let mut ask = |name: &mut [u8]| {
        for _ in 0..TRIES {
            choose(name);
            text[at..at + CHOSEN].copy_from_slice(name);
            let result = CStr::from_bytes_with_nul(text).map_or(-1, |text| kind.make(text));
            if result >= 0 {
                made = Some(result);
                return 0;
            }
            if errno() != libc::EEXIST {
                return -1;
            }
        }
        fail(libc::EEXIST).into()
    };
    let result = match asked(What::Temporary, &mut name, &mut ask) {
        Some(result) => result,
        None => ask(&mut name),
    };
    if result < 0 {
        return -1;
    }
    made.unwrap_or_else(|| {
        text[at..at + CHOSEN].copy_from_slice(&name);
        CStr::from_bytes_with_nul(text).map_or(-1, |text| kind.make_again(text))
    })
}

macro_rules! files {
    ($($plain:ident $flagged:ident $behind:ident $both:ident;)*) => {$(
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $plain(template: *mut c_char) -> c_int {
            // SAFETY: the program's own argument.
            unsafe { make(template, 0, Kind::File(0)) }
        }
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $flagged(template: *mut c_char, flags: c_int) -> c_int {
            // SAFETY: the program's own argument.
            unsafe { make(template, 0, Kind::File(flags & !libc::O_ACCMODE)) }
        }
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $behind(template: *mut c_char, suffix: c_int) -> c_int {
            // SAFETY: the program's own argument.
            unsafe { make(template, suffix, Kind::File(0)) }
        }
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $both(
            template: *mut c_char, suffix: c_int, flags: c_int,
        ) -> c_int {
            // SAFETY: the program's own argument.
            unsafe { make(template, suffix, Kind::File(flags & !libc::O_ACCMODE)) }
        }
    )*};
}

files! {
    eyrie_libc_mkstemp eyrie_libc_mkostemp eyrie_libc_mkstemps eyrie_libc_mkostemps;
    eyrie_libc_mkstemp64 eyrie_libc_mkostemp64 eyrie_libc_mkstemps64 eyrie_libc_mkostemps64;
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn eyrie_libc_mkdtemp(template: *mut c_char) -> *mut c_char {
    // SAFETY: the program's own argument.
    if unsafe { make(template, 0, Kind::Folder) } < 0 { std::ptr::null_mut() } else { template }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn eyrie_libc_mktemp(template: *mut c_char) -> *mut c_char {
    // SAFETY: the program's own argument. Without a name it becomes empty.
    unsafe {
        if make(template, 0, Kind::Name) < 0 {
            *template = 0;
        }
    }
    template
}

/// A name that the C library chooses; whether there is one.
unsafe fn named(own: &mut [u8], plain: impl Fn() -> *mut c_char, is_ours: bool) -> Option<bool> {
    let told = asked(What::Temporary, own, |own| {
        let name = plain();
        if name.is_null() {
            return -1;
        }
        // SAFETY: a text of the C library's.
        let text = unsafe { CStr::from_ptr(name) }.to_bytes_with_nul();
        let fits = text.len() <= own.len();
        if fits {
            own[..text.len()].copy_from_slice(text);
        }
        if is_ours {
            // SAFETY: who asks for it frees it.
            unsafe { libc::free(name.cast()) };
        }
        if fits { 0 } else { fail(libc::ENAMETOOLONG).into() }
    });
    told.map(|result| result >= 0)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn eyrie_libc_tmpnam(at: *mut c_char) -> *mut c_char {
    /// `L_tmpnam`.
    const ROOM: usize = 20;
    let real = real::TMPNAM.found();
    if real.is_null() {
        return std::ptr::null_mut();
    }
    // SAFETY: the program's variable, or none: then it is the C library's own.
    let plain = |at| unsafe { call!(real, fn(*mut c_char) -> *mut c_char, at) };
    let mut own = [0; ROOM];
    // SAFETY: a text of the C library's; the program's variable has this room.
    unsafe {
        match named(&mut own, || plain(std::ptr::null_mut()), false) {
            None => plain(at),
            Some(false) => std::ptr::null_mut(),
            Some(true) => {
                let to = if at.is_null() { plain(at) } else { at };
                if !to.is_null() {
                    std::ptr::copy_nonoverlapping(own.as_ptr().cast(), to, ROOM);
                }
                to
            }
        }
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn eyrie_libc_tempnam(
    folder: *const c_char,
    head: *const c_char,
) -> *mut c_char {
    let real = real::TEMPNAM.found();
    if real.is_null() {
        return std::ptr::null_mut();
    }
    // SAFETY: the program's own arguments.
    let plain =
        || unsafe { call!(real, fn(*const c_char, *const c_char) -> *mut c_char, folder, head) };
    let mut own = [0; LONGEST];
    let mut given = std::ptr::null_mut();
    // SAFETY: texts of the C library's; who asks frees what is given.
    unsafe {
        let told = named(&mut own, plain, true);
        match told {
            None => given = plain(),
            Some(true) => given = libc::strdup(own.as_ptr().cast()),
            Some(false) => {}
        }
    }
    given
}
