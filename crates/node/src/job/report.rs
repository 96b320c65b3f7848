//! What the job tells about itself: events and status.

use super::{Job, Rank};
use crate::outlet::Outlet;
use eyrie_control::status::STATUS_FORMAT;
use eyrie_control::{CheckpointStatus, Event, EventKind, Ft, JobStatus, NodeMsg, RankStatus};
use eyrie_ledger::segment;
use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::UNIX_EPOCH;

/// Events kept in memory for `eyrie events`.
const KEPT_EVENTS: usize = 100_000;

/// The events of a job, in memory and in its folder.
pub struct EventLog {
    events: Vec<Event>,
    /// Number of the first one in memory.
    first: u64,
    file: Option<File>,
    followers: Vec<Outlet>,
}

impl EventLog {
    /// A file that cannot be written is no reason to stop a job.
    pub fn create(path: &Path) -> EventLog {
        let file = File::create(path)
            .inspect_err(|error| tracing::warn!(%error, "events are not written"))
            .ok();
        EventLog { events: Vec::new(), first: 0, file, followers: Vec::new() }
    }

    fn push(&mut self, event: Event) {
        if let (Some(file), Ok(mut line)) = (&mut self.file, serde_json::to_string(&event)) {
            line.push('\n');
            if file.write_all(line.as_bytes()).is_err() {
                self.file = None;
            }
        }
        let message = NodeMsg::Event(Box::new(event.clone()));
        self.followers.retain(|f| !f.is_closed());
        self.followers.iter().for_each(|f| f.send(&message));
        if self.events.len() == KEPT_EVENTS {
            self.events.drain(..KEPT_EVENTS / 2);
            self.first += (KEPT_EVENTS / 2) as u64;
        }
        self.events.push(event);
    }
}

impl Job {
    /// An event that happens now.
    pub(super) fn event(&self, kind: EventKind) -> Event {
        Event::new(self.begun.elapsed().as_secs_f64() * 1e3, kind)
    }

    pub(super) fn log_event(&mut self, event: Event) {
        tracing::info!(event = event.event.name(), rank = event.rank, text = event.text);
        if self.spec.verbose {
            self.console.send(&NodeMsg::Event(Box::new(event.clone())));
        }
        self.events.push(event);
    }

    /// Sends events from number `from` on; with `follow` also those to come, else `Done`.
    pub fn tell_events(&mut self, from: u64, follow: bool, outlet: Outlet) {
        let skip = from.saturating_sub(self.events.first) as usize;
        for event in self.events.events.iter().skip(skip) {
            outlet.send(&NodeMsg::Event(Box::new(event.clone())));
        }
        if follow {
            self.events.followers.push(outlet);
        } else {
            outlet.send(&NodeMsg::Done);
        }
    }

    /// The whole job at this moment.
    pub fn status(&self) -> JobStatus {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let started = self.begun_wall.duration_since(UNIX_EPOCH).unwrap_or_default();
        let geometry = self.segment.geometry();
        JobStatus {
            format: STATUS_FORMAT,
            job: self.place.id.clone(),
            name: self.spec.name.clone(),
            program: text(&self.spec.program),
            args: self.spec.argv.iter().skip(1).map(|a| text(a)).collect(),
            size: self.spec.size,
            ft: self.spec.ft.name().to_string(),
            phase: self.monitor.phase().to_string(),
            exit_code: self.exit_code,
            daemon_pid: std::process::id(),
            started_unix_ms: started.as_millis() as u64,
            uptime_ms: self.now_ms(),
            checkpoint_every_ms: self.spec.checkpoint_every_ms,
            log_limit_bytes: u64::from(geometry.pool_chunks) * u64::from(geometry.chunk_bytes),
            protected: self.spec.ft == Ft::Logged && self.unprotected.is_none(),
            unprotected_reason: self.unprotected.clone(),
            recoveries: self.recoveries,
            rollbacks: self.rollbacks,
            malformed_frames: self.malformed,
            ranks: (0..self.spec.size).map(|r| self.rank_status(r)).collect(),
        }
    }

    fn rank_status(&self, rank: u32) -> RankStatus {
        let r = &self.ranks[rank as usize];
        let ctl = self.segment.rank(rank);
        let get = |counter: &std::sync::atomic::AtomicU64| counter.load(Ordering::Relaxed);
        let chunks = get(&ctl.chunks_used);
        RankStatus {
            rank,
            pid: r.proc.as_ref().map(|p| p.pid as u32),
            state: self.rank_state(r, ctl).to_string(),
            incarnation: ctl.incarnation.load(Ordering::Relaxed),
            recoveries: r.recoveries,
            checkpoint: r.latest.as_ref().map(|latest| CheckpointStatus {
                generation: latest.generation,
                age_ms: latest.at.elapsed().as_millis() as u64,
                bytes: latest.bytes,
                unchanged_bytes: latest.unchanged_bytes,
                tracking: latest.tracking.clone(),
                mode: latest.mode.to_string(),
                why: latest.why.clone(),
                took_ms: latest.took.as_secs_f64() * 1e3,
                frozen_ms: latest.frozen.as_secs_f64() * 1e3,
            }),
            no_checkpoint_reason: r.reason.clone(),
            log_used_bytes: chunks * u64::from(self.segment.geometry().chunk_bytes),
            log_chunks: chunks,
            determinant_words: get(&ctl.det_tail).saturating_sub(get(&ctl.det_trim)),
            messages_sent: get(&ctl.msgs_sent),
            bytes_sent: get(&ctl.bytes_sent),
            messages_received: get(&ctl.msgs_received),
        }
    }

    fn rank_state(&self, r: &Rank, ctl: &segment::RankCtl) -> &'static str {
        if r.gone {
            return "exited";
        }
        if r.proc.is_none() {
            return if self.monitor.running() { "recovering" } else { "dead" };
        }
        if r.freezing {
            return "checkpointing";
        }
        if ctl.state.load(Ordering::Relaxed) == segment::STATE_FINALIZED {
            return "finalized";
        }
        if ctl.pressure.load(Ordering::Relaxed) != 0 {
            return "waits-for-log-space";
        }
        if ctl.replaying.load(Ordering::Relaxed) != 0 {
            return "replaying";
        }
        if ctl.lib.load(Ordering::Relaxed) == segment::LIB_WAIT {
            return "waiting";
        }
        "running"
    }
}
