//! What a rank knows of its job besides the ranks that it began with: what a process is in it, its
//! ports. Data only; what is done with it is in the files beside this.
//!
//! A job with room for N programs that ranks start (`eyrie run --spawn-room N`) has N ranks more
//! than the world that it begins with, the *places*, and the last rank of all, the *keeper*, which
//! gives them away (`room`).

use std::collections::BTreeSet;
use std::rc::Rc;

use eyrie_channel::Endpoint;

use crate::clusters::clusters_heard;
use crate::consts::COMM_NULL;
use crate::error::{Res, class};
use crate::handle::Handle;

/// Tags of answers at ports have this bit.
pub(super) const LIBRARY_TAG: i32 = 1 << 30;
/// How many ranks a job has for its room, the keeper among them.
pub const ROOM_VARIABLE: &str = "EYRIE_ROOM";
/// `MPI_UNIVERSE_SIZE` of a job with room.
pub const UNIVERSE_VARIABLE: &str = "EYRIE_UNIVERSE";
/// How many of the ranks that a job begins with, the last ones, take the place of lost ones.
pub const SPARES_VARIABLE: &str = "EYRIE_SPARE_RANKS";
/// The cluster of each rank when the job began (`clusters::clusters_told`): where it has several.
pub const CLUSTERS_VARIABLE: &str = "EYRIE_RANK_CLUSTERS";
/// `canonical`: reductions give the same bits whatever the clusters.
pub const ORDERS_VARIABLE: &str = "EYRIE_REDUCE_ORDER";
/// The number among a place's programs of the one that the keeper has ordered (`room`).
pub const ORDER_VARIABLE: &str = "EYRIE_ORDER";
/// The number of the program among several that a job begins with.
pub const APPNUM_VARIABLE: &str = "EYRIE_APPNUM";

/// The ranks behind those that a job begins with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Room {
    /// The first place.
    pub first: u32,
    /// Behind the last place.
    pub keeper: u32,
}

impl Room {
    pub(crate) fn of(ranks: u32, count: u32) -> Option<Room> {
        let first = ranks.checked_sub(count).filter(|first| *first > 0 && count > 0)?;
        Some(Room { first, keeper: ranks - 1 })
    }

    pub(super) fn places(self) -> std::ops::Range<u32> {
        self.first..self.keeper
    }
}

/// What the job and the environment say of this process.
#[derive(Default)]
pub(crate) struct Known {
    pub(super) job: String,
    pub(super) room: Option<Room>,
    pub(super) appnum: u32,
    pub(super) universe: Option<u32>,
    pub(super) spares: u32,
    pub(super) clusters: (Rc<[u32]>, u64),
    pub(super) canonical: bool,
    /// In a place: the program of this number is the one that was ordered.
    pub(super) order: Option<u32>,
}

impl Known {
    pub fn of_process(endpoint: &Endpoint) -> Known {
        if endpoint.is_unwatched() {
            return Known { job: format!("process-{}", std::process::id()), ..Known::default() };
        }
        let number = |name: &str| std::env::var(name).ok()?.parse().ok();
        let room = Room::of(endpoint.size(), endpoint.room());
        Known {
            job: std::env::var("EYRIE_JOB").unwrap_or_default(),
            room,
            appnum: number(APPNUM_VARIABLE).unwrap_or(0),
            universe: number(UNIVERSE_VARIABLE).filter(|_| room.is_some()),
            spares: number(SPARES_VARIABLE).unwrap_or(0),
            clusters: std::env::var(CLUSTERS_VARIABLE)
                .map_or_else(|_| Default::default(), |told| clusters_heard(&told, endpoint.size())),
            canonical: std::env::var(ORDERS_VARIABLE).is_ok_and(|order| order == "canonical"),
            order: number(ORDER_VARIABLE),
        }
    }
}

/// What this rank knows of its job and of ports.
pub(crate) struct Dynamic {
    /// The job as its ports name it: one of another job is refused.
    pub(super) job: String,
    /// The job has room for programs that are started later.
    pub(crate) room: Option<Room>,
    /// The inter-communicator with those who have started this program.
    pub(super) parent: Handle,
    /// How many of the world, the last ones, take the place of others.
    pub(crate) spares: u32,
    pub(super) ports: Ports,
    /// The number of the next question to the keeper.
    pub(super) asked: i32,
}

impl Default for Dynamic {
    fn default() -> Dynamic {
        Dynamic::of_job(String::new(), None)
    }
}

impl Dynamic {
    pub(super) fn of_job(job: String, room: Option<Room>) -> Dynamic {
        Dynamic { job, room, parent: COMM_NULL, spares: 0, ports: Ports::default(), asked: 0 }
    }
}

const PREFIX: &str = "eyrie-port";

/// Those that this program has opened.
#[derive(Default)]
pub(super) struct Ports {
    pub(super) open: BTreeSet<i32>,
    /// How many there have been.
    pub(super) opened: i32,
}

impl Dynamic {
    pub(super) fn port_name(&self, rank: u32, program: u32, number: i32) -> String {
        format!("{PREFIX}#{}#{rank}#{program}#{number}", self.job)
    }

    /// Rank, number of its program, and number of a port of this job.
    pub(super) fn port(&self, name: &[u8]) -> Res<(u32, u32, i32)> {
        let name = std::str::from_utf8(name).map_err(|_| class::PORT)?;
        let found = || {
            let rest = name.strip_prefix(PREFIX)?.strip_prefix('#')?;
            let mut words = rest.rsplitn(4, '#');
            let number = words.next()?.parse().ok()?;
            let program = words.next()?.parse().ok()?;
            let rank = words.next()?.parse().ok()?;
            let number = (0..LIBRARY_TAG).contains(&number).then_some(number)?;
            (words.next()? == self.job).then_some((rank, program, number))
        };
        found().ok_or(class::PORT)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_is_behind_the_ranks_that_a_job_begins_with() {
        assert_eq!(Room::of(7, 3), Some(Room { first: 4, keeper: 6 }));
        assert_eq!(Room::of(5, 1).map(|r| r.places().count()), Some(0));
        assert_eq!((Room::of(3, 3), Room::of(3, 0), Room::of(3, 9)), (None, None, None));
    }
}
