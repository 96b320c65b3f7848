//! Room for programs that ranks start later (`--spawn-room`): the job gets more ranks, which wait
//! for them (`commands::room`), behind those of its world.
//!
//! A job gets room by itself if its command shows that it may want some: a program that needs the
//! functions, or a script that has their names.

use crate::commands::room::ROOM;
use crate::front::parts::{self, PART, Part};
use crate::options::run::Run;
use eyrie_control::JobSpec;
use eyrie_core::dynamic::{ROOM_VARIABLE, UNIVERSE_VARIABLE};
use eyrie_process::program;
use eyrie_protocol::placement::{Map, Placement};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Places that a job has which may want some.
const LEAST_PLACES: u32 = 16;
const MOST_PLACES: u32 = 64;
/// What is in the names, in small letters, of functions that start programs or name ports.
const FUNCTIONS: [&str; 3] = ["comm_spawn", "publish_name", "lookup_name"];
/// What scripts say that call them, in small letters.
const SAID: [&str; 7] = [
    "comm_spawn",
    "publish_name",
    "lookup_name",
    ".spawn(",
    ".spawn_multiple(",
    "mpi4py.futures",
    "mpi.spawn",
];
/// Longer files are no scripts.
const SCRIPT_BYTES: u64 = 4 << 20;

/// The ranks of a job behind those of its world: how many, the keeper among them, and what its
/// programs are told of the number that there may be.
#[derive(Clone, Copy)]
pub struct Room {
    pub ranks: u32,
    universe: u32,
}

/// Ranks that are there for the room: its places, and who gives them away.
pub fn wanted(run: &Run, ranks: u32) -> Option<Room> {
    if let Some(places) = run.placement.spawn_room {
        return Some(Room { ranks: places + 1, universe: ranks + places });
    }
    let laid_out = run.placement.rankfile.is_some();
    (!laid_out && may_start(&run.command)).then(|| Room::usual(ranks))
}

impl Room {
    fn usual(ranks: u32) -> Room {
        let cores = std::thread::available_parallelism().map_or(1, |n| n.get() as u32);
        let places = cores.clamp(LEAST_PLACES, MOST_PLACES);
        Room { ranks: places + 1, universe: ranks + places }
    }

    /// That of a job that was saved.
    pub fn of(spec: &JobSpec) -> Option<Room> {
        let ranks = spec.program.room();
        let words = &spec.program.argv;
        let at = words.iter().position(|word| word == UNIVERSE_VARIABLE.as_bytes())?;
        let universe = std::str::from_utf8(words.get(at + 1)?).ok()?.parse().ok()?;
        (ranks > 0).then_some(Room { ranks, universe })
    }
}

/// Whether the command may start programs, or have names for ports.
fn may_start(command: &[OsString]) -> bool {
    match parts::parts_of(command) {
        Some(parts) => parts.iter().any(|part| shows(&part.program(), &part.command)),
        None => command.first().is_some_and(|program| shows(program, command)),
    }
}

fn shows(program: &OsStr, command: &[OsString]) -> bool {
    let found = program::find(program).ok();
    let calls = found.as_deref().is_some_and(|path| program::needs(path, &FUNCTIONS));
    calls || command.iter().any(|word| says(word.as_bytes())) || {
        let scripts = command.iter().skip(1).map(Path::new);
        found.as_deref().into_iter().chain(scripts).any(is_script_that_says)
    }
}

fn is_script_that_says(path: &Path) -> bool {
    let known = path.metadata().is_ok_and(|meta| meta.is_file() && meta.len() <= SCRIPT_BYTES);
    known && std::fs::read(path).is_ok_and(|text| !text.starts_with(b"\x7fELF") && says(&text))
}

fn says(text: &[u8]) -> bool {
    let text = String::from_utf8_lossy(text).to_ascii_lowercase();
    SAID.iter().any(|word| text.contains(word))
}

/// The command of a job of so many ranks, and of its room.
pub fn command(run: &Run, ranks: u32, room: Option<Room>) -> Vec<OsString> {
    let Some(room) = room else { return run.command.clone() };
    let own = own_path(run);
    let mut all = parts::parts_of(&run.command)
        .unwrap_or_else(|| vec![Part { command: run.command.clone(), ..Part::default() }]);
    if let [one] = &mut all[..] {
        one.ranks = Some(ranks.to_string().into());
    }
    let says = |name: &str, value: u32| (OsString::from(name), value.to_string().into());
    let universe = says(UNIVERSE_VARIABLE, room.universe);
    for part in &mut all {
        part.env.extend([universe.clone(), says("EYRIE_SIZE", ranks)]);
    }
    all.push(Part {
        ranks: Some(room.ranks.to_string().into()),
        env: vec![universe, says(ROOM_VARIABLE, room.ranks)],
        folder: None,
        command: vec![own.clone(), ROOM.into()],
    });
    let mut words = vec![own, PART.into()];
    words.extend(all.iter().flat_map(Part::words));
    words
}

/// Where `eyrie` is on the machines that run ranks.
fn own_path(run: &Run) -> OsString {
    match &run.host_options.prefix {
        Some(prefix) => prefix.join("bin/eyrie").into_os_string(),
        None => std::env::current_exe().map_or_else(|_| "eyrie".into(), |path| path.into()),
    }
}

/// Makes the room in a job that is described without it. Its ranks are laid out one on each node in
/// turn, from the last on; those of the world are where they would be without them. Where the last
/// nodes are there for ranks that take the place of others (`spare_nodes`), the places are on these
/// alone, and the keeper, which does not come back either, is not.
pub fn make(run: &Run, map: Map, spare_nodes: u32, spec: &mut JobSpec) {
    let (ranks, nodes) = (spec.program.size, spec.placement.nodes);
    let Some(room) = wanted(run, ranks) else { return };
    let command = command(run, ranks, Some(room));
    spec.program.path = command[0].as_bytes().to_vec();
    spec.program.argv = super::spec::argv(&command);
    spec.program.size += room.ranks;
    if nodes == 0 {
        return;
    }
    if spec.placement.homes.is_empty() {
        spec.placement.homes = Placement::new(ranks, nodes, 0, map).homes().to_vec();
    }
    let (over, keeper) = (if spare_nodes > 0 { spare_nodes } else { nodes }, room.ranks - 1);
    let home = |n: u32| if spare_nodes > 0 && n == keeper { 0 } else { nodes - 1 - n % over };
    spec.placement.homes.extend((0..room.ranks).map(home));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_show_whether_they_may_start_programs() {
        let words = |text: &str| text.split(' ').map(OsString::from).collect::<Vec<_>>();
        assert!(!may_start(&words("sh -c true")));
        assert!(may_start(&words("sh -c MPI.COMM_SELF.Spawn('a')")));
        assert!(may_start(&words("python3 -m mpi4py.futures a.py")));
        let file = std::env::temp_dir().join(format!("eyrie-room-{}", std::process::id()));
        for (text, starts) in [("pool = MPIPool\n", false), ("x = comm.Spawn(y)\n", true)] {
            std::fs::write(&file, text).unwrap();
            assert_eq!(may_start(&["sh".into(), file.clone().into()]), starts, "{text}");
        }
        std::fs::remove_file(&file).unwrap();
    }
}
