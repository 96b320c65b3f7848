//! Feeds arbitrary bytes, in two pieces, to the frame decoder of both directions.
//!
//! Kept true: it neither panics nor takes a frame whose message does not encode to what it was
//! decoded from.
#![no_main]

use eyrie_control::{ClientMsg, Decoder, NodeMsg, encode};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let (first, second) = data.split_at(data.len() / 2);
    let mut decoder = Decoder::new();
    decoder.push(first);
    decoder.push(second);
    while let Ok(Some(message)) = decoder.next_message::<ClientMsg>() {
        let frame = encode(&message).expect("a decoded message fits a frame");
        let mut again = Decoder::new();
        again.push(&frame);
        assert_eq!(again.next_message::<ClientMsg>(), Ok(Some(message)));
    }
    let mut decoder = Decoder::new();
    decoder.push(data);
    while let Ok(Some(_)) = decoder.next_message::<NodeMsg>() {}
});
