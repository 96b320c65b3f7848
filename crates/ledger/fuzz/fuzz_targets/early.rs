//! Any bytes as an early message: refused, or an entry that lies in those bytes.
#![no_main]

use eyrie_ledger::early::{self, Prefix};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Some((slot, datagram)) = data.split_first() else { return };
    let Some((prefix, bytes)) = Prefix::decode(datagram) else { return };
    assert_eq!(prefix.encode()[..], datagram[..datagram.len() - bytes.len()]);
    if let Some(spot) = early::entry(bytes, u64::from(*slot) * 64, 256 * 1024) {
        assert!(spot.told == bytes.len() as u64 && spot.frag <= early::MOST_BYTES);
    }
});
