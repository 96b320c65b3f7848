//! `eyrie top`: jobs, or one, live on the whole terminal.
//!
//! Kept true: data (`feed`), what keys do (`model`), how it looks (`draw`, `job`) and the terminal
//! (`screen`) are apart; drawing is a function of the model alone.

pub mod args;
mod draw;
mod feed;
mod job;
mod model;
mod screen;
mod style;

use crate::commands::top::args::Top;
use crate::commands::top::feed::News;
use crate::commands::top::model::{Act, Key, Model, Watched};
use crate::commands::top::screen::Screen;
use crate::jobs::{self, Job};
use anyhow::{Context, anyhow};
use eyrie_terminal::{FAILED, Failure, hold};
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::Duration;

/// Between two looks for keys and news.
const PAUSE: Duration = Duration::from_millis(50);
/// Exit code of who ends it by Ctrl-C.
const INTERRUPTED: i32 = 128 + libc::SIGINT;

/// What a turn of the screen comes to.
enum Then {
    Goes,
    Ends(i32),
    /// Ctrl-Z.
    Stops,
    DiesOf(i32),
}

pub fn top(args: &Top) -> Result<i32, Failure> {
    if let Some(why) = screen::refuse() {
        return Err(Failure::new(FAILED, why));
    }
    let first = args.job.as_deref().map(running).transpose()?;
    // Before there is any thread: all of them hold these.
    let signals = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT, libc::SIGTSTP];
    let held = hold(&signals);
    let (tell, heard) = channel();
    let (ask, asked) = channel();
    let (news, watch) = (tell.clone(), first.clone());
    let spawn = |work: Box<dyn FnOnce() + Send>| {
        thread::Builder::new().spawn(work).context("cannot start a thread")
    };
    spawn(Box::new(move || feed::watch(watch, asked, news)))?;
    let news = tell.clone();
    spawn(Box::new(move || {
        while let Some(signal) = held.wait() {
            if news.send(News::Signal(signal)).is_err() {
                return;
            }
        }
    }))?;
    let watched = first.as_deref().map(Watched::of);
    let model = Model { watched, ..Model::default() };
    let mut screen = Screen::take()?;
    let mut top = Running { model, stale: true, ask, tell, heard };
    loop {
        match top.turn(&mut screen)? {
            Then::Goes => {}
            Then::Stops => {
                screen.stop()?;
                top.stale = true;
            }
            Then::Ends(code) => return Ok(code),
            Then::DiesOf(signal) => {
                drop(screen);
                return Ok(screen::die_of(signal));
            }
        }
    }
}

/// The job called so, if it runs.
fn running(name: &str) -> Result<String, Failure> {
    let refuse = |id: &str, how: &str| {
        let text = format!("job {id} {how}: eyrie report {id} tells of it");
        Err(Failure::new(FAILED, anyhow!(text)))
    };
    match jobs::find(name)? {
        Job::There(entry) if entry.alive => Ok(entry.id),
        Job::There(entry) => refuse(&entry.id, "does not run"),
        Job::Ended(found) => refuse(&found.record.job, "has ended"),
    }
}

struct Running {
    model: Model,
    /// What is drawn is not what is so.
    stale: bool,
    ask: Sender<feed::Watch>,
    tell: Sender<News>,
    heard: Receiver<News>,
}

impl Running {
    /// Draws, then waits for a while for keys and takes what was heard.
    fn turn(&mut self, screen: &mut Screen) -> anyhow::Result<Then> {
        if std::mem::take(&mut self.stale) {
            let model = &self.model;
            screen.terminal.draw(|frame| draw::draw(frame, model)).context("the terminal")?;
        }
        if event::poll(PAUSE).context("the terminal")? {
            self.stale = true;
            match event::read().context("the terminal")? {
                Event::Key(key) if key.kind != KeyEventKind::Release => match self.key(key) {
                    Then::Goes => {}
                    then => return Ok(then),
                },
                _ => {}
            }
        }
        let all: Vec<News> = self.heard.try_iter().collect();
        self.stale |= !all.is_empty();
        for news in all {
            match news {
                News::Jobs(jobs) => self.model.set_jobs(jobs),
                News::Job { status, ended_unix_ms, events } => {
                    self.model.set_job(*status, ended_unix_ms, events);
                }
                News::Said { text, good } => self.model.say(text, good),
                News::Signal(libc::SIGTSTP) => return Ok(Then::Stops),
                News::Signal(signal) => return Ok(Then::DiesOf(signal)),
            }
        }
        Ok(Then::Goes)
    }

    fn key(&mut self, key: KeyEvent) -> Then {
        if key.modifiers.contains(KeyModifiers::CONTROL) {
            return match key.code {
                KeyCode::Char('c') => Then::Ends(INTERRUPTED),
                KeyCode::Char('z') => Then::Stops,
                _ => Then::Goes,
            };
        }
        let key = match key.code {
            KeyCode::Char(c) => Key::Char(c),
            KeyCode::Up => Key::Up,
            KeyCode::Down => Key::Down,
            KeyCode::Enter => Key::Enter,
            KeyCode::Esc => Key::Esc,
            KeyCode::Backspace => Key::Backspace,
            _ => Key::Other,
        };
        match self.model.key(key) {
            Act::Nothing => {}
            Act::Quit => return Then::Ends(0),
            // Whoever does not listen any more is told of nothing.
            Act::Watch(job) => drop(self.ask.send(job)),
            Act::Order { job, order } => feed::order(job, order, self.tell.clone()),
        }
        Then::Goes
    }
}
