//! Flows over cells in memory, with messages in any order: what comes out is what the code says,
//! and no member holds more than it may.

use super::*;
use crate::code::tests::noise;
use crate::encoding::sum;
use crate::geometry::{CHUNK_BYTES, MAX_PAYLOAD_BYTES};
use crate::member::DEPTH;
use std::cell::RefCell;
use std::collections::VecDeque;

struct World {
    geometry: Geometry,
    cells: BTreeMap<(usize, usize), Vec<Vec<u8>>>,
    /// How many were read.
    loads: RefCell<usize>,
}

/// A group with random payloads, and its parity worked out plainly.
fn world(scheme: &str, chunks: &[u64], seed: u64) -> World {
    let payloads: Vec<u64> = chunks.iter().map(|n| (n * 7 * CHUNK_BYTES) / 10 + n % 3).collect();
    let geometry = Geometry::new(scheme.parse().unwrap(), seed, &payloads).unwrap();
    let mut cells = BTreeMap::new();
    let code = geometry.code().unwrap().clone();
    for stripe in 0..geometry.stripes.len() {
        let rows = geometry.rows(stripe);
        let spot = |position, row| geometry.spot(Cell { stripe, position, row });
        for position in 0..code.k() {
            let bytes = |row| {
                noise(
                    seed ^ (row << 20) ^ (position as u64 + 1),
                    spot(position, row).bytes as usize,
                )
            };
            cells.insert((stripe, position), (0..rows).map(bytes).collect::<Vec<_>>());
        }
        for parity in 0..code.m() {
            let cell = |row: u64| {
                let term =
                    |p: usize| (code.factor(parity, p), cells[&(stripe, p)][row as usize].clone());
                let terms: Vec<_> = (0..code.k()).map(term).collect();
                sum(&terms, spot(code.k() + parity, row).bytes as usize)
            };
            let made = (0..rows).map(cell).collect();
            cells.insert((stripe, code.k() + parity), made);
        }
    }
    World { geometry, cells, loads: RefCell::default() }
}

/// A row of the sum of a position, or credit for one more.
type Said = (usize, Option<(u64, Block)>);
/// What is on its way from a member to another.
type Queues = BTreeMap<(usize, usize), VecDeque<Said>>;

fn next(queues: &mut Queues, pick: usize) -> (usize, usize, Said) {
    let (from, to) = *queues.keys().nth(pick % queues.len()).unwrap();
    let queue = queues.get_mut(&(from, to)).unwrap();
    let message = queue.pop_front().unwrap();
    if queue.is_empty() {
        queues.remove(&(from, to));
    }
    (from, to, message)
}

/// Loads or stores.
fn carry_out(
    world: &World,
    flow: &mut Flow,
    action: Action,
    stored: &mut BTreeMap<Cell, Block>,
) -> Vec<Action> {
    match action {
        Action::Load(cell) => {
            let bytes = &world.cells[&(cell.stripe, cell.position)][cell.row as usize];
            *world.loads.borrow_mut() += 1;
            flow.loaded(cell.row, Block::from(&bytes[..])).unwrap()
        }
        Action::Store { cell, bytes } => {
            assert!(stored.insert(cell, bytes).is_none());
            flow.stored(cell.position).unwrap()
        }
        action => panic!("{action:?} to begin with"),
    }
}

/// Runs tasks to their end; returns what was stored and how much was sent.
fn run(world: &World, tasks: &[Task], seed: u64) -> (BTreeMap<Cell, Block>, u64) {
    let (mut stored, mut sent, mut random) = (BTreeMap::new(), 0, seed | 1);
    for task in tasks {
        let mut queues = Queues::new();
        let mut open: Vec<(usize, Action)> = Vec::new();
        let flow = |m: usize| Some((m, Flow::new(task, m, DEPTH)?));
        let mut flows: BTreeMap<usize, Flow> =
            (0..world.geometry.members()).filter_map(flow).collect();
        for (member, flow) in &mut flows {
            open.extend(flow.start().into_iter().map(|action| (*member, action)));
        }
        while !open.is_empty() || !queues.is_empty() {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(99);
            let pick = (random >> 33) as usize;
            let own = !open.is_empty() && (pick.is_multiple_of(2) || queues.is_empty());
            let (member, more) = if own {
                let (member, action) = open.swap_remove(pick / 2 % open.len());
                let flow = flows.get_mut(&member).unwrap();
                (member, carry_out(world, flow, action, &mut stored))
            } else {
                let (from, to, message) = next(&mut queues, pick / 2);
                let flow = flows.get_mut(&to).unwrap();
                let more = match message {
                    (position, Some((row, bytes))) => {
                        flow.arrived((from, position), row, bytes).unwrap()
                    }
                    (position, None) => flow.credited(position).unwrap(),
                };
                (to, more)
            };
            let sums = flows[&member].sums.len();
            let most = (task.children(member).count() * sums + 1) * DEPTH * CHUNK_BYTES as usize;
            assert!(flows[&member].held() <= most);
            for action in more {
                let (to, message) = match action {
                    Action::Send { to, position, row, bytes } => {
                        sent += bytes.len() as u64;
                        (to, (position, Some((row, bytes))))
                    }
                    Action::Credit { to, position } => (to, (position, None)),
                    action => {
                        open.push((member, action));
                        continue;
                    }
                };
                queues.entry((member, to)).or_default().push_back(message);
            }
        }
        assert!(flows.values().all(Flow::done));
    }
    (stored, sent)
}

const CHUNKS: [u64; 6] = [30, 7, 0, 12, 1, 29];

#[test]
fn parity_comes_out_right_and_nothing_is_padded() {
    for encoder in Encoder::ALL {
        for seed in 0..4 {
            let world = world("rs:4+2", &CHUNKS, seed);
            let (stored, sent) = run(&world, &encoding(&world.geometry, encoder), seed);
            for (cell, bytes) in &stored {
                assert_eq!(**bytes, world.cells[&(cell.stripe, cell.position)][cell.row as usize]);
            }
            let cells: usize = (0..6).map(|m| world.geometry.parity_cells(m).count()).sum();
            assert_eq!(stored.len(), cells);
            let data: u64 = (0..6).map(|member| world.geometry.payload(member)).sum();
            // Each byte crosses once for each parity, but for terms that count as equally long.
            let most = 2 * data + 2 * data / LENGTHS;
            assert!((2 * data..=most).contains(&sent), "{encoder}: {sent} of {data}");
            let chunks = |member: usize| world.geometry.payload(member).div_ceil(CHUNK_BYTES);
            let chunks: u64 = (0..6).map(chunks).sum();
            assert_eq!(*world.loads.borrow() as u64, chunks, "each is read once");
        }
    }
}

#[test]
fn what_is_lost_comes_back_by_the_same_flows() {
    for lost in [[0, 1], [0, 3], [2, 5], [4, 5]] {
        for encoder in Encoder::ALL {
            let world = world("rs:4+2", &CHUNKS, 3);
            let tasks = rebuilding(&world.geometry, &lost, encoder).unwrap();
            let (stored, _) = run(&world, &tasks, 5);
            for (cell, bytes) in &stored {
                assert_eq!(**bytes, world.cells[&(cell.stripe, cell.position)][cell.row as usize]);
            }
            let bytes: usize = stored.values().map(|bytes| bytes.len()).sum();
            let of = |m: usize| world.geometry.payload(m) + world.geometry.parity_bytes(m);
            assert_eq!(bytes as u64, of(lost[0]) + of(lost[1]));
        }
    }
    let world = world("rs:4+2", &CHUNKS, 3);
    assert_eq!(rebuilding(&world.geometry, &[0, 1, 2], Encoder::Pipeline), None);
}

#[test]
fn trees_have_the_shapes_that_they_are_named_after() {
    let hops = |terms: usize| Encoder::ALL.map(|encoder| encoder.hops(terms));
    assert_eq!(hops(1), [1, 1, 1]);
    assert_eq!(hops(2), [2, 1, 1]);
    assert_eq!(hops(6), [6, 2, 1]);
    assert_eq!(hops(30), [30, 4, 1]);
    assert_eq!(Encoder::ALL.map(|encoder| encoder.children(6)), [1, 2, 6]);
    for encoder in Encoder::ALL {
        assert_eq!(encoder.to_string().parse(), Ok(encoder));
    }
    assert!("auto".parse::<Encoder>().is_err());
}

#[test]
fn what_nobody_waits_for_is_refused() {
    let world = world("rs:4+2", &[10; 6], 0);
    let task = &encoding(&world.geometry, Encoder::Pipeline)[0];
    let (position, root) = task.wanted[0];
    let mut flow = Flow::new(task, root, DEPTH).unwrap();
    assert!(flow.start().is_empty());
    let last = task.terms[0].member;
    let full = Block::from(&[1; CHUNK_BYTES as usize][..]);
    let come = |flow: &mut Flow, from: usize, row: u64, bytes: &[u8]| {
        flow.arrived((from, position), row, bytes.into())
    };
    assert!(come(&mut flow, last, 1, &full).is_err(), "not the first row");
    assert!(come(&mut flow, last, 0, &full[1..]).is_err(), "too short");
    assert!(come(&mut flow, root, 0, &full).is_err(), "no child");
    let elsewhere = (last, task.wanted[1].0);
    assert!(flow.arrived(elsewhere, 0, full.clone()).is_err(), "not wanted here");
    assert!(flow.credited(position).is_err() && flow.stored(position).is_err());
    assert!(flow.loaded(0, full.clone()).is_err());
    assert_eq!(come(&mut flow, last, 0, &full).unwrap().len(), 2);
    assert!(come(&mut flow, last, 0, &full).is_err(), "twice");
    assert!(Flow::new(task, 6, DEPTH).is_none());
}

#[test]
fn the_longest_payloads_take_no_memory_for_each_row() {
    let payloads = [0, 1, 2, 3, 4, 5].map(|less| MAX_PAYLOAD_BYTES - less);
    let geometry = Geometry::new("rs:4+2".parse().unwrap(), 1, &payloads).unwrap();
    for encoder in Encoder::ALL {
        for task in encoding(&geometry, encoder) {
            let flow = |member: usize| Flow::new(&task, member, DEPTH).unwrap();
            let loads = (0..6).map(|member| flow(member).start().len());
            assert_eq!(loads.sum::<usize>(), 4 * DEPTH);
        }
    }
}

/// With payloads of about one length every member receives about as much as the others.
#[test]
fn no_link_gets_more_than_its_share() {
    let payloads = [800, 803, 799, 801, 805, 798].map(|rows| rows * CHUNK_BYTES + 7);
    let geometry = Geometry::new("rs:4+2".parse().unwrap(), 1, &payloads).unwrap();
    for encoder in Encoder::ALL {
        let mut received = [0; 6];
        for task in encoding(&geometry, encoder) {
            for term in &task.terms {
                for (_, root) in &task.wanted {
                    let to = term.parent.unwrap_or(*root);
                    received[to] += task.rows(term.member).iter().count();
                }
            }
        }
        let (least, most) = (received.iter().min().unwrap(), received.iter().max().unwrap());
        assert!(most * 100 < least * 103, "{encoder}: {received:?}");
    }
}
