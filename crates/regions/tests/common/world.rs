//! Processes for tests that see their own folder only: threads that pass bytes on. One may be
//! killed at any call to the others; it, and all who wait for it, stand still for ever then, as the
//! job is over: nothing is cleaned up.

#![allow(unsafe_code)]
#![allow(dead_code)]

use eyrie_regions::config::Config;
use eyrie_regions::peers::Peers;
use eyrie_regions::{RegionsError, Session};
use std::collections::VecDeque;
use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Condvar, Mutex};
use std::time::{Duration, Instant};

/// Longest that all processes together may take.
const LIMIT: Duration = Duration::from_secs(120);

#[derive(Default)]
struct State {
    killed: bool,
    standing: usize,
    round: u64,
    told: Vec<Option<Vec<u8>>>,
    all: Vec<Vec<u8>>,
    mail: Vec<VecDeque<(usize, Vec<u8>)>>,
}

/// All processes of a job.
pub struct World {
    ranks: usize,
    state: Mutex<State>,
    changed: Condvar,
}

/// What a process hands to its functions.
struct Own {
    world: &'static World,
    rank: usize,
    calls: AtomicU64,
    /// At which call it is killed.
    dies: AtomicU64,
}

/// Kills this process at a later call to the others.
pub struct Killer(&'static Own);

impl Killer {
    /// The next call is number 1.
    pub fn at(&self, call: u64) {
        self.0.calls.store(0, Ordering::SeqCst);
        self.0.dies.store(call, Ordering::SeqCst);
    }

    pub fn calls(&self) -> u64 {
        self.0.calls.load(Ordering::SeqCst)
    }
}

impl Own {
    fn of<'a>(context: *mut c_void) -> &'a Own {
        // SAFETY: it is never given back.
        unsafe { &*context.cast::<Own>() }
    }

    fn stand(&self, mut state: std::sync::MutexGuard<'_, State>) -> ! {
        state.standing += 1;
        drop(state);
        self.world.changed.notify_all();
        loop {
            std::thread::park();
        }
    }

    fn call(&self) -> std::sync::MutexGuard<'_, State> {
        let call = self.calls.fetch_add(1, Ordering::SeqCst) + 1;
        let mut state = self.world.state.lock().unwrap();
        if call == self.dies.load(Ordering::SeqCst) {
            state.killed = true;
        }
        if state.killed {
            self.stand(state);
        }
        state
    }

    fn wait<'a>(
        &self,
        state: std::sync::MutexGuard<'a, State>,
    ) -> std::sync::MutexGuard<'a, State> {
        let state = self.world.changed.wait(state).unwrap();
        if state.killed {
            self.stand(state);
        }
        state
    }

    fn together(&self, own: Vec<u8>) -> Vec<Vec<u8>> {
        let mut state = self.call();
        assert!(state.told[self.rank].is_none());
        state.told[self.rank] = Some(own);
        let round = state.round;
        if state.told.iter().all(Option::is_some) {
            state.all = state.told.iter_mut().map(|told| told.take().unwrap()).collect();
            state.round += 1;
            self.world.changed.notify_all();
        }
        while state.round == round {
            state = self.wait(state);
        }
        state.all.clone()
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
    let process = Own::of(context);
    let mut state = process.call();
    if to < 0 {
        // All is taken as soon as nothing is left in the boxes.
        while state.mail.iter().any(|mail| mail.iter().any(|(from, _)| *from == process.rank)) {
            state = process.wait(state);
        }
        return 0;
    }
    // SAFETY: there are as many bytes.
    let bytes = unsafe { std::slice::from_raw_parts(bytes.cast(), count as usize) }.to_vec();
    state.mail[to as usize].push_back((process.rank, bytes));
    process.world.changed.notify_all();
    0
}

unsafe extern "C" fn receive(
    context: *mut c_void,
    bytes: *mut c_void,
    room: c_int,
    from: *mut c_int,
    count: *mut c_int,
) -> c_int {
    let process = Own::of(context);
    let mut state = process.call();
    let (sender, got) = loop {
        match state.mail[process.rank].pop_front() {
            Some(mail) => break mail,
            None => state = process.wait(state),
        }
    };
    process.world.changed.notify_all();
    assert!(got.len() <= room as usize);
    // SAFETY: there is room, and there are places for both numbers.
    unsafe {
        std::ptr::copy_nonoverlapping(got.as_ptr(), bytes.cast(), got.len());
        from.write(sender as c_int);
        count.write(got.len() as c_int);
    }
    0
}

/// Does the same in so many processes, each with options of its own. `None`: it was killed.
pub fn apart<T: Send + 'static>(
    ranks: usize,
    options: impl Fn(usize) -> String,
    work: impl Fn(usize, Result<Session, RegionsError>, &Killer) -> T + Clone + Send + 'static,
) -> Vec<Option<T>> {
    let mut state = State::default();
    state.told.resize_with(ranks, || None);
    state.mail.resize_with(ranks, VecDeque::new);
    // Never given back, as those that stand still have it.
    let world: &'static World =
        Box::leak(Box::new(World { ranks, state: Mutex::new(state), changed: Condvar::new() }));
    let (tell, told) = mpsc::channel();
    for rank in 0..ranks {
        let (options, work, tell) = (options(rank), work.clone(), tell.clone());
        std::thread::spawn(move || {
            let (calls, dies) = (AtomicU64::new(0), AtomicU64::new(u64::MAX));
            let own: &'static Own = Box::leak(Box::new(Own { world, rank, calls, dies }));
            let context = std::ptr::from_ref(own).cast_mut().cast();
            let numbers = (rank as c_int, ranks as c_int);
            // SAFETY: the context is never given back.
            let peers = unsafe {
                let peers = Peers::new(numbers, Some(most), context).unwrap();
                peers.with_post(Some(gather), Some(send), Some(receive))
            };
            let config = Config::read(&options, &|_| None).unwrap();
            let result = work(rank, Session::open(config, peers), &Killer(own));
            tell.send((rank, result)).unwrap();
        });
    }
    drop(tell);
    let mut results: Vec<Option<T>> = (0..ranks).map(|_| None).collect();
    let begun = Instant::now();
    loop {
        let there = results.iter().filter(|result| result.is_some()).count();
        if there + world.state.lock().unwrap().standing == ranks {
            break;
        }
        match told.recv_timeout(Duration::from_millis(5)) {
            Ok((rank, result)) => results[rank] = Some(result),
            Err(RecvTimeoutError::Timeout) => assert!(begun.elapsed() < LIMIT, "they hang"),
            Err(RecvTimeoutError::Disconnected) => panic!("a process panicked"),
        }
    }
    let left: usize = world.state.lock().unwrap().mail.iter().map(VecDeque::len).sum();
    assert!(left == 0 || world.state.lock().unwrap().killed, "nothing is left on its way");
    results
}
