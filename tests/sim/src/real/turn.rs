//! The controller's turns, what they lead to, and its death and successor.

use crate::program;
use crate::real::fate::Fate;
use crate::real::host::{Floor, Simulation, short};
use crate::real::{Faults, Happens, Note};
use crate::types::{Endpoint, Event, Mutation, Packet, Time};
use eyrie_control::{EventKind, NodeMsg, Stream};
use eyrie_controller::Msg;
use eyrie_controller::memory::driven::Controller;
use eyrie_protocol::membership::Member;
use eyrie_protocol::recovery::Planner;
use eyrie_protocol::replicas::Words;
use eyrie_protocol::session::Numbered;
use eyrie_state::{home, printed_counts};

/// A floor that was told so long ago has reached every node that has a controller.
const TOLD: Time = 1_500;

/// What the controller sends on one of its connections.
type Frame = (u64, Numbered<eyrie_control::ToNode>);

/// What a dying controller had.
struct Last {
    journal: Vec<u8>,
    truth: crate::checks::Truth,
}

impl Simulation {
    /// The controller does something, as a part of a turn or one of its own.
    pub(super) fn turn(&mut self, act: impl FnOnce(&mut Controller)) {
        let now = self.clocks();
        if self.controller.is_none() {
            return;
        }
        let fate = self.fate.take();
        let last = fate.map(|_| Last { journal: self.journal(), truth: self.world.truth.clone() });
        let Some(controller) = &mut self.controller else { return };
        controller.job.set_now(now);
        act(controller);
        while let Some(due) = controller.job.due_timer() {
            controller.job.take(due);
        }
        // What comes at the same time is often one turn.
        let more = fate.is_none() && self.code.is_none() && self.world.random.one_in(4);
        if more {
            self.turn_open = true;
            self.look_by(1);
        } else {
            self.turn_open = false;
            controller.job.end_turn();
        }
        self.effects(fate, last);
    }

    pub(super) fn journal(&self) -> Vec<u8> {
        self.memory.journal_bytes().unwrap_or_default()
    }

    /// What the controller has said and asked for.
    fn effects(&mut self, fate: Option<Fate>, last: Option<Last>) {
        let Some(controller) = &mut self.controller else { return };
        let (mut frames, ended) = controller.sent();
        let (told, mut printed) = (controller.told(), controller.printed());
        if let Some(fate) = fate {
            let early = self.mutated(Mutation::EffectsUnwritten);
            let count = fate.seen(frames.len(), early);
            frames.truncate(count);
            let count = fate.seen(printed.len(), early);
            printed.truncate(count);
        }
        if !self.turn_open && !fate.is_some_and(Fate::loses_record) {
            self.sync();
            self.see_dismissed();
        }
        self.print(printed);
        if fate.is_none() {
            self.check_called_off(&frames);
        }
        self.post(frames);
        for line in ended {
            let conn = line as usize - 1;
            self.world.conns[conn].open[0] = false;
            if !self.world.conns[conn].broken {
                self.world.cut(conn);
            }
        }
        if let (Some(fate), Some(last)) = (fate, last) {
            return self.dies(fate, last);
        }
        for message in told {
            let Msg::Cleared { node, .. } = message else { continue };
            let deaths = self.world.report.controllers;
            let after = 20 + self.world.random.below(400);
            self.world.at(after, Event::Real(Happens::Cleared { node, deaths }));
            self.fault_nearby(3);
        }
        if !self.turn_open {
            self.take_notes();
            self.sync();
            self.mistake_routers();
            self.mistake_leaves();
            self.check_turn();
        }
        let Some(controller) = &self.controller else { return };
        let look = controller.next_look().as_millis() as u64;
        self.look_by(look.max(1));
    }

    /// The controller looks at what is due after so long, or earlier.
    fn look_by(&mut self, after: u64) {
        let at = self.world.now + after;
        if self.look_at.is_none_or(|before| at < before || before < self.world.now) {
            self.look_at = Some(at);
            self.world.at(after, Event::Real(Happens::Look));
        }
    }

    /// What was taken is durable.
    fn take_notes(&mut self) {
        for (rank, note) in std::mem::take(&mut self.notes) {
            match note {
                Note::Prints(depends) => self.world.truth.prints(&depends),
                Note::Done(hash, depends) => {
                    self.world.truth.prints(&depends);
                    self.world.controller.done.insert(rank, hash);
                }
                Note::Stored(_) | Note::None => {}
            }
        }
    }

    fn print(&mut self, printed: Vec<NodeMsg>) {
        for message in printed {
            match message {
                NodeMsg::Output { rank, stream: Stream::Stdout, bytes } => {
                    self.printed[rank as usize].extend(bytes);
                }
                NodeMsg::Output { .. } => self.world.fail(String::from("somebody else prints")),
                NodeMsg::Say(text) => {
                    self.world.trace(|| format!("controller says: {text}"));
                    self.said.push(text);
                }
                NodeMsg::Event(event) => {
                    self.world.report.emptied += u64::from(event.event == EventKind::NodeVacated);
                    if event.event == EventKind::NodeStays {
                        self.stayed_at = self.world.now;
                    }
                    self.world.trace(|| format!("controller: {}", short(&event)));
                }
                _ => {}
            }
        }
    }

    /// Orders go their way.
    fn post(&mut self, frames: Vec<Frame>) {
        for (line, frame) in frames {
            let Numbered { number, heard, mut message } = frame;
            let conn = line as usize - 1;
            self.world.trace(|| {
                let to = self.world.conns[conn].ends[1];
                format!("controller to {to:?} ({number}): {}", short(&message))
            });
            self.note_floor(&message);
            self.note_units(&message);
            if let Endpoint::Node(to) = self.world.conns[conn].ends[1] {
                self.mistake_order(to, &mut message);
            }
            self.check_order(&message);
            self.call_off_nearby(&message);
            if let (eyrie_control::ToNode::CheckpointSet { .. }, Endpoint::Node(to)) =
                (&message, self.world.conns[conn].ends[1])
            {
                self.strike_together(to);
            }
            let packet = Packet::ToNode(Numbered { number, heard, message });
            self.world.send(conn, Endpoint::Controller, packet);
        }
    }

    /// Nobody is started while all are to end: what was ordered before that in the same turn is
    /// called off in it, too.
    fn check_called_off(&mut self, frames: &[Frame]) {
        use eyrie_control::ToNode as To;
        // As it is now: what the checks look at is what it was after the last turn that is over.
        let planner = self.controller.as_ref().and_then(Controller::planner);
        if !planner.is_some_and(Planner::goes_back) {
            return;
        }
        for (index, (line, frame)) in frames.iter().enumerate() {
            let To::Start { rank, start, .. } = &frame.message else { continue };
            let calls_off = |(to, later): &Frame| match &later.message {
                To::Kill { ranks } => to == line && ranks.contains(rank),
                To::Signal { signal } => to == line && *signal == libc::SIGKILL,
                To::Renew { .. } => to == line,
                _ => false,
            };
            if !self.started.contains(start) && !frames[index..].iter().any(calls_off) {
                let what = "starts while the planner waits for all to have ended";
                return self.world.fail(format!("rank {rank} {what}"));
            }
        }
    }

    /// Nodes were dismissed in the turn that ends: nothing that is needed goes with them. Who has
    /// begun to leave, or has joined, after that in the same turn does not count: before it, all
    /// gates would have been asked anew.
    fn see_dismissed(&mut self) {
        let Some(controller) = &self.controller else { return };
        let dismissed = controller.dismissed();
        let planner = &self.world.controller.planner;
        let (members, keepers) = (planner.members().to_vec(), planner.keepers());
        let vaults = planner.vaults();
        let is_new = |m: &Member| dismissed.contains(&m.node) && !self.dismissed.contains(&m.node);
        let going: Vec<Member> = self.members.iter().copied().filter(is_new).collect();
        let stays = |m: &Member| members.contains(m);
        let stay: Vec<Member> = self.keepers.iter().copied().filter(stays).collect();
        for member in &going {
            self.world.report.left += 1;
            // When it was dismissed there were enough nodes for the vault, or before that.
            self.world.check_left_to(*member, &stay, vaults || self.vaulted);
        }
        // Fewer nodes bear less: those that leave, and have left.
        let leaves = |m: &Member| stays(m) && !keepers.contains(m);
        if !going.is_empty() || self.keepers.iter().any(leaves) {
            self.world.bear_less();
        }
        self.world.going = going;
        (self.dismissed, self.members, self.keepers) = (dismissed, members, keepers);
        self.had_vault = std::mem::replace(&mut self.vaulted, vaults);
    }

    /// Nodes are told what a rank may still need.
    fn note_floor(&mut self, order: &eyrie_control::ToNode) {
        let eyrie_control::ToNode::Trim { rank, need, det_pos } = order else { return };
        let new = |f: &(Time, u32, Floor)| f.1 == *rank && f.2 == (need.clone(), *det_pos);
        if !self.floors.iter().any(new) {
            self.floors.push((self.world.now, *rank, (need.clone(), *det_pos)));
        }
    }

    /// A rank is brought back with what somebody held of it: what it loses must not matter.
    fn check_order(&mut self, order: &eyrie_control::ToNode) {
        let eyrie_control::ToNode::Start { rank, start, from, moved } = order else { return };
        if !self.started.insert(*start) {
            return;
        }
        if self.world.together {
            self.check_back(*rank, *start as u32, from.generation);
            return self.fault_nearby(6);
        }
        if self.returns(*rank, *start as u32, from.generation) {
            return self.fault_nearby(6);
        }
        self.check_newest(*rank, from.generation);
        let words = moved.as_ref().map(|m| Words { first: m.first, words: m.words.clone() });
        let words = words.map(|words| self.world.with_own_run(words, (*rank, from.generation)));
        self.world.check_restore(*rank, *start as u32, words.as_ref(), from.det_pos);
        self.fault_nearby(6);
    }

    /// The newest image of a rank that comes back by itself counts no more: it was damaged, or more
    /// was lost than it bears.
    fn check_lost(&mut self, rank: u32, generation: u32) {
        let damaged = self.world.damaged.contains(&(rank, generation));
        if !damaged && !self.world.truth.may_roll_back() {
            let what = format!("the newest image of rank {rank}, {generation},");
            self.world.fail(format!("{what} counts no more"));
        }
    }

    /// A rank comes back by itself: from the newest image of it that counts, unless that was
    /// damaged, or more was lost than it bears.
    fn check_newest(&mut self, rank: u32, generation: u32) {
        let newest = self.newest.get(&rank).copied().unwrap_or(0);
        let damaged = self.world.damaged.contains(&(rank, newest));
        if generation < newest && !damaged && !self.world.truth.may_roll_back() {
            let why = format!("rank {rank} goes back to image {generation}, and {newest} is good");
            self.world.fail(why);
        }
    }

    /// A rank goes back with all others: not beyond the newest snapshot that counts, unless more
    /// was lost than that bears.
    fn check_back(&mut self, rank: u32, start: u32, generation: u32) {
        if self.newest.get(&rank).is_some_and(|newest| generation < *newest) {
            self.check_bears("all ranks go back beyond their newest snapshot");
        }
        self.newest.insert(rank, generation);
        self.world.truth.goes_back(rank, start, generation);
        self.world.controller.done.remove(&rank);
        // What it prints again may come in another order: that is not printed.
        self.foreign[rank as usize] = self.printed[rank as usize].len();
    }

    /// What the checks look at is what the controller has now.
    pub(super) fn sync(&mut self) {
        let world = &mut self.world;
        world.controller.conns = world.nodes.iter().map(|(m, n)| (*m, n.conn)).collect();
        world.dead = self.controller.is_none();
        let Some(controller) = &self.controller else { return };
        let Some(planner) = controller.planner() else { return };
        world.controller.planner = planner.clone();
        world.controller.suspend = controller.suspension().clone();
        world.controller.retention = controller.retention().cloned().collect();
        world.controller.is_busy = controller.phase() != "running";
    }

    /// After a turn: images that count from now on, ranks that go back, the job's end.
    fn check_turn(&mut self) {
        let newest: Vec<(u32, u32)> = (0u32..)
            .zip(&self.world.controller.retention)
            .filter_map(|(rank, r)| Some((rank, r.newest()?.generation)))
            .collect();
        // While a node was to leave that stays after all there may have been too few for the vault.
        let few = self.stayed_at == self.world.now;
        let rollbacks = self.controller.as_ref().map_or(0, Controller::rollbacks);
        let regrouped = self.setup.shares && rollbacks > self.rollbacks;
        for (rank, generation) in newest {
            let before = self.newest.insert(rank, generation).unwrap_or(0);
            if generation < before && self.world.units.is_empty() && !regrouped {
                self.check_lost(rank, before);
            }
            if generation > before {
                self.world.report.checkpoints += 1;
                self.world.check_copies(rank, generation, few, self.had_vault);
                self.world.check_incarnation(rank, generation);
                self.world.check_cut(rank, generation);
                self.loss_of_vaulted(rank, generation);
            }
        }
        self.check_given_up();
        self.check_awaited();
        self.check_vaulted();
        self.check_guards();
        let Some(controller) = &mut self.controller else { return };
        let (phase, rollbacks) = (controller.phase(), controller.rollbacks());
        let goes_back = phase == "rolling-back";
        let code = controller.job.exit_code();
        let returns = self.setup.shares && controller.returns();
        // Until units have a second set one that is damaged is all that they have.
        let first_set = controller.may_return() || !self.world.damaged.is_empty();
        let meant = controller.shares() || (self.sharing.done && first_set);
        if goes_back && !std::mem::replace(&mut self.went_back, goes_back) {
            if !self.world.together && !meant {
                self.check_bears("all ranks go back");
            }
            if self.setup.faults == Faults::All {
                self.loss_nearby();
            }
        }
        self.went_back = goes_back;
        let stands = self.world.all_stand();
        self.world.report.stood += u64::from(stands && !self.stands);
        self.stands = stands;
        let before = self.rollbacks;
        let from_there = returns && rollbacks > self.rollbacks;
        if from_there {
            self.all_return();
        }
        if rollbacks > self.rollbacks {
            self.rollbacks = rollbacks;
            self.world.report.roll_backs += u64::from(!from_there);
        }
        if rollbacks > before && !self.world.together && !from_there {
            self.world.truth.restart();
            self.sharing.returning.clear();
            self.world.controller.done.clear();
            self.newest.clear();
            self.foreign = self.printed.iter().map(Vec::len).collect();
        }
        if code.is_some() && self.code.is_none() {
            self.code = code;
            self.begins_anew();
            self.check_trimmed();
            if code != Some(0) {
                self.check_bears("the job ends");
                self.world.report.lost = true;
            }
        }
    }

    /// The job is over: logs hold no more than they must.
    fn check_trimmed(&mut self) {
        if self.world.truth.may_roll_back() || self.rollbacks > 0 {
            return;
        }
        if let Err(what) = self.world.check_inner() {
            self.world.fail(what);
        }
        let told = std::mem::take(&mut self.floors);
        let told = told.into_iter().filter(|f| f.0 + TOLD < self.world.now);
        for (_, rank, (need, det_pos)) in told.collect::<Vec<_>>() {
            for member in self.world.controller.planner.members().to_vec() {
                if self.is_away(member) {
                    continue;
                }
                if let Some(what) = self.world.untrimmed(member, rank, &need, det_pos) {
                    self.world.fail(what);
                }
            }
        }
    }

    /// No checkpoint waits for a router that is none any more.
    fn check_awaited(&mut self) {
        let members = self.world.controller.planner.members();
        let Some(controller) = &mut self.controller else { return };
        let gone = controller.pauses().awaited().find(|m| !members.contains(m));
        if let Some(router) = gone.filter(|_| !self.world.controller.is_busy) {
            let why = format!("a checkpoint waits for router {router}, which is gone");
            self.world.fail(why);
        }
    }

    /// Whether the controller cannot reach a node.
    pub(super) fn is_away(&self, member: Member) -> bool {
        let Some(node) = self.world.nodes.get(&member) else { return true };
        node.real.away_until + TOLD > self.world.now || self.world.conns[node.conn].broken
    }

    /// More was lost than is to be survived.
    fn check_bears(&mut self, what: &str) {
        if !self.world.truth.may_roll_back() {
            let said: Vec<&String> = self.said.iter().rev().take(4).collect();
            let why = format!("{what} without need: {said:?}");
            self.world.fail(why);
        }
    }

    /// The controller is dead in the middle of a turn.
    fn dies(&mut self, fate: Fate, last: Last) {
        self.world.report.controllers += 1;
        let journal = self.journal();
        if fate.loses_record() {
            // A file that was replaced is there whole or not at all.
            let torn = journal.strip_prefix(&last.journal[..]).filter(|_| fate == Fate::Torn);
            let torn = torn.map_or(0, |more| more.len() / 2);
            let left = &journal[..if torn > 0 { last.journal.len() + torn } else { 0 }];
            let left = if torn > 0 { left } else { &last.journal[..] };
            self.memory.set_journal(left.to_vec());
            if !self.mutated(Mutation::EffectsUnwritten) {
                self.world.truth = last.truth;
            }
            self.notes.clear();
        } else {
            self.take_notes();
        }
        (self.controller, self.look_at, self.turn_open) = (None, None, false);
        self.world.dead = true;
        let open: Vec<usize> = (0..self.world.conns.len())
            .filter(|c| self.world.conns[*c].ends[0] == Endpoint::Controller)
            .collect();
        for conn in open {
            self.world.conns[conn].open[0] = false;
            if !self.world.conns[conn].broken {
                self.world.cut(conn);
            }
        }
        let after = 20 + self.world.random.below(1_000);
        self.world.at(after, Event::Real(Happens::Term));
    }

    /// Another one goes on.
    pub(super) fn term(&mut self) {
        self.world.trace(|| String::from("a new controller goes on"));
        self.note_printed();
        self.since = self.world.now;
        match Controller::resume(&self.memory, self.clocks(), self.lacking()) {
            Ok(controller) => self.controller = Some(controller),
            Err(error) => return self.world.fail(format!("nobody can go on: {error}")),
        }
        let dead = |node: &u32| self.world.nodes.keys().all(|m| m.node != *node);
        let nodes = self.controller.as_ref().map_or(0, |c| c.nodes());
        let dead: Vec<u32> = (0..nodes).filter(dead).collect();
        for node in dead {
            let deaths = self.world.report.controllers;
            let after = 5 + self.world.random.below(300);
            self.world.at(after, Event::Real(Happens::Gone { node, deaths }));
        }
        self.code = None;
        self.turn(|_| ());
        if self.mutated(Mutation::ClientsRemembered) {
            let gone = std::mem::take(&mut self.clients);
            gone.into_iter().for_each(|(_, client)| self.turn(|c| drop(c.hold(client, None))));
        }
    }

    /// The console writes down how much it has printed.
    fn note_printed(&mut self) {
        let mut bytes = Vec::new();
        for (rank, printed) in (0u32..).zip(&self.printed) {
            for (stream, count) in [(Stream::Stdout, printed.len()), (Stream::Stderr, 0)] {
                let at = printed_counts::place(rank, stream);
                bytes.extend(printed_counts::word(at, count as u64));
            }
        }
        self.memory.put(home::PRINTED, bytes);
    }

    /// Every rank's result and all lines are those of an undisturbed run in which wildcards and
    /// polls came to the same, and nothing is left behind.
    pub(super) fn check_end(&mut self) -> Result<(), String> {
        let left = self.world.nodes.iter().filter(|(_, n)| !n.real.finished);
        let left: Vec<String> = left.map(|(member, _)| member.to_string()).collect();
        if self.world.report.lost {
            return Ok(());
        }
        let outcomes: Vec<_> =
            (0..self.world.programs.len()).map(|r| self.world.truth.outcomes(r)).collect();
        let undisturbed = program::reference(&self.world.programs, &outcomes)?;
        for (rank, one) in undisturbed.iter().enumerate() {
            if self.world.controller.done.get(&(rank as u32)) != Some(&one.state.hash) {
                return Err(format!("rank {rank} ends with another result"));
            }
            let lines: Vec<u8> = one.printed.iter().flat_map(|l| super::line(*l)).collect();
            let (printed, foreign) = (&self.printed[rank], self.foreign[rank]);
            // After all went back lines are other ones, and those that were printed stay.
            if printed.len() != lines.len().max(foreign)
                || printed[foreign..] != lines[foreign.min(lines.len())..]
            {
                return Err(format!("rank {rank} has printed something else"));
            }
        }
        if !left.is_empty() {
            return Err(format!("the job is over, and there are {}", left.join(", ")));
        }
        Ok(())
    }
}
