//! Starting a rank's process: from the beginning or from an image.
//!
//! Kept true: the control block is put back to where the image stood before the process runs; no
//! other incarnation lives at that time.

use super::state::ending::First;
use super::state::launch_error::LaunchError;
use super::state::restart::Replay;
use super::{Agent, Msg, Proc, Rank, death_cause, faults, streams, written_files};
use eyrie_control::node::{Determinants, Fault, FromNode};
use eyrie_control::{Meta, Stream};
use eyrie_image::{RestoreOptions, Restored};
use eyrie_ledger::segment::NAME_PREFIX;
use eyrie_process::cores;
use eyrie_process::pipes;
use eyrie_process::reap;
use eyrie_process::spawn::{self, Launch};
use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::io::Interest;

/// Within what time the memory of a rank that runs before it is all there has come.
const LATE: Duration = Duration::from_secs(2);

/// From how many bytes on a rank that comes back where its image lies runs before.
const LATE_FROM: u64 = 64 << 20;

/// Within which time memory may come late, and from how many bytes on that is worth it.
type Late = Option<(Duration, u64)>;

impl Agent {
    pub(super) fn start(
        &mut self,
        rank: u32,
        start: u64,
        from: &Meta,
        moved: Option<&Determinants>,
    ) {
        if self.starts_later(rank, start, from, moved) {
            return;
        }
        self.leaving.stays(rank);
        let ready = match moved {
            Some(moved) => self.move_in(rank, from, moved),
            None => self.come_back(rank, from),
        };
        if let Err(error) = ready {
            let why = (faults::of_move(&error), error.to_string());
            return self.say(FromNode::NotStarted { rank, start, why });
        }
        if moved.is_none() {
            return self.start_now(rank, start, from, LATE_FROM);
        }
        self.rank(rank).restart.preparing = Some(start);
        if rank == 0 {
            self.streams.begin_ahead(start);
        }
        let (tell, from) = (self.tell.clone(), Box::new(from.clone()));
        let ready = move || drop(tell.send(Msg::Ready { rank, start, from }));
        match self.links() {
            Some(links) => links.leave(ready),
            None => ready(),
        }
    }

    /// What a start waited for is done.
    pub(super) fn start_ready(&mut self, rank: u32, start: u64, from: &Meta) {
        if self.rank(rank).restart.preparing.take_if(|s| *s == start).is_some() {
            self.start_now(rank, start, from, 0);
        }
    }

    /// Ranks that wait for their start are not started any more.
    pub(super) fn give_up_starts(&mut self) {
        let preparing = |(rank, r): (u32, &mut Rank)| Some((rank, r.restart.preparing.take()?));
        let mut starts = self.processes.ending.give_up_starts();
        starts.extend((0u32..).zip(&mut self.ranks).filter_map(preparing));
        for (rank, start) in starts {
            let why = (Fault::Unknown, String::from("the job ends"));
            self.say(FromNode::NotStarted { rank, start, why });
        }
    }

    /// Its memory may come late if that is `least` bytes, or if its image still comes, too.
    fn start_now(&mut self, rank: u32, start: u64, from: &Meta, least: u64) {
        let coming = eyrie_image::is_announced(&self.image_file(rank, from.generation));
        let least = if coming { 0 } else { least };
        let late = (!self.rank(rank).restart.half_filled).then_some((LATE, least));
        // It must not be taken for what its dead process has left behind.
        self.rank(rank).restart.end_search();
        match self.launch(rank, start, from, late) {
            Ok((pid, files)) => {
                let pid = eyrie_image::outer_pid(pid) as u32;
                self.say(FromNode::Started { rank, start, pid, files });
                self.tend_standing(rank);
            }
            Err(error) => {
                let why = (faults::of_launch(&error), error.to_string());
                self.say(FromNode::NotStarted { rank, start, why });
            }
        }
    }

    /// Starts a process for `rank` as `from` says; its image holds its memory, or it begins anew.
    /// Memory that is not needed at once may come `late`.
    fn launch(
        &mut self,
        rank: u32,
        start: u64,
        from: &Meta,
        late: Late,
    ) -> Result<(libc::pid_t, Vec<String>), LaunchError> {
        let (stdin, feed) = self.input_pipe(rank)?;
        let [out_ours, out_theirs] = pipes::pipe(0)?;
        let [err_ours, err_theirs] = pipes::pipe(0)?;
        let read = |fd| pipes::watch(fd, Interest::READABLE).map(Rc::new);
        let pipes = [read(out_ours)?, read(err_ours)?];
        // Positions before the process can write or read anything.
        crate::replay::reset_control(&self.segment, rank, from);
        self.links().into_iter().for_each(|l| l.attach(rank, &from.need, &from.front));
        self.acknowledge_again(rank, from);
        let stdio = [stdin, out_theirs, err_theirs];
        let bound = self.place(rank)?.map(|set| cores::mask(&set));
        let dead = self.rank(rank).last_pid;
        let (pid, filling, files) = match from.generation {
            0 => {
                let files = self.begin_files(rank, dead)?;
                let exec = || self.exec(rank, stdio, bound);
                let pid = match &self.images.watch {
                    Some(watch) => watch.begin_program(exec)?,
                    None => exec()?,
                };
                self.follow_files(pid, &[], dead);
                (pid, None, files)
            }
            generation => {
                self.images.anew.clear();
                let with = self.restore_options(rank, from, bound, late)?;
                let restored = self.restore(&self.image_file(rank, generation), stdio, with)?;
                self.follow_files(restored.pid, &restored.touched, dead);
                self.files_are_back(&restored.undone);
                (restored.pid, restored.filling, written_files::left(&restored.files))
            }
        };
        self.rank(rank).last_pid = Some(pid);
        let ctl = self.segment.rank(rank);
        if from.generation > 0 && from.state != 0 {
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
        let first = First { pid, pidfd: pidfd.get_ref().as_fd() };
        let watch = self.watch(rank, start, &first, from);
        let r = self.rank(rank);
        let again = (from.generation > 0 || r.deaths > 0) && !self.spec.protection.ft.all_go_back();
        let r = &mut self.ranks[rank as usize];
        r.restart.replay = if again { Replay::Expected } else { Replay::No };
        r.restart.filling = filling;
        let (written, tasks) = (from.output, Vec::new());
        let before = death_cause::Before::of(pid);
        r.proc = Some(Proc {
            pid,
            pidfd,
            start,
            pipes,
            written,
            tasks,
            watch,
            said: false,
            shares: false,
            before,
        });
        if let Err(error) = self.attend(rank, from, feed) {
            // SAFETY: our own child, not collected yet.
            unsafe { libc::kill(pid, libc::SIGKILL) };
            self.rank(rank).proc = None;
            return Err(error.into());
        }
        Ok((pid, files))
    }

    fn restore_options(
        &mut self,
        rank: u32,
        from: &Meta,
        bound: Option<Vec<u8>>,
        late: Late,
    ) -> Result<RestoreOptions, LaunchError> {
        let sockets = self.sockets_of(rank, from.generation).map_err(LaunchError::Sockets)?;
        let dead = self.rank(rank).last_pid;
        let made = self.made_files(dead);
        let shared = self.shared_files();
        let recorded = self.recorded_appends(rank, from.det_pos);
        let before = self.files_before(dead, &recorded);
        Ok(RestoreOptions {
            ignore_features: self.spec.placement.ignore_features.clone(),
            processors: bound,
            lazy: late.map(|late| late.0),
            lazy_from: late.map_or(0, |late| late.1),
            sockets,
            appended: written_files::appended(&self.spec),
            recorded,
            files: written_files::files(&self.spec),
            aside: Some(self.ahead()),
            shared,
            made,
            before,
            ..RestoreOptions::default()
        })
    }

    fn exec(
        &self,
        rank: u32,
        stdio: [OwnedFd; 3],
        bound: Option<Vec<u8>>,
    ) -> io::Result<libc::pid_t> {
        spawn::spawn(Launch {
            program: Path::new(OsStr::from_bytes(&self.spec.program.path)),
            argv: &self.argv(),
            rank,
            size: self.spec.program.size,
            job: &self.place.id,
            segment: self.segment_file.fd.as_fd(),
            lib: self.place.prefix.lib.as_deref(),
            bind_now: self.spec.protection.ft.protects(),
            repeats: self.spec.protection.ft.logs(),
            alike: self.spec.protection.ft.logs() || self.spec.protection.ft.verifies(),
            bound,
            stdio,
        })
    }

    fn restore(
        &self,
        image: &Path,
        stdio: [OwnedFd; 3],
        options: RestoreOptions,
    ) -> Result<Restored, LaunchError> {
        // The numbers of its processes must be free.
        reap::collect_orphans(&self.processes());
        let restorer = self.place.prefix.restorer.as_deref().ok_or(LaunchError::NoRestorer)?;
        let name = format!("{NAME_PREFIX}{}", self.place.id);
        // It was verified, when it was chosen.
        let options = RestoreOptions { verified: true, ..options };
        let restored = eyrie_image::restore_lazily(eyrie_image::RestoreSpec {
            image,
            restorer,
            stdio,
            segments: vec![(name, self.segment_file.fd.try_clone()?)],
            start_stopped: false,
            options,
        })?;
        if let Some(why) = &restored.why_not_lazy {
            tracing::info!(?image, "all memory comes before the process runs: {why}");
        }
        for note in &restored.files {
            tracing::info!(?image, path = ?note.path, "{}", note.what);
        }
        for what in &restored.left_out {
            tracing::warn!(?image, "restored without its {what}");
        }
        if eyrie_image::is_announced(image) {
            tracing::info!(?image, pid = restored.pid, "runs while its image still comes");
        }
        if restored.filling.is_some() {
            tracing::info!(?image, pid = restored.pid, "runs before all of its memory is there");
        }
        let pid = restored.pid;
        eyrie_process::session::restored(pid);
        Ok(restored)
    }

    /// Standard input for `rank`: a pipe for rank 0, nothing for the others.
    fn input_pipe(&self, rank: u32) -> io::Result<(OwnedFd, Option<[OwnedFd; 2]>)> {
        if rank != 0 {
            return Ok((std::fs::File::open("/dev/null")?.into(), None));
        }
        let [read, write] = pipes::pipe(1)?;
        Ok((read.try_clone()?, Some([read, write])))
    }

    /// Starts the tasks that listen to and feed the new process.
    fn attend(
        &mut self,
        rank: u32,
        from: &Meta,
        feed: Option<[OwnedFd; 2]>,
    ) -> Result<(), io::Error> {
        let (agent, tell) = (self.this.clone(), self.tell.clone());
        let Some(proc) = &mut self.ranks[rank as usize].proc else { return Ok(()) };
        let (pidfd, start) = (Rc::clone(&proc.pidfd), proc.start);
        proc.tasks.push(tokio::task::spawn_local(async move {
            if pidfd.readable().await.is_ok() {
                let _ = tell.send(Msg::Exited { rank, start });
            }
        }));
        for (pipe, stream) in proc.pipes.iter().zip([Stream::Stdout, Stream::Stderr]) {
            let (pipe, flow, agent) = (Rc::clone(pipe), self.streams.flow(), agent.clone());
            proc.tasks
                .push(tokio::task::spawn_local(streams::listen(agent, flow, pipe, rank, stream)));
        }
        if let Some([read, write]) = feed {
            let writer = pipes::watch(write.try_clone()?, Interest::WRITABLE)?;
            let more = self.streams.begin_feed(start, [read, write], from.input);
            proc.tasks.push(tokio::task::spawn_local(streams::feed(agent, writer, start, more)));
        }
        Ok(())
    }
}
