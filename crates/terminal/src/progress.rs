//! How far long work is, on the last line of the terminal.
//!
//! Kept true: nothing of it is written unless standard error is a terminal, nor with `--json` or
//! `--quiet`; what else is written goes above it; the line is empty again when the work is over,
//! and when a signal ends the command. Of work whose whole is not known no share is told.

use crate::is_json;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::IsTerminal;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// How often the line is written anew while nothing happens.
const TICK: Duration = Duration::from_millis(200);
/// The signals that end a command if nothing else is done about them.
const SIGNALS: [i32; 4] = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT];
/// Back to the beginning of the line, which is emptied.
const CLEAR: &[u8] = b"\r\x1b[2K";

/// What is shown.
static SHOWN: Mutex<Option<ProgressBar>> = Mutex::new(None);

fn shown() -> MutexGuard<'static, Option<ProgressBar>> {
    SHOWN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Work that is under way; over when this is dropped.
#[derive(Debug)]
pub struct Progress {
    bar: Option<ProgressBar>,
    /// What is done about signals when it is over.
    before: Vec<(i32, libc::sigaction)>,
}

impl Progress {
    /// None is shown.
    pub fn none() -> Progress {
        Progress { bar: None, before: Vec::new() }
    }

    /// `WHAT [##--] 3 of 8 THINGS`.
    pub fn counted(what: &str, total: u64, things: &str, quiet: bool) -> Progress {
        let text = format!("{{prefix}} [{{bar:24}}] {{pos}} of {{len}} {things}{{msg}}");
        Progress::shown(what, Some(total), &text, quiet)
    }

    /// `WHAT [##--] 1.0 MiB of 4.0 MiB`.
    pub fn bytes(what: &str, total: u64, quiet: bool) -> Progress {
        let text = "{prefix} [{bar:24}] {binary_bytes} of {binary_total_bytes}{msg}";
        Progress::shown(what, Some(total), text, quiet)
    }

    /// `WHAT, 3s`: nobody knows how much is left.
    pub fn working(what: &str, quiet: bool) -> Progress {
        Progress::shown(what, None, "{spinner} {prefix}, {elapsed}{msg}", quiet)
    }

    fn shown(what: &str, total: Option<u64>, template: &str, quiet: bool) -> Progress {
        let hidden = quiet || is_json() || !std::io::stderr().is_terminal();
        let style = ProgressStyle::with_template(template);
        let (false, Ok(style)) = (hidden, style) else { return Progress::none() };
        let target = ProgressDrawTarget::stderr();
        if target.is_hidden() {
            return Progress::none();
        }
        let before = clear_at_signals();
        let bar = ProgressBar::with_draw_target(total, target);
        bar.set_style(style.progress_chars("##-"));
        bar.set_prefix(what.to_string());
        *shown() = Some(bar.clone());
        bar.tick();
        bar.enable_steady_tick(TICK);
        Progress { bar: Some(bar), before }
    }

    /// So much is done in all.
    pub fn set(&self, done: u64) {
        self.bar.iter().for_each(|bar| bar.set_position(done));
    }

    /// So much more is done.
    pub fn add(&self, more: u64) {
        self.bar.iter().for_each(|bar| bar.inc(more));
    }

    /// So much is to be done.
    pub fn of(&self, total: u64) {
        self.bar.iter().for_each(|bar| bar.set_length(total));
    }

    /// What is done just now.
    pub fn tell(&self, text: &str) {
        let text = if text.is_empty() { String::new() } else { format!(", {text}") };
        self.bar.iter().for_each(|bar| bar.set_message(text.clone()));
    }

    /// The same work goes on in another way, from the beginning.
    pub fn then(&self, what: &str) {
        if let Some(bar) = &self.bar {
            bar.set_prefix(what.to_string());
            bar.set_position(0);
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if self.bar.is_some() {
            end_progress();
        }
        for (signal, before) in &self.before {
            // SAFETY: what there was is put back.
            unsafe { libc::sigaction(*signal, before, std::ptr::null_mut()) };
        }
    }
}

/// Nothing is shown any more: the command is about to end.
pub fn end_progress() {
    let bar = shown().take();
    if let Some(bar) = bar {
        bar.disable_steady_tick();
        bar.finish_and_clear();
    }
}

/// Writes something else, above what is shown.
pub(crate) fn aside<T>(write: impl FnOnce() -> T) -> T {
    let bar = shown().clone();
    match bar {
        Some(bar) => bar.suspend(write),
        None => write(),
    }
}

/// The line is emptied when a signal ends the command. Those that are ignored stay so, and those
/// that somebody else takes are let be.
fn clear_at_signals() -> Vec<(i32, libc::sigaction)> {
    let mut before = Vec::new();
    for signal in SIGNALS {
        // SAFETY: sigaction is plain data for which zero is valid; all places are valid, and the
        // handler makes only calls that are async-signal-safe.
        unsafe {
            let mut old: libc::sigaction = std::mem::zeroed();
            libc::sigaction(signal, std::ptr::null(), &mut old);
            if old.sa_sigaction != libc::SIG_DFL {
                continue;
            }
            let mut new: libc::sigaction = std::mem::zeroed();
            new.sa_sigaction = clear_and_end as *const () as libc::sighandler_t;
            new.sa_flags = libc::SA_RESETHAND;
            if libc::sigaction(signal, &new, std::ptr::null_mut()) == 0 {
                before.push((signal, old));
            }
        }
    }
    before
}

/// The signal has its own effect again by now: it ends the process when this returns.
extern "C" fn clear_and_end(signal: libc::c_int) {
    // SAFETY: a write to a descriptor, and a signal to this process; both async-signal-safe.
    unsafe {
        libc::write(libc::STDERR_FILENO, CLEAR.as_ptr().cast(), CLEAR.len());
        libc::raise(signal);
    }
}

/// Counts what goes through a reader or a writer.
pub struct Counted<'a, T> {
    inner: T,
    progress: &'a Progress,
}

impl<'a, T> Counted<'a, T> {
    pub fn new(inner: T, progress: &'a Progress) -> Counted<'a, T> {
        Counted { inner, progress }
    }
}

impl<T: std::io::Read> std::io::Read for Counted<'_, T> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let count = self.inner.read(buffer)?;
        self.progress.add(count as u64);
        Ok(count)
    }
}

impl<T: std::io::Write> std::io::Write for Counted<'_, T> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let count = self.inner.write(bytes)?;
        self.progress.add(count as u64);
        Ok(count)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.inner.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};

    #[test]
    fn without_a_terminal_nothing_is_shown() {
        // Tests have none, or are not asked with one by those who count.
        let progress = Progress::counted("saving", 4, "ranks", true);
        assert!(progress.bar.is_none() && progress.before.is_empty());
        progress.set(1);
        progress.add(2);
        progress.then("more");
        assert_eq!(aside(|| 7), 7);
        let mut out = Counted::new(Vec::new(), &progress);
        out.write_all(b"12345").unwrap();
        let mut text = String::new();
        Counted::new(&out.inner[..], &progress).read_to_string(&mut text).unwrap();
        assert_eq!(text, "12345");
    }
}
