//! Rust's standard library: threads, channels, locks, thread-local values, a panic that is caught,
//! buffered files.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::sync::{Arc, Condvar, Mutex, RwLock, mpsc};
use std::thread;

thread_local! {
    static LOCAL: Cell<u64> = const { Cell::new(7) };
}

fn mix(sum: u64, value: u64) -> u64 {
    (sum ^ value).wrapping_mul(1_099_511_628_211).wrapping_add(1)
}

fn work(value: u64) -> u64 {
    (0..20_000u64).fold(value, |x, i| x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(i))
}

fn worker(me: u64, inbox: mpsc::Receiver<u64>, outbox: mpsc::SyncSender<u64>) {
    for value in inbox {
        let local = LOCAL.with(|l| {
            l.set(mix(l.get(), value + me));
            l.get()
        });
        if outbox.send(work(value) ^ local).is_err() {
            return;
        }
    }
}

fn main() {
    let times = std::env::var("ROUNDS_TIMES").ok().and_then(|t| t.parse().ok()).unwrap_or(1);
    let rounds: u64 = std::env::args().nth(1).and_then(|a| a.parse().ok()).unwrap_or(1500) * times;
    let (mut sum, mut wrong) = (14_695_981_039_346_656_037u64, 0u32);
    std::panic::set_hook(Box::new(|_| {}));
    let mut ends = Vec::new();
    let mut threads = Vec::new();
    for me in 0..3 {
        let (to, inbox) = mpsc::sync_channel(4);
        let (outbox, from) = mpsc::sync_channel(4);
        threads.push(thread::spawn(move || worker(me, inbox, outbox)));
        ends.push((to, from));
    }
    let table = Arc::new(RwLock::new(BTreeMap::new()));
    let turn = Arc::new((Mutex::new(0u64), Condvar::new()));
    let other = {
        let (table, turn) = (Arc::clone(&table), Arc::clone(&turn));
        thread::spawn(move || {
            for i in 0..rounds {
                let mut at = turn.0.lock().unwrap();
                while *at != i * 2 + 1 {
                    at = turn.1.wait(at).unwrap();
                }
                *table.write().unwrap().entry(i % 97).or_insert(0u64) += i;
                *at += 1;
                turn.1.notify_all();
            }
        })
    };
    let mut log = File::create("rust.log").unwrap();
    for i in 0..rounds {
        for (to, _) in &ends {
            to.send(i).unwrap();
        }
        for (_, from) in &ends {
            sum = mix(sum, from.recv().unwrap());
        }
        writeln!(log, "{i} {sum:016x}").unwrap();
        if i % 50 == 0 {
            let died = thread::spawn(move || if i % 100 == 0 { panic!("on purpose") }).join();
            wrong += u32::from(died.is_err() != (i % 100 == 0));
        }
        let mut at = turn.0.lock().unwrap();
        *at += 1;
        turn.1.notify_all();
        while *at != i * 2 + 2 {
            at = turn.1.wait(at).unwrap();
        }
    }
    drop(ends);
    for thread in threads {
        thread.join().unwrap();
    }
    other.join().unwrap();
    sum = table.read().unwrap().iter().fold(sum, |s, (k, v)| mix(mix(s, *k), *v));
    for (i, line) in BufReader::new(File::open("rust.log").unwrap()).lines().enumerate() {
        let line = line.unwrap();
        wrong += u32::from(!line.starts_with(&format!("{i} ")));
    }
    println!("threads.rs {sum:016x} {wrong} wrong");
    std::process::exit(i32::from(wrong != 0));
}
