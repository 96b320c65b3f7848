//! The durations that all simulated jobs have: the defaults.

use eyrie_protocol::timing::{Detector, Intervals, Lease};

const INTERVALS: Intervals = Intervals::DEFAULT;
pub const DETECTOR: Detector = INTERVALS.detector;
pub const LEASE: Lease = INTERVALS.lease;
pub const TICK_MS: u64 = DETECTOR.heartbeat_ms;
pub const LEAST_MS: u64 = DETECTOR.silence_least_ms;
pub const HELD_MS: u64 = DETECTOR.held_ms();
pub const ROUND_MS: u64 = DETECTOR.round_ms();
pub const LEAST_SIGN_MS: u64 = DETECTOR.machine_silence_ms;
pub const LEASE_MS: u64 = LEASE.lease_ms;
pub const STOPPING_MS: u64 = INTERVALS.grace.stand_within_ms;
pub const UNLEASED_MS: u64 = LEASE.unleased_ms(&INTERVALS.grace);
pub const REJOINING_MS: u64 = INTERVALS.limits.rejoin_ms;
