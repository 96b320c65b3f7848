//! Any bytes as an early message, or as what comes over a wire: refused, or an entry that lies in
//! those bytes.
#![no_main]

use eyrie_ledger::datagram::{self, FRAME_BYTES, PREFIX_BYTES, Prefix};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Some((slot, datagram)) = data.split_first() else { return };
    if let Some((head, bytes)) = datagram.split_first_chunk::<PREFIX_BYTES>() {
        if let Some((prefix, told, padded)) = Prefix::of_wire(head) {
            assert!(told <= FRAME_BYTES);
            assert_eq!(prefix.on_wire(told as u32, padded), *head);
        }
        if let Some(spot) = datagram::part(bytes, u64::from(*slot) * 64, 256 * 1024) {
            assert!(spot.told == bytes.len() as u64 && !spot.wants_ack());
        }
    }
    let Some((prefix, bytes)) = Prefix::decode(datagram) else { return };
    assert_eq!(prefix.encode()[..], datagram[..datagram.len() - bytes.len()]);
    if let Some(spot) = datagram::entry(bytes, u64::from(*slot) * 64, 256 * 1024) {
        assert!(spot.told == bytes.len() as u64 && spot.frag <= datagram::MOST_BYTES);
    }
});
