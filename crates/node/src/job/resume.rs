//! Going on with a job whose controller is dead, by its journal.
//!
//! The books are those of the journal. Nodes call, and are told what the dead controller had
//! decided and they had not heard; what they had said and it had not written down they say again.
//! Whoever does not come is lost.
//!
//! Kept true: nothing is decided anew that was decided; what is not needed for that is left alone:
//! ranks that live are not touched.

use super::books::{Moment, instant};
use super::commit::{self, Reign};
use super::journal::{self, Found, Head, JournalError, Known};
use super::nodes::{Node, State};
use super::report::EventLog;
use super::{BeginError, Job, Msg, Place, Shared};
use crate::crew::{Crew, Daemon};
use crate::ha::{EtcdError, HaError, Pointer};
use crate::home;
use crate::input::Input;
use crate::monitor;
use crate::outlet::Outlet;
use crate::pipes;
use crate::reap;
use eyrie_control::auth::Key;
use eyrie_control::message::{Host, MAX_DATA_BYTES};
use eyrie_control::{EventKind, NodeMsg, Stream, ToNode};
use eyrie_protocol::led::REJOINING_MS;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};
use tokio::io::Interest;
use tokio::sync::mpsc::UnboundedSender;

/// How long nodes may take to come back.
const REJOINING: Duration = Duration::from_millis(REJOINING_MS);
/// How long is waited for etcd.
const PATIENCE: Duration = Duration::from_secs(60);
/// Between two attempts.
const PAUSE: Duration = Duration::from_millis(200);

/// Takes the lead of a job whose state is in etcd, and brings here what a folder is to have.
fn take_lead(
    place: &Place,
    pointer: &Pointer,
    tell: &UnboundedSender<Msg>,
) -> Result<(Known, Reign), JournalError> {
    let lead = journal::succeed(pointer, &place.id, PATIENCE)?;
    let reign = Reign::begin(lead, tell).map_err(HaError::Thread)?;
    let lead = reign.lead();
    let end = Instant::now() + PATIENCE;
    let found = loop {
        match commit::bring(lead, &place.folder).and_then(|()| journal::fetch(lead)) {
            // It leads meanwhile: nobody else would go on.
            Err(JournalError::Ha(HaError::Etcd(EtcdError::Away(why)))) if Instant::now() < end => {
                tracing::warn!("etcd: {why}");
                std::thread::sleep(PAUSE);
            }
            found => break found,
        }
    };
    match found {
        Err(error) => {
            reign.leave();
            Err(error)
        }
        Ok(mut known) => {
            known.head.reign = lead.reign - 1;
            if !pointer.hosts.is_empty() {
                move_here(&mut known.head, &pointer.hosts);
                known.books.archive.leave_behind();
            }
            Ok((known, reign))
        }
    }
}

/// The controller is on this machine now, which its hosts reach so.
fn move_here(head: &mut Head, reached: &[Host]) {
    let Some(hosts) = &mut head.spec.hosts else { return };
    for host in &mut hosts.list {
        let named = reached.iter().find(|r| r.name == host.name).or(reached.first());
        host.controller = named.map_or(host.controller, |r| r.controller);
    }
    let mut places: Vec<_> = hosts.list.iter().map(|h| h.controller).collect();
    places.sort_unstable();
    places.dedup();
    head.addresses = places.into_iter().map(|ip| SocketAddr::new(ip, 0)).collect();
}

impl Job {
    /// The job in this folder, as its last controller left it.
    pub fn resume(
        place: Place,
        verbose: bool,
        lifeline: OwnedFd,
        console: Outlet,
        tell: &UnboundedSender<Msg>,
    ) -> Result<Shared, BeginError> {
        let folder = place.folder.clone();
        let (mut known, reign) = match journal::read(&folder)? {
            Found::Here(known) => (*known, None),
            Found::Elsewhere(pointer) => {
                let (known, reign) = take_lead(&place, &pointer, tell)?;
                (known, Some(reign))
            }
        };
        known.head.reign += 1;
        known.head.spec.verbose |= verbose;
        let daemons = known.nodes.iter().filter_map(|(books, _)| books.daemon.as_ref());
        let daemons = daemons.filter(|d| reap::born(d.pid) == Some(d.born)).map(|d| d.pid);
        let named = (place.id.as_str(), folder.as_path());
        let vouch = reign.as_ref().map(Reign::vouch);
        let crew = Crew::again(&known.head, daemons, named, lifeline, vouch, tell);
        let crew = crew.map_err(BeginError::Daemon)?;
        known.head.addresses = crew.addresses.clone();
        let mut nodes = Vec::new();
        for (books, session) in &known.nodes {
            let hosts = known.head.spec.hosts.as_ref();
            let host = hosts.and_then(|h| h.list.get(nodes.len()));
            let adopt = |d| Daemon::adopt(&place.id, &folder, d, host);
            let daemon = books.daemon.as_ref().map(adopt).transpose();
            let daemon = daemon.map_err(BeginError::Daemon)?;
            nodes.push(Node::known(books, session.clone(), daemon));
        }
        let spec = known.head.spec.clone();
        let job = Job::begin(place, spec, None, nodes, console, tell.clone())?;
        job.borrow_mut().employ(crew);
        reign.map_or(Ok(()), |reign| job.borrow_mut().lead(reign))?;
        let was_to_be_saved = known.books.to_be_saved;
        job.borrow_mut().take_books(known)?;
        job.borrow_mut().go_on(was_to_be_saved);
        Ok(job)
    }

    fn take_books(&mut self, known: journal::Known) -> Result<(), BeginError> {
        let folder = self.place.folder.clone();
        let stdin = folder.join(home::STDIN);
        let books = known.books;
        self.input = Input::resume(&stdin, &books.input).map_err(|e| BeginError::File(stdin, e))?;
        let (count, last) = known.events;
        self.events = EventLog::reopen(&folder.join(home::EVENTS), count, last);
        let begun = known.head.begun_unix_ms;
        self.begun = instant(begun);
        self.begun_wall = std::time::UNIX_EPOCH + Duration::from_millis(begun);
        (self.epoch, self.placement, self.planned) = (books.epoch, books.placement, books.planned);
        (self.unprotected, self.start) = (books.unprotected, books.start);
        (self.recoveries, self.rollbacks) = (books.recoveries, books.rollbacks);
        self.talk.differences = books.output_differences;
        (self.malformed, self.exit_code) = (books.malformed, books.exit_code);
        self.leaves = books.leaves;
        self.halt.take_over(books.halt);
        self.pauses = books.pauses;
        self.units.take_up(books.sets);
        self.take_notices(books.notices, books.here);
        self.flush.put_off = books.put_off;
        self.gateways.blocks = books.blocks;
        (self.saves, self.is_saved, self.restarting) =
            (books.saves, books.is_saved, books.restarting);
        self.take_archive(books.archive)?;
        self.note_flushed();
        (self.monitor, self.scheduler, self.planner) =
            (known.monitor, known.scheduler, known.planner);
        self.leave_outdated();
        self.monitor.console_back();
        self.ranks = known.ranks;
        self.vaults = known.vaults;
        self.together = known.together;
        self.fallback = known.fallback;
        if known.torn > 0 {
            tracing::warn!(
                bytes = known.torn,
                "the journal's last record was torn, and is cut off"
            );
        }
        self.head = Some(known.head);
        Ok(())
    }

    /// Takes up what was under way. `was_to_be_saved`: somebody had asked for that.
    fn go_on(&mut self, was_to_be_saved: bool) {
        self.renew_journal();
        let mut event = self.event(EventKind::ControllerLost);
        event.count = Some(self.reign());
        event.text = format!("controller {} goes on by the journal", self.reign());
        self.log_event(event);
        self.print_the_rest();
        self.tell_archive();
        self.abandon_round();
        self.ask_at_rest();
        let (known, limit) = (self.input.known().0, self.input.limit());
        self.input_credit = limit;
        self.tell_console(NodeMsg::StdinFrom { known, limit });
        for node in 0..self.nodes.len() as u32 {
            let n = &self.nodes[node as usize];
            match n.state {
                State::Lost if !n.cleared => self.clear_node(node, n.cut_off()),
                State::Lost => {}
                State::Live | State::Joining => self.watch_adopted(node),
            }
        }
        match self.monitor.phase() {
            "stopping" => self.arm_grace(),
            "saving" if self.was_saved() => {}
            "saving" => {
                self.clear_archive();
                self.step(monitor::Input::NotSaved);
            }
            _ => {
                self.let_stand_for_nothing();
                // Nobody waits any more for the job to be saved.
                self.end_snapshot_hold();
            }
        }
        if was_to_be_saved && !self.monitor.is_ending() {
            self.say("the job is not saved, and goes on: its controller died");
        }
        // Nothing is being brought any more.
        self.stop_flush();
        match self.exit_code {
            Some(_) => self.over.notify_one(),
            // What the dead controller would have removed.
            None => self.forget_unneeded(),
        }
        self.begin_gateways();
        // Else when no node brings anything for the dead controller any more (`rejoined`).
        if self.archive.holds() && self.exit_code.is_some() {
            self.bring_to_depot();
        }
        self.grant_output();
        self.rejoining = Some(Moment::now());
        let tell = self.tell.clone();
        tokio::task::spawn_local(async move {
            tokio::time::sleep(REJOINING).await;
            let _ = tell.send(Msg::RejoiningOver);
        });
        self.await_joining();
        self.rejoined();
        self.end_turn();
    }

    /// Nodes that were to join have the time for that anew.
    fn await_joining(&self) {
        let Some(hosts) = &self.spec.hosts else { return };
        if self.planned {
            let joining = |n: &(u32, &Node)| n.1.state == State::Joining;
            let joining = (0u32..).zip(&self.nodes).filter(joining);
            return joining.for_each(|(node, n)| self.arm_late(node, n.starts_with()));
        }
        let (tell, limit) = (self.tell.clone(), Duration::from_millis(hosts.join_ms));
        tokio::task::spawn_local(async move {
            tokio::time::sleep(limit).await;
            let _ = tell.send(Msg::JoiningOver);
        });
    }

    /// Whether a node is to come back. One behind gateways that was with no controller yet is not:
    /// it starts, and may take as long for that as any.
    fn is_to_return(&self, node: u32) -> bool {
        let n = &self.nodes[node as usize];
        n.is_awaited() && !(self.spec.clusters.is_behind(node) && n.is_starting())
    }

    /// What the dead controller had taken and the console has not printed.
    fn print_the_rest(&mut self) {
        let printed = super::books::printed(&self.place.folder);
        for (rank, r) in (0u32..).zip(&self.ranks) {
            for stream in [Stream::Stdout, Stream::Stderr] {
                let rest = r.tapes[stream as usize].unprinted(printed(rank, stream));
                for part in rest.chunks(MAX_DATA_BYTES) {
                    self.tell_console(NodeMsg::Output { rank, stream, bytes: part.to_vec() });
                }
            }
        }
    }

    /// Has the end of a daemon reported that is not our child.
    fn watch_adopted(&mut self, node: u32) {
        let daemon = self.nodes[node as usize].daemon.as_ref();
        let Some(daemon) = daemon.filter(|d| !d.is_left()) else { return };
        let (epoch, tell) = (daemon.epoch, self.tell.clone());
        let watched = daemon.pidfd.try_clone().and_then(|fd| pipes::watch(fd, Interest::READABLE));
        let pidfd = match watched {
            Ok(pidfd) => pidfd,
            // It is missed when it does not come back.
            Err(error) => return tracing::warn!(node, %error, "its daemon is not watched"),
        };
        tokio::task::spawn_local(async move {
            if pidfd.readable().await.is_ok() {
                let _ = tell.send(Msg::Gone { node, epoch, why: String::from("its daemon ended") });
            }
        });
    }

    /// Asks what nodes encrypt with what they store, if this controller does not know.
    fn ask_at_rest(&mut self) {
        if self.crew.as_ref().is_some_and(Crew::lacks_at_rest) {
            self.to_all(&ToNode::TellAtRest);
        }
    }

    /// A node has told it.
    pub(super) fn learn_at_rest(&mut self, key: Key) {
        self.crew.iter_mut().for_each(|crew| crew.learn_at_rest(key.clone()));
    }

    /// A node is back, or lost: are there more to wait for?
    pub(super) fn rejoined(&mut self) {
        let awaited = (0..self.nodes.len() as u32).any(|node| self.is_to_return(node));
        let Some(since) = self.rejoining.take_if(|_| !awaited) else { return };
        let live = self.nodes.iter().filter(|n| n.state == State::Live).count();
        let mut event = self.event(EventKind::ControllerBack);
        event.count = Some(live as u64);
        event.took_ms = Some(since.elapsed().as_secs_f64() * 1e3);
        event.text = format!("{live} nodes are with controller {}", self.reign());
        self.log_event(event);
        if self.archive.holds() && self.exit_code.is_none() && !self.flush.is_under_way() {
            self.bring_to_depot();
        }
    }

    /// The nodes had time enough.
    pub(super) fn rejoining_over(&mut self) {
        // One that has come and is away again has its own time.
        let late =
            |node: &u32| self.is_to_return(*node) && self.nodes[*node as usize].away.is_none();
        let late: Vec<u32> = (0..self.nodes.len() as u32).filter(late).collect();
        if self.rejoining.is_none() {
            return;
        }
        for node in late {
            let epoch = self.nodes[node as usize].called();
            self.node_gone(node, epoch, "it did not come back to the new controller");
        }
        self.rejoined();
    }

    /// Kills the controller, as a fault would.
    pub fn inject_controller(&mut self) -> Result<(), String> {
        if self.journal.is_none() {
            return Err(String::from(
                "this job ends with its controller: it has no journal (see eyrie run --nodes)",
            ));
        }
        let mut event = self.event(EventKind::Injected);
        event.text = String::from("SIGKILL of the controller");
        self.log_event(event);
        Ok(())
    }
}
