//! A process ended: what it left behind, and bringing its rank back.
//!
//! Kept true: all output of the dead process is taken before its successor starts; the successor
//! starts only when no checkpoint thread touches the old process any more; images are checked in
//! a thread, never on the main loop.

use super::{Job, Msg, Replay};
use crate::checkpoint::image_path;
use crate::meta::Meta;
use crate::monitor::{self, Death, Said, signal_name};
use crate::reap;
use eyrie_control::{EventKind, Ft};
use eyrie_ledger::segment;
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// What the checking of a rank's images found.
pub enum Choice {
    /// No image is left, but the program's beginning is good.
    Beginning,
    Image(Box<Meta>),
    /// This one is damaged; the next is being looked at.
    Refused {
        generation: u32,
        why: String,
    },
    /// None is left, and the logs no longer reach back to the beginning.
    Nothing,
    /// So many processes of the dead incarnation cannot be killed.
    Left(usize),
}

fn millis(d: Duration) -> f64 {
    d.as_secs_f64() * 1000.0
}

impl Job {
    pub(super) fn process_ended(&mut self, rank: u32, epoch: u64) {
        let Some(proc) = self.rank(rank).proc.as_ref().filter(|p| p.epoch == epoch) else {
            return;
        };
        let pid = proc.pid;
        let death = match reap::collect(proc.pidfd.get_ref()) {
            Ok(Some(death)) => death,
            Ok(None) => {
                let tell = self.tell.clone();
                tokio::task::spawn_local(async move {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                    let _ = tell.send(Msg::Exited { rank, epoch });
                });
                return;
            }
            Err(error) => {
                tracing::error!(rank, pid, %error, "exit status is lost; taken for a kill");
                Death::Signal(libc::SIGKILL)
            }
        };
        self.drain(rank);
        let (said, progress) = (self.said(rank), self.progress(rank));
        let death = self.death_behind(rank, pid, death, &said);
        let capturing = self.rank(rank).capturing.is_some();
        let r = self.rank(rank);
        r.proc = None;
        r.deaths += 1;
        r.died_at = Some(Instant::now());
        r.replay = Replay::No;
        r.gone = death == Death::Exit(0) && said != Said::Running;
        if rank == 0 {
            self.input.detach();
        }
        if !capturing {
            // Children it left in its group. (A twin, when there is one, is in that group too.)
            // SAFETY: the group bears the number of a process that was ours; a number that is
            // free again names no group of others, as group numbers stay taken while used.
            unsafe { libc::kill(-pid, libc::SIGKILL) };
        }
        self.scheduler.set_live(rank, false);
        self.report_death(rank, death);
        if self.rank(rank).gone {
            self.rank_is_done(rank);
        }
        let protected = self.spec.ft == Ft::Logged && self.unprotected.is_none();
        self.step(monitor::Input::Died { rank, death, said, progress, protected });
    }

    /// A shell that waited for the program tells by its exit code which signal killed it.
    fn death_behind(&self, rank: u32, pid: libc::pid_t, death: Death, said: &Said) -> Death {
        const SHELL_SIGNAL_BASE: i32 = 128;
        let caller = self.segment.rank(rank).pid.load(Ordering::Acquire);
        match death {
            Death::Exit(code @ 129..=192) if *said == Said::Running && caller != pid as u32 => {
                Death::Signal(code - SHELL_SIGNAL_BASE)
            }
            own => own,
        }
    }

    fn report_death(&mut self, rank: u32, death: Death) {
        let injected = self.rank(rank).injected_at.take();
        let (kind, text) = match death {
            Death::Exit(code) => (EventKind::Exited, format!("code {code}")),
            Death::Signal(signal) => {
                (EventKind::Detected, format!("died of {}", signal_name(signal)))
            }
        };
        let mut event = self.event(kind);
        event.rank = Some(rank);
        event.text = text;
        if let Death::Exit(code) = death {
            event.count = u64::try_from(code).ok();
        } else {
            event.took_ms = injected.map(|at| millis(at.elapsed()));
        }
        self.log_event(event);
    }

    /// The rank ended well: it is never restored, so nothing is kept for it any more.
    fn rank_is_done(&mut self, rank: u32) {
        self.flush_output(rank);
        self.fail_asks(rank, "it has ended");
        if self.verify.is_some() {
            return;
        }
        if self.spec.keep && self.spec.ft == Ft::Logged {
            return self.save_log(rank);
        }
        self.forget_images(rank);
        self.release_channels_to(rank);
    }

    /// Nobody reads them any more.
    pub(super) fn release_channels_to(&mut self, rank: u32) {
        for source in 0..self.size() {
            let channel = self.segment.channel(source, rank);
            let need = channel.need.load(Ordering::Acquire);
            channel.trim.fetch_max(need, Ordering::Release);
        }
        self.ring_pressed();
    }

    /// What the control block of a rank says.
    pub(super) fn said(&self, rank: u32) -> Said {
        let ctl = self.segment.rank(rank);
        match ctl.state.load(Ordering::Acquire) {
            segment::STATE_RUNNING => Said::Running,
            segment::STATE_ABORTED => Said::Aborted {
                code: ctl.exit_code.load(Ordering::Acquire) as i32,
                text: ctl.text(),
            },
            segment::STATE_DIVERGED => Said::Diverged { text: ctl.text() },
            _ => Said::Nothing,
        }
    }

    /// A mark that moves when the rank gets on, in messages or in output.
    fn progress(&self, rank: u32) -> u64 {
        let ctl = self.segment.rank(rank);
        let counters = [&ctl.msgs_sent, &ctl.msgs_received, &ctl.det_tail];
        let sum = counters.iter().fold(0u64, |n, c| n.wrapping_add(c.load(Ordering::Acquire)));
        let tapes = &self.ranks[rank as usize].tapes;
        tapes.iter().fold(sum, |n, t| n.wrapping_add(t.received()))
    }

    /// Brings a rank back: finds the newest good image, in a thread.
    pub(super) fn recover(&mut self, rank: u32) {
        if self.rank(rank).freezing {
            self.rank(rank).recover_later = true;
            return;
        }
        let deaths = self.rank(rank).deaths;
        let generations: Vec<u32> =
            self.rank(rank).retention.newest_first().map(|k| k.generation).collect();
        let left = !reap::kill_left(&self.place.id, rank).is_empty();
        match generations.first() {
            None => return self.candidate(rank, deaths, Choice::Nothing),
            Some(0) if !left => return self.candidate(rank, deaths, Choice::Beginning),
            Some(_) => {}
        }
        let tell = self.tell.clone();
        let (job, size, images) = (self.place.id.clone(), self.size(), self.images());
        let search = move || {
            let left = reap::clear_left(&job, rank);
            if left > 0 {
                let _ = tell.send(Msg::Candidate { rank, deaths, choice: Choice::Left(left) });
                return;
            }
            for generation in generations {
                let choice = check_image(&images, &job, rank, generation, size);
                let found = !matches!(choice, Choice::Refused { .. });
                let _ = tell.send(Msg::Candidate { rank, deaths, choice });
                if found {
                    return;
                }
            }
            let _ = tell.send(Msg::Candidate { rank, deaths, choice: Choice::Nothing });
        };
        let name = String::from("eyrie-check");
        if let Err(error) = std::thread::Builder::new().name(name).spawn(search) {
            let text = format!("cannot start a thread to check images: {error}");
            self.step(monitor::Input::Fatal { text, code: 1 });
        }
    }

    pub(super) fn images(&self) -> PathBuf {
        self.place.folder.join(crate::home::IMAGES)
    }

    pub(super) fn image_file(&self, rank: u32, generation: u32) -> PathBuf {
        image_path(&self.images(), rank, generation)
    }

    /// Removes all images of a rank.
    pub(super) fn forget_images(&mut self, rank: u32) {
        let files = self.rank(rank).retention.files();
        self.discard(rank, files);
    }

    /// The checking of images has a result.
    pub(super) fn candidate(&mut self, rank: u32, deaths: u64, choice: Choice) {
        if self.rank(rank).deaths != deaths || !self.monitor.may_start(rank) {
            return;
        }
        let kept = |job: &mut Job, g: u32| {
            job.rank(rank).retention.newest_first().any(|k| k.generation == g)
        };
        match choice {
            Choice::Refused { generation, why } => {
                if kept(self, generation) {
                    self.refuse_image(rank, generation, &why);
                }
            }
            Choice::Nothing if self.rank(rank).retention.newest().is_none() => {
                let text = String::from("no image of it is good any more");
                self.step(monitor::Input::Unrecoverable { rank, text });
            }
            Choice::Left(count) => {
                let text = format!("{count} processes of the dead rank {rank} cannot be killed");
                self.step(monitor::Input::Fatal { text, code: 1 });
            }
            Choice::Beginning if kept(self, 0) => {
                let meta = Meta::start(&self.place.id, rank, self.size());
                match self.launch(rank, &meta, None) {
                    Ok(()) => self.recovered(rank, 0),
                    Err(error) => {
                        let text = format!("cannot start rank {rank} again: {error}");
                        self.step(monitor::Input::Fatal { text, code: 1 });
                    }
                }
            }
            Choice::Image(meta) if kept(self, meta.generation) => {
                let path = self.image_file(rank, meta.generation);
                match self.launch(rank, &meta, Some(&path)) {
                    Ok(()) => self.recovered(rank, meta.generation),
                    Err(error) => {
                        self.refuse_image(rank, meta.generation, &error.to_string());
                        self.recover(rank);
                    }
                }
            }
            // A checkpoint was completed meanwhile: choose again.
            _ => self.recover(rank),
        }
    }

    fn recovered(&mut self, rank: u32, generation: u32) {
        self.recoveries += 1;
        let r = self.rank(rank);
        r.recoveries += 1;
        if let Some(tracker) = &mut r.tracker {
            tracker.restart();
        }
        let took = r.died_at.map(|at| millis(at.elapsed()));
        let pid = r.proc.as_ref().map_or(0, |p| p.pid);
        let mut event = self.event(EventKind::Restored);
        event.rank = Some(rank);
        event.generation = Some(generation);
        event.took_ms = took;
        let from = if generation == 0 { "from the beginning" } else { "from its checkpoint" };
        event.text = format!("{from}, pid {pid}");
        self.log_event(event);
    }

    fn refuse_image(&mut self, rank: u32, generation: u32, why: &str) {
        let unneeded = self.rank(rank).retention.damaged(generation);
        self.discard(rank, unneeded);
        let text = format!("checkpoint {generation} of rank {rank} cannot be used: {why}");
        self.say(format!("{text}; the one before is taken"));
        let mut event = self.event(EventKind::ImageRefused);
        event.rank = Some(rank);
        event.generation = Some(generation);
        event.text = why.to_string();
        self.log_event(event);
    }
}

fn check_image(
    images: &std::path::Path,
    job: &str,
    rank: u32,
    generation: u32,
    size: u32,
) -> Choice {
    if generation == 0 {
        return Choice::Beginning;
    }
    let refused = |why: String| Choice::Refused { generation, why };
    match eyrie_image::Image::open(&image_path(images, rank, generation)) {
        Ok(image) => match Meta::decode(image.meta(), job, rank, generation, size) {
            Ok(meta) => Choice::Image(Box::new(meta)),
            Err(error) => refused(error.to_string()),
        },
        Err(error) => refused(error.to_string()),
    }
}
