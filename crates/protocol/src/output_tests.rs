//! Tests of a stream across its incarnations: the rules one by one, then random histories.

use super::*;
use crate::testing::Random;

#[test]
fn lines_come_whole_and_the_last_part_at_the_end() {
    let mut tape = Tape::new(100);
    assert_eq!(tape.feed(b"ab"), Ok(None));
    assert_eq!(tape.feed(b"c\nde\nf"), Ok(Some(b"abc\nde\n".to_vec())));
    assert_eq!(tape.flush(), Some(b"f".to_vec()));
    assert_eq!(tape.flush(), None);
    let long = vec![b'x'; MAX_LINE_BYTES + 1];
    assert_eq!(tape.feed(&long).unwrap().map(|l| l.len()), Some(MAX_LINE_BYTES + 1));
}

#[test]
fn a_repeated_part_is_not_forwarded() {
    let mut tape = Tape::new(100);
    tape.feed(b"one\ntwo\nth").unwrap();
    tape.rewind(4);
    assert_eq!(tape.feed(b"two\n"), Ok(None));
    assert_eq!(tape.feed(b"three\n"), Ok(Some(b"three\n".to_vec())));
    assert_eq!(tape.position(), tape.received());
}

#[test]
fn a_strict_tape_names_both_versions_of_a_difference() {
    let mut tape = Tape::new(100).strict();
    tape.feed(b"one\ntwo\n").unwrap();
    tape.rewind(0);
    let found = tape.feed(b"one\ntoo\n").unwrap_err();
    assert_eq!(found, Difference { position: 5, before: "wo".into(), now: "oo".into() });
    tape.rewind(4);
    assert_eq!(tape.check_complete().unwrap_err().before, "two");
    tape.give_up();
    assert_eq!(tape.feed(b"one\ntoo\n"), Ok(None));
    assert!(tape.check_complete().is_ok());
    tape.feed(b"new\n").unwrap();
    tape.rewind(8);
    assert!(tape.feed(b"nix\n").is_err());
    tape.rewind(4);
    assert_eq!(tape.feed(b"too\nnew\n"), Ok(None));
}

#[test]
fn a_successor_prints_what_was_not_printed() {
    let mut tape = Tape::new(100);
    tape.feed(b"one\ntwo\nth").unwrap();
    assert_eq!(tape.unprinted(0), b"one\ntwo\n");
    assert_eq!(tape.unprinted(4), b"two\n");
    let mut next = tape.behind(4);
    assert_eq!((next.unprinted(4), next.unprinted(8)), (b"two\n".to_vec(), Vec::new()));
    assert_eq!(next.feed(b"ree\n"), Ok(Some(b"three\n".to_vec())));
    let mut next = tape.behind(8);
    assert_eq!(next.flush(), Some(b"th".to_vec()));
    assert_eq!(next.unprinted(8), b"th");
    next.rewind(0);
    assert_eq!(next.feed(b"one\ntwo\nthx\n"), Ok(Some(b"x\n".to_vec())));
}

#[test]
fn what_was_printed_is_not_printed_again() {
    let mut tape = Tape::new(100);
    tape.feed(b"one\ntwo\nth").unwrap();
    let mut known = tape.clone();
    known.printed(8);
    assert_eq!((known.received(), known.pending.len()), (10, 2));
    known.printed(9);
    assert_eq!((known.received(), known.pending.as_slice()), (10, &b"h"[..]));
    known.printed(14);
    known.give_up();
    known.rewind(4);
    assert_eq!(known.feed(b"two\nthree\nfour\n"), Ok(Some(b"four\n".to_vec())));
}

#[test]
fn what_differs_is_left_out_by_lines_and_told_once() {
    let mut tape = Tape::new(100);
    tape.feed(b"start\ntook 9.98 s\ntook 9.99 s\ntoo").unwrap();
    tape.rewind(6);
    assert_eq!(tape.feed(b"took 10"), Ok(None));
    let differed = tape.differed().unwrap();
    let (before, now) = ("9.98 s".into(), "10".into());
    assert_eq!(differed, Difference { position: 11, before, now });
    assert_eq!(tape.feed(b".01 s\ntook 10.02 s\ntook 10.03 s\nto"), {
        Ok(Some(b"took 10.03 s\n".to_vec()))
    });
    assert_eq!(tape.differed(), None);
    // A checkpoint of that course is a place in it.
    assert_eq!(tape.position(), 6 + 3 * 13 + 2);
    tape.rewind(6 + 13);
    assert_eq!(tape.feed(b"took 10.02 s\ntook 10.03 s\ntook 11 s\n"), {
        Ok(Some(b"took 11 s\n".to_vec()))
    });
    assert_eq!(tape.differed(), None);
}

#[test]
fn one_that_dies_before_it_is_through_leaves_the_rest_to_the_next() {
    let mut tape = Tape::new(100);
    tape.feed(b"1\n2\n3\n4\n").unwrap();
    tape.rewind(0);
    assert_eq!(tape.feed(b"a1\na2\na"), Ok(None));
    tape.rewind(3);
    assert_eq!(tape.feed(b"a2\nb33333\nb4\nb5\n"), Ok(Some(b"b5\n".to_vec())));
    tape.rewind(0);
    assert_eq!(tape.feed(b"c1\nc2\nc3\nc4\nc5\nc6\n"), Ok(Some(b"c6\n".to_vec())));
}

#[test]
fn a_line_that_was_printed_in_part_is_printed_to_its_end() {
    let mut tape = Tape::new(100);
    tape.feed(b"time 1.5").unwrap();
    assert_eq!(tape.flush(), Some(b"time 1.5".to_vec()));
    let (mut longer, mut shorter) = (tape.clone(), tape.clone());
    longer.rewind(0);
    assert_eq!(longer.feed(b"time 12.25 s\n"), Ok(Some(b"25 s\n".to_vec())));
    shorter.rewind(0);
    assert_eq!(shorter.feed(b"tim\nnext\n"), Ok(Some(b"\nnext\n".to_vec())));
    // What was not printed yet comes in its new form.
    let mut tape = Tape::new(100);
    tape.feed(b"time 1.5").unwrap();
    tape.rewind(0);
    assert_eq!(tape.feed(b"time 2"), Ok(None));
    assert_eq!(tape.feed(b"\n"), Ok(Some(b"time 2\n".to_vec())));
}

#[test]
fn what_is_not_remembered_is_left_out_by_lines_from_a_checkpoint_on() {
    let mut tape = Tape::new(8);
    tape.feed(b"one\ntwo\n").unwrap();
    tape.mark(8);
    tape.mark(16);
    tape.feed(b"3333\n4444\n5555\n").unwrap();
    let mut other = tape.clone();
    tape.rewind(8);
    assert_eq!(tape.feed(b"3\n4\n5\n6\n"), Ok(Some(b"6\n".to_vec())));
    tape.rewind(0);
    assert_eq!(tape.feed(b"1\n2\n3\n4\n5\n6\n7\n"), Ok(Some(b"7\n".to_vec())));
    // A place that was reached after it was marked, in the middle of a line.
    other.feed(b"66666666666\n").unwrap();
    other.rewind(16);
    assert_eq!(other.feed(b"44\n5\n6\n7\n"), Ok(Some(b"7\n".to_vec())));
}

#[test]
fn a_successor_knows_what_was_printed_of_another_course() {
    let mut tape = Tape::new(100);
    tape.feed(b"1\n2\n3\n").unwrap();
    tape.rewind(2);
    assert_eq!(tape.feed(b"22\n33\n44\n5"), Ok(Some(b"44\n".to_vec())));
    assert_eq!(tape.unprinted(6), b"44\n");
    assert_eq!(tape.unprinted(4), b"3\n44\n");
    let mut next = tape.behind(6);
    assert_eq!(next.unprinted(6), b"44\n");
    assert_eq!(next.feed(b"5\n"), Ok(Some(b"55\n".to_vec())));
    next.rewind(0);
    assert_eq!(next.feed(b"a\nb\nc\nd\ne\nf\n"), Ok(Some(b"f\n".to_vec())));
}

/// Progress is what was never there before: else a program that dies at one point for ever would
/// seem to get on by printing other times.
#[test]
fn another_version_of_a_line_is_no_progress() {
    let mut tape = Tape::new(100);
    tape.feed(b"one 1\ntwo").unwrap();
    let before = tape.progress();
    for n in 0..20u32 {
        tape.rewind(0);
        tape.feed(format!("one {}\ntwo", 10u64.pow(n % 7)).as_bytes()).unwrap();
        assert_eq!(tape.progress(), before);
    }
    tape.feed(b"\nthree\n").unwrap();
    assert!(tape.progress() > before);
}

/// Random deaths, restores, checkpoints and successors of a program whose lines are of another
/// length each time: each line comes out once, whole, in order.
#[test]
fn every_line_of_a_program_that_never_repeats_itself_comes_once() {
    for seed in 0..500 {
        let mut random = Random::new(seed);
        let mut tape = Tape::new(if seed % 2 == 0 { 1 << 20 } else { 64 });
        let (mut out, mut printed) = (Vec::new(), 0);
        // Where the program is: the next line, how much of it is written, bytes written.
        let line = |n: u64, random: &mut Random| {
            format!("{n} {}\n", "x".repeat(random.below(9) as usize)).into_bytes()
        };
        let (mut next, mut rest, mut at) = (0u64, Vec::new(), 0u64);
        let mut point = (0, Vec::new(), 0);
        while next < 120 {
            match random.below(14) {
                0 => {
                    point = (next, rest.clone(), at);
                    tape.mark(at);
                }
                1 => {
                    (next, rest, at) = point.clone();
                    tape.rewind(at);
                }
                2 => {
                    tape = tape.behind(printed);
                    assert!(tape.unprinted(printed).is_empty(), "seed {seed}");
                }
                _ => {
                    while rest.len() < 30 && next < 120 {
                        rest.extend(line(next, &mut random));
                        next += 1;
                    }
                    let n = (1 + random.below(30) as usize).min(rest.len());
                    let bytes: Vec<u8> = rest.drain(..n).collect();
                    at += n as u64;
                    if let Some(lines) = tape.feed(&bytes).unwrap() {
                        printed += lines.len() as u64;
                        out.extend(lines);
                    }
                }
            }
            assert_eq!(tape.position(), at, "seed {seed}");
        }
        out.extend(tape.feed(&rest).unwrap().unwrap_or_default());
        let text = String::from_utf8(out).unwrap();
        let numbers = text.lines().map(|l| l.split(' ').next().unwrap_or_default().to_string());
        let expected: Vec<String> = (0..120).map(|n: u64| n.to_string()).collect();
        assert_eq!(numbers.collect::<Vec<_>>(), expected, "seed {seed}");
    }
}

#[test]
fn what_was_printed_of_a_line_is_left_out_though_its_beginning_is_forgotten() {
    let mut tape = Tape::new(8);
    let long = vec![b'x'; MAX_LINE_BYTES + 9000];
    assert_eq!(tape.feed(&long).unwrap().map(|l| l.len()), Some(long.len()));
    tape.rewind(0);
    assert_eq!(tape.feed(&long), Ok(None));
    assert_eq!(tape.feed(b"y\n"), Ok(Some(b"y\n".to_vec())));

    let mut tape = Tape::new(8);
    tape.feed(b"a\nb\nend").unwrap();
    assert_eq!(tape.flush(), Some(b"end".to_vec()));
    let mut next = tape.behind(7);
    next.rewind(0);
    assert_eq!(next.feed(b"a\nb\nend"), Ok(None));
    assert_eq!(next.flush(), None);
}

/// Random deaths and restores, also of the controller, of a program that never ends a line.
#[test]
fn a_stream_without_lines_is_forwarded_once() {
    for seed in 0..500 {
        let mut random = Random::new(seed);
        let whole: Vec<u8> = (0..2000).map(|_| b'a' + random.below(26) as u8).collect();
        let mut tape = Tape::new(if seed % 2 == 0 { 1 << 20 } else { 64 });
        let (mut out, mut at, mut point) = (Vec::new(), 0usize, 0usize);
        while at < whole.len() {
            match random.below(12) {
                0 => {
                    point = at;
                    tape.mark(at as u64);
                }
                1 => {
                    at = point;
                    tape.rewind(point as u64);
                }
                2 => tape = tape.behind(out.len() as u64),
                _ => {
                    let n = (1 + random.below(90) as usize).min(whole.len() - at);
                    assert_eq!(tape.feed(&whole[at..at + n]), Ok(None), "seed {seed}");
                    at += n;
                    // What is pending is always remembered.
                    if seed % 2 == 1 || random.below(4) == 0 {
                        out.extend(tape.flush().unwrap_or_default());
                    }
                }
            }
        }
        out.extend(tape.flush().unwrap_or_default());
        assert_eq!(out, whole, "seed {seed}");
    }
}

/// Random deaths and restores: what comes out is what an undisturbed program writes.
#[test]
fn the_forwarded_stream_is_that_of_an_undisturbed_run() {
    for seed in 0..500 {
        let mut random = Random::new(seed);
        let whole: Vec<u8> = (0..2000)
            .map(|_| if random.below(9) == 0 { b'\n' } else { b'a' + random.below(26) as u8 })
            .collect();
        let mut tape = Tape::new(if seed % 2 == 0 { 1 << 20 } else { 64 });
        let mut out = Vec::new();
        let (mut at, mut point) = (0usize, 0usize);
        while at < whole.len() {
            match random.below(12) {
                0 => point = at,
                1 => {
                    at = point;
                    tape.rewind(point as u64);
                }
                _ => {
                    let n = (1 + random.below(90) as usize).min(whole.len() - at);
                    let lines = tape.feed(&whole[at..at + n]).unwrap();
                    at += n;
                    if let Some(lines) = lines {
                        assert_eq!(lines.last(), Some(&b'\n'), "seed {seed}");
                        out.extend(lines);
                    }
                }
            }
        }
        out.extend(tape.flush().unwrap_or_default());
        assert_eq!(out, whole, "seed {seed}");
    }
}

/// Saved states, and jobs that go on from them: as much is printed beyond a state as is known by
/// its length only.
#[test]
fn a_job_that_is_restarted_from_saved_states_prints_each_line_once() {
    for seed in 0..2000 {
        let mut random = Random::new(seed);
        let whole: Vec<u8> = (0..2000)
            .map(|_| if random.below(9) == 0 { b'\n' } else { b'a' + random.below(26) as u8 })
            .collect();
        let mut tape = Tape::new(if seed % 2 == 0 { 1 << 20 } else { 64 });
        let mut out = Vec::new();
        let (mut at, mut point) = (0usize, 0usize);
        let mut saved = (tape.clone(), point);
        // So much has the console had of the controllers that are gone.
        let mut had = 0;
        while at < whole.len() {
            match random.below(24) {
                0 => {
                    point = at;
                    tape.mark(point as u64);
                }
                // All go back within a life of the job.
                1 => {
                    at = point;
                    tape.give_up();
                    tape.rewind(point as u64);
                }
                2 => saved = (tape.clone(), point),
                3 => {
                    if random.below(2) == 0 {
                        out.extend(tape.flush().unwrap_or_default());
                    }
                    (tape, point) = saved.clone();
                    tape.printed(out.len() as u64);
                    tape.give_up();
                    tape.rewind(point as u64);
                    (at, had) = (point, out.len());
                }
                4 => out.extend(tape.flush().unwrap_or_default()),
                // The controller dies before the console has all, and its successor goes on.
                5 if seed % 2 == 0 => {
                    let new = out.len() - had;
                    let printed = out.len() - new.min(random.below(40) as usize);
                    tape = tape.behind(printed as u64);
                    let rest = tape.unprinted(printed as u64);
                    assert_eq!(out[printed..], rest, "seed {seed}");
                    had = out.len();
                }
                _ => {
                    let n = (1 + random.below(90) as usize).min(whole.len() - at);
                    let lines = tape.feed(&whole[at..at + n]).unwrap();
                    at += n;
                    out.extend(lines.unwrap_or_default());
                }
            }
        }
        out.extend(tape.flush().unwrap_or_default());
        assert_eq!(String::from_utf8(out), String::from_utf8(whole), "seed {seed}");
    }
}
