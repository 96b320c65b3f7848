//! Events: that the rank came back, and that it has a new checkpoint.
//!
//! They happen between calls of MPI, by others. A rank with a handle for an event looks at the end
//! of each of its calls whether one has happened; what it sees is recorded like what a poll sees,
//! so that in a replay the callbacks run in the same calls. A rank without such a handle looks at
//! one word of its own memory.
//!
//! Kept true: callbacks run in the thread that called MPI_Init, outside of the library, so they may
//! call MPI; while one runs none is begun. The lock is not held then.

use std::collections::BTreeMap;
use std::ffi::{c_int, c_void};
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

use eyrie_channel::counters::Gauge;

use super::about::About;
use super::lock;
use super::numbers::gauge;
use crate::global;
use crate::repr::tools::SAFETIES;

/// A kind of event.
pub struct Event {
    pub name: &'static str,
    pub description: &'static str,
    /// Its number grows when the event happens.
    gauge: Gauge,
    pub category: About,
}

/// All kinds, by index.
pub static EVENTS: [Event; 2] = [
    Event {
        name: "eyrie_restored",
        description: "This rank came back from its death; how often it has done so by now",
        gauge: Gauge::Recoveries,
        category: About::Recovery,
    },
    Event {
        name: "eyrie_checkpointed",
        description: "This rank has a new checkpoint; its number",
        gauge: Gauge::Checkpoint,
        category: About::Recovery,
    },
];

/// By event, a number that grows.
type Numbers = [u64; EVENTS.len()];

/// A tool's callback: the instance, the registration, the safety that is required, its own data.
pub type Callback = unsafe extern "C" fn(usize, usize, c_int, *mut c_void);

/// A callback, and the data of the tool that it is given.
#[derive(Clone, Copy)]
pub struct Called {
    pub callback: Callback,
    /// An address of the tool's, never looked at.
    pub data: usize,
}

/// A handle for a kind of event: by safety (`SAFETIES`), whom to call.
pub struct Registration {
    pub event: usize,
    pub callbacks: [Option<Called>; SAFETIES.len()],
}

/// An event that has happened, as long as a callback has it.
#[derive(Clone, Copy)]
pub struct Instance {
    pub event: usize,
    pub number: u64,
    pub ticks: i64,
}

/// What is kept of events.
pub struct Events {
    pub registrations: BTreeMap<usize, Registration>,
    pub instances: BTreeMap<usize, Instance>,
    seen: Numbers,
}

/// There are registrations.
static WATCHED: AtomicBool = AtomicBool::new(false);
/// A callback runs.
static CALLING: AtomicBool = AtomicBool::new(false);

impl Events {
    pub const fn new() -> Events {
        let seen = [0; EVENTS.len()];
        Events { registrations: BTreeMap::new(), instances: BTreeMap::new(), seen }
    }

    pub fn clear(&mut self) {
        WATCHED.store(false, Relaxed);
        self.registrations.clear();
    }

    pub fn insert(&mut self, id: usize, event: usize) {
        let callbacks = [None; SAFETIES.len()];
        self.registrations.insert(id, Registration { event, callbacks });
    }

    /// Events are looked for from now on; what had happened by then is over.
    pub fn watch(&mut self, seen: Option<Numbers>) {
        if let Some(seen) = seen {
            self.seen = seen;
        }
        WATCHED.store(!self.registrations.is_empty(), Relaxed);
    }

    pub fn is_watched(&self) -> bool {
        WATCHED.load(Relaxed)
    }
}

/// The numbers of all events now.
fn numbers() -> Numbers {
    EVENTS.each_ref().map(|event| gauge(event.gauge))
}

/// The same, told by the door.
pub fn numbers_told() -> super::Told<Numbers> {
    let mut all = [0; EVENTS.len()];
    for (number, event) in all.iter_mut().zip(&EVENTS) {
        *number = super::told(|| gauge(event.gauge))?;
    }
    Ok(all)
}

/// At the end of each call of MPI, outside of the library.
#[inline]
pub fn after_call() {
    if WATCHED.load(Relaxed) {
        look();
    }
}

/// Looks for events, and has them told.
#[cold]
fn look() {
    if CALLING.load(Relaxed) {
        return;
    }
    let Some(mut m) = global::outside() else { return };
    let seen = lock().events.seen;
    m.enter();
    let news = m.changed(seen, numbers);
    let ticks = if news.is_some() { m.wtime() as i64 } else { 0 };
    m.leave();
    let Some(news) = news else { return };
    lock().events.seen = news;
    CALLING.store(true, Relaxed);
    for (event, (number, before)) in news.into_iter().zip(seen).enumerate() {
        if number > before {
            tell(Instance { event, number, ticks });
        }
    }
    CALLING.store(false, Relaxed);
}

/// Calls whoever has asked for the event. A callback may free registrations that come after it.
fn tell(instance: Instance) {
    let mut kept = lock();
    let own = |(id, r): (&usize, &Registration)| (r.event == instance.event).then_some(*id);
    let ids: Vec<usize> = kept.events.registrations.iter().filter_map(own).collect();
    let at = kept.id();
    kept.events.instances.insert(at, instance);
    drop(kept);
    for id in ids {
        let found = lock().events.registrations.get(&id).and_then(|registration| {
            let callbacks = registration.callbacks.iter().zip(SAFETIES);
            callbacks.filter_map(|(called, safety)| Some(((*called)?, safety))).next()
        });
        if let Some((called, safety)) = found {
            // SAFETY: the tool gave it as a callback for events.
            unsafe { (called.callback)(at, id, safety, called.data as *mut c_void) };
        }
    }
    lock().events.instances.remove(&at);
}
