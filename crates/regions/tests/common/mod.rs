//! Processes for tests: threads that agree, each with a session of its own.

#![allow(unsafe_code)]
#![allow(dead_code)]

use eyrie_regions::config::Config;
use eyrie_regions::kind::{Kind, Type};
use eyrie_regions::peers::Peers;
use eyrie_regions::session::Region;
use eyrie_regions::{RegionsError, Session};
use std::ffi::{c_int, c_void};
use std::path::{Path, PathBuf};
use std::sync::{Condvar, Mutex};

/// Where all of them agree.
struct Table {
    ranks: usize,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    round: u64,
    came: usize,
    most: Vec<i64>,
    agreed: Vec<i64>,
}

unsafe extern "C" fn most(context: *mut c_void, values: *mut i64, count: c_int) -> c_int {
    // SAFETY: the table outlives the threads, and there are as many values.
    let (table, values) = unsafe {
        let count = usize::try_from(count).unwrap();
        (&*context.cast::<Table>(), std::slice::from_raw_parts_mut(values, count))
    };
    let mut state = table.state.lock().unwrap();
    if state.came == 0 {
        state.most = vec![i64::MIN; values.len()];
    }
    assert_eq!(state.most.len(), values.len(), "all agree on the same");
    state.most.iter_mut().zip(&*values).for_each(|(most, value)| *most = (*most).max(*value));
    state.came += 1;
    let round = state.round;
    if state.came == table.ranks {
        (state.came, state.round) = (0, round + 1);
        state.agreed = state.most.clone();
        table.changed.notify_all();
    }
    while state.round == round {
        state = table.changed.wait(state).unwrap();
    }
    values.copy_from_slice(&state.agreed);
    0
}

/// Does the same in so many processes; returns what each returned.
pub fn run<T: Send>(
    ranks: usize,
    options: &str,
    work: impl Fn(usize, Session) -> T + Sync,
) -> Vec<T> {
    opened(ranks, options, |rank, session| work(rank, session.unwrap()))
}

pub fn opened<T: Send>(
    ranks: usize,
    options: &str,
    work: impl Fn(usize, Result<Session, RegionsError>) -> T + Sync,
) -> Vec<T> {
    let table = Table { ranks, state: Mutex::default(), changed: Condvar::new() };
    let one = |rank: usize| {
        let context = std::ptr::from_ref(&table).cast_mut().cast();
        let numbers = (rank as c_int, ranks as c_int);
        // SAFETY: the table is there until all threads have ended.
        let peers = unsafe { Peers::new(numbers, Some(most), context) }.unwrap();
        let config = Config::read(options, &|_| None).unwrap();
        work(rank, Session::open(config, peers))
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..ranks)
            .map(|rank| {
                scope.spawn({
                    let one = &one;
                    move || one(rank)
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

/// Folders of nodes, as an option names them.
pub fn folders(home: &Path, count: usize) -> String {
    let all: Vec<String> =
        (0..count).map(|node| home.join(format!("n{node}")).display().to_string()).collect();
    format!("folders={}", all.join(":"))
}

/// What a process has at a version: some numbers, other ones at each process.
pub fn content(rank: usize, version: i64) -> Vec<f64> {
    (0..20_000 + 7 * rank).map(|n| (n as f64 + 0.5) * version as f64 + rank as f64).collect()
}

pub fn protect(session: &mut Session, id: i32, numbers: &mut [f64]) {
    let element = Type { kind: Kind::Float, size: 8 };
    let region = Region { at: numbers.as_mut_ptr().cast(), element, count: numbers.len() };
    // SAFETY: tests keep the numbers for as long as the session.
    unsafe { session.protect(id, region) }.unwrap();
}

/// Stores these versions, each with its content.
pub fn store(ranks: usize, options: &str, versions: &[i64]) {
    run(ranks, options, |rank, mut session| {
        let mut numbers = content(rank, 0);
        protect(&mut session, 1, &mut numbers);
        for version in versions {
            numbers.copy_from_slice(&content(rank, *version));
            session.checkpoint("heat", *version).unwrap();
        }
        session.wait().unwrap();
    });
}

/// What one process does to have the newest version back, which is as it was stored.
pub fn brought_back(rank: usize, mut session: Session) -> Result<Option<i64>, String> {
    let mut numbers = content(rank, 0);
    protect(&mut session, 1, &mut numbers);
    let newest = session.newest("heat", i64::MAX).map_err(|error| error.to_string())?;
    if let Some(version) = newest {
        session.restore("heat", version).map_err(|error| error.to_string())?;
        assert!(numbers == content(rank, version), "process {rank}, version {version}");
    }
    Ok(newest)
}

/// The newest version, which comes back as it was stored.
pub fn restore(ranks: usize, options: &str) -> Result<Option<i64>, String> {
    let mut found = run(ranks, options, brought_back);
    assert!(found.iter().all(|f| *f == found[0]), "all agree: {found:?}");
    found.swap_remove(0)
}

/// Files below a folder whose paths contain a word.
pub fn files(home: &Path, word: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut open = vec![home.to_path_buf()];
    while let Some(folder) = open.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            match path.is_dir() {
                true => open.push(path),
                false if path.to_string_lossy().contains(word) => found.push(path),
                false => {}
            }
        }
    }
    found.sort();
    found
}
