//! Every frame comes back as it was; what is none is refused, however it is cut.

use super::*;

fn all() -> Vec<Frame<'static>> {
    let four = "10.77.0.3:4711".parse().unwrap();
    let six = "[fd00::7]:9".parse().unwrap();
    vec![
        Frame::Open { stream: 1, target: four },
        Frame::Open { stream: u32::MAX, target: six },
        Frame::Opened { stream: 1 },
        Frame::Data { stream: 2, bytes: b"x" },
        Frame::Data { stream: 2, bytes: &[7; MAX_DATA_BYTES] },
        Frame::Credit { stream: 3, bytes: u32::MAX },
        Frame::End { stream: 3 },
        Frame::Reset { stream: 4, reason: Reason::Blocked },
        Frame::Block { number: 1 << 40 },
        Frame::Blocked { number: 2, bytes: u64::MAX },
        Frame::Unblock { number: 3 },
    ]
}

#[test]
fn frames_come_back_and_wait_until_they_are_whole() {
    for frame in all() {
        let mut bytes = Vec::new();
        frame.encode(&mut bytes);
        for cut in 0..bytes.len() {
            assert_eq!(Frame::split(&bytes[..cut]), Ok(None), "{frame:?} cut at {cut}");
        }
        let length = bytes.len();
        bytes.extend_from_slice(b"more");
        assert_eq!(Frame::split(&bytes), Ok(Some((frame, length))));
    }
}

#[test]
fn the_bytes_are_those_of_the_document() {
    let target = "10.77.0.3:4711".parse().unwrap();
    let mut bytes = Vec::new();
    Frame::Open { stream: 5, target }.encode(&mut bytes);
    Frame::Data { stream: 5, bytes: b"ab" }.encode(&mut bytes);
    let open = [20, 0, 1, 0, 5, 0, 0, 0, 4, 0, 0x67, 0x12, 10, 77, 0, 3];
    assert_eq!(bytes[..16], open);
    assert_eq!(bytes[28..], [2, 0, 3, 0, 5, 0, 0, 0, b'a', b'b']);
}

#[test]
fn what_no_gateway_sends_is_refused() {
    let head = |length: u16, kind: u8, zero: u8, stream: u32| {
        let [a, b] = length.to_le_bytes();
        [&[a, b, kind, zero][..], &stream.to_le_bytes(), &[0; 32]].concat()
    };
    for (bytes, why) in [
        (head(0, 0, 0, 1), FrameError::Kind(0)),
        (head(0, 10, 0, 1), FrameError::Kind(10)),
        (head(0, DATA, 0, 1), FrameError::Length { kind: DATA, bytes: 0 }),
        (head(16385, DATA, 0, 1), FrameError::Length { kind: DATA, bytes: 16385 }),
        (head(3, CREDIT, 0, 1), FrameError::Length { kind: CREDIT, bytes: 3 }),
        (head(4, CREDIT, 0, 1), FrameError::Body(CREDIT)),
        (head(0, END, 1, 1), FrameError::Body(END)),
        (head(0, END, 0, 0), FrameError::Body(END)),
        (head(8, BLOCK, 0, 1), FrameError::Body(BLOCK)),
        (head(1, RESET, 0, 1), FrameError::Body(RESET)),
        (head(20, OPEN, 0, 1), FrameError::Body(OPEN)),
    ] {
        assert_eq!(Frame::split(&bytes), Err(why), "{bytes:?}");
    }
}
