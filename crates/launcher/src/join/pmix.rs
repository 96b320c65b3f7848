//! `eyrie __pmix`: stands between an `eyrie join` and a launcher that speaks PMIx. To the one it
//! speaks PMI 1.1, on its standard input, to the other through libpmix, which is opened at run time
//! and in this process only: its threads and its memory are nobody else's.
//!
//! Kept true: what is said first is which process of how many this is, or why that is not known;
//! a value that is asked for is one that the first process has put.

use eyrie_control::pmi::{LINE_BYTES, Line};
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

const LIBRARY: &CStr = c"libpmix.so.2";
/// Signals that a launcher sends to all processes: this one ends when its `eyrie join` does.
const NOT_OURS: [c_int; 6] =
    [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT, libc::SIGUSR1, libc::SIGUSR2];

// By pmix_common.h, unchanged since PMIx 2.
const SUCCESS: c_int = 0;
const STRING: u16 = 3;
const UINT32: u16 = 14;
const GLOBAL: u8 = 3;
const WILDCARD: u32 = u32::MAX - 1;
const JOB_SIZE: &CStr = c"pmix.job.size";

#[repr(C)]
#[derive(Clone)]
struct Proc {
    space: [u8; 256],
    rank: u32,
}

/// As long as any of its kinds, or longer.
#[repr(C)]
struct Value {
    kind: u16,
    data: [u64; 8],
}

type Init = unsafe extern "C" fn(*mut Proc, *const c_void, usize) -> c_int;
type Put = unsafe extern "C" fn(u8, *const c_char, *mut Value) -> c_int;
type Commit = unsafe extern "C" fn() -> c_int;
type Fence = unsafe extern "C" fn(*const Proc, usize, *const c_void, usize) -> c_int;
type Get = unsafe extern "C" fn(
    *const Proc,
    *const c_char,
    *const c_void,
    usize,
    *mut *mut Value,
) -> c_int;
type Finalize = unsafe extern "C" fn(*const c_void, usize) -> c_int;
type ErrorString = unsafe extern "C" fn(c_int) -> *const c_char;

/// What is used of the library.
struct Library {
    init: Init,
    put: Put,
    commit: Commit,
    fence: Fence,
    get: Get,
    finalize: Finalize,
    error_string: ErrorString,
}

fn open() -> Result<Library, String> {
    // SAFETY: a name that ends with zero; the library stays open for ever.
    let handle = unsafe { libc::dlopen(LIBRARY.as_ptr(), libc::RTLD_NOW | libc::RTLD_GLOBAL) };
    if handle.is_null() {
        return Err(String::from(
            "this launcher speaks PMIx, and libpmix.so.2 is not found: install it (package \
             libpmix2), or add the folder of the launcher's own to LD_LIBRARY_PATH",
        ));
    }
    let find = |name: &CStr| {
        // SAFETY: a handle that is open and a name that ends with zero.
        let found = unsafe { libc::dlsym(handle, name.as_ptr()) };
        let lacks = || format!("libpmix.so.2 lacks {}", name.to_string_lossy());
        if found.is_null() { Err(lacks()) } else { Ok(found) }
    };
    // SAFETY: these are the functions' types by pmix.h, unchanged since PMIx 2.
    unsafe {
        Ok(Library {
            init: std::mem::transmute::<*mut c_void, Init>(find(c"PMIx_Init")?),
            put: std::mem::transmute::<*mut c_void, Put>(find(c"PMIx_Put")?),
            commit: std::mem::transmute::<*mut c_void, Commit>(find(c"PMIx_Commit")?),
            fence: std::mem::transmute::<*mut c_void, Fence>(find(c"PMIx_Fence")?),
            get: std::mem::transmute::<*mut c_void, Get>(find(c"PMIx_Get")?),
            finalize: std::mem::transmute::<*mut c_void, Finalize>(find(c"PMIx_Finalize")?),
            error_string: std::mem::transmute::<*mut c_void, ErrorString>(find(
                c"PMIx_Error_string",
            )?),
        })
    }
}

/// A process that its launcher knows.
struct Client {
    library: Library,
    own: Proc,
}

impl Client {
    fn begin() -> Result<Client, String> {
        let library = open()?;
        let mut own = Proc { space: [0; 256], rank: 0 };
        // SAFETY: a live process name; there are no options.
        let status = unsafe { (library.init)(&raw mut own, std::ptr::null(), 0) };
        let client = Client { library, own };
        client.check("PMIx_Init", status).map_err(|why| {
            format!(
                "{why}: the launcher whose PMIX_RANK is set here is not reached: start the program \
                 by that launcher itself, or by eyrie run without its variables"
            )
        })?;
        Ok(client)
    }

    fn check(&self, what: &str, status: c_int) -> Result<(), String> {
        if status == SUCCESS {
            return Ok(());
        }
        // SAFETY: the library's own text, or none.
        let text = unsafe {
            let text = (self.library.error_string)(status);
            if text.is_null() { c"an error" } else { CStr::from_ptr(text) }
        };
        Err(format!("{what}: {} ({status})", text.to_string_lossy()))
    }

    /// A value of a process; what is done with it is done while it lives.
    fn get<T>(
        &self,
        of: u32,
        key: &CStr,
        take: impl FnOnce(&Value) -> Option<T>,
    ) -> Result<T, String> {
        let of = Proc { rank: of, ..self.own.clone() };
        let mut value: *mut Value = std::ptr::null_mut();
        // SAFETY: live names; it makes a value, which stays: there are two in a process's life.
        let status = unsafe {
            (self.library.get)(&raw const of, key.as_ptr(), std::ptr::null(), 0, &raw mut value)
        };
        self.check("PMIx_Get", status)?;
        // SAFETY: only fields of its kind are looked at, and it has that.
        let value = unsafe { value.as_ref() }.and_then(take);
        value.ok_or_else(|| format!("{}: not of the kind it is to be", key.to_string_lossy()))
    }

    fn size(&self) -> Result<u32, String> {
        self.get(WILDCARD, JOB_SIZE, |value| {
            // SAFETY: a number of this kind lies at the beginning of the data.
            (value.kind == UINT32).then(|| unsafe { value.data.as_ptr().cast::<u32>().read() })
        })
    }

    fn text(&self, key: &str) -> Result<String, String> {
        let key = CString::new(key).map_err(|e| e.to_string())?;
        self.get(0, &key, |value| {
            let text = (value.kind == STRING).then_some(value.data[0] as *const c_char);
            // SAFETY: a text of this kind ends with zero.
            let text = text.filter(|t| !t.is_null()).map(|t| unsafe { CStr::from_ptr(t) });
            text.and_then(|t| t.to_str().ok()).map(String::from)
        })
    }

    fn put(&self, key: &str, text: &str) -> Result<(), String> {
        let key = CString::new(key).map_err(|e| e.to_string())?;
        let text = CString::new(text).map_err(|e| e.to_string())?;
        let mut value = Value { kind: STRING, data: [0; 8] };
        value.data[0] = text.as_ptr() as u64;
        // SAFETY: live texts, which are copied.
        let status = unsafe { (self.library.put)(GLOBAL, key.as_ptr(), &raw mut value) };
        self.check("PMIx_Put", status)
    }

    /// Waits for all processes of the job.
    fn fence(&self) -> Result<(), String> {
        // SAFETY: no arguments.
        self.check("PMIx_Commit", unsafe { (self.library.commit)() })?;
        // SAFETY: nobody is named: these are all.
        let status = unsafe { (self.library.fence)(std::ptr::null(), 0, std::ptr::null(), 0) };
        self.check("PMIx_Fence", status)
    }

    fn finalize(&self) -> Result<(), String> {
        // SAFETY: there are no options.
        let status = unsafe { (self.library.finalize)(std::ptr::null(), 0) };
        self.check("PMIx_Finalize", status)
    }
}

/// Serves the `eyrie join` that has started this process.
///
/// # Errors
/// When that cannot be spoken with.
pub fn run() -> io::Result<()> {
    for signal in NOT_OURS {
        // SAFETY: sets a disposition before any other thread exists.
        unsafe { libc::signal(signal, libc::SIG_IGN) };
    }
    let socket = File::from(io::stdin().as_fd().try_clone_to_owned()?);
    let mut say = socket.try_clone()?;
    let begun = Client::begin().and_then(|client| Ok((client.size()?, client)));
    let (size, client) = match begun {
        Ok(begun) => begun,
        Err(why) => return say.write_all(format!("cmd=failed msg={why}\n").as_bytes()),
    };
    let rank = client.own.rank;
    say.write_all(format!("cmd=begin rank={rank} size={size}\n").as_bytes())?;
    let mut lines = BufReader::new(socket);
    loop {
        let mut line = Vec::new();
        let limited = (&mut lines).take(LINE_BYTES as u64);
        if { limited }.read_until(b'\n', &mut line)? == 0 {
            return Ok(());
        }
        let asked = Line::parse(line.trim_ascii_end()).map_err(io::Error::other)?;
        let (answer, over) = answer(&client, &asked);
        say.write_all(format!("{answer}\n").as_bytes())?;
        if over {
            return Ok(());
        }
    }
}

/// What PMI 1.1 says to this, and whether it is the last.
fn answer(client: &Client, asked: &Line) -> (String, bool) {
    let told = |name: &str, result: Result<String, String>| match result {
        Ok(more) => format!("cmd={name} rc=0{more}"),
        Err(why) => format!("cmd={name} rc=1 msg={why}"),
    };
    let nothing = |()| String::new();
    let key = asked.get("key").unwrap_or_default();
    let line = match asked.command.as_str() {
        "init" => String::from("cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0"),
        "get_maxes" => String::from("cmd=maxes kvsname_max=256 keylen_max=64 vallen_max=1024"),
        "get_my_kvsname" => String::from("cmd=my_kvsname kvsname=pmix"),
        "put" => {
            let put = client.put(key, asked.get("value").unwrap_or_default());
            told("put_result", put.map(nothing))
        }
        "get" => told("get_result", client.text(key).map(|text| format!(" value={text}"))),
        "barrier_in" => told("barrier_out", client.fence().map(nothing)),
        "finalize" => return (told("finalize_ack", client.finalize().map(nothing)), true),
        other => format!("cmd={other} rc=1 msg=not served"),
    };
    (line, false)
}

/// Whether a launcher that speaks PMIx has started this process.
pub fn is_served() -> bool {
    std::env::var_os("PMIX_RANK").is_some() && std::env::var_os("PMIX_NAMESPACE").is_some()
}

/// Starts the process that speaks with the launcher; when that is gone, this one is to end, too.
/// Returns it, the connection with it, and which
/// process of how many this is.
///
/// # Errors
/// What there is to say if it does not come to that.
pub fn start() -> io::Result<(Child, OwnedFd, u32, u32)> {
    // Those launchers leave what they have started when they are killed.
    // SAFETY: plain system call.
    unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGTERM) };
    let (near, far) = std::os::unix::net::UnixStream::pair()?;
    let mut command = Command::new(std::env::current_exe()?);
    command.arg("__pmix").stdin(Stdio::from(OwnedFd::from(far)));
    // SAFETY: only async-signal-safe system calls between fork and exec.
    unsafe {
        command.pre_exec(|| {
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
            Ok(())
        });
    }
    let child = eyrie_image::while_starting(|| command.spawn())?;
    drop(command);
    let mut line = Vec::new();
    // Nothing comes behind that before something is asked.
    let limited = near.try_clone()?.take(LINE_BYTES as u64);
    BufReader::new(limited).read_until(b'\n', &mut line)?;
    let said = Line::parse(line.trim_ascii_end()).map_err(io::Error::other)?;
    let number = |key: &str| said.get(key).and_then(|n| n.parse::<u32>().ok());
    match (said.command.as_str(), number("rank"), number("size")) {
        ("begin", Some(rank), Some(size)) => Ok((child, near.into(), rank, size)),
        _ => Err(io::Error::other(said.get("msg").unwrap_or("libpmix ended").to_string())),
    }
}
