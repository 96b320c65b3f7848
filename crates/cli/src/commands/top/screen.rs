//! The terminal of `eyrie top`: taken while it draws, and given back as it was.
//!
//! Kept true: it is given back on every way out but SIGKILL: at the end, by signals, when it is
//! stopped (Ctrl-Z), by a panic, which ends the process without unwinding.

use anyhow::{Context, anyhow};
use ratatui::Terminal;
use ratatui::backend::CrosstermBackend;
use ratatui::crossterm::cursor::{Hide, Show};
use ratatui::crossterm::execute;
use ratatui::crossterm::terminal::{
    Clear, ClearType, EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
};
use std::io::{Stdout, stdout};
use std::sync::atomic::{AtomicBool, Ordering};

/// It is ours: whoever gives it back does so once.
static TAKEN: AtomicBool = AtomicBool::new(false);

/// The terminal while it is taken.
pub struct Screen {
    pub terminal: Terminal<CrosstermBackend<Stdout>>,
}

/// Why there is nothing to draw on.
pub fn refuse() -> Option<anyhow::Error> {
    // SAFETY: only asks.
    let lacks = |fd| unsafe { libc::isatty(fd) } != 1;
    let lacking = match (lacks(0), lacks(1)) {
        (false, false) if std::env::var_os("TERM").is_none_or(|term| term == "dumb") => {
            "a terminal that can be drawn on, and TERM names none"
        }
        (false, false) => return None,
        (true, _) => "a terminal, and standard input is none",
        (false, true) => "a terminal, and standard output is none",
    };
    Some(anyhow!(
        "top needs {lacking}: eyrie ps lists jobs, eyrie status JOB shows how one is doing"
    ))
}

impl Screen {
    pub fn take() -> anyhow::Result<Screen> {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            give_back();
            before(panic);
        }));
        Ok(Screen { terminal: enter()? })
    }

    /// Stops this process as Ctrl-Z does, with the terminal given back meanwhile.
    pub fn stop(&mut self) -> anyhow::Result<()> {
        give_back();
        // SAFETY: stops this process until somebody has it go on.
        unsafe { libc::raise(libc::SIGSTOP) };
        // A new one, that knows of nothing drawn: to clear the old one it would ask the terminal.
        self.terminal = enter()?;
        Ok(())
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        give_back();
    }
}

fn enter() -> anyhow::Result<Terminal<CrosstermBackend<Stdout>>> {
    TAKEN.store(true, Ordering::SeqCst);
    let clear = Clear(ClearType::All);
    let taken =
        enable_raw_mode().and_then(|()| execute!(stdout(), EnterAlternateScreen, Hide, clear));
    let terminal = taken.and_then(|()| Terminal::new(CrosstermBackend::new(stdout())));
    terminal.inspect_err(|_| give_back()).context("the terminal")
}

/// The terminal is as it was. One that is gone takes nothing.
fn give_back() {
    if TAKEN.swap(false, Ordering::SeqCst) {
        let _ = execute!(stdout(), LeaveAlternateScreen, Show);
        let _ = disable_raw_mode();
    }
}

/// Ends this process as the signal would have, without it being held.
pub fn die_of(signal: i32) -> i32 {
    // SAFETY: sets a disposition and a mask of this thread, then raises.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut set);
        libc::sigaddset(&mut set, signal);
        libc::signal(signal, libc::SIG_DFL);
        libc::pthread_sigmask(libc::SIG_UNBLOCK, &set, std::ptr::null_mut());
        libc::raise(signal);
    }
    128 + signal
}
