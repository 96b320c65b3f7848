//! Metrics of a job for Prometheus: over HTTP when they are asked for, and in a file for
//! node_exporter's textfile collector. They are made of what `eyrie status` is told and of sums
//! over events: nothing is counted for them.
//!
//! Kept true: who asks often costs the job no more than one look at its nodes each `FRESH`; a
//! reader or a file that hangs keeps nothing else waiting; counters never go back while a
//! controller lives.

mod encode;
mod families;
mod file;
mod http;

use crate::serve::Shared;
use encode::Texts;
use families::{Most, Snapshot};
use std::cell::RefCell;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::{Duration, Instant};
use tokio::sync::{Mutex, oneshot};

/// What was found so long ago is told once more.
const FRESH: Duration = Duration::from_millis(250);
/// Longest wait for nodes to say how they are; the job waits less long.
const LOOKS: Duration = Duration::from_secs(3);
/// Longest wait for the last one.
const LAST: Duration = Duration::from_secs(5);

/// Whether the file can be written: told before a job begins.
pub fn try_file(path: &Path) -> std::io::Result<()> {
    if path.is_dir() {
        return Err(std::io::ErrorKind::IsADirectory.into());
    }
    file::try_part(path)
}

/// Where numbers come from.
struct Source {
    job: Shared,
    /// What was told last. Who asks meanwhile waits for the answer that is being made.
    last: Mutex<Option<(Instant, Rc<Texts>)>>,
    most: RefCell<Most>,
}

impl Source {
    /// The numbers as they are now.
    async fn texts(&self) -> Rc<Texts> {
        let mut last = self.last.lock().await;
        if let Some((_, texts)) = last.as_ref().filter(|(at, _)| at.elapsed() < FRESH) {
            return Rc::clone(texts);
        }
        let (tell, told) = oneshot::channel();
        // Who does not wait any more does not hear it.
        self.job.borrow_mut().ask_looks_for(move || {
            let _ = tell.send(());
        });
        self.job.borrow_mut().end_turn();
        // A job that is about to end may not answer: what is known is told.
        let _ = tokio::time::timeout(LOOKS, told).await;
        let texts = Rc::new(self.known());
        *last = Some((Instant::now(), Rc::clone(&texts)));
        texts
    }

    /// The numbers as far as they are known.
    fn known(&self) -> Texts {
        let job = self.job.borrow();
        let mut most = self.most.borrow_mut();
        encode::texts(Snapshot::of(&job.status(), job.account(), &mut most))
    }
}

/// What tells a job's metrics.
pub struct Metrics {
    source: Rc<Source>,
    file: Option<PathBuf>,
}

impl Metrics {
    /// Begins to tell: to who connects, and into a file.
    pub fn begin(job: &Shared, (listener, file): (Option<OwnedFd>, Option<PathBuf>)) -> Metrics {
        let (last, most) = (Mutex::new(None), RefCell::new(Most::default()));
        let source = Rc::new(Source { job: job.clone(), last, most });
        if let Some(listener) = listener {
            match http::Listener::of(listener) {
                Ok(listener) => {
                    tokio::task::spawn_local(http::serve(listener, Rc::clone(&source)));
                }
                Err(error) => tell(job, &format!("metrics cannot be asked for: {error}")),
            }
        }
        if let Some(path) = &file {
            tokio::task::spawn_local(keep_file(path.clone(), Rc::clone(&source)));
        }
        Metrics { source, file }
    }

    /// The job is over: the file has its last numbers.
    pub async fn end(&self) {
        let Some(path) = &self.file else { return };
        let text = self.source.known().plain;
        let written = tokio::time::timeout(LAST, write(path.clone(), text)).await;
        if let Ok(Err(error)) = written {
            tell(&self.source.job, &format!("--metrics-file {}: {error}", path.display()));
        }
    }
}

fn tell(job: &Shared, text: &str) {
    job.borrow().say(text);
    job.borrow_mut().end_turn();
}

async fn write(path: PathBuf, text: String) -> std::io::Result<()> {
    let written = tokio::task::spawn_blocking(move || file::write(&path, &text)).await;
    written.unwrap_or_else(|_| Err(std::io::ErrorKind::Other.into()))
}

/// Writes the file again and again. A trouble is told when it begins.
async fn keep_file(path: PathBuf, source: Rc<Source>) {
    let mut trouble = false;
    let every = source.job.borrow().spec().timing.intervals.watching.metrics_ms;
    loop {
        let text = source.texts().await.plain.clone();
        let written = write(path.clone(), text).await;
        if let (Err(error), false) = (&written, trouble) {
            let text = format!("metrics are not written to {}: {error}", path.display());
            tell(&source.job, &text);
        }
        trouble = written.is_err();
        tokio::time::sleep(Duration::from_millis(every)).await;
    }
}
