//! What `/proc` says about a process, parsed. Everything here is text that the kernel made, partly
//! out of names that users chose; a line that makes no sense is an error, never a guess.

use crate::error::CaptureError;
use std::fs::{self, File};
use std::io::{self, Read, Seek};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::ffi::OsStringExt;
use std::path::Path;

/// Room for what most files of `/proc/PID` hold.
const ROOM_BYTES: usize = 8 << 10;
/// What is read of `smaps` at once. The kernel fills one page with entries; one that does not fit
/// in any more is made anew for the next call, with another walk through all of its page tables.
/// Of less than a page it makes only what it gives away.
const SMAPS_PART_BYTES: usize = 2 << 10;

/// One line of `/proc/PID/maps`, with the flags of `smaps` where those were read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mapping {
    /// First address.
    pub start: u64,
    /// One past the last.
    pub end: u64,
    /// `PROT_*` bits.
    pub prot: u32,
    /// Whether it is shared.
    pub shared: bool,
    /// Offset in the file.
    pub offset: u64,
    /// Device as `major << 32 | minor`.
    pub dev: u64,
    /// Inode number, 0 for none.
    pub ino: u64,
    /// Path or name as printed.
    pub path: Vec<u8>,
    /// Two-letter flags of `VmFlags`.
    pub vm_flags: Vec<[u8; 2]>,
    /// Protection key.
    pub pkey: u32,
    /// Size of its pages as a power of two.
    pub page_shift: u32,
}

impl Mapping {
    /// Whether `VmFlags` has this flag.
    pub fn has(&self, flag: &[u8; 2]) -> bool {
        self.vm_flags.contains(flag)
    }

    /// Whether it may be written, now or later, as far as is known of it.
    pub fn may_be_written(&self) -> bool {
        self.has(b"mw") || self.prot & libc::PROT_WRITE as u32 != 0
    }

    /// Whether the kernel made it by itself: vdso, vvar and the like.
    pub fn is_special(&self) -> bool {
        self.path == b"[vdso]" || self.path.starts_with(b"[vvar")
    }

    /// Whether it is the fixed page outside the process's address space.
    pub fn is_vsyscall(&self) -> bool {
        self.path == b"[vsyscall]" || self.path == b"[uprobes]"
    }

    /// Whether it is of something that only a descriptor leads to, and comes back with that.
    pub fn is_of_descriptor(&self) -> bool {
        self.path == b"anon_inode:[io_uring]"
    }

    /// Whether it is the process's own: what it writes there nobody else sees.
    pub fn is_private(&self) -> bool {
        !self.shared && !self.is_special() && !self.is_vsyscall()
    }

    /// Whether it is private memory with no file behind.
    pub fn is_anon(&self) -> bool {
        !self.shared && self.ino == 0 && !self.path.starts_with(b"/") && !self.is_special()
    }
}

/// Reads a file of `/proc/PID`; `Gone` if the process is.
pub fn read(pid: libc::pid_t, name: &str) -> Result<Vec<u8>, CaptureError> {
    // Such files have no length that could be asked for; one call reads most of them.
    let mut bytes = Vec::with_capacity(ROOM_BYTES);
    let read = File::open(format!("/proc/{pid}/{name}"))
        .and_then(|file| file.take(u64::MAX).read_to_end(&mut bytes));
    read.map_err(|e| proc_error(name, e))?;
    Ok(bytes)
}

/// Reads and parses `/proc/PID/maps`.
pub fn maps(pid: libc::pid_t) -> Result<Vec<Mapping>, CaptureError> {
    parse_maps(&read(pid, "maps")?)
}

/// Reads `/proc/PID/smaps`.
pub fn smaps(pid: libc::pid_t) -> Result<Vec<u8>, CaptureError> {
    read_smaps(&open_smaps(pid)?)
}

/// Reads `/proc/PID/numa_maps`; nothing where the kernel has none.
pub fn numa_maps(pid: libc::pid_t) -> Result<Option<Vec<u8>>, CaptureError> {
    match File::open(format!("/proc/{pid}/numa_maps")) {
        Ok(file) => read_smaps(&file).map(Some),
        Err(e) if e.raw_os_error() == Some(libc::ENOENT) => Ok(None),
        Err(e) => Err(proc_error("numa_maps", e)),
    }
}

/// Opens `/proc/PID/smaps`: from then on it is about this memory, even if the process gets another.
pub fn open_smaps(pid: libc::pid_t) -> Result<File, CaptureError> {
    File::open(format!("/proc/{pid}/smaps")).map_err(|e| proc_error("smaps", e))
}

/// Reads it from its beginning. Empty if the memory is gone.
pub fn read_smaps(mut file: &File) -> Result<Vec<u8>, CaptureError> {
    file.rewind().map_err(|e| proc_error("smaps", e))?;
    let (mut bytes, mut part) = (Vec::with_capacity(ROOM_BYTES), [0; SMAPS_PART_BYTES]);
    loop {
        match file.read(&mut part) {
            Ok(0) => return Ok(bytes),
            Ok(n) => bytes.extend_from_slice(&part[..n]),
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(proc_error("smaps", e)),
        }
    }
}

/// Reads a link of `/proc/PID`.
pub fn link(pid: libc::pid_t, name: &str) -> Result<Vec<u8>, CaptureError> {
    match fs::read_link(format!("/proc/{pid}/{name}")) {
        Ok(path) => Ok(path.into_os_string().into_vec()),
        Err(e) => Err(proc_error(name, e)),
    }
}

fn proc_error(name: &str, source: io::Error) -> CaptureError {
    match source.raw_os_error() {
        Some(libc::ESRCH | libc::ENOENT) => CaptureError::Gone,
        _ => CaptureError::Proc(format!("/proc/PID/{name}: {source}")),
    }
}

fn number(text: &[u8], radix: u32) -> Option<u64> {
    u64::from_str_radix(std::str::from_utf8(text).ok()?, radix).ok()
}

/// Parses `maps` or `smaps`.
pub fn parse_maps(text: &[u8]) -> Result<Vec<Mapping>, CaptureError> {
    let mut all: Vec<Mapping> = Vec::new();
    for line in text.split(|&b| b == b'\n').filter(|l| !l.is_empty()) {
        if let Some(mapping) = parse_map_line(line) {
            all.push(mapping);
            continue;
        }
        let Some(last) = all.last_mut() else {
            return Err(CaptureError::Proc("/proc/PID/maps".into()));
        };
        if let Some(flags) = line.strip_prefix(b"VmFlags:") {
            last.vm_flags = flags.split(|&b| b == b' ').filter_map(|f| f.try_into().ok()).collect();
        } else if let Some(key) = line.strip_prefix(b"ProtectionKey:") {
            last.pkey = number(key.trim_ascii(), 10).unwrap_or(0) as u32;
        } else if let Some(size) = line.strip_prefix(b"KernelPageSize:") {
            let kib = size.trim_ascii().strip_suffix(b" kB").and_then(|kib| number(kib, 10));
            last.page_shift = kib.map_or(12, |kib| (kib << 10).trailing_zeros());
        }
    }
    Ok(all)
}

/// Parses `start-end perms offset major:minor inode path`; `None` for other lines.
fn parse_map_line(line: &[u8]) -> Option<Mapping> {
    let mut fields = line.splitn(6, |&b| b == b' ');
    let range = fields.next()?;
    let dash = range.iter().position(|&b| b == b'-')?;
    let perms = fields.next().filter(|p| p.len() == 4)?;
    let offset = number(fields.next()?, 16)?;
    let dev = fields.next()?;
    let colon = dev.iter().position(|&b| b == b':')?;
    let ino = number(fields.next()?, 10)?;
    let path = fields.next().unwrap_or(b"").trim_ascii_start();
    let bit = |i: usize, c: u8, bit: i32| if perms[i] == c { bit as u32 } else { 0 };
    Some(Mapping {
        start: number(&range[..dash], 16)?,
        end: number(&range[dash + 1..], 16)?,
        prot: bit(0, b'r', libc::PROT_READ)
            | bit(1, b'w', libc::PROT_WRITE)
            | bit(2, b'x', libc::PROT_EXEC),
        shared: perms[3] == b's',
        offset,
        dev: number(&dev[..colon], 16)? << 32 | number(&dev[colon + 1..], 16)?,
        ino,
        path: unescape(path),
        vm_flags: Vec::new(),
        pkey: 0,
        page_shift: 12,
    })
}

/// `/proc` writes a newline in a name as `\012`.
fn unescape(path: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(path.len());
    let mut rest = path;
    while let Some((&first, tail)) = rest.split_first() {
        if let Some(after) = rest.strip_prefix(b"\\012") {
            out.push(b'\n');
            rest = after;
        } else {
            out.push(first);
            rest = tail;
        }
    }
    out
}

/// The fields of `/proc/PID/status` by name.
pub struct Status(Vec<(String, String)>);

impl Status {
    /// Reads it.
    pub fn read(pid: libc::pid_t) -> Result<Status, CaptureError> {
        let text = read(pid, "status")?;
        let text = String::from_utf8_lossy(&text);
        let fields = text.lines().filter_map(|l| l.split_once(':'));
        Ok(Status(fields.map(|(k, v)| (k.into(), v.trim().into())).collect()))
    }

    /// One field; empty if the kernel does not show it.
    pub fn field(&self, name: &str) -> &str {
        self.0.iter().find(|(k, _)| k == name).map_or("", |(_, v)| v)
    }

    /// A field that must be there and be a number of this radix.
    pub fn number(&self, name: &str, radix: u32) -> Result<u64, CaptureError> {
        u64::from_str_radix(self.field(name), radix)
            .map_err(|_| CaptureError::Proc(format!("/proc/PID/status, {name}")))
    }

    /// Whether it has yet to take notice of a `SIGKILL`.
    pub fn is_killed(&self) -> bool {
        let killed = |set: u64| set & 1 << (libc::SIGKILL - 1) != 0;
        ["SigPnd", "ShdPnd"].iter().any(|name| self.number(name, 16).is_ok_and(killed))
    }

    /// A size in KiB; zero if the kernel does not show it.
    pub fn kib(&self, name: &str) -> u64 {
        self.field(name).strip_suffix(" kB").and_then(|n| n.trim().parse().ok()).unwrap_or(0)
    }
}

/// The numeric fields of `/proc/PID/stat`, counted as in proc(5): `stat(4)` is the parent.
pub struct Stat(Vec<i128>);

impl Stat {
    /// Reads it.
    pub fn read(pid: libc::pid_t) -> Result<Stat, CaptureError> {
        let text = read(pid, "stat")?;
        let bad = || CaptureError::Proc("/proc/PID/stat".into());
        // The name in parentheses may hold anything, also parentheses.
        let close = text.iter().rposition(|&b| b == b')').ok_or_else(bad)?;
        let rest = String::from_utf8_lossy(&text[close + 1..]).into_owned();
        let fields = rest.split_ascii_whitespace().skip(1);
        Ok(Stat(fields.map(|f| f.parse().unwrap_or(0)).collect()))
    }

    /// Field `n`, from 4 on.
    pub fn field(&self, n: usize) -> u64 {
        self.0.get(n.wrapping_sub(4)).map_or(0, |&v| v as u64)
    }
}

/// What `/proc/PID/fdinfo/N` says.
#[derive(Debug, Default, Clone)]
pub struct FdInfo {
    /// File offset.
    pub pos: u64,
    /// Open flags, with `O_CLOEXEC`.
    pub flags: u32,
    /// Lines that describe locks.
    pub locks: Vec<String>,
    /// All other lines: name and value.
    pub lines: Vec<(String, String)>,
}

impl FdInfo {
    /// Value of the first line with this name.
    pub fn text(&self, name: &str) -> Option<&str> {
        self.lines.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    /// The same as a number.
    pub fn number(&self, name: &str, radix: u32) -> Option<u64> {
        let text = self.text(name)?;
        let negative = || text.parse::<i64>().ok().map(|n| n as u64);
        u64::from_str_radix(text, radix).ok().or_else(negative)
    }
}

/// Reads it.
pub fn fdinfo(pid: libc::pid_t, fd: u32) -> Result<FdInfo, CaptureError> {
    let name = format!("fdinfo/{fd}");
    let text = read(pid, &name)?;
    let mut info = FdInfo::default();
    for (key, value) in String::from_utf8_lossy(&text).lines().filter_map(|l| l.split_once(':')) {
        let bad = |_| CaptureError::Proc(format!("/proc/PID/{name}"));
        match key {
            "pos" => info.pos = value.trim().parse::<u64>().map_err(bad)?,
            "flags" => info.flags = u32::from_str_radix(value.trim(), 8).map_err(bad)?,
            "lock" => info.locks.push(value.trim().to_owned()),
            _ => info.lines.push((key.to_owned(), value.trim().to_owned())),
        }
    }
    Ok(info)
}

/// Numbers of the entries of a folder such as `fd` or `task`, in order.
pub fn numbers(pid: libc::pid_t, folder: &str) -> Result<Vec<u32>, CaptureError> {
    let read = fs::read_dir(Path::new(&format!("/proc/{pid}/{folder}")));
    let mut all = Vec::new();
    for entry in read.map_err(|e| proc_error(folder, e))? {
        let name = entry.map_err(|e| proc_error(folder, e))?.file_name();
        all.extend(number(name.as_bytes(), 10).map(|n| n as u32));
    }
    all.sort_unstable();
    Ok(all)
}

/// The numbers of all processes.
pub fn processes() -> Result<Vec<libc::pid_t>, CaptureError> {
    let entries = fs::read_dir("/proc").map_err(|e| CaptureError::Proc(format!("/proc: {e}")))?;
    let numbers = entries.flatten().filter_map(|e| e.file_name().to_str()?.parse().ok());
    Ok(numbers.collect())
}

/// Name of a process, for messages.
pub fn name(pid: libc::pid_t) -> String {
    let comm = fs::read(format!("/proc/{pid}/comm")).unwrap_or_default();
    String::from_utf8_lossy(comm.strip_suffix(b"\n").unwrap_or(&comm)).into_owned()
}

/// What the kernel appends to the path of a file that has none any more.
pub const DELETED: &[u8] = b" (deleted)";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn maps_with_blanks_newlines_and_flags() {
        let text = b"7f00-8f00 rw-p 00001000 fe:0a 12                         /tmp/a b\\012c\n\
            Size:                  4 kB\n\
            ProtectionKey:         0\n\
            VmFlags: rd wr mr mw me ac sd \n\
            ffff-1ffff --xs 00000000 00:00 0 \n";
        let maps = parse_maps(text).unwrap();
        assert_eq!(maps.len(), 2);
        assert_eq!(maps[0].path, b"/tmp/a b\nc");
        assert_eq!(maps[0].dev, 0xfe << 32 | 0x0a);
        assert!(maps[0].has(b"ac") && !maps[0].has(b"gd"));
        assert_eq!(maps[1].prot, libc::PROT_EXEC as u32);
        assert!(maps[1].shared && maps[1].path.is_empty());
    }

    #[test]
    fn own_process_parses() {
        let pid = std::process::id() as i32;
        let maps = parse_maps(&read(pid, "smaps").unwrap()).unwrap();
        assert!(maps.iter().any(|m| m.path == b"[stack]" && m.has(b"gd")));
        assert_eq!(
            Stat::read(pid).unwrap().field(4),
            u64::from(std::os::unix::process::parent_id())
        );
        assert_eq!(Status::read(pid).unwrap().number("Pid", 10).unwrap(), pid as u64);
    }
}
