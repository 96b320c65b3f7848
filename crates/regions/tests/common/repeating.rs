//! Processes for tests that are killed and begin again, each alone, as `eyrie run` has them do it
//! before their first image: what came to one comes to it again, what it sends again is held
//! against what it sent, and what it found out is told to it again. Threads that pass bytes on.

#![allow(unsafe_code)]
#![allow(dead_code)]

use eyrie_regions::config::Config;
use eyrie_regions::inputs::Inputs;
use eyrie_regions::peers::Peers;
use eyrie_regions::{RegionsError, Session};
use std::cell::Cell;
use std::collections::VecDeque;
use std::ffi::{c_int, c_void};
use std::rc::Rc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// Longest that all processes together may take.
const LIMIT: Duration = Duration::from_secs(60);

/// What a process did that outlives it.
#[derive(Default, Clone)]
struct Log {
    sent: Vec<(usize, Vec<u8>)>,
    received: Vec<(usize, Vec<u8>)>,
    inputs: Vec<Vec<u8>>,
}

#[derive(Default)]
struct State {
    logs: Vec<Log>,
    /// What each process said when all told each other something, time after time.
    told: Vec<Vec<Option<Vec<u8>>>>,
    mail: Vec<VecDeque<(usize, Vec<u8>)>>,
    died: Vec<usize>,
}

struct World {
    ranks: usize,
    state: Mutex<State>,
    changed: Condvar,
}

/// A process, from its beginning to its end or its death.
pub struct Own {
    world: &'static World,
    pub rank: usize,
    /// How often it did something, and when it is killed.
    calls: Cell<u64>,
    dies: Cell<u64>,
    sends: Cell<usize>,
    receives: Cell<usize>,
    inputs: Cell<usize>,
    meetings: Cell<usize>,
}

fn next(count: &Cell<usize>) -> usize {
    count.replace(count.get() + 1)
}

impl Own {
    fn of<'a>(context: *mut c_void) -> &'a Own {
        // SAFETY: it is never given back.
        unsafe { &*context.cast::<Own>() }
    }

    /// It is not killed any more.
    pub fn lives(&self) {
        self.dies.set(u64::MAX);
    }

    /// It may be killed here.
    fn step(&self) -> MutexGuard<'_, State> {
        self.calls.set(self.calls.get() + 1);
        let mut state = self.world.state.lock().unwrap();
        if self.calls.get() == self.dies.get() {
            state.died.push(self.rank);
            drop(state);
            self.world.changed.notify_all();
            loop {
                std::thread::park();
            }
        }
        state
    }

    fn together(&self, own: Vec<u8>) -> Vec<Vec<u8>> {
        let number = next(&self.meetings);
        let mut state = self.step();
        if state.told.len() <= number {
            state.told.resize(number + 1, vec![None; self.world.ranks]);
        }
        if let Some(before) = &state.told[number][self.rank] {
            assert_eq!(*before, own, "process {} tells the same again", self.rank);
        }
        state.told[number][self.rank] = Some(own);
        self.world.changed.notify_all();
        drop(state);
        // It may be killed when it has told it, too.
        let mut state = self.step();
        while !state.told[number].iter().all(Option::is_some) {
            state = self.world.changed.wait(state).unwrap();
        }
        state.told[number].iter().flatten().cloned().collect()
    }

    fn send(&self, to: usize, bytes: &[u8]) {
        let number = next(&self.sends);
        let mut state = self.step();
        if let Some(before) = state.logs[self.rank].sent.get(number) {
            assert_eq!(*before, (to, bytes.to_vec()), "process {} sends the same", self.rank);
            return;
        }
        state.logs[self.rank].sent.push((to, bytes.to_vec()));
        state.mail[to].push_back((self.rank, bytes.to_vec()));
        self.world.changed.notify_all();
    }

    fn receive(&self) -> (usize, Vec<u8>) {
        let number = next(&self.receives);
        let mut state = self.step();
        if let Some(before) = state.logs[self.rank].received.get(number) {
            return before.clone();
        }
        loop {
            if let Some(mail) = state.mail[self.rank].pop_front() {
                state.logs[self.rank].received.push(mail.clone());
                return mail;
            }
            state = self.world.changed.wait(state).unwrap();
        }
    }
}

struct Findings(&'static Own);

impl Inputs for Findings {
    fn settle(&self, own: &[u8]) -> Result<Vec<u8>, RegionsError> {
        let number = next(&self.0.inputs);
        let mut state = self.0.step();
        let inputs = &mut state.logs[self.0.rank].inputs;
        if number == inputs.len() {
            inputs.push(own.to_vec());
        }
        Ok(inputs[number].clone())
    }

    fn repeats(&self) -> bool {
        let state = self.0.world.state.lock().unwrap();
        let log = &state.logs[self.0.rank];
        self.0.inputs.get() < log.inputs.len() || self.0.receives.get() < log.received.len()
    }

    fn diverge(&self, why: &str) {
        panic!("process {}: {why}", self.0.rank);
    }

    fn undisturbed(&self, work: &mut dyn FnMut()) {
        drop(self.0.step());
        work();
        drop(self.0.step());
    }
}

unsafe extern "C" fn most(context: *mut c_void, values: *mut i64, count: c_int) -> c_int {
    // SAFETY: there are as many values.
    let values = unsafe { std::slice::from_raw_parts_mut(values, count as usize) };
    let own = values.iter().flat_map(|value| value.to_le_bytes()).collect();
    for other in Own::of(context).together(own) {
        assert_eq!(other.len(), values.len() * 8, "all agree on the same");
        for (value, bytes) in values.iter_mut().zip(other.chunks(8)) {
            *value = (*value).max(i64::from_le_bytes(bytes.try_into().unwrap()));
        }
    }
    0
}

unsafe extern "C" fn gather(
    context: *mut c_void,
    own: *const c_void,
    counts: *const c_int,
    places: *const c_int,
    all: *mut c_void,
) -> c_int {
    let process = Own::of(context);
    // SAFETY: there are as many counts as processes, and own bytes as the count says.
    let (counts, places, own) = unsafe {
        let counts = std::slice::from_raw_parts(counts, process.world.ranks);
        let places = std::slice::from_raw_parts(places, process.world.ranks);
        let own = std::slice::from_raw_parts(own.cast(), counts[process.rank] as usize);
        (counts, places, own.to_vec())
    };
    for (rank, bytes) in process.together(own).into_iter().enumerate() {
        assert_eq!(bytes.len(), counts[rank] as usize, "all know what all have");
        // SAFETY: there is room for all.
        unsafe {
            let to = all.cast::<u8>().add(places[rank] as usize);
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len());
        }
    }
    0
}

unsafe extern "C" fn send(
    context: *mut c_void,
    to: c_int,
    bytes: *const c_void,
    count: c_int,
) -> c_int {
    if to >= 0 {
        // SAFETY: there are as many bytes.
        let bytes = unsafe { std::slice::from_raw_parts(bytes.cast(), count as usize) };
        Own::of(context).send(to as usize, bytes);
    }
    0
}

unsafe extern "C" fn receive(
    context: *mut c_void,
    bytes: *mut c_void,
    room: c_int,
    from: *mut c_int,
    count: *mut c_int,
) -> c_int {
    let (sender, got) = Own::of(context).receive();
    assert!(got.len() <= room as usize);
    // SAFETY: there is room, and there are places for both numbers.
    unsafe {
        std::ptr::copy_nonoverlapping(got.as_ptr(), bytes.cast(), got.len());
        from.write(sender as c_int);
        count.write(got.len() as c_int);
    }
    0
}

/// Does the same in so many processes, each with options of its own. `kills`: a process is killed
/// at each of these calls (its own, from 1 on), one after the other, and begins again; `lost` is
/// called in between. Returns what each came to, and how often somebody was killed.
pub fn repeated<T: Send + 'static>(
    options: &[String],
    (victim, kills): (usize, &[u64]),
    mut lost: impl FnMut(),
    work: impl Fn(&Own, Result<Session, RegionsError>) -> T + Clone + Send + 'static,
) -> (Vec<T>, usize) {
    let ranks = options.len();
    let mut state = State::default();
    state.logs.resize_with(ranks, Log::default);
    state.mail.resize_with(ranks, VecDeque::new);
    // Never given back, as those that were killed still have it.
    let world: &'static World =
        Box::leak(Box::new(World { ranks, state: Mutex::new(state), changed: Condvar::new() }));
    let (tell, told) = mpsc::channel();
    let start = |rank: usize, dies: u64| {
        let (options, work, tell) = (options[rank].clone(), work.clone(), tell.clone());
        std::thread::spawn(move || {
            let own: &'static Own = Box::leak(Box::new(Own {
                world,
                rank,
                calls: Cell::default(),
                dies: Cell::new(dies),
                sends: Cell::default(),
                receives: Cell::default(),
                inputs: Cell::default(),
                meetings: Cell::default(),
            }));
            let context = std::ptr::from_ref(own).cast_mut().cast();
            // SAFETY: the context is never given back.
            let peers = unsafe {
                let peers = Peers::new((rank as c_int, ranks as c_int), Some(most), context);
                peers.unwrap().with_post(Some(gather), Some(send), Some(receive))
            };
            let config = Config::read(&options, &|_| None).unwrap();
            let session = Session::open(config, peers.with_inputs(Some(Rc::new(Findings(own)))));
            tell.send((rank, work(own, session))).unwrap();
        });
    };
    let mut kills = kills.iter().copied();
    (0..ranks).for_each(|rank| {
        start(rank, if rank == victim { kills.next().unwrap_or(u64::MAX) } else { u64::MAX });
    });
    let (mut results, mut killed): (Vec<Option<T>>, usize) =
        ((0..ranks).map(|_| None).collect(), 0);
    let begun = Instant::now();
    while results.iter().any(Option::is_none) {
        if let Some(rank) = world.state.lock().unwrap().died.pop() {
            killed += 1;
            lost();
            start(rank, kills.next().unwrap_or(u64::MAX));
        }
        match told.recv_timeout(Duration::from_millis(1)) {
            Ok((rank, result)) => results[rank] = Some(result),
            Err(RecvTimeoutError::Timeout) if begun.elapsed() < LIMIT => {}
            Err(RecvTimeoutError::Timeout) => {
                let state = world.state.lock().unwrap();
                let waits: Vec<usize> = state.mail.iter().map(VecDeque::len).collect();
                let told = state.told.last().map(|told| told.iter().map(Option::is_some));
                panic!("they hang: {waits:?}, {:?}", told.map(Vec::from_iter));
            }
            Err(RecvTimeoutError::Disconnected) => panic!("a process panicked"),
        }
    }
    assert!(world.state.lock().unwrap().mail.iter().all(VecDeque::is_empty), "nothing is left");
    (results.into_iter().flatten().collect(), killed)
}
