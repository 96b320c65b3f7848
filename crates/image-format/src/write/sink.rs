//! Where an image goes: a file that appears whole and durable under its name or not at all, or a
//! stream.
//!
//! Blocks are written past the page cache where the file system can do that: it spares a copy, the
//! memory for it, and a long wait for the disk at the end. `EYRIE_IMAGE_BUFFERED=1` forces the
//! other way.
//!
//! A stream is the file with zeros for its header page, and then the header page: what is sent is
//! complete only when that has come. [`receive`] turns it into the file again.

use crate::PAGE_BYTES;
use crate::bytes::layout::HEADER_BYTES;
use crate::error::WriteError;
use crate::support::fault;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard};

/// Takes the bytes of an image.
pub trait Sink: Send + Sync {
    /// Takes bytes that belong at offset `at`, which is behind the header page.
    fn put(&self, bytes: &[u8], at: u64) -> io::Result<()>;
    /// Whether calls must come one after the other, in order of `at`, without gaps.
    fn in_order(&self) -> bool;
    /// Takes the header page, when all else has been taken, and makes everything last.
    fn finish(&mut self, header: &[u8]) -> Result<(), WriteError>;
    /// An error of this sink, told apart.
    fn error(&self, source: io::Error) -> WriteError;
    /// Whether a tap has to wait for what is put from now on; once it has not, it takes that.
    fn hold_tap(&self, _held: bool) -> io::Result<()> {
        Ok(())
    }
}

/// Takes an image besides the file that it is written to, while that is written: to bring it to
/// another machine. What becomes of that does no harm to the file.
pub trait Tap: Send + Sync {
    /// These bytes belong at offset `at`. Called by several threads, in any order.
    fn put(&self, bytes: &[u8], at: u64);
    /// The first bytes of the file, when all else was put and the file is whole.
    fn finish(&mut self, header: &[u8]);
}

/// A file, and a tap. While a process stands still for what is put, the file alone takes that, and
/// the tap has it from there later: what it does may take its time.
pub struct StreamedSink {
    file: FileSink,
    tap: Box<dyn Tap>,
    /// What the tap has not had: offsets and lengths, if it is to wait.
    waiting: Mutex<Option<Vec<(u64, usize)>>>,
}

impl StreamedSink {
    pub fn new(file: FileSink, tap: Box<dyn Tap>) -> StreamedSink {
        StreamedSink { file, tap, waiting: Mutex::default() }
    }

    fn waiting(&self) -> MutexGuard<'_, Option<Vec<(u64, usize)>>> {
        self.waiting.lock().unwrap_or_else(|e| e.into_inner())
    }
}

impl Sink for StreamedSink {
    fn put(&self, bytes: &[u8], at: u64) -> io::Result<()> {
        self.file.put(bytes, at)?;
        if let Some(waiting) = self.waiting().as_mut() {
            waiting.push((at, bytes.len()));
            return Ok(());
        }
        self.tap.put(bytes, at);
        Ok(())
    }

    fn hold_tap(&self, held: bool) -> io::Result<()> {
        if held {
            self.waiting().get_or_insert_default();
            return Ok(());
        }
        let Some(waiting) = self.waiting().take() else { return Ok(()) };
        let mut bytes = Vec::new();
        for (at, length) in waiting {
            bytes.resize(length, 0);
            self.file.file.read_exact_at(&mut bytes, at)?;
            self.tap.put(&bytes, at);
        }
        Ok(())
    }

    fn in_order(&self) -> bool {
        self.file.in_order()
    }

    fn finish(&mut self, header: &[u8]) -> Result<(), WriteError> {
        self.file.finish(header)?;
        self.tap.finish(header);
        Ok(())
    }

    fn error(&self, source: io::Error) -> WriteError {
        self.file.error(source)
    }
}

/// A file being written under a temporary name, `.NAME.PID.tmp` beside it. Dropped before it is
/// finished it leaves nothing behind.
pub struct FileSink {
    file: File,
    /// The same file past the page cache, where the file system can do that.
    direct: Option<File>,
    path: PathBuf,
    temporary: PathBuf,
    finished: bool,
    /// It is to outlive the machine's end, once it is finished.
    lasting: bool,
}

impl FileSink {
    /// Starts the file `path`.
    pub fn create(path: &Path) -> Result<FileSink, WriteError> {
        FileSink::begin(path, true)
    }

    /// The same of one that goes elsewhere as well, and need not outlive this machine.
    pub fn create_fleeting(path: &Path) -> Result<FileSink, WriteError> {
        FileSink::begin(path, false)
    }

    fn begin(path: &Path, lasting: bool) -> Result<FileSink, WriteError> {
        let mut name = std::ffi::OsString::from(".");
        name.push(path.file_name().unwrap_or_default());
        name.push(format!(".{}.tmp", std::process::id()));
        let temporary = path.with_file_name(name);
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(&temporary)
            .map_err(|e| write_error(path, e))?;
        let path = path.to_path_buf();
        let buffered = std::env::var_os("EYRIE_IMAGE_BUFFERED").is_some_and(|v| v == "1");
        let mut direct = OpenOptions::new();
        direct.write(true).custom_flags(libc::O_DIRECT);
        let direct = if buffered || !lasting { None } else { direct.open(&temporary).ok() };
        let sink = FileSink { file, direct, path, temporary, finished: false, lasting };
        fault::point(fault::FILE_BEGUN)?;
        Ok(sink)
    }

    fn make_durable(&self) -> Result<(), WriteError> {
        let fail = |e| self.error(e);
        if self.lasting {
            self.file.sync_all().map_err(fail)?;
        }
        fault::point(fault::SYNCED)?;
        fs::rename(&self.temporary, &self.path).map_err(fail)?;
        fault::point(fault::RENAMED)?;
        if !self.lasting {
            return Ok(());
        }
        let folder = self.path.parent().filter(|p| !p.as_os_str().is_empty());
        let folder = File::open(folder.unwrap_or(Path::new("."))).map_err(fail)?;
        folder.sync_all().map_err(fail)
    }
}

impl Sink for FileSink {
    fn put(&self, bytes: &[u8], at: u64) -> io::Result<()> {
        let aligned = [bytes.as_ptr() as u64, bytes.len() as u64, at];
        if let Some(direct) = &self.direct
            && aligned.iter().all(|n| n.is_multiple_of(PAGE_BYTES))
        {
            match direct.write_all_at(bytes, at) {
                // The file system turns out not to want it so.
                Err(e) if e.raw_os_error() == Some(libc::EINVAL) => {}
                other => return other,
            }
        }
        self.file.write_all_at(bytes, at)?;
        if !self.lasting {
            return Ok(());
        }
        // Begin to write to the disk now, so that little is left to do at the end.
        // SAFETY: numbers only. Where this is not possible, the end takes longer.
        unsafe {
            libc::sync_file_range(
                self.file.as_raw_fd(),
                at as i64,
                bytes.len() as i64,
                libc::SYNC_FILE_RANGE_WRITE,
            )
        };
        Ok(())
    }

    fn in_order(&self) -> bool {
        false
    }

    fn finish(&mut self, header: &[u8]) -> Result<(), WriteError> {
        // The header comes last: a file torn by a crash has none.
        self.file.write_all_at(header, 0).map_err(|e| self.error(e))?;
        fault::point(fault::HEADER_WRITTEN)?;
        self.make_durable()?;
        self.finished = true;
        Ok(())
    }

    fn error(&self, source: io::Error) -> WriteError {
        write_error(&self.path, source)
    }
}

impl Drop for FileSink {
    fn drop(&mut self) {
        if !self.finished {
            // Best effort: the error that brought us here is the one to report.
            let _ = fs::remove_file(&self.temporary);
        }
    }
}

fn write_error(path: &Path, source: io::Error) -> WriteError {
    let path = path.to_path_buf();
    match source.raw_os_error() {
        Some(libc::ENOSPC | libc::EDQUOT | libc::EFBIG) => WriteError::NoSpace { path, source },
        _ => WriteError::Write { path, source },
    }
}

/// A pipe, a socket or whatever else takes bytes in order.
pub struct StreamSink<W>(Mutex<W>);

impl<W: Write + Send> StreamSink<W> {
    /// Begins a stream.
    pub fn new(mut to: W) -> Result<StreamSink<W>, WriteError> {
        to.write_all(&[0; HEADER_BYTES as usize])
            .map_err(|source| WriteError::Os { what: "send the image", source })?;
        Ok(StreamSink(Mutex::new(to)))
    }
}

impl<W: Write + Send> Sink for StreamSink<W> {
    fn put(&self, bytes: &[u8], _: u64) -> io::Result<()> {
        self.0.lock().unwrap_or_else(|e| e.into_inner()).write_all(bytes)
    }

    fn in_order(&self) -> bool {
        true
    }

    fn finish(&mut self, header: &[u8]) -> Result<(), WriteError> {
        let to = self.0.get_mut().unwrap_or_else(|e| e.into_inner());
        let done = to.write_all(header).and_then(|()| to.flush());
        done.map_err(|e| self.error(e))
    }

    fn error(&self, source: io::Error) -> WriteError {
        WriteError::Os { what: "send the image", source }
    }
}

/// Receives an image that was sent as a stream, up to its end, and makes it the file `path`, whole
/// and durable or not there at all. What it holds is checked by [`crate::Image::open`].
pub fn receive(from: &mut dyn Read, path: &Path) -> Result<u64, WriteError> {
    const PART_BYTES: usize = 1 << 20;
    const HEADER: usize = HEADER_BYTES as usize;
    let failed = |source| WriteError::Os { what: "receive the image", source };
    let mut sink = FileSink::create(path)?;
    let mut buffer = vec![0; PART_BYTES + HEADER];
    let (mut at, mut held) = (0, 0);
    // The last page that has come is held back: it may be the header.
    loop {
        match from.read(&mut buffer[held..]) {
            Ok(0) => break,
            Ok(n) => held += n,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
            Err(e) => return Err(failed(e)),
        }
        if held == buffer.len() {
            sink.put(&buffer[..PART_BYTES], at).map_err(|e| sink.error(e))?;
            at += PART_BYTES as u64;
            buffer.copy_within(PART_BYTES.., 0);
            held = HEADER;
        }
    }
    let Some(rest) = held.checked_sub(HEADER).filter(|rest| at + *rest as u64 >= HEADER_BYTES)
    else {
        return Err(failed(io::ErrorKind::UnexpectedEof.into()));
    };
    sink.put(&buffer[..rest], at).map_err(|e| sink.error(e))?;
    let bytes = at + rest as u64;
    let whole = crate::bytes::layout::parse_header(&buffer[rest..held])
        .is_ok_and(|h| h.file_bytes == bytes);
    if !whole {
        return Err(failed(io::ErrorKind::UnexpectedEof.into()));
    }
    sink.finish(&buffer[rest..held])?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    type Taken = Arc<Mutex<Vec<(u64, Vec<u8>)>>>;

    struct Notes(Taken);

    impl Tap for Notes {
        fn put(&self, bytes: &[u8], at: u64) {
            self.0.lock().unwrap().push((at, bytes.to_vec()));
        }

        fn finish(&mut self, header: &[u8]) {
            self.put(header, 0);
        }
    }

    #[test]
    fn a_tap_that_is_held_takes_it_later() {
        let folder = tempfile::tempdir().unwrap();
        let file = FileSink::create_fleeting(&folder.path().join("image")).unwrap();
        let taken = Taken::default();
        let sink = StreamedSink::new(file, Box::new(Notes(Arc::clone(&taken))));
        let offsets = || -> Vec<u64> { taken.lock().unwrap().iter().map(|t| t.0).collect() };
        sink.put(&[1; 10], 100).unwrap();
        sink.hold_tap(true).unwrap();
        sink.put(&[2; 20], 110).unwrap();
        sink.put(&[3; 30], 200).unwrap();
        assert_eq!(offsets(), [100]);
        sink.hold_tap(false).unwrap();
        sink.hold_tap(false).unwrap();
        sink.put(&[4; 40], 130).unwrap();
        assert_eq!(offsets(), [100, 110, 200, 130]);
        assert_eq!(taken.lock().unwrap()[1].1, [2; 20]);
        assert_eq!(taken.lock().unwrap()[2].1, [3; 30]);
    }
}
