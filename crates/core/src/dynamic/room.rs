//! The room for programs that ranks start: the keeper, which gives places away and has the names of
//! ports.
//!
//! The keeper is a rank like any other: what it hears is in logs, whom it hears first is recorded,
//! and when it learned who has ended. So it is checkpointed and comes back, and whoever started
//! programs repeats what he was answered. Nothing else is needed for a spawn to happen once.
//!
//! Kept true: a place is given away once. What it is told is the first message that the keeper
//! sends to it.

use std::collections::{BTreeMap, BTreeSet};

use eyrie_ledger::door::Call;
use eyrie_ledger::segment::{GONE_FIRST, GONE_OTHERS};

use super::order::{Order, Reading, Request, Started, Words};
use super::state::Room;
use crate::comm::ROOM_CTX;
use crate::error::{Class, Res, class};
use crate::machine::Machine;

/// Tags in the room's context: to the keeper and back, to a place, of a program that has begun.
const ASK: i32 = 0;
const ANSWER: i32 = 1;
pub(super) const ORDER: i32 = 2;
pub(super) const READY: i32 = 3;

/// What the keeper is asked.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub(super) enum Ask {
    Start,
    Publish,
    Unpublish,
    Lookup,
}

const ASKS: [Ask; 4] = [Ask::Start, Ask::Publish, Ask::Unpublish, Ask::Lookup];

/// What the keeper knows.
struct Keeper {
    /// Places that have no program yet.
    free: BTreeSet<u32>,
    /// Names of ports: who published them, and what they are.
    names: BTreeMap<Vec<u8>, (u32, Vec<u8>)>,
}

impl Keeper {
    fn new(room: Room) -> Keeper {
        Keeper { free: room.places().collect(), names: BTreeMap::new() }
    }

    /// Orders for places, and what whoever asked is answered: their number and they, and how many
    /// run each program. `near`: of which places some may be taken.
    fn start(
        &mut self,
        from: u32,
        request: &Request,
        near: impl Fn(u32) -> bool,
    ) -> (Vec<(u32, Order)>, Vec<u32>) {
        let usable: Vec<u32> = self.free.iter().copied().filter(|place| near(*place)).collect();
        let counts: Vec<&[u32]> = request.programs.iter().map(|(counts, _)| &counts[..]).collect();
        let Some(counts) = fitting(&counts, usable.len() as u32) else {
            return (Vec::new(), vec![class::SPAWN.0 as u32, usable.len() as u32]);
        };
        let world = usable[..counts.iter().sum::<u32>() as usize].to_vec();
        self.free.retain(|place| !world.contains(place));
        let numbers = (0..).zip(&counts).flat_map(|(n, count)| vec![n; *count as usize]);
        let order = |(place, appnum): (&u32, u32)| {
            let started = Started {
                ctx: request.ctx,
                world_ctx: request.world_ctx,
                appnum,
                root: from,
                world: world.clone(),
                parents: request.parents.clone(),
            };
            let command = request.programs[appnum as usize].1.clone();
            (*place, Order::Begin(command, started))
        };
        let orders = world.iter().zip(numbers).map(order).collect();
        (orders, Words(vec![0]).list(&world).list(&counts).0)
    }

    fn named(&mut self, from: u32, ask: Ask, rest: &[u32]) -> Res<Vec<u32>> {
        let mut words = Reading(rest);
        let name = words.bytes().ok_or(class::INTERN)?;
        let known = self.names.get(&name);
        match (ask, known) {
            (Ask::Publish, Some(_)) => return Err(class::NAME),
            (Ask::Publish, None) => {
                let port = words.bytes().ok_or(class::INTERN)?;
                self.names.insert(name, (from, port));
            }
            (Ask::Unpublish, Some((who, _))) if *who == from => drop(self.names.remove(&name)),
            (Ask::Unpublish, _) => return Err(class::SERVICE),
            (_, Some((_, port))) => return Ok(Words(vec![0]).bytes(port).0),
            (_, None) => return Err(class::NAME),
        }
        Ok(vec![0])
    }
}

/// One of the numbers that each has, so that all are at most `free`: the last are lessened first.
fn fitting(each: &[&[u32]], free: u32) -> Option<Vec<u32>> {
    let least =
        each.iter().map(|counts| counts.iter().min().copied()).collect::<Option<Vec<_>>>()?;
    let mut left = free.checked_sub(least.iter().sum())?;
    let mut chosen = Vec::new();
    for (counts, least) in each.iter().zip(least) {
        let most = counts.iter().copied().filter(|count| count - least <= left).max()?;
        left -= most - least;
        chosen.push(most);
    }
    Some(chosen)
}

impl Machine {
    /// Gives places away until the job is over. When all ranks have ended that the job began with,
    /// places without a program end.
    pub fn keep_room(&mut self) -> Res<()> {
        let room = self.comms.dynamic.room.ok_or(class::INTERN)?;
        let all = self.everybody(ROOM_CTX);
        let ranks = self.world().1;
        let (mut keeper, mut known) = (Keeper::new(room), 0);
        loop {
            let news = |m: &Machine| Some(m.endpoint.gone()).filter(|gone| *gone != known);
            let from = self.probe_library(all.coll_ctx(), ASK, news);
            if let Some(gone) = from.checked_sub(ranks) {
                known = gone;
                if gone & GONE_FIRST != 0 {
                    for place in std::mem::take(&mut keeper.free) {
                        self.send_words(&all, place, ORDER, &Order::End.words())?;
                    }
                }
                if gone & GONE_OTHERS != 0 {
                    return Ok(());
                }
                continue;
            }
            let words = match self.recv_words(&all, from, ASK) {
                // Who asked is lost.
                Err(class::PROC_FAILED) => continue,
                words => words?,
            };
            let (ask, rest) = words.split_first().ok_or(class::INTERN)?;
            let answer = match *ASKS.get(*ask as usize).ok_or(class::INTERN)? {
                Ask::Start => self.start_programs(&mut keeper, from, rest)?,
                ask => keeper.named(from, ask, rest).unwrap_or_else(|e| vec![e.0 as u32]),
            };
            self.send_words(&all, from, ANSWER, &answer)?;
        }
    }

    fn start_programs(&mut self, keeper: &mut Keeper, from: u32, rest: &[u32]) -> Res<Vec<u32>> {
        let request = Request::parse(rest).ok_or(class::INTERN)?;
        let all = self.everybody(ROOM_CTX);
        let mut nodes = Vec::new();
        if request.node.is_some() {
            nodes = self.nodes_of_all()?;
        }
        let lost = self.lost_for_good();
        let near = |place: u32| {
            !lost(place) && request.node.is_none_or(|node| nodes[place as usize] == node)
        };
        let (orders, answer) = keeper.start(from, &request, near);
        for (place, order) in orders {
            self.send_words(&all, place, ORDER, &order.words())?;
        }
        Ok(answer)
    }

    /// On which node each rank is, or was when this was asked first.
    fn nodes_of_all(&mut self) -> Res<Vec<u32>> {
        let own: Vec<u8> = (0..self.world().1)
            .flat_map(|rank| self.endpoint.node_of(rank).to_le_bytes())
            .collect();
        let was = self.recorded(Call::Input, || Ok(own))?;
        let words = was.chunks_exact(4).map(|word| word.try_into().map(u32::from_le_bytes));
        words.collect::<Result<_, _>>().map_err(|_| class::INTERN)
    }

    /// What the keeper answers; what it refuses is an error, with what else it says.
    pub(super) fn ask_keeper(
        &mut self,
        ask: Ask,
        rest: &[u32],
    ) -> Result<Vec<u32>, (Class, Vec<u32>)> {
        let inner = |m: &mut Machine| {
            let room = m.comms.dynamic.room.ok_or(class::INTERN)?;
            let all = m.everybody(ROOM_CTX);
            m.send_words(&all, room.keeper, ASK, &[&[ask as u32], rest].concat())?;
            m.recv_words(&all, room.keeper, ANSWER)
        };
        let answer = inner(self).map_err(|error| (error, Vec::new()))?;
        match &answer[..] {
            [0, rest @ ..] => Ok(rest.to_vec()),
            [code, rest @ ..] => Err((Class(*code as i32), rest.to_vec())),
            [] => Err((class::INTERN, Vec::new())),
        }
    }

    /// `MPI_Publish_name`. A name that somebody has published already is refused.
    pub fn publish_name(&mut self, name: &[u8], port: &[u8]) -> Res<()> {
        self.named(Ask::Publish, Words::default().bytes(name).bytes(port)).map(drop)
    }

    /// `MPI_Unpublish_name`: of a name that this rank has published.
    pub fn unpublish_name(&mut self, name: &[u8]) -> Res<()> {
        self.named(Ask::Unpublish, Words::default().bytes(name)).map(drop)
    }

    /// `MPI_Lookup_name`: the port.
    pub fn lookup_name(&mut self, name: &[u8]) -> Res<Vec<u8>> {
        let found = self.named(Ask::Lookup, Words::default().bytes(name))?;
        Reading(&found).bytes().ok_or(class::INTERN)
    }

    fn named(&mut self, ask: Ask, words: Words) -> Res<Vec<u32>> {
        if self.comms.dynamic.room.is_none() {
            eprintln!(
                "eyrie: names of ports: nobody in this job keeps them: start it with \
                 eyrie run --spawn-room 0"
            );
            return Err(class::UNSUPPORTED_OPERATION);
        }
        self.ask_keeper(ask, &words.0).map_err(|(error, _)| error)
    }
}

#[cfg(test)]
mod tests {
    use super::super::order::Command;
    use super::*;

    fn request(counts: &[&[u32]]) -> Request {
        let programs = counts.iter().map(|c| (c.to_vec(), Command::default())).collect();
        Request { ctx: 32, world_ctx: 36, parents: vec![0], node: None, programs }
    }

    #[test]
    fn places_are_given_once() {
        let mut keeper = Keeper::new(Room::of(6, 4).unwrap());
        let (orders, answer) = keeper.start(1, &request(&[&[1], &[1]]), |_| true);
        assert_eq!(answer, [0, 2, 2, 3, 2, 1, 1]);
        let numbers: Vec<_> = orders
            .iter()
            .map(|(place, order)| match order {
                Order::Begin(_, s) => (*place, s.appnum, s.root, s.world.clone()),
                Order::End => panic!("an end"),
            })
            .collect();
        assert_eq!(numbers, [(2, 0, 1, vec![2, 3]), (3, 1, 1, vec![2, 3])]);
        // One is left, and it is not near.
        let refused = |left| (Vec::new(), vec![class::SPAWN.0 as u32, left]);
        assert_eq!(keeper.start(1, &request(&[&[2]]), |_| true), refused(1));
        assert_eq!(keeper.start(1, &request(&[&[1]]), |_| false), refused(0));
        assert_eq!(keeper.start(0, &request(&[&[3, 1]]), |_| true).1, [0, 1, 4, 1, 1]);
        assert_eq!(keeper.start(0, &request(&[&[1]]), |_| true), refused(0));
    }

    #[test]
    fn as_many_are_started_as_fit() {
        assert_eq!(fitting(&[&[4]], 4), Some(vec![4]));
        assert_eq!(fitting(&[&[4]], 3), None);
        assert_eq!(fitting(&[&[8, 4, 2]], 7), Some(vec![4]));
        assert_eq!(fitting(&[&[3, 1], &[3, 1]], 5), Some(vec![3, 1]));
        assert_eq!(fitting(&[&[3, 2], &[5]], 6), None);
        assert_eq!(fitting(&[&[]], 6), None);
    }

    #[test]
    fn a_name_is_published_once_and_taken_back_by_who_did() {
        let mut keeper = Keeper::new(Room::of(3, 1).unwrap());
        let name = |port: &[u8]| Words::default().bytes(b"name").bytes(port).0;
        assert_eq!(keeper.named(0, Ask::Lookup, &name(b"")), Err(class::NAME));
        assert_eq!(keeper.named(0, Ask::Publish, &name(b"port")), Ok(vec![0]));
        assert_eq!(keeper.named(1, Ask::Publish, &name(b"other")), Err(class::NAME));
        let found = keeper.named(1, Ask::Lookup, &name(b"")).unwrap();
        assert_eq!(Reading(&found[1..]).bytes(), Some(b"port".to_vec()));
        assert_eq!(keeper.named(1, Ask::Unpublish, &name(b"")), Err(class::SERVICE));
        assert_eq!(keeper.named(0, Ask::Unpublish, &name(b"")), Ok(vec![0]));
        assert_eq!(keeper.named(0, Ask::Lookup, &name(b"")), Err(class::NAME));
    }
}
