//! The C library's own functions, found behind this library's.

use std::ffi::{CStr, c_void};
use std::ptr::null_mut;
use std::sync::atomic::AtomicPtr;
use std::sync::atomic::Ordering::Relaxed;

/// One function of the C library.
pub struct Real {
    at: AtomicPtr<c_void>,
    name: &'static CStr,
}

impl Real {
    const fn new(name: &'static CStr) -> Real {
        Real { at: AtomicPtr::new(null_mut()), name }
    }

    /// Where it is; null before this library is set up.
    #[inline]
    pub fn at(&self) -> *mut c_void {
        self.at.load(Relaxed)
    }

    /// Where it is, found now if need be: not for functions that handlers of signals may call.
    pub fn found(&self) -> *mut c_void {
        if self.at().is_null() {
            self.find();
        }
        self.at()
    }

    pub fn name(&self) -> &'static CStr {
        self.name
    }

    fn find(&self) {
        // SAFETY: a name; the result is only called by who knows what it is.
        let mut at = unsafe { libc::dlsym(libc::RTLD_NEXT, self.name.as_ptr()) };
        if at.is_null() {
            // A program that needs this library only through another has the C library before it.
            at = in_libc(self.name);
        }
        self.at.store(at, Relaxed);
    }
}

fn in_libc(name: &CStr) -> *mut c_void {
    // SAFETY: the library is there already, and stays.
    unsafe {
        let libc = libc::dlopen(c"libc.so.6".as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD);
        if libc.is_null() { null_mut() } else { libc::dlsym(libc, name.as_ptr()) }
    }
}

macro_rules! reals {
    ($($real:ident $name:literal)*) => {
        $(pub static $real: Real = Real::new($name);)*
        static ALL: &[&Real] = &[$(&$real),*];
    };
}

reals! {
    CLOCK_GETTIME c"clock_gettime"
    GETTIMEOFDAY c"gettimeofday"
    TIMESPEC_GET c"timespec_get"
    TIME c"time"
    GETRANDOM c"getrandom"
    GETENTROPY c"getentropy"
    UNAME c"uname"
    READ c"read"
    WRITE c"write"
    WRITEV c"writev"
    READ_CHK c"__read_chk"
    OPEN c"open"
    OPEN64 c"open64"
    OPENAT c"openat"
    OPENAT64 c"openat64"
    FOPEN c"fopen"
    FOPEN64 c"fopen64"
    FREOPEN c"freopen"
    VDPRINTF c"vdprintf"
    VDPRINTF_CHK c"__vdprintf_chk"
    FREOPEN64 c"freopen64"
    ARC4RANDOM c"arc4random"
    ARC4RANDOM_BUF c"arc4random_buf"
    ARC4RANDOM_UNIFORM c"arc4random_uniform"
    RANDOM_DEVICE c"_ZNSt13random_device9_M_getvalEv"
    FORK c"_Fork"
    GETHOSTNAME c"gethostname"
    GETHOSTID c"gethostid"
    GETIFADDRS c"getifaddrs"
    CLOCK_NANOSLEEP c"clock_nanosleep"
    COND_CLOCKWAIT c"pthread_cond_clockwait"
    SEM_CLOCKWAIT c"sem_clockwait"
    MUTEX_CLOCKLOCK c"pthread_mutex_clocklock"
    FTIME c"ftime"
    TIMER_GETTIME c"timer_gettime"
    TIMER_SETTIME c"timer_settime"
    TIMER_GETOVERRUN c"timer_getoverrun"
    GETCPUCLOCKID c"clock_getcpuclockid"
    GETLOADAVG c"getloadavg"
    SYSCONF c"sysconf"
    NPROCS c"get_nprocs"
    NPROCS_CONF c"get_nprocs_conf"
    PAGES c"get_phys_pages"
    FREE_PAGES c"get_avphys_pages"
    AFFINITY c"sched_getaffinity"
    THREAD_AFFINITY c"pthread_getaffinity_np"
    SCHED_GETCPU c"sched_getcpu"
    MALLINFO c"mallinfo"
    MALLINFO2 c"mallinfo2"
    GETADDRINFO c"getaddrinfo"
    GETNAMEINFO c"getnameinfo"
    GETHOSTBYNAME_R c"gethostbyname_r"
    GETHOSTBYNAME2_R c"gethostbyname2_r"
    GETHOSTBYADDR_R c"gethostbyaddr_r"
    GETHOSTBYNAME c"gethostbyname"
    GETHOSTBYNAME2 c"gethostbyname2"
    GETHOSTBYADDR c"gethostbyaddr"
    GETDOMAINNAME c"getdomainname"
    FDOPEN c"fdopen"
    PTHREAD_CREATE c"pthread_create"
    TMPNAM c"tmpnam"
    TEMPNAM c"tempnam"
    UNLINK c"unlink"
    UNLINKAT c"unlinkat"
    REMOVE c"remove"
    RMDIR c"rmdir"
    RENAME c"rename"
    RENAMEAT c"renameat"
    MKDIR c"mkdir"
    MKDIRAT c"mkdirat"
    LINK c"link"
    LINKAT c"linkat"
    SYMLINK c"symlink"
    SYMLINKAT c"symlinkat"
}

/// Calls a function of the C library.
///
/// # Safety
/// The type is the function's, and so are the arguments.
macro_rules! call {
    ($at:expr, fn($($t:ty),*) -> $r:ty, $($a:expr),*) => {
        std::mem::transmute::<*mut std::ffi::c_void, unsafe extern "C" fn($($t),*) -> $r>($at)(
            $($a),*)
    };
}
pub(super) use call;

/// As this library is loaded: finds all of them.
pub(super) fn find_all() {
    ALL.iter().for_each(|real| real.find());
}
