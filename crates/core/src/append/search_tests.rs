//! Tests of the search, on files in memory.

use super::*;

struct Text(Vec<u8>);

impl Tail for Text {
    fn id(&self) -> u64 {
        1
    }
    fn size(&self) -> u64 {
        self.0.len() as u64
    }
    fn read(&self, at: u64, room: &mut [u8]) -> usize {
        let rest = self.0.get(at as usize..).unwrap_or(&[]);
        let count = rest.len().min(room.len());
        room[..count].copy_from_slice(&rest[..count]);
        count
    }
    fn append(&mut self, _: &[u8]) -> (i64, i32) {
        panic!("a search changes nothing")
    }
    fn place(&self) -> u64 {
        0
    }
    fn go_to(&self, _: u64) {}
}

fn at(text: &[u8], bytes: &[u8], from: u64, taken: &[(u64, u64)]) -> Found {
    find(bytes, from, taken, &Text(text.to_vec()))
}

#[test]
fn lines_are_found_where_lines_begin() {
    let text = b"1\n11\n21\n1\n";
    assert_eq!(at(text, b"1\n", 0, &[]), Found::At(0));
    assert_eq!(at(text, b"1\n", 2, &[]), Found::At(8), "neither in 11 nor in 21");
    assert_eq!(at(text, b"1\n", 3, &[]), Found::At(3), "what is before is another's");
    assert_eq!(at(text, b"1\n", 9, &[]), Found::Nowhere);
    assert_eq!(at(text, b"2", 0, &[]), Found::At(5), "what is no line is anywhere");
    assert_eq!(at(text, b"1\n", 10, &[]), Found::Nowhere);
    assert_eq!(at(b"", b"1\n", 0, &[]), Found::Nowhere);
    assert_eq!(at(text, b"", 0, &[]), Found::Nowhere);
}

#[test]
fn what_others_have_recorded_is_theirs() {
    let text = b"x\nx\nx\n";
    assert_eq!(at(text, b"x\n", 0, &[(0, 2)]), Found::At(2));
    assert_eq!(at(text, b"x\n", 0, &[(2, 4), (0, 2)]), Found::At(4));
    assert_eq!(at(text, b"x\n", 0, &[(0, 6)]), Found::Nowhere);
}

#[test]
fn it_is_found_behind_much_and_however_long_it_is() {
    for long in [1, KEY_BYTES, 3 * BLOCK_BYTES + 5] {
        let mut bytes = vec![b'a'; long];
        bytes.extend(b"b\n");
        for behind in [BLOCK_BYTES - 2, BLOCK_BYTES - 1, BLOCK_BYTES, 2 * BLOCK_BYTES + 17] {
            let mut text = vec![b'c'; behind];
            text.push(b'\n');
            text.extend(&bytes);
            text.extend(b"more\n");
            assert_eq!(at(&text, &bytes, 0, &[]), Found::At(behind as u64 + 1));
            text[behind + long] ^= 1;
            assert_eq!(at(&text, &bytes, 0, &[]), Found::Nowhere);
        }
    }
}

#[test]
fn what_is_torn_ends_at_a_page() {
    let page = PAGE_BYTES as usize;
    // It begins as nothing in it goes on: no shorter beginning is at its end.
    let lines: String = (0..3000).map(|n| format!("{n}\n")).collect();
    let bytes = ["#", &lines].concat().into_bytes();
    let mut text = vec![b'.'; 100];
    text.push(b'\n');
    let from = text.len() as u64;
    text.extend(&bytes[..2 * page - text.len()]);
    assert_eq!(at(&text, &bytes, from, &[]), Found::Torn(2 * page - from as usize));
    assert_eq!(at(&text, &bytes, from, &[(from, from + 50)]), Found::Nowhere);
    text.pop();
    assert_eq!(at(&text, &bytes, from, &[]), Found::Nowhere);
}
