//! The C library's own functions, found behind this library's; and what to do before they are.

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

    fn find(&self) {
        // SAFETY: a name; the result is only called by who knows what it is.
        self.at.store(unsafe { libc::dlsym(libc::RTLD_NEXT, self.name.as_ptr()) }, Relaxed);
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
    READ c"read"
    READ_CHK c"__read_chk"
    OPEN c"open"
    OPEN64 c"open64"
    OPENAT c"openat"
    OPENAT64 c"openat64"
    FOPEN c"fopen"
    FOPEN64 c"fopen64"
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

/// When this library is loaded; the C library has been by then.
extern "C" fn set_up() {
    ALL.iter().for_each(|real| real.find());
    super::before::begin();
}

#[used]
#[unsafe(link_section = ".init_array")]
static SET_UP: extern "C" fn() = set_up;
