//! Tests of appends by ranks that die: each stands once.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use super::*;
use crate::testing;

/// A file in memory, to which others append too.
#[derive(Clone, Default)]
struct Shared(Rc<RefCell<Vec<u8>>>, Rc<Cell<u64>>);

impl Shared {
    fn text(&self) -> String {
        String::from_utf8(self.0.borrow().clone()).unwrap()
    }

    fn add(&self, text: &str) {
        self.0.borrow_mut().extend(text.as_bytes());
    }
}

impl Tail for Shared {
    fn id(&self) -> u64 {
        7
    }
    fn size(&self) -> u64 {
        self.0.borrow().len() as u64
    }
    fn read(&self, at: u64, room: &mut [u8]) -> usize {
        let text = self.0.borrow();
        let rest = text.get(at as usize..).unwrap_or(&[]);
        let count = rest.len().min(room.len());
        room[..count].copy_from_slice(&rest[..count]);
        count
    }
    fn append(&mut self, bytes: &[u8]) -> (i64, i32) {
        self.0.borrow_mut().extend(bytes);
        self.1.set(self.size());
        (bytes.len() as i64, 0)
    }
    fn place(&self) -> u64 {
        self.1.get()
    }
    fn go_to(&self, place: u64) {
        self.1.set(place);
    }
}

/// Its first `count` lines.
fn lines(m: &mut Machine, file: &mut Shared, count: u32) {
    for n in 0..count {
        let text = format!("line {n}\n");
        let done = m.append(text.as_bytes(), file);
        assert_eq!(done.result, text.len() as i64);
        assert_eq!(done.end, file.place());
    }
}

#[test]
fn what_was_appended_is_not_appended_again() {
    let (seg, mut file) = (testing::segment(1), Shared::default());
    lines(&mut testing::machine(seg, 0, 1), &mut file, 2);
    file.add("another's\n");
    let mut again = testing::machine(seg, 0, 2);
    lines(&mut again, &mut file, 3);
    assert_eq!(file.text(), "line 0\nline 1\nanother's\nline 2\n");
    // A second life that died at the same place.
    lines(&mut testing::machine(seg, 0, 3), &mut file, 4);
    assert_eq!(file.text(), "line 0\nline 1\nanother's\nline 2\nline 3\n");
}

#[test]
fn what_is_gone_is_written_again() {
    let (seg, mut file) = (testing::segment(1), Shared::default());
    lines(&mut testing::machine(seg, 0, 1), &mut file, 3);
    file.0.borrow_mut().truncate(7);
    lines(&mut testing::machine(seg, 0, 2), &mut file, 4);
    assert_eq!(file.text(), "line 0\nline 1\nline 2\nline 3\n");
}

/// Dies between the record of the beginning and that of the end.
#[test]
fn a_rank_finds_what_it_wrote_before_it_died() {
    for written in [false, true] {
        for others in ["", "line 10\nline 11\n", "line 1"] {
            let (seg, mut file) = (testing::segment(1), Shared::default());
            let mut first = testing::machine(seg, 0, 1);
            lines(&mut first, &mut file, 1);
            first.begin_append(&file);
            if others.ends_with('\n') {
                file.add(others);
            }
            if written {
                file.append(b"line 1\n");
            }
            file.add("more\n");
            lines(&mut testing::machine(seg, 0, 2), &mut file, 3);
            let text = file.text();
            assert_eq!(text.matches("line 1\n").count(), 1, "{written} {others} {text}");
            assert_eq!(text.matches("line 2\n").count(), 1);
            let count = "line 0\nline 1\nline 2\nmore\n".len();
            assert_eq!(text.len(), count + if others.ends_with('\n') { others.len() } else { 0 });
        }
    }
}

/// Two ranks append the same line; one dies before or after its write.
#[test]
fn what_another_rank_wrote_is_not_taken_for_its_own() {
    for written in [false, true] {
        let (seg, mut file) = (testing::segment(2), Shared::default());
        let mut first = testing::machine(seg, 0, 1);
        first.begin_append(&file);
        if written {
            file.append(b"line 0\n");
        }
        lines(&mut testing::machine(seg, 1, 1), &mut file, 1);
        lines(&mut testing::machine(seg, 0, 2), &mut file, 1);
        assert_eq!(file.text(), "line 0\nline 0\n", "written: {written}");
    }
}

#[test]
fn what_failed_fails_again() {
    struct Full(Shared);
    impl Tail for Full {
        fn id(&self) -> u64 {
            7
        }
        fn size(&self) -> u64 {
            self.0.size()
        }
        fn read(&self, at: u64, room: &mut [u8]) -> usize {
            self.0.read(at, room)
        }
        fn append(&mut self, _: &[u8]) -> (i64, i32) {
            (-1, 28)
        }
        fn place(&self) -> u64 {
            0
        }
        fn go_to(&self, place: u64) {
            self.0.go_to(place);
        }
    }
    let seg = testing::segment(1);
    let mut full = Full(Shared::default());
    let done = testing::machine(seg, 0, 1).append(b"x", &mut full);
    assert_eq!((done.result, done.error), (-1, 28));
    // There is room now, but it was not done.
    let mut file = Shared::default();
    let again = testing::machine(seg, 0, 2).append(b"x", &mut file);
    assert_eq!((again.result, again.error, file.text().as_str()), (-1, 28, ""));
}
