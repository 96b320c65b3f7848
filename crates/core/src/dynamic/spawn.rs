//! `MPI_Comm_spawn` and `MPI_Comm_spawn_multiple` (MPI 5.0 section 11.8): the root finds the
//! programs and asks the keeper, which has all begin, or none. The root waits until all are there,
//! and tells them so; one that has ended before is why there are none.

use eyrie_ledger::door::Call;

use super::order::{Command, Reading, Request, Words};
use super::program;
use super::room::{Ask, GO, READY};
use crate::comm::ROOM_CTX;
use crate::error::{Class, Res, class};
use crate::handle::Handle;
use crate::machine::Machine;

/// More does not fit into one message that is read before the program is there.
const ORDER_BYTES: usize = 12 << 10;

/// What a place tells of a program: its exit code, or behind this number why it could not be run.
pub const NOT_BEGUN: u32 = 1 << 16;

/// Where and how a program is to run, by its info object.
#[derive(Clone, Debug, Default)]
pub struct Place {
    /// The folder that it begins in.
    pub folder: Option<Vec<u8>>,
    /// Where it is looked for, instead of in `PATH`.
    pub path: Option<Vec<u8>>,
    /// Variables of its own, as `NAME=value`.
    pub env: Vec<Vec<u8>>,
    /// On the node of who starts it.
    pub here: bool,
}

/// A program, and how often it is started.
#[derive(Clone, Debug, Default)]
pub struct Wanted {
    pub program: Vec<u8>,
    pub arguments: Vec<Vec<u8>>,
    pub place: Place,
    /// `maxprocs`.
    pub most: u32,
    /// The numbers that will do, with the most first.
    pub counts: Vec<u32>,
}

/// What all parents are told: an error or 0, a code for each that was wanted, who has begun.
struct Begun {
    error: i32,
    codes: Vec<u32>,
    /// They and the numbers of their programs (`addresses`).
    ranks: Vec<u32>,
}

impl Machine {
    /// The inter-communicator with those that were started, or why there is none, and an error code
    /// for each of them. `wanted` counts at the root only.
    pub fn comm_spawn(
        &mut self,
        wanted: Res<Vec<Wanted>>,
        root: i32,
        comm: Handle,
    ) -> Res<(Res<Handle>, Vec<i32>)> {
        let local = self.comms.intra(comm)?;
        let root = local.root(root)?;
        let greatest = self.greatest_context_of(&local)?;
        let ctx = self.claim_context(greatest)?;
        // Of the world of those that are started.
        let greatest = self.greatest_context_of(&local)?;
        let world_ctx = self.claim_context(greatest)?;
        let mut said = Vec::new();
        if local.rank == root {
            let parents = local.group.members();
            let begun = wanted.and_then(|all| self.begin_programs(&all, (ctx, world_ctx), parents));
            let none = |error: Class| Begun { error: error.0, codes: vec![], ranks: vec![] };
            let Begun { error, codes, ranks } = begun.unwrap_or_else(none);
            said = Words(vec![error as u32]).list(&codes).list(&ranks).0;
        }
        let said = self.share_words(&local, root, said)?;
        let mut said = Reading(&said);
        let mut read = || Some((said.word()? as i32, said.list()?, said.list()?));
        let (error, codes, ranks) = read().ok_or(class::INTERN)?;
        let codes = codes.into_iter().map(|code| code as i32).collect();
        if error != 0 {
            return Ok((Err(Class(error)), codes));
        }
        let ranks = self.learn_addresses(&ranks)?;
        Ok((Ok(self.inter_with(&local, ctx, ranks)?), codes))
    }

    fn begin_programs(
        &mut self,
        wanted: &[Wanted],
        (ctx, world_ctx): (u32, u32),
        parents: &[u32],
    ) -> Res<Begun> {
        let count: u32 = wanted.iter().map(|one| one.most).sum();
        if count == 0 {
            return Err(class::ARG);
        }
        let refused = |codes: Vec<u32>| Begun { error: class::SPAWN.0, codes, ranks: Vec::new() };
        let none = || refused(vec![class::SPAWN.0 as u32; count as usize]);
        if self.comms.dynamic.room.is_none() {
            say_no_room(count, None);
            return Ok(none());
        }
        let found = wanted.iter().map(|one| self.command(one)).collect::<Res<Vec<_>>>()?;
        if found.iter().any(Option::is_none) {
            let code = |command: &Option<Command>| match command {
                Some(_) => 0,
                None => class::SPAWN.0 as u32,
            };
            let codes = wanted.iter().zip(&found);
            let codes = codes.flat_map(|(one, c)| vec![code(c); one.most as usize]);
            return Ok(refused(codes.collect()));
        }
        let node = wanted.iter().any(|one| one.place.here).then(|| self.node());
        let programs = wanted.iter().zip(found.into_iter().flatten());
        let programs = programs.map(|(one, command)| (one.counts.clone(), command)).collect();
        let parents = self.addresses(parents);
        let request = Request { ctx, world_ctx, parents, node, programs }.words();
        if request.len() * size_of::<u32>() > ORDER_BYTES {
            eprintln!(
                "eyrie: MPI_Comm_spawn: more than {ORDER_BYTES} bytes of arguments and parents"
            );
            return Ok(none());
        }
        let answer = match self.ask_keeper(Ask::Start, &request) {
            Ok(answer) => answer,
            Err((class::SPAWN, left)) => {
                say_no_room(count, left.first().copied());
                return Ok(none());
            }
            Err((error, _)) => return Err(error),
        };
        let mut answer = Reading(&answer);
        let both = (answer.list(), answer.list());
        let (Some(ranks), Some(counts)) = both else { return Err(class::INTERN) };
        let Some(ranks) = self.await_programs(wanted, &ranks, &counts)? else { return Ok(none()) };
        let codes = wanted.iter().zip(counts);
        let codes = codes.flat_map(|(one, n)| {
            (0..one.most).map(move |i| if i < n { 0 } else { class::SPAWN.0 as u32 })
        });
        Ok(Begun { error: 0, codes: codes.collect(), ranks })
    }

    /// Waits until the programs are there, and lets them go on: who they are. None: not all are
    /// programs of MPI.
    fn await_programs(
        &mut self,
        wanted: &[Wanted],
        ranks: &[u32],
        counts: &[u32],
    ) -> Res<Option<Vec<u32>>> {
        let all = self.everybody(ROOM_CTX);
        let mut programs = wanted.iter().zip(counts).flat_map(|(w, n)| vec![w; *n as usize]);
        let mut there = Vec::new();
        for rank in ranks {
            let said = self.recv_words(&all, *rank, READY)?;
            let program = programs.next().ok_or(class::INTERN)?;
            match said[..] {
                [0, number] => there.extend(self.learn_addresses(&[*rank, number])?),
                [_, why] => say_ended(&program.program, why),
                _ => return Err(class::INTERN),
            }
        }
        let go = match there.len() == ranks.len() {
            true => [vec![0], self.addresses(ranks).split_off(ranks.len())].concat(),
            false => vec![1],
        };
        for rank in &there {
            self.send_words(&all, *rank, GO, &go)?;
        }
        Ok((there.len() == ranks.len()).then(|| self.addresses(ranks)))
    }

    /// What runs, or ran when this was done first; nothing where it cannot.
    fn command(&mut self, wanted: &Wanted) -> Res<Option<Command>> {
        let found = self.recorded(Call::Input, || {
            let found = program::find(wanted);
            Ok(found.map_or_else(Vec::new, |(path, folder)| [path, vec![0], folder].concat()))
        })?;
        let mut parts = found.splitn(2, |byte| *byte == 0);
        let (Some(path), Some(folder)) = (parts.next(), parts.next()) else {
            let name = String::from_utf8_lossy(&wanted.program);
            eprintln!("eyrie: MPI_Comm_spawn: {name}: no such program, or no such folder for it");
            return Ok(None);
        };
        let arguments = [std::slice::from_ref(&wanted.program), &wanted.arguments].concat();
        let env = wanted.place.env.clone();
        Ok(Some(Command { path: path.to_vec(), arguments, folder: folder.to_vec(), env }))
    }
}

/// Why there are none: what the place has told.
fn say_ended(program: &[u8], why: u32) {
    let name = String::from_utf8_lossy(program);
    let what = match why.checked_sub(NOT_BEGUN) {
        Some(error) => {
            format!("cannot be run: {}", std::io::Error::from_raw_os_error(error as i32))
        }
        None => format!("ended (exit code {why}) without a call of MPI_Init"),
    };
    eprintln!("eyrie: MPI_Comm_spawn: {name} {what}");
}

/// What a program is told besides the error.
fn say_no_room(count: u32, left: Option<u32>) {
    let why = match left {
        Some(left) => format!("{left} of this job's places for programs are free, and stay so"),
        None => String::from("this job has no places for programs"),
    };
    eprintln!("eyrie: MPI_Comm_spawn of {count}: {why}: start it with eyrie run --spawn-room N");
}
