//! The sending thread: takes what the ranks marked, sends what may be sent, tells senders how far
//! their receivers are; then sleeps on the link bell.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use crate::connection::{Connection, Flushed};
use crate::shared::{Shared, lock};

/// Longest sleep; only a backstop, nothing depends on it.
const SLEEP: Duration = Duration::from_millis(500);

/// Longest sleep while messages are sent as a datagram, which ring no bell.
const TICK: Duration = Duration::from_millis(2);
/// So long after the last of them.
const TICKS: Duration = Duration::from_millis(20);

/// The thread's work.
pub(crate) fn run(shared: &Arc<Shared>) {
    let mut marked = Vec::new();
    let mut early = None;
    while !shared.is_over() {
        let kicked = shared.was_kicked();
        shared.segment.take_dirty(|src, dst| marked.push((src, dst)));
        let (sent, aside) = round(shared, &mut marked);
        if shared.segment.header().link_early.swap(0, Relaxed) != 0 || aside {
            early = Some(Instant::now());
        }
        if !sent && !kicked {
            early = early.filter(|last| last.elapsed() < TICKS);
            sleep(shared, early.is_some());
        }
    }
}

/// One look at everything. Whether anything was sent, and whether anything is set aside.
fn round(shared: &Arc<Shared>, marked: &mut Vec<(u32, u32)>) -> (bool, bool) {
    let passing = shared.inbound().passing();
    let (due, sent, aside, missing, answered) = {
        let mut outbound = shared.outbound();
        passing.into_iter().for_each(|stream| outbound.news(stream));
        marked.retain(|stream| {
            let ours = outbound.is_local_source(*stream);
            if ours {
                outbound.news(*stream);
            }
            !ours
        });
        let (due, sent) = outbound.pass(&shared.waker);
        (due, sent, outbound.sets_aside(), outbound.missing(), outbound.answered())
    };
    let due_now = !due.is_empty();
    due.into_iter().for_each(|then| then());
    for node in missing {
        if let Some(dial) = lock(&shared.dials).get(&node) {
            dial.want();
        }
    }
    let connections: Vec<Arc<Connection>> = {
        let mut inbound = shared.inbound();
        marked.drain(..).chain(answered).for_each(|stream| inbound.moved(stream));
        inbound.connections.values().filter(|c| c.pending() > 0).cloned().collect()
    };
    for connection in &connections {
        if connection.flush() == Flushed::Blocked {
            connection.await_room(&shared.waker);
        }
    }
    // What came to be done while that was done is due as well.
    (sent || due_now, aside)
}

fn sleep(shared: &Arc<Shared>, ticks: bool) {
    let segment = &shared.segment;
    let armed = if ticks { segment.arm_links_for_a_tick() } else { segment.arm_links() };
    let Some(seen) = armed else { return };
    if shared.is_kicked() || shared.is_over() {
        segment.disarm_links();
        return;
    }
    segment.sleep_links(seen, if ticks { TICK } else { SLEEP });
}
