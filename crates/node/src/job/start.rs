//! Starting a rank's process: from the beginning or from an image.
//!
//! Kept true: the control block is put back to where the image stood before the process runs; no
//! other incarnation lives at that time.

use super::{Job, Msg, Proc, Replay};
use crate::input;
use crate::meta::Meta;
use crate::monitor;
use crate::reap;
use crate::spawn::{self, Launch};
use eyrie_control::{EventKind, Ft, Stream};
use eyrie_image::RestoreOptions;
use eyrie_ledger::segment::MEMFD_PREFIX;
use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::rc::Rc;
use std::sync::atomic::Ordering;
use tokio::io::Interest;

/// Why a process could not be started.
#[derive(Debug, thiserror::Error)]
pub enum LaunchError {
    #[error("{0}")]
    Os(#[from] io::Error),
    #[error("{0}")]
    Restore(#[from] eyrie_image::RestoreError),
    #[error("the restorer program is missing")]
    NoRestorer,
}

impl Job {
    /// Starts a process for `rank` as `from` says; `image` holds its memory, or it begins anew.
    pub(super) fn launch(
        &mut self,
        rank: u32,
        from: &Meta,
        image: Option<&Path>,
    ) -> Result<(), LaunchError> {
        let (stdin, feed) = self.input_pipe(rank)?;
        let [out_ours, out_theirs] = input::pipe(0)?;
        let [err_ours, err_theirs] = input::pipe(0)?;
        let read = |fd| input::watch(fd, Interest::READABLE).map(Rc::new);
        let pipes = [read(out_ours)?, read(err_ours)?];
        crate::replay::reset_control(&self.segment, rank, from);
        // Positions before the process can write or read anything.
        for (tape, position) in self.rank(rank).tapes.iter_mut().zip(from.output) {
            tape.rewind(position);
        }
        let stdio = [stdin, out_theirs, err_theirs];
        let pid = match image {
            None => self.exec(rank, stdio)?,
            Some(image) => self.restore(image, stdio)?,
        };
        let ctl = self.segment.rank(rank);
        if image.is_some() && from.state != 0 {
            ctl.pid.store(from.caller.unwrap_or(pid as u32), Ordering::Release);
        }
        let pidfd = match spawn::pidfd(pid).and_then(read) {
            Ok(pidfd) => pidfd,
            Err(error) => {
                // SAFETY: our own child, not collected yet.
                unsafe { libc::kill(pid, libc::SIGKILL) };
                return Err(error.into());
            }
        };
        self.epoch += 1;
        let epoch = self.epoch;
        self.rank(rank).proc =
            Some(Proc { pid, pidfd, epoch, pipes, tasks: Vec::new(), mute: false });
        self.attend(rank, from, feed)?;
        self.scheduler.set_live(rank, self.spec.ft == Ft::Logged && self.unprotected.is_none());
        self.renew_asks(rank);
        self.step(monitor::Input::Started { rank });
        if image.is_none() {
            let mut event = self.event(EventKind::Started);
            event.rank = Some(rank);
            event.text = format!("pid {pid}");
            self.log_event(event);
        }
        Ok(())
    }

    fn exec(&self, rank: u32, stdio: [OwnedFd; 3]) -> io::Result<libc::pid_t> {
        spawn::spawn(Launch {
            program: Path::new(OsStr::from_bytes(&self.spec.program)),
            argv: &self.argv,
            rank,
            size: self.spec.size,
            job: &self.place.id,
            segment: self.segment_fd.as_fd(),
            lib: self.place.prefix.lib.as_deref(),
            bind_now: self.spec.ft == Ft::Logged,
            stdio,
        })
    }

    fn restore(&self, image: &Path, stdio: [OwnedFd; 3]) -> Result<libc::pid_t, LaunchError> {
        // The numbers of its processes must be free.
        reap::collect_orphans(&self.processes());
        let restorer = self.place.prefix.restorer.as_deref().ok_or(LaunchError::NoRestorer)?;
        let name = format!("{MEMFD_PREFIX}{}", self.place.id);
        let pid = eyrie_image::restore(eyrie_image::RestoreSpec {
            image,
            restorer,
            stdio,
            segments: vec![(name, self.segment_fd.try_clone()?)],
            start_stopped: false,
            // It was, when it was chosen.
            options: RestoreOptions { verified: true, ..RestoreOptions::default() },
        })?;
        // Its own group, like a rank that was started; too late is no harm, it is killed alone.
        // SAFETY: our own child, not collected yet.
        unsafe { libc::setpgid(pid, pid) };
        Ok(pid)
    }

    /// Standard input for `rank`: a pipe for rank 0, nothing for the others.
    fn input_pipe(&self, rank: u32) -> io::Result<(OwnedFd, Option<[OwnedFd; 2]>)> {
        if rank != 0 {
            return Ok((std::fs::File::open("/dev/null")?.into(), None));
        }
        let [read, write] = input::pipe(1)?;
        Ok((read.try_clone()?, Some([read, write])))
    }

    /// Starts the tasks that listen to and feed the new process.
    fn attend(
        &mut self,
        rank: u32,
        from: &Meta,
        feed: Option<[OwnedFd; 2]>,
    ) -> Result<(), io::Error> {
        let (job, console, tell) = (self.this.clone(), self.console.clone(), self.tell.clone());
        let Some(proc) = &mut self.ranks[rank as usize].proc else { return Ok(()) };
        let (pidfd, epoch) = (Rc::clone(&proc.pidfd), proc.epoch);
        proc.tasks.push(tokio::task::spawn_local(async move {
            if pidfd.readable().await.is_ok() {
                let _ = tell.send(Msg::Exited { rank, epoch });
            }
        }));
        for (pipe, stream) in proc.pipes.iter().zip([Stream::Stdout, Stream::Stderr]) {
            let (pipe, console, job) = (Rc::clone(pipe), console.clone(), job.clone());
            proc.tasks.push(tokio::task::spawn_local(super::output::listen(
                job, console, pipe, rank, stream,
            )));
        }
        if let Some([read, write]) = feed {
            let watched = write.try_clone()?;
            self.input.attach(read, write, from.input);
            let writer = input::watch(watched, Interest::WRITABLE)?;
            let wake = Rc::clone(&self.input_wake);
            proc.tasks.push(tokio::task::spawn_local(super::output::feed(job, writer, wake)));
            self.give_credit();
        }
        if from.generation > 0 || self.ranks[rank as usize].deaths > 0 {
            self.rank(rank).replay = Replay::Expected;
        }
        Ok(())
    }
}
