//! The room for programs that ranks start: the keeper, which gives places away and has the names of
//! ports.
//!
//! The keeper is a rank like any other: what it hears is in logs, whom it hears first is recorded,
//! and when it learned who has ended. So it is checkpointed and comes back, and whoever started
//! programs repeats what he was answered. Nothing else is needed for a spawn to happen once.
//!
//! Kept true: a place has one program at a time. It is given away again when the place has told
//! that the program before has ended, and which number the next one has: what is sent to either is
//! not for the other (`Machine::addresses`). What a place is told for a number is one message.

use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;
use std::time::Duration;

use eyrie_ledger::clock;
use eyrie_ledger::door::Call;
use eyrie_ledger::segment::{GONE_FIRST, GONE_OTHERS};

use super::order::{Order, Reading, Request, Started, Words};
use super::state::Room;
use crate::comm::{Comm, ROOM_CTX};
use crate::error::{Class, Res, class};
use crate::machine::Machine;

/// Tags in the room's context: to the keeper, to a place, of a program that has begun, and that all
/// have. What the keeper answers has a tag of its question's: threads of a rank may ask at a time.
pub(super) const ASK: i32 = 0;
const FIRST_ANSWER: i32 = 16;
const ANSWERS: i32 = 1 << 20;
pub(super) const ORDER: i32 = 2;
pub(super) const READY: i32 = 3;
pub(super) const GO: i32 = 4;

/// For so long who wants more programs than there are free places waits for others to end: those
/// that have disconnected need a moment. Then it is an error.
const FREE_PLACE_WAIT: Duration = Duration::from_secs(30);
/// What the keeper takes note of besides who is gone: that this time is over for the first of them.
const LATE: u32 = 1 << 16;

/// What the keeper is asked, or told.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub(super) enum Ask {
    Start,
    Publish,
    Unpublish,
    Lookup,
    /// The program of a place has ended, and whatever else ran there.
    Ended,
}

const ASKS: [Ask; 5] = [Ask::Start, Ask::Publish, Ask::Unpublish, Ask::Lookup, Ask::Ended];

/// A rank, and the number of its program.
type Program = (u32, u32);

/// Who asks, and the tag of the answer.
type Asker = (Program, i32);

/// Who waits for places.
struct Waiting {
    from: Asker,
    request: Request,
    /// Those that will do.
    near: Vec<u32>,
    /// Until when.
    end_ns: u64,
}

/// What the keeper knows.
struct Keeper {
    room: Room,
    /// Places without a program, with the number of the next one; those first that wait longest.
    free: VecDeque<Program>,
    waiting: VecDeque<Waiting>,
    /// Names of ports: who published them, and what they are.
    names: BTreeMap<Vec<u8>, (Program, Vec<u8>)>,
    /// Nobody is there any more with whom the job began: places that become free end.
    over: bool,
}

/// What comes of a question for places.
#[derive(Debug, PartialEq, Eq)]
enum Start {
    /// Orders for places, and what is answered: their number and they, and how many run each
    /// program.
    Now(Vec<(Program, Order)>, Vec<u32>),
    /// There may be places when others have ended.
    Later,
    Never,
}

impl Keeper {
    fn new(room: Room) -> Keeper {
        let free = room.places().map(|place| (place, 0)).collect();
        let (waiting, names) = (VecDeque::new(), BTreeMap::new());
        Keeper { room, free, waiting, names, over: false }
    }

    /// `near`: the places that will do.
    fn start(&mut self, from: u32, request: &Request, near: &[u32]) -> Start {
        let usable = self.free.iter().copied().filter(|(place, _)| near.contains(place));
        let usable: Vec<Program> = usable.collect();
        let counts: Vec<&[u32]> = request.programs.iter().map(|(counts, _)| &counts[..]).collect();
        let Some(chosen) = fitting(&counts, usable.len() as u32) else {
            let may = !self.over && fitting(&counts, near.len() as u32).is_some();
            return if may { Start::Later } else { Start::Never };
        };
        let given = &usable[..chosen.iter().sum::<u32>() as usize];
        self.free.retain(|place| !given.contains(place));
        let world: Vec<u32> = given.iter().map(|(place, _)| *place).collect();
        let numbers = (0..).zip(&chosen).flat_map(|(n, count)| vec![n; *count as usize]);
        let order = |(place, appnum): (&Program, u32)| {
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
        let orders = given.iter().zip(numbers).map(order).collect();
        Start::Now(orders, Words(vec![0]).list(&world).list(&chosen).0)
    }

    fn named(&mut self, from: Program, ask: Ask, rest: &[u32]) -> Res<Vec<u32>> {
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
            let end_ns = keeper.waiting.front().map(|first| first.end_ns);
            let news = |m: &Machine| {
                let late = || end_ns.filter(|end| clock::now() >= *end).map(|_| LATE);
                Some(m.endpoint.gone()).filter(|gone| *gone != known).or_else(late)
            };
            let from = self.probe_library(all.coll_ctx(), ASK, news);
            match from.checked_sub(ranks) {
                None => self.heed(&mut keeper, &all, from)?,
                Some(LATE) => {
                    if let Some(first) = keeper.waiting.pop_front() {
                        self.refuse(&keeper, &all, &first)?;
                    }
                }
                Some(gone) => {
                    known = gone;
                    if gone & GONE_FIRST != 0 {
                        self.end_room(&mut keeper, &all)?;
                    }
                    if gone & GONE_OTHERS != 0 {
                        return Ok(());
                    }
                }
            }
            self.give_places(&mut keeper, &all)?;
        }
    }

    /// What a rank says is taken, and answered.
    fn heed(&mut self, keeper: &mut Keeper, all: &Rc<Comm>, rank: u32) -> Res<()> {
        let words = match self.recv_words(all, rank, ASK) {
            // Who asked is lost.
            Err(class::PROC_FAILED) => return Ok(()),
            words => words?,
        };
        let [ask, program, tag, rest @ ..] = &words[..] else { return Err(class::INTERN) };
        let from = ((rank, *program), *tag as i32);
        let answer = match *ASKS.get(*ask as usize).ok_or(class::INTERN)? {
            Ask::Start => {
                let request = Request::parse(rest).ok_or(class::INTERN)?;
                let near = self.places_for(keeper, &request)?;
                let end_ns = clock::now() + FREE_PLACE_WAIT.as_nanos() as u64;
                keeper.waiting.push_back(Waiting { from, request, near, end_ns });
                return Ok(());
            }
            Ask::Ended if keeper.over => return self.order(all, (rank, program + 1), &Order::End),
            Ask::Ended => {
                keeper.free.push_back((rank, program + 1));
                return Ok(());
            }
            ask => keeper.named(from.0, ask, rest).unwrap_or_else(|e| vec![e.0 as u32]),
        };
        self.answer(all, from, &answer)
    }

    /// Serves those who wait for places, in their order, as far as there are any. Who wants more
    /// than there are does not hold up others: what they start may be what he waits for.
    fn give_places(&mut self, keeper: &mut Keeper, all: &Rc<Comm>) -> Res<()> {
        let lost = self.lost_for_good();
        for mut one in std::mem::take(&mut keeper.waiting) {
            let rank = one.from.0.0;
            if lost(rank) {
                continue;
            }
            one.near.retain(|place| !lost(*place));
            match keeper.start(rank, &one.request, &one.near) {
                Start::Now(orders, answer) => {
                    for (place, order) in orders {
                        self.order(all, place, &order)?;
                    }
                    self.answer(all, one.from, &answer)?;
                }
                Start::Never => self.refuse(keeper, all, &one)?,
                Start::Later => keeper.waiting.push_back(one),
            }
        }
        Ok(())
    }

    fn refuse(&mut self, keeper: &Keeper, all: &Rc<Comm>, whom: &Waiting) -> Res<()> {
        let free = keeper.free.iter().filter(|(place, _)| whom.near.contains(place)).count();
        self.answer(all, whom.from, &[class::SPAWN.0 as u32, free as u32])
    }

    fn end_room(&mut self, keeper: &mut Keeper, all: &Rc<Comm>) -> Res<()> {
        keeper.over = true;
        for place in std::mem::take(&mut keeper.free) {
            self.order(all, place, &Order::End)?;
        }
        Ok(())
    }

    fn order(&mut self, all: &Rc<Comm>, (place, number): Program, order: &Order) -> Res<()> {
        self.endpoint.address(place, number);
        self.send_words(all, place, ORDER, &order.words())
    }

    fn answer(&mut self, all: &Rc<Comm>, (asker, tag): Asker, words: &[u32]) -> Res<()> {
        let (rank, program) = asker;
        self.endpoint.address(rank, program);
        self.send_words(all, rank, tag, words)
    }

    /// Those on the node that the programs are to be on, if it is said.
    fn places_for(&mut self, keeper: &Keeper, request: &Request) -> Res<Vec<u32>> {
        let Some(node) = request.node else { return Ok(keeper.room.places().collect()) };
        let nodes = self.nodes_of_all()?;
        Ok(keeper.room.places().filter(|place| nodes.get(*place as usize) == Some(&node)).collect())
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
            let (own, number) = (m.endpoint.world(), m.comms.dynamic.asked);
            m.comms.dynamic.asked = (number + 1) % ANSWERS;
            let tag = FIRST_ANSWER + number;
            m.send_words(&all, room.keeper, ASK, &[&[ask as u32, own, tag as u32], rest].concat())?;
            m.recv_words(&all, room.keeper, tag)
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

    fn given(start: Start) -> (Vec<Program>, Vec<u32>) {
        let Start::Now(orders, answer) = start else { panic!("{start:?}") };
        (orders.into_iter().map(|(place, _)| place).collect(), answer)
    }

    #[test]
    fn a_place_has_one_program_at_a_time() {
        let mut keeper = Keeper::new(Room::of(6, 4).unwrap());
        let near = [2, 3, 4];
        let Start::Now(orders, answer) = keeper.start(1, &request(&[&[1], &[1]]), &near) else {
            panic!("there is room");
        };
        assert_eq!(answer, [0, 2, 2, 3, 2, 1, 1]);
        let numbers: Vec<_> = orders
            .iter()
            .map(|(place, order)| match order {
                Order::Begin(_, s) => (*place, s.appnum, s.root, s.world.clone()),
                Order::End => panic!("an end"),
            })
            .collect();
        assert_eq!(numbers, [((2, 0), 0, 1, vec![2, 3]), ((3, 0), 1, 1, vec![2, 3])]);
        // One is left, and it is not near; there never are four.
        assert_eq!(keeper.start(1, &request(&[&[2]]), &near), Start::Later);
        assert_eq!(keeper.start(1, &request(&[&[1]]), &[2]), Start::Later);
        assert_eq!(keeper.start(1, &request(&[&[4]]), &near), Start::Never);
        // Who has ended makes room, for a program of another number.
        keeper.free.push_back((3, 2));
        assert_eq!(given(keeper.start(0, &request(&[&[3, 2]]), &near)).0, [(4, 0), (3, 2)]);
        keeper.free.push_back((2, 1));
        keeper.over = true;
        assert_eq!(keeper.start(0, &request(&[&[2]]), &near), Start::Never);
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
        assert_eq!(keeper.named((0, 0), Ask::Lookup, &name(b"")), Err(class::NAME));
        assert_eq!(keeper.named((0, 0), Ask::Publish, &name(b"port")), Ok(vec![0]));
        assert_eq!(keeper.named((1, 0), Ask::Publish, &name(b"other")), Err(class::NAME));
        let found = keeper.named((1, 0), Ask::Lookup, &name(b"")).unwrap();
        assert_eq!(Reading(&found[1..]).bytes(), Some(b"port".to_vec()));
        assert_eq!(keeper.named((1, 0), Ask::Unpublish, &name(b"")), Err(class::SERVICE));
        assert_eq!(keeper.named((0, 0), Ask::Unpublish, &name(b"")), Ok(vec![0]));
        assert_eq!(keeper.named((0, 0), Ask::Lookup, &name(b"")), Err(class::NAME));
    }
}
