//! Where programs that ranks start are to run, as their info objects say (MPI 5.0 section 11.8.4).

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use eyrie_core::error::{Res, class};

/// Whether they are to be where who starts them is. Other hosts are refused, by name.
pub fn are_here(of: &dyn Fn(&[u8]) -> Option<Vec<u8>>) -> Res<bool> {
    if let Some(arch) = of(b"arch").filter(|arch| arch != std::env::consts::ARCH.as_bytes()) {
        return refused("arch", &arch);
    }
    let mut here = false;
    for key in ["host", "add-host"] {
        let Some(hosts) = of(key.as_bytes()) else { continue };
        let mut names = hosts.split(|byte| *byte == b',').map(<[u8]>::trim_ascii);
        if let Some(other) = names.find(|name| !is_own(name)) {
            return refused(key, other);
        }
        here = true;
    }
    for key in ["hostfile", "add-hostfile"] {
        let Some(file) = of(key.as_bytes()) else { continue };
        let Ok(text) = std::fs::read(Path::new(OsStr::from_bytes(&file))) else {
            return refused(key, &file);
        };
        let lines = text.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii);
        let mut lines = lines.filter(|line| !line.is_empty() && !line.starts_with(b"#"));
        if let Some(other) = lines.find(|line| !is_own(line)) {
            return refused(key, other);
        }
        here = true;
    }
    Ok(here)
}

fn refused(key: &str, value: &[u8]) -> Res<bool> {
    let value = String::from_utf8_lossy(value);
    eprintln!(
        "eyrie: MPI_Comm_spawn: {key}={value}: Eyrie chooses among the job's nodes itself; a host \
         that may be named is the one of who starts the program"
    );
    Err(class::SPAWN)
}

/// Whether a name, behind which there may be a number of processes, is this host's.
fn is_own(name: &[u8]) -> bool {
    let end = |byte: &u8| *byte == b':' || byte.is_ascii_whitespace();
    let name = name.split(end).next().unwrap_or_default();
    let mut own = [0u8; 256];
    // SAFETY: it is writable for its length.
    let known = unsafe { libc::gethostname(own.as_mut_ptr().cast(), own.len()) } == 0;
    let own = own.split(|byte| *byte == 0).next().unwrap_or_default();
    name == b"localhost" || (known && name == own)
}
