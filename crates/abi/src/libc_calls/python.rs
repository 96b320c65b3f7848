//! Python, which has been running for a while when it opens this library.
//!
//! As long as it has one thread, what it asks the C library for follows from the program, and is
//! recorded. With a second one the interpreter asks for the time by itself, as often as its
//! threads wait for each other: no clock is recorded from then on, and nothing else where the
//! program's threads are not to wait for each other either (`--clocks auto`). `time.sleep` asks
//! CLOCK_MONOTONIC, so that one is only recorded in programs that have said that they have one
//! thread: others wait by it for what is outside, as often as that takes.
//!
//! What its random numbers were before MPI_Init is recorded there: who imports `random` or
//! `numpy` first has drawn a seed by then, or has given one.
//!
//! Kept true: Python's own functions are called, found by their names, in the thread that calls
//! MPI_Init. Interpreters without a global lock are left alone.

use std::ffi::{CStr, c_char, c_int, c_long, c_void};
use std::ptr::null_mut;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

use eyrie_core::machine::Machine;
use eyrie_ledger::door::{MAX_TOLD_BYTES, What};

use super::tells::{CLOCKS_ARE_OWN, MONOTONIC_IS_OWN};
use super::threads::thread_create;
use crate::global;

/// The interpreter has one thread, and is told what is recorded.
static ALONE: AtomicBool = AtomicBool::new(false);

/// States of the random numbers of modules that are loaded, as bytes in `state`.
const GET: &CStr = c"
import marshal, sys
def get():
    one, many = None, None
    if hasattr(sys.modules.get('random'), 'getstate'):
        one = sys.modules['random'].getstate()
    if hasattr(sys.modules.get('numpy.random'), 'get_state'):
        kind, keys, *rest = sys.modules['numpy.random'].get_state()
        many = (kind, keys.tobytes(), *rest)
    return marshal.dumps((one, many)) if one or many else b''
state = get()
";
/// The other way round.
const SET: &CStr = c"
import marshal, sys
def put():
    one, many = marshal.loads(state)
    if one and hasattr(sys.modules.get('random'), 'setstate'):
        sys.modules['random'].setstate(one)
    if many and hasattr(sys.modules.get('numpy.random'), 'set_state'):
        kind, keys, *rest = many
        keys = sys.modules['numpy'].frombuffer(keys, dtype='uint32')
        sys.modules['numpy.random'].set_state((kind, keys, *rest))
put()
";
const STATE: &CStr = c"state";
/// `Py_file_input`.
const STATEMENTS: c_int = 257;

type Object = *mut c_void;

/// A function of Python's, by its name and type.
macro_rules! python {
    ($name:literal, fn($($arg:ty),*) -> $result:ty) => {{
        // SAFETY: a name.
        let at = unsafe { libc::dlsym(libc::RTLD_DEFAULT, $name.as_ptr()) };
        // SAFETY: Python's headers declare the function so, in all versions 3.
        (!at.is_null()).then(|| unsafe {
            std::mem::transmute::<*mut c_void, unsafe extern "C" fn($($arg),*) -> $result>(at)
        })
    }};
}

/// Where the interpreter is, if there is one that runs.
pub(super) fn interpreter() -> Option<usize> {
    let runs = python!(c"Py_IsInitialized", fn() -> c_int)?;
    let version = python!(c"Py_GetVersion", fn() -> *const c_char)?;
    // SAFETY: both may be asked at any time; the text is Python's own.
    unsafe {
        let has_lock = !CStr::from_ptr(version()).to_string_lossy().contains("free-threading");
        (runs() != 0 && has_lock).then_some(runs as *const () as usize)
    }
}

/// Whether there is an interpreter that runs, and has this thread only.
pub fn is_alone() -> bool {
    let counted = || {
        interpreter()?;
        let head = python!(c"PyInterpreterState_Head", fn() -> Object)?;
        let next = python!(c"PyInterpreterState_Next", fn(Object) -> Object)?;
        let threads = python!(c"PyInterpreterState_ThreadHead", fn(Object) -> Object)?;
        let other = python!(c"PyThreadState_Next", fn(Object) -> Object)?;
        // SAFETY: what one gives is what the next one takes; nobody makes threads meanwhile, but
        // another thread, and then there are two.
        unsafe {
            let interpreter = head();
            let thread = threads(interpreter);
            Some(next(interpreter).is_null() && !thread.is_null() && other(thread).is_null())
        }
    };
    counted().unwrap_or(false)
}

/// From MPI_Init on, where something is recorded. Whether its clocks are.
pub(super) fn begin(machine: &mut Machine, has_threads: bool) -> bool {
    if interpreter().is_none() {
        return false;
    }
    let alone = is_alone();
    MONOTONIC_IS_OWN.store(has_threads, Relaxed);
    ALONE.store(alone, Relaxed);
    CLOCKS_ARE_OWN.store(!alone, Relaxed);
    record_random(machine);
    alone
}

/// `pthread_create` as the interpreter calls it.
pub(super) unsafe extern "C" fn starts_thread(
    thread: *mut libc::pthread_t,
    attributes: *const c_void,
    run: *mut c_void,
    with: *mut c_void,
) -> c_int {
    if ALONE.swap(false, Relaxed) {
        CLOCKS_ARE_OWN.store(true, Relaxed);
        global::has_threads();
    }
    // SAFETY: the program's own arguments.
    unsafe { thread_create(thread, attributes, run, with) }
}

/// What the interpreter's random numbers are is told as it was first.
fn record_random(m: &mut Machine) {
    let state = Interpreter::enter().and_then(|python| python.random_state()).unwrap_or_default();
    let find = |room: &mut [u8]| {
        let count = if state.len() <= room.len().min(MAX_TOLD_BYTES) { state.len() } else { 0 };
        room[..count].copy_from_slice(&state[..count]);
        count
    };
    m.enter();
    let told = m.tell(What::Random, find, <[u8]>::to_vec);
    m.leave();
    if !told.is_empty()
        && told != state
        && let Some(python) = Interpreter::enter()
    {
        python.set_random_state(&told);
    }
}

/// The interpreter's lock, held.
struct Interpreter {
    release: unsafe extern "C" fn(c_int),
    was: c_int,
}

impl Interpreter {
    fn enter() -> Option<Interpreter> {
        interpreter()?;
        let ensure = python!(c"PyGILState_Ensure", fn() -> c_int)?;
        let release = python!(c"PyGILState_Release", fn(c_int) -> ())?;
        // SAFETY: it runs, and this thread is one of its or may become one.
        Some(Interpreter { release, was: unsafe { ensure() } })
    }

    fn random_state(&self) -> Option<Vec<u8>> {
        self.run(GET, None)
    }

    fn set_random_state(&self, state: &[u8]) {
        self.run(SET, Some(state));
    }

    /// Runs statements, in which `state` is this; what it is then. Nothing if they fail.
    fn run(&self, statements: &CStr, state: Option<&[u8]>) -> Option<Vec<u8>> {
        let new = python!(c"PyDict_New", fn() -> Object)?;
        let put = python!(c"PyDict_SetItemString", fn(Object, *const c_char, Object) -> c_int)?;
        let get = python!(c"PyDict_GetItemString", fn(Object, *const c_char) -> Object)?;
        let drop_one = python!(c"Py_DecRef", fn(Object) -> ())?;
        let builtins = python!(c"PyEval_GetBuiltins", fn() -> Object)?;
        let make = python!(c"PyBytes_FromStringAndSize", fn(*const c_char, c_long) -> Object)?;
        let run = python!(c"PyRun_String", fn(*const c_char, c_int, Object, Object) -> Object)?;
        let read = python!(
            c"PyBytes_AsStringAndSize",
            fn(Object, *mut *mut c_char, *mut c_long) -> c_int
        )?;
        let forget = python!(c"PyErr_Clear", fn() -> ())?;
        let mut bytes = (null_mut(), 0);
        // SAFETY: the lock is held. Objects are those that the functions take; what is made here
        // is dropped here, what is only had is not.
        unsafe {
            let names = new();
            if names.is_null() {
                forget();
                return None;
            }
            put(names, c"__builtins__".as_ptr(), builtins());
            if let Some(state) = state {
                let made = make(state.as_ptr().cast(), state.len() as c_long);
                put(names, STATE.as_ptr(), made);
                drop_one(made);
            }
            let result = run(statements.as_ptr(), STATEMENTS, names, names);
            let found = if result.is_null() { null_mut() } else { get(names, STATE.as_ptr()) };
            let is_read = !found.is_null() && read(found, &raw mut bytes.0, &raw mut bytes.1) == 0;
            let copied = is_read.then(|| {
                let (at, count) = (bytes.0.cast::<u8>().cast_const(), bytes.1 as usize);
                std::slice::from_raw_parts(at, count).to_vec()
            });
            drop_one(result);
            drop_one(names);
            forget();
            copied
        }
    }
}

impl Drop for Interpreter {
    fn drop(&mut self) {
        // SAFETY: it was taken by this thread, and what it was before is given back.
        unsafe { (self.release)(self.was) };
    }
}
