//! Two ends over a wire that cuts as it likes: what goes in comes out, credits hold, turns are
//! taken, silence is kept, and what no end sends is refused.

use super::*;
use crate::frame::Frame;
use proptest::prelude::*;
use std::collections::BTreeMap;

const LIMITS: Limits = Limits {
    streams: 64,
    window_bytes: 1000,
    most_window_bytes: 16_000,
    budget_bytes: 20_000,
    out_bytes: 5000,
};

fn target() -> SocketAddr {
    "10.0.0.1:7".parse().unwrap()
}

/// Numbers that a seed decides.
struct Chance(u64);

impl Chance {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) as usize % bound.max(1)
    }
}

/// An end with its applications: what each stream is to say, and what it has heard.
struct End {
    mux: Mux,
    wire: Vec<u8>,
    said: BTreeMap<u32, Vec<u8>>,
    at: BTreeMap<u32, usize>,
    heard: BTreeMap<u32, Vec<u8>>,
    ended: Vec<u32>,
    silent: bool,
}

impl End {
    fn new(side: Side) -> End {
        End {
            mux: Mux::new(side, LIMITS),
            wire: Vec::new(),
            said: BTreeMap::new(),
            at: BTreeMap::new(),
            heard: BTreeMap::new(),
            ended: Vec::new(),
            silent: false,
        }
    }

    /// Answers what happened.
    fn look(&mut self) {
        while let Some(event) = self.mux.poll() {
            match event {
                Event::Open { stream, .. } => assert!(self.mux.accept(stream)),
                Event::Blocked => self.silent = true,
                Event::Reset { stream, reason } => panic!("{stream}: {reason}"),
                Event::Opened { .. } | Event::Input { .. } | Event::Room { .. } => {}
            }
        }
    }

    /// A stream's application says as much as is taken, `most` at most.
    fn say(&mut self, stream: u32, most: usize) {
        let Some(all) = self.said.get(&stream) else { return };
        let at = self.at.entry(stream).or_default();
        if *at == all.len() {
            return;
        }
        *at += self.mux.send(stream, &all[*at..all.len().min(*at + most)]);
        if *at == all.len() {
            self.mux.end(stream);
        }
    }

    fn hear(&mut self, stream: u32, most: usize) {
        let (bytes, end) = self.mux.input(stream);
        let bytes = bytes[..bytes.len().min(most)].to_vec();
        if end && !self.ended.contains(&stream) {
            self.ended.push(stream);
            // The end was seen; the stream may be forgotten.
            self.mux.deliver(stream, 0);
        }
        if !bytes.is_empty() {
            self.heard.entry(stream).or_default().extend(&bytes);
            self.mux.deliver(stream, bytes.len());
        }
    }
}

/// Carries some of what is on the wire from one end to the other.
fn carry(from: &mut End, to: &mut End, most: usize) {
    let fill = 1 + most % 3000;
    if from.wire.len() < fill {
        from.mux.fill(&mut from.wire, fill);
    }
    let count = most.min(from.wire.len());
    to.mux.take(&from.wire[..count]).unwrap();
    from.wire.drain(..count);
    to.look();
}

fn text(chance: &mut Chance, length: usize) -> Vec<u8> {
    (0..length).map(|_| chance.below(256) as u8).collect()
}

/// Streams from both ends with texts in both directions.
fn open(ends: &mut [End; 2], chance: &mut Chance, count: usize) -> Vec<u32> {
    let mut all = Vec::new();
    for _ in 0..count {
        let stream = ends[chance.below(2)].mux.open(target()).unwrap();
        for end in &mut *ends {
            let length = chance.below(9000);
            end.said.insert(stream, text(chance, 1 + length));
        }
        all.push(stream);
    }
    all
}

fn exchange(seed: u64, count: usize, slow: bool) {
    let chance = &mut Chance(seed);
    let mut ends = [End::new(Side::Caller), End::new(Side::Called)];
    let streams = open(&mut ends, chance, count);
    // One stream is not read until all others are through.
    let held = slow.then(|| streams[chance.below(count)]);
    let done = |ends: &[End; 2], held: Option<u32>| {
        let open = streams.iter().filter(|s| Some(**s) != held);
        open.clone().all(|s| ends.iter().all(|e| e.ended.contains(s)))
    };
    let mut held = held;
    for turn in 0.. {
        assert!(turn < 200_000, "it does not come to an end");
        for end in &mut ends {
            let stream = streams[chance.below(count)];
            end.say(stream, 1 + chance.below(4000));
            let stream = streams[chance.below(count)];
            if Some(stream) != held {
                end.hear(stream, 1 + chance.below(4000));
            }
            let waiting: usize = streams.iter().map(|s| end.mux.input(*s).0.len()).sum();
            let most = LIMITS.window_bytes * count as u64 + LIMITS.budget_bytes;
            assert!(waiting as u64 <= most, "{waiting} bytes wait");
        }
        let [a, b] = &mut ends;
        let (from, to) = if chance.below(2) == 0 { (a, b) } else { (b, a) };
        carry(from, to, chance.below(5000));
        if done(&ends, held) && held.take().is_none() {
            break;
        }
    }
    for stream in streams {
        assert_eq!(ends[0].said[&stream], ends[1].heard[&stream]);
        assert_eq!(ends[1].said[&stream], ends[0].heard[&stream]);
    }
    let [a, b] = &mut ends;
    (0..100).for_each(|_| {
        carry(a, b, 5000);
        carry(b, a, 5000);
    });
    assert_eq!(ends.each_ref().map(|e| e.mux.streams()), [0, 0]);
    assert_eq!(ends.each_ref().map(|e| e.mux.budget), [LIMITS.budget_bytes; 2]);
    assert_eq!(ends[0].mux.carried().0, ends[1].mux.carried().1);
}

#[test]
fn what_goes_in_comes_out() {
    (0..300).for_each(|seed| exchange(seed, 1 + seed as usize % 12, false));
}

#[test]
fn a_reader_that_stands_still_holds_up_nobody_else() {
    (0..300).for_each(|seed| exchange(seed + 1000, 2 + seed as usize % 12, true));
}

#[test]
fn streams_take_turns() {
    let mut ends = [End::new(Side::Caller), End::new(Side::Called)];
    let [a, b] = &mut ends;
    let streams: Vec<u32> = (0..20).map(|_| a.mux.open(target()).unwrap()).collect();
    carry(a, b, 4000);
    carry(b, a, 4000);
    for stream in &streams {
        assert_eq!(a.mux.send(*stream, &[7; 900]), 900);
    }
    let (mut out, mut order) = (Vec::new(), Vec::new());
    a.mux.fill(&mut out, usize::MAX);
    let mut rest = &out[..];
    while let Some((Frame::Data { stream, .. }, used)) = Frame::split(rest).unwrap() {
        order.push(stream);
        rest = &rest[used..];
    }
    assert_eq!(order, streams);
    // One that has much to say does not come twice before another has had its turn.
    let big = Limits { out_bytes: 1 << 20, window_bytes: 1 << 20, ..LIMITS };
    let mut mux = Mux::new(Side::Caller, big);
    let (long, short) = (mux.open(target()).unwrap(), mux.open(target()).unwrap());
    let mut answer = Vec::new();
    Frame::Opened { stream: long }.encode(&mut answer);
    Frame::Opened { stream: short }.encode(&mut answer);
    mux.take(&answer).unwrap();
    assert_eq!(mux.send(long, &vec![1; 1 << 20]), 1 << 20);
    out.clear();
    mux.fill(&mut out, 20_000);
    mux.send(short, b"now");
    out.clear();
    mux.fill(&mut out, 20_000);
    let (first, used) = Frame::split(&out).unwrap().unwrap();
    let (second, _) = Frame::split(&out[used..]).unwrap().unwrap();
    assert!(matches!(first, Frame::Data { stream, .. } if stream == long), "{first:?}");
    assert_eq!(second, Frame::Data { stream: short, bytes: b"now" });
}

#[test]
fn who_is_asked_to_be_silent_sends_what_it_has_and_no_more() {
    for seed in 0..200 {
        let chance = &mut Chance(seed);
        let mut ends = [End::new(Side::Caller), End::new(Side::Called)];
        let count = 1 + chance.below(8);
        let streams = open(&mut ends, chance, count);
        let [a, b] = &mut ends;
        // What is opened against the silence is another matter.
        (0..2).for_each(|_| {
            carry(a, b, 5000);
            carry(b, a, 5000);
        });
        for _ in 0..chance.below(40) {
            let stream = streams[chance.below(count)];
            a.say(stream, 700);
            b.say(stream, 700);
            b.hear(stream, chance.below(700));
            carry(a, b, chance.below(3000));
            carry(b, a, chance.below(3000));
        }
        b.mux.block();
        for turn in 0.. {
            assert!(turn < 10_000, "it is never silent");
            streams.iter().for_each(|s| a.say(*s, 700));
            carry(a, b, 3000);
            carry(b, a, 3000);
            if b.mux.is_drained() {
                break;
            }
            streams.iter().for_each(|s| b.hear(*s, 700));
        }
        let (taken, heard) = (a.at.values().sum::<usize>(), b.mux.carried().1);
        assert!(b.silent && taken as u64 == heard, "{taken} bytes taken, {heard} heard");
        assert!(matches!(a.mux.open(target()), Err(Refusal::Blocked)));
        b.mux.unblock();
        for turn in 0.. {
            assert!(turn < 10_000, "it does not go on");
            for stream in &streams {
                a.say(*stream, 700);
                b.hear(*stream, 700);
            }
            carry(a, b, 3000);
            carry(b, a, 3000);
            if streams.iter().all(|s| b.ended.contains(s)) {
                break;
            }
        }
        streams.iter().for_each(|s| assert_eq!(a.said[s], b.heard[s]));
    }
}

#[test]
fn what_is_opened_against_the_silence_is_refused() {
    let mut ends = [End::new(Side::Caller), End::new(Side::Called)];
    let [a, b] = &mut ends;
    b.mux.block();
    let stream = a.mux.open(target()).unwrap();
    let mut wire = Vec::new();
    a.mux.fill(&mut wire, 1000);
    b.mux.take(&wire).unwrap();
    wire.clear();
    b.mux.fill(&mut wire, 1000);
    a.mux.take(&wire).unwrap();
    assert_eq!(a.mux.poll(), Some(Event::Reset { stream, reason: Reason::Blocked }));
    assert_eq!((a.mux.streams(), b.mux.streams()), (0, 0));
}

#[test]
fn a_torn_connection_leaves_the_beginning_of_what_was_said() {
    for seed in 0..300 {
        let chance = &mut Chance(seed);
        let mut ends = [End::new(Side::Caller), End::new(Side::Called)];
        let streams = open(&mut ends, chance, 5);
        let [a, b] = &mut ends;
        for _ in 0..chance.below(300) {
            let stream = streams[chance.below(5)];
            a.say(stream, 500);
            b.hear(stream, 300);
            carry(a, b, chance.below(900));
            carry(b, a, chance.below(900));
        }
        for (stream, heard) in &b.heard {
            assert!(a.said[stream].starts_with(heard), "stream {stream}");
            assert!(!b.ended.contains(stream) || a.said[stream] == *heard);
        }
    }
}

#[test]
fn a_stream_that_is_reset_is_over_at_both_ends() {
    let mut ends = [End::new(Side::Caller), End::new(Side::Called)];
    let [a, b] = &mut ends;
    let stream = a.mux.open(target()).unwrap();
    carry(a, b, 4000);
    carry(b, a, 4000);
    assert_eq!(a.mux.send(stream, &[1; 600]), 600);
    b.mux.reset(stream, Reason::Broke);
    // What crosses the reset is dropped.
    carry(a, b, 4000);
    let mut wire = Vec::new();
    b.mux.fill(&mut wire, 4000);
    a.mux.take(&wire).unwrap();
    assert_eq!(a.mux.poll(), Some(Event::Reset { stream, reason: Reason::Broke }));
    assert_eq!((a.mux.streams(), b.mux.streams()), (0, 0));
    assert_eq!(a.mux.send(stream, &[1; 600]), 0);
}

/// What an end that called says of these frames.
fn heard(frames: &[Frame<'_>]) -> Result<(), Fault> {
    let mut mux = Mux::new(Side::Caller, LIMITS);
    mux.open(target()).unwrap();
    let mut bytes = Vec::new();
    frames.iter().for_each(|f| f.encode(&mut bytes));
    mux.take(&bytes)
}

#[test]
fn what_no_correct_end_says_is_a_fault() {
    let open = |stream| Frame::Open { stream, target: target() };
    let opened = Frame::Opened { stream: 1 };
    let data = |length: usize| Frame::Data { stream: 1, bytes: &[0; 2000][..length] };
    assert_eq!(heard(&[opened, data(1000), Frame::End { stream: 1 }]), Ok(()));
    for (frames, fault) in [
        (&[open(3)][..], Fault::Number(3)),
        (&[open(4), open(2)], Fault::Number(2)),
        (&[Frame::End { stream: 3 }], Fault::Unknown(3)),
        (&[Frame::Credit { stream: 2, bytes: 1 }], Fault::Unknown(2)),
        (&[data(1)], Fault::Credit(1)),
        (&[opened, data(1001)], Fault::Credit(1)),
        (&[opened, data(600), data(401)], Fault::Credit(1)),
        (&[opened, Frame::End { stream: 1 }, data(1)], Fault::Credit(1)),
        (&[opened, opened], Fault::Answer(1)),
        (&[Frame::Blocked { number: 1, bytes: 0 }], Fault::Acknowledgement),
        (&[Frame::Unblock { number: 1 }], Fault::Acknowledgement),
    ] {
        assert_eq!(heard(frames), Err(fault), "{frames:?}");
    }
    let many: Vec<_> = (1..=128).map(|n| open(2 * n)).collect();
    assert_eq!(heard(&many), Err(Fault::Streams));
}

#[test]
fn silence_that_is_broken_or_miscounted_is_a_fault() {
    let said = |frames: &[Frame<'_>]| {
        let mut mux = Mux::new(Side::Caller, LIMITS);
        mux.open(target()).unwrap();
        mux.block();
        let mut bytes = Vec::new();
        frames.iter().for_each(|f| f.encode(&mut bytes));
        mux.take(&bytes)
    };
    let (opened, data) = (Frame::Opened { stream: 1 }, Frame::Data { stream: 1, bytes: b"abc" });
    let blocked = |bytes| Frame::Blocked { number: 1, bytes };
    assert_eq!(said(&[opened, data, blocked(3)]), Ok(()));
    assert_eq!(said(&[opened, data, blocked(4)]), Err(Fault::Count { said: 4, found: 3 }));
    assert_eq!(said(&[opened, data, blocked(3), data]), Err(Fault::Silence));
    assert_eq!(said(&[blocked(0), blocked(0)]), Err(Fault::Acknowledgement));
}

proptest! {
    #[test]
    fn whatever_comes_is_taken_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        let mut mux = Mux::new(Side::Called, LIMITS);
        let taken = mux.take(&bytes);
        let mut out = Vec::new();
        mux.fill(&mut out, 10_000);
        prop_assert!(taken.is_err() || mux.partial.len() <= bytes.len());
    }

    #[test]
    fn however_it_is_cut_it_means_the_same(
        lengths in prop::collection::vec(1..900usize, 1..20),
        cuts in prop::collection::vec(1..50usize, 1..60),
    ) {
        let mut bytes = Vec::new();
        Frame::Open { stream: 1, target: target() }.encode(&mut bytes);
        let mut mux = Mux::new(Side::Called, Limits { window_bytes: 1 << 20, ..LIMITS });
        mux.take(&bytes).unwrap();
        assert!(mux.accept(1));
        bytes.clear();
        for length in &lengths {
            Frame::Data { stream: 1, bytes: &vec![*length as u8; *length] }.encode(&mut bytes);
        }
        let (mut rest, mut cut) = (&bytes[..], cuts.iter().cycle());
        while !rest.is_empty() {
            let piece = rest.len().min(*cut.next().unwrap());
            mux.take(&rest[..piece]).unwrap();
            rest = &rest[piece..];
        }
        let want: Vec<u8> = lengths.iter().flat_map(|l| vec![*l as u8; *l]).collect();
        prop_assert_eq!(mux.input(1).0, &want[..]);
    }
}
