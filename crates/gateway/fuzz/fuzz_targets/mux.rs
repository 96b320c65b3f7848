//! Feeds arbitrary bytes, in pieces that the first one decides, to an end of a connection between
//! gateways, which accepts what is opened and delivers what comes.
//!
//! Kept true: it does not panic, what it holds is bounded by what it granted, and frames that it
//! takes encode to what they were decoded from.
#![no_main]

use eyrie_gateway::{Event, Frame, Limits, Mux, Side};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let mut rest = data;
    while let Ok(Some((frame, used))) = Frame::split(rest) {
        let mut again = Vec::new();
        frame.encode(&mut again);
        assert_eq!(again, rest[..used]);
        rest = &rest[used..];
    }
    let Some((first, bytes)) = data.split_first() else { return };
    let limits = Limits { streams: 8, window_bytes: 256, budget_bytes: 1024, ..Limits::default() };
    let mut mux = Mux::new(if first % 2 == 0 { Side::Caller } else { Side::Called }, limits);
    let _ = mux.open("10.0.0.1:7".parse().unwrap());
    if first % 3 == 0 {
        mux.block();
    }
    for piece in bytes.chunks(usize::from(*first).max(1)) {
        if mux.take(piece).is_err() {
            return;
        }
        while let Some(event) = mux.poll() {
            match event {
                Event::Open { stream, .. } => {
                    mux.accept(stream);
                }
                Event::Input { stream } => {
                    let count = mux.input(stream).0.len();
                    assert!(count as u64 <= limits.window_bytes + limits.budget_bytes);
                    mux.deliver(stream, count);
                }
                _ => {}
            }
        }
        mux.fill(&mut Vec::new(), 4096);
    }
});
