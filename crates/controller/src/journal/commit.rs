//! What a turn has for effects, and when it may have them: at once where the journal is a file,
//! when etcd has acknowledged its record where it is there (`--ha`).
//!
//! Kept true: effects come in the order of their turns, and none before the record of its turn is
//! durable; what only asks how things are waits for nothing. Who was deposed has no effects.

use crate::Job;
use crate::console::Console;
use crate::journal::Journaling;
use crate::journal::effects::{Effects, Ha};
use crate::nodes::model::State;
use crate::outside::Lead;
use eyrie_control::ha::{Announced, News};
use eyrie_control::message::MAX_DATA_BYTES;
use eyrie_control::node::ToNode;
use eyrie_control::{Event, HaStatus, NodeMsg};
use eyrie_protocol::session::Numbered;
use eyrie_protocol::timing::{Intervals, Lease};
use std::collections::VecDeque;
use std::rc::Rc;
use std::time::Duration;

impl Journaling {
    /// Events of turns that are not durable yet.
    pub fn events_to_come(&self) -> impl Iterator<Item = &Event> {
        let waiting = self.commit.ha.iter().flat_map(|ha| &ha.waiting);
        waiting.flat_map(|(_, effects)| &effects.events)
    }

    pub fn next_durable(&mut self) -> Option<Effects> {
        let ha = self.commit.ha.as_mut()?;
        let due = ha.waiting.front().is_some_and(|(number, _)| *number <= ha.durable);
        ha.waiting.pop_front_if(|_| due).map(|(_, effects)| effects)
    }

    /// An error unless nobody else can have the job by now.
    pub fn leads_for_sure(&self) -> Result<(), String> {
        match &self.commit.ha {
            Some(ha) if !ha.lead.holds() => {
                let why = "etcd has not confirmed for longer than a lease that this controller \
                           leads: ask again when it does";
                Err(String::from(why))
            }
            _ => Ok(()),
        }
    }

    pub fn ha_status(&self) -> Option<HaStatus> {
        let ha = self.commit.ha.as_ref()?;
        Some(HaStatus { place: ha.lead.place(), away: ha.away.clone() })
    }
}

impl Console {
    /// A line that waits for nothing.
    pub fn say_now(&self, text: String) {
        tracing::info!("{text}");
        self.client.send(&NodeMsg::Say(text));
    }
}

impl Job {
    /// From now on the journal is in etcd, where a folder leads to it.
    pub fn lead(&mut self, lead: Rc<dyn Lead>) {
        self.journal.open = Some(lead.journal());
        self.journal.commit.ha = Some(Ha {
            lead: Rc::clone(&lead),
            waiting: VecDeque::new(),
            written: 0,
            durable: 0,
            away: None,
            deposed: None,
            announced: (0, 0),
        });
        self.announce();
        if lead.reign() == 1 {
            self.journal.say(format!("if this machine is lost: eyrie standby {}", lead.place()));
        }
    }

    /// Says in etcd where the controller is, if that has changed.
    pub(crate) fn announce(&mut self) {
        if self.journal.open.is_none() {
            return;
        }
        let Some(ha) = &mut self.journal.commit.ha else { return };
        let addresses = self.outside.launcher.addresses();
        let hosts = self.spec.placement.hosts.as_ref().map_or(&[][..], |h| &h.list);
        let now = (addresses.len(), hosts.len());
        if std::mem::replace(&mut ha.announced, now) == now {
            return;
        }
        let hosts = hosts.iter().map(|h| h.name.clone()).collect();
        let length_ms = self.spec.timing.intervals.lease.lease_ms;
        let lease_ms = (length_ms != Lease::DEFAULT.lease_ms).then_some(length_ms);
        ha.lead.announce(Announced { term: ha.lead.reign(), addresses, hosts, lease_ms });
    }

    /// Standard input is needed wherever the next controller is.
    pub(crate) fn keep_input(&self, bytes: &[u8]) {
        if let (Some(_), Some(ha)) = (&self.journal.open, &self.journal.commit.ha) {
            let mut at = self.console.input.known().0.saturating_sub(bytes.len() as u64);
            // What has waited for room may be more than goes into one value.
            for part in bytes.chunks(MAX_DATA_BYTES) {
                ha.lead.keep_input(at, part);
                at += part.len() as u64;
            }
        }
    }

    /// Has the effects of a turn come about, or wait for its record.
    pub(crate) fn release(&mut self, effects: Effects, number: u64) {
        let Some(ha) = &mut self.journal.commit.ha else { return self.have_effects(effects) };
        ha.written = ha.written.max(number);
        if ha.waiting.is_empty() && ha.written <= ha.durable {
            return self.have_effects(effects);
        }
        if !effects.is_empty() {
            ha.waiting.push_back((ha.written, effects));
        }
    }

    fn have_effects(&mut self, effects: Effects) {
        // Before nodes are told to bring what would come in its place.
        if effects.outgrown {
            self.remove_outgrown();
        }
        for (node, frame) in effects.frames {
            self.nodes.all[node as usize].post(frame);
        }
        for (node, heard) in effects.heard {
            self.nodes.all[node as usize].confirm(heard);
        }
        for (node, granted) in effects.grants {
            self.nodes.all[node as usize].allow(granted);
        }
        effects.events.into_iter().for_each(|event| self.status.events.push(event));
        if let Some(error) = self.status.events.trouble() {
            self.journal.say(format!(
                "events are not written to the job's folder any more ({error}): eyrie events still \
                 shows them as long as the controller lives"
            ));
        }
        for (node, cut_off) in effects.clears {
            self.clear_now(node, cut_off);
        }
        for wired in effects.dismissed {
            wired.send(Numbered::beside(0, ToNode::Dismissed));
        }
        effects.console.iter().for_each(|message| self.console.client.send(message));
        effects.answers.iter().for_each(|(client, message)| client.send(message));
    }

    /// The threads tell something.
    pub(crate) fn hear_of_etcd(&mut self, news: News) {
        let Some(ha) = &mut self.journal.commit.ha else { return };
        match news {
            News::Committed(number) => {
                ha.durable = ha.durable.max(number);
                while let Some(effects) = self.journal.next_durable() {
                    self.have_effects(effects);
                }
            }
            News::Away(why) => {
                let lease = self.spec.timing.intervals.lease;
                let text = format!(
                    "WARNING: nothing can be written to etcd ({why}): what the job's controller \
                     decides waits, its ranks go on for {} s at least, then they stand still until \
                     etcd is back (Ctrl-C ends the job without it)",
                    lease.stand_after_ms.saturating_sub(lease.lease_ms) / 1_000
                );
                ha.away = Some(why);
                self.console.say_now(text);
            }
            News::Back => {
                ha.away = None;
                self.console.say_now(String::from("etcd is back: the controller goes on"));
            }
            News::Deposed(why) => {
                ha.deposed = Some(why);
                self.outside.machine.over();
            }
        }
    }

    /// Whether effects wait.
    pub fn is_behind(&self) -> bool {
        self.journal.commit.ha.as_ref().is_some_and(|ha| !ha.waiting.is_empty())
    }

    /// Why another controller has the job, if that is so.
    pub fn deposed(&self) -> Option<String> {
        self.journal.commit.ha.as_ref()?.deposed.clone()
    }

    /// Whether nothing becomes durable at the time.
    pub fn is_etcd_away(&self) -> bool {
        self.journal.commit.ha.as_ref().is_some_and(|ha| ha.away.is_some())
    }

    /// The job is to end, and etcd is not there: it ends without. A controller elsewhere that finds
    /// its keys later finds no node.
    pub(crate) fn forsake_etcd(&mut self) {
        if !self.is_etcd_away() {
            return;
        }
        let Some(ha) = self.journal.commit.ha.take() else { return };
        ha.lead.forsake();
        self.journal.open = None;
        self.journal.noted.clear();
        self.console.say_now(format!(
            "etcd is away: the job ends without it; what is left there is to be removed: {}",
            ha.lead.place()
        ));
        ha.waiting.into_iter().for_each(|(_, effects)| self.have_effects(effects));
    }

    /// Ends what is left of a node, once it is durable that it is lost.
    pub(crate) fn clear_node(&mut self, node: u32, cut_off: Duration) {
        let Intervals { lease, grace, .. } = self.spec.timing.intervals;
        // After so long nothing runs any more on a node that knows of nobody.
        let unled_ms = if self.spec.storage.ha.is_some() { lease.unleased_ms(&grace) } else { 0 };
        self.journal.commit.clears.push((node, cut_off + Duration::from_millis(unled_ms)));
    }

    /// Ends what is left of a node and removes its storage; `cleared` follows.
    fn clear_now(&mut self, node: u32, cut_off: Duration) {
        let others = self.nodes.all.iter().filter(|n| n.state != State::Lost);
        let others = others.filter_map(|n| Some(n.daemon.as_ref()?.pid));
        let others = others.chain(self.gateways.gateway_pids()).collect();
        if let Err(error) = self.outside.launcher.clear(node, others, cut_off) {
            self.fatal(format!("cannot clear away what node {node} left: {error}"));
        }
    }
}
