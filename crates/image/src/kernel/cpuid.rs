//! Whether code in a file asks the processor what it can do.
//!
//! The two bytes of `cpuid` also occur within other instructions. One that lies in a function of
//! which the unwinding tables tell where it begins is told from that by the lengths of the
//! instructions before it: compilers put nothing but instructions there. Whatever is not
//! understood - no tables, an instruction that is not known here - counts as `cpuid`.
//!
//! Others have the C library or `libgcc` ask for them, which they name as what they import.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;

/// Most bytes of code that are searched.
const MAX_SEARCH_BYTES: u64 = 256 << 20;
/// Bytes of a file that are searched for names at a time.
const CHUNK_BYTES: usize = 4 << 20;
const CPUID: [u8; 2] = [0x0f, 0xa2];
/// Most headers of an ELF file that are looked at.
const MAX_HEADERS: usize = 256;
const LOAD: u64 = 1;
const UNWINDING: u64 = 0x6474_e550;
/// What of the unwinding tables is understood: offsets of four bytes, from a table in order.
const ENCODINGS: [u8; 4] = [1, 0x1b, 0x03, 0x3b];

/// What others import to be told: by `libgcc`, and by the loader.
const TOLD: [&[u8]; 4] = [
    b"\0__cpu_model\0",
    b"\0__cpu_indicator_init\0",
    b"\0__x86_get_cpuid_feature_leaf\0",
    b"\0__x86_get_cpu_features\0",
];

/// Whether code of a file, of which `bytes` from `offset` on are mapped, executes `cpuid`; yes if
/// that cannot be seen.
pub fn asks(path: &[u8], offset: u64, bytes: u64) -> bool {
    let mut code = vec![0; bytes.min(MAX_SEARCH_BYTES) as usize];
    let Ok(file) = File::open(OsStr::from_bytes(path)) else { return true };
    // What is mapped beyond the end of the file is no code of it.
    let there = file.metadata().map_or(0, |m| m.len()).saturating_sub(offset);
    code.truncate(usize::try_from(there).unwrap_or(usize::MAX));
    if bytes > MAX_SEARCH_BYTES || file.read_exact_at(&mut code, offset).is_err() {
        return true;
    }
    let code = code.as_slice();
    let mut found = (0..code.len().saturating_sub(1)).filter(|&i| code[i..i + 2] == CPUID);
    let Some(first) = found.next() else { return false };
    let Some(tables) = Tables::of(&file) else { return true };
    std::iter::once(first).chain(found).any(|at| tables.is_cpuid(code, offset, at))
}

/// Whether a file imports what tells features of the processor; yes if it cannot be read.
pub fn is_told(path: &[u8]) -> bool {
    let search = || -> io::Result<bool> {
        let file = File::open(OsStr::from_bytes(path))?;
        let (mut chunk, mut at) = (vec![0; CHUNK_BYTES], 0);
        loop {
            let n = read_full(&file, &mut chunk, at)?;
            let bytes = &chunk[..n];
            let starts = (0..n).filter(|&i| bytes[i] == 0 && bytes.get(i + 1) == Some(&b'_'));
            if starts.into_iter().any(|i| TOLD.iter().any(|name| bytes[i..].starts_with(name))) {
                return Ok(true);
            }
            if n < CHUNK_BYTES {
                return Ok(false);
            }
            // A name may lie across the end.
            at += (n - 64) as u64;
        }
    };
    search().unwrap_or(true)
}

/// Fills `chunk` from offset `at` on, as far as there is something.
fn read_full(file: &File, chunk: &mut [u8], at: u64) -> io::Result<usize> {
    let mut n = 0;
    while n < chunk.len() {
        match file.read_at(&mut chunk[n..], at + n as u64) {
            Ok(0) => break,
            Ok(more) => n += more,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(n)
}

fn le(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |n, &b| n << 8 | u64::from(b))
}

/// Where the functions of a file begin.
struct Tables<'a> {
    file: &'a File,
    /// Parts that are loaded: address, offset, length.
    loaded: Vec<[u64; 3]>,
    /// Where the table is in memory.
    address: u64,
    /// Pairs of offsets: of a function, and of what tells about it.
    table: Vec<u8>,
}

impl Tables<'_> {
    fn of(file: &File) -> Option<Tables<'_>> {
        let mut header = [0; 64];
        file.read_exact_at(&mut header, 0).ok()?;
        // 64 bits, little-endian.
        if header[..6] != *b"\x7fELF\x02\x01" || le(&header[54..56]) != 56 {
            return None;
        }
        let count = (le(&header[56..58]) as usize).min(MAX_HEADERS);
        let mut headers = vec![0; count * 56];
        file.read_exact_at(&mut headers, le(&header[32..40])).ok()?;
        let field = |h: &[u8], at: usize| le(&h[at..at + 8]);
        let of = |kind| headers.chunks_exact(56).filter(move |h| le(&h[..4]) == kind);
        let loaded = of(LOAD).map(|h| [field(h, 16), field(h, 8), field(h, 32)]).collect();
        let (at, address, bytes) =
            of(UNWINDING).next().map(|h| (field(h, 8), field(h, 16), field(h, 32)))?;
        let mut table = vec![0; bytes.min(MAX_SEARCH_BYTES) as usize];
        file.read_exact_at(&mut table, at).ok()?;
        if table.get(..4)? != ENCODINGS {
            return None;
        }
        let entries = le(table.get(8..12)?) as usize;
        table.drain(..12);
        table.truncate(entries.checked_mul(8)?);
        Some(Tables { file, loaded, address, table })
    }

    /// Addresses of the function that holds `address`.
    fn function(&self, address: u64) -> Option<Range<u64>> {
        let offset =
            |bytes: &[u8]| self.address.wrapping_add_signed(i64::from(le(bytes) as u32 as i32));
        let entry = |i: usize| &self.table[8 * i..8 * i + 8];
        let (mut low, mut high) = (0, self.table.len() / 8);
        while low < high {
            let middle = low.midpoint(high);
            match offset(&entry(middle)[..4]) <= address {
                true => low = middle + 1,
                false => high = middle,
            }
        }
        let entry = entry(low.checked_sub(1)?);
        let (start, about) = (offset(&entry[..4]), offset(&entry[4..]));
        let [at, begin, _] = *self.loaded.iter().find(|l| about.wrapping_sub(l[0]) < l[2])?;
        let mut about_it = [0; 16];
        let place = about.wrapping_sub(at).wrapping_add(begin);
        self.file.read_exact_at(&mut about_it, place).ok()?;
        // Its start once more, relative to where that stands: so it is encoded as is thought here.
        let again = i64::from(le(&about_it[8..12]) as u32 as i32);
        let holds = about.wrapping_add(8).wrapping_add_signed(again) == start;
        let end = start.checked_add(le(&about_it[12..16]))?;
        (holds && (start..end).contains(&address)).then_some(start..end)
    }

    /// Whether the two bytes at `at` of `code`, which is at `offset` of the file, are `cpuid`.
    fn is_cpuid(&self, code: &[u8], offset: u64, at: usize) -> bool {
        let seen = || {
            let place = offset + at as u64;
            let [address, begin, _] =
                *self.loaded.iter().find(|l| place.wrapping_sub(l[1]) < l[2])?;
            let function = self.function(place.wrapping_sub(begin).wrapping_add(address))?;
            let start = function.start.checked_sub(address)?.checked_add(begin)?;
            let start = start.checked_sub(offset)?;
            let mut next = start as usize;
            while next <= at {
                let length = length(code.get(next..)?)?;
                // With or without prefixes.
                if next + length == at + 2 && code[next..at].iter().all(|b| is_prefix(*b)) {
                    return Some(true);
                }
                next += length;
            }
            Some(false)
        };
        seen().unwrap_or(true)
    }
}

fn is_prefix(byte: u8) -> bool {
    is_legacy(byte) || byte & 0xf0 == 0x40
}

fn is_legacy(byte: u8) -> bool {
    matches!(byte, 0x26 | 0x2e | 0x36 | 0x3e | 0x64..=0x67 | 0xf0 | 0xf2 | 0xf3)
}

/// What follows the operation's code.
enum Rest {
    /// So many bytes.
    Immediate(usize),
    /// An operand in a register or memory, and so many bytes.
    Operand(usize),
}
use Rest::{Immediate, Operand};

/// Length of the instruction that `code` begins with; `None` if it is not known.
fn length(code: &[u8]) -> Option<usize> {
    let legacy = code.iter().position(|b| !is_legacy(*b))?;
    let rex = code.get(legacy).filter(|b| *b & 0xf0 == 0x40);
    let (short, small) = (code[..legacy].contains(&0x66), code[..legacy].contains(&0x67));
    let wide = rex.is_some_and(|b| b & 8 != 0);
    let at = legacy + usize::from(rex.is_some());
    let op = code.get(at..)?;
    let word = if short && !wide { 2 } else { 4 };
    let (used, rest) = match (*op.first()?, rex) {
        (0x0f, _) => escaped(op)?,
        (0xc5, None) => (3, vector(1, *op.get(2)?)?),
        (0xc4, None) => (4, vector(op.get(1)? & 0x1f, *op.get(3)?)?),
        (0x62, None) => (5, vector(op.get(1)? & 7, *op.get(4)?)?),
        (0xb8..=0xbf, _) if wide => (1, Immediate(8)),
        (0xa0..=0xa3, _) => (1, Immediate(if small { 4 } else { 8 })),
        (byte, _) => (1, plain(byte, op.get(1).copied().unwrap_or(0) >> 3 & 7, word)?),
    };
    let length = at
        + used
        + match rest {
            Immediate(bytes) => bytes,
            Operand(bytes) => operand(op.get(used..)?)? + bytes,
        };
    (length <= 15 && length <= code.len()).then_some(length)
}

/// Bytes of an operand.
fn operand(bytes: &[u8]) -> Option<usize> {
    let first = *bytes.first()?;
    let (mode, base) = (first >> 6, first & 7);
    let (scaled, base) = match (mode, base) {
        (0..=2, 4) => (1, bytes.get(1)? & 7),
        _ => (0, base),
    };
    let distance = match (mode, base) {
        (0, 5) | (2, _) => 4,
        (1, _) => 1,
        _ => 0,
    };
    Some(1 + scaled + distance)
}

/// Operations of one byte; `more` is the middle of what may be an operand's first byte.
fn plain(byte: u8, more: u8, word: usize) -> Option<Rest> {
    Some(match byte {
        0x00..=0x3f => match byte & 7 {
            0..=3 => Operand(0),
            4 => Immediate(1),
            5 => Immediate(word),
            _ => return None,
        },
        0x50..=0x5f | 0x6c..=0x6f | 0x90..=0x99 | 0x9b..=0x9f => Immediate(0),
        0xa4..=0xa7 | 0xaa..=0xaf | 0xc3 | 0xc9 | 0xcb | 0xcc | 0xcf | 0xd7 => Immediate(0),
        0xec..=0xef | 0xf1 | 0xf4 | 0xf5 | 0xf8..=0xfd => Immediate(0),
        0x6a | 0x70..=0x7f | 0xa8 | 0xb0..=0xb7 | 0xcd | 0xe0..=0xe7 | 0xeb => Immediate(1),
        0xc2 | 0xca => Immediate(2),
        0xc8 => Immediate(3),
        0x68 | 0xa9 | 0xb8..=0xbf => Immediate(word),
        0xe8 | 0xe9 => Immediate(4),
        0x6b | 0x80 | 0x83 | 0xc0 | 0xc1 | 0xc6 => Operand(1),
        0x69 | 0x81 | 0xc7 => Operand(word),
        0xf6 => Operand(if more < 2 { 1 } else { 0 }),
        0xf7 => Operand(if more < 2 { word } else { 0 }),
        0x8f if more != 0 => return None,
        0x63 | 0x84..=0x8f | 0xd0..=0xd3 | 0xd8..=0xdf | 0xfe | 0xff => Operand(0),
        _ => return None,
    })
}

/// Operations behind `0f`, and how many bytes they have with it.
fn escaped(op: &[u8]) -> Option<(usize, Rest)> {
    let rest = match *op.get(1)? {
        0x38 => return Some((3, Operand(0))),
        0x3a => return Some((3, Operand(1))),
        0x05..=0x09 | 0x0b | 0x0e | 0x30..=0x35 | 0x37 | 0x77 | 0xa0..=0xa2 | 0xa8..=0xaa => {
            Immediate(0)
        }
        0xc8..=0xcf => Immediate(0),
        0x80..=0x8f => Immediate(4),
        0x0f | 0x70..=0x73 | 0xa4 | 0xac | 0xba | 0xc2 | 0xc4..=0xc6 => Operand(1),
        0x04 | 0x0a | 0x0c | 0x24..=0x27 | 0x36 | 0x39 | 0x3b..=0x3f | 0x78 | 0xa6 | 0xa7 => {
            return None;
        }
        _ => Operand(0),
    };
    Some((2, rest))
}

/// Operations of vectors, by their map.
fn vector(map: u8, op: u8) -> Option<Rest> {
    Some(match (map, op) {
        (1, 0x77) => Immediate(0),
        (1, 0x70..=0x73 | 0xc2 | 0xc4..=0xc6) | (3, _) => Operand(1),
        (1 | 2 | 5 | 6, _) => Operand(0),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Files mapped here, and of each what is code: offset and length.
    fn mapped() -> Vec<(String, u64, u64)> {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let code = maps.lines().filter_map(|line| {
            let words: Vec<&str> = line.split_ascii_whitespace().collect();
            let path = words.get(5).filter(|p| p.starts_with('/') && words[1].contains('x'))?;
            let (start, end) = words[0].split_once('-')?;
            let hex = |word| u64::from_str_radix(word, 16).unwrap();
            Some((String::from(*path), hex(words[2]), hex(end) - hex(start)))
        });
        code.collect()
    }

    #[test]
    fn instructions_end_where_their_function_ends() {
        let (mut functions, mut off) = (0, Vec::new());
        for (path, offset, bytes) in mapped() {
            let file = File::open(&path).unwrap();
            let mut code = vec![0; bytes as usize];
            let n = file.read_at(&mut code, offset).unwrap();
            let Some(tables) = Tables::of(&file) else { continue };
            for entry in tables.table.chunks_exact(8) {
                let at = i64::from(le(&entry[..4]) as u32 as i32);
                let at = tables.address.wrapping_add_signed(at);
                let Some(function) = tables.function(at) else { continue };
                let [address, begin, _] =
                    *tables.loaded.iter().find(|l| at.wrapping_sub(l[0]) < l[2]).unwrap();
                let place = |a: u64| (a - address + begin).checked_sub(offset);
                let (Some(start), Some(end)) = (place(function.start), place(function.end)) else {
                    continue;
                };
                if end > n as u64 {
                    continue;
                }
                let (mut next, end) = (start as usize, end as usize);
                while next < end {
                    let Some(length) = length(&code[next..]) else { break };
                    next += length;
                }
                functions += 1;
                if next != end {
                    off.push((path.clone(), at));
                }
            }
        }
        // What is written by hand need not be like that.
        assert!(functions > 2000 && off.len() * 500 < functions, "{functions}: {off:x?}");
    }

    #[test]
    fn bytes_within_another_instruction_do_not_ask() {
        let known: [(&[u8], usize); 12] = [
            (&[0x0f, 0xa2], 2),
            (&[0xb8, 0x0f, 0xa2, 0, 0], 5),
            (&[0x48, 0xb8, 1, 2, 3, 4, 5, 6, 0x0f, 0xa2], 10),
            (&[0x66, 0xb8, 0x0f, 0xa2], 4),
            (&[0x8b, 0x84, 0x24, 0x0f, 0xa2, 0, 0], 7),
            (&[0x8b, 0x05, 0x0f, 0xa2, 0, 0], 6),
            (&[0xf6, 0x44, 0x24, 0x0f, 0xa2], 5),
            (&[0xc5, 0xf8, 0x77], 3),
            (&[0xc4, 0xe3, 0x7d, 0x39, 0xc1, 0x01], 6),
            (&[0x62, 0xf1, 0x7c, 0x48, 0x11, 0x47, 0x01], 7),
            (&[0x0f, 0x84, 0x0f, 0xa2, 0, 0], 6),
            (&[0xf7, 0xd8], 2),
        ];
        for (code, bytes) in known {
            assert_eq!(length(code), Some(bytes), "{code:x?}");
        }
        // Not known: an extension that is newer than this.
        assert_eq!(length(&[0xd5, 0x0f, 0xa2, 0]), None);
    }

    #[test]
    fn a_library_that_asks_is_found_and_others_are_not() {
        let mapped = mapped();
        let of = |name: &str| {
            let found = mapped.iter().find(|(path, ..)| path.contains(name)).unwrap();
            asks(found.0.as_bytes(), found.1, found.2)
        };
        assert!(of("libgcc_s.so"), "it fills in __cpu_model");
        // An address space of nothing but that byte pair, without tables.
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("code");
        std::fs::write(&path, [0xb8, 0x0f, 0xa2, 0, 0]).unwrap();
        assert!(asks(path.as_os_str().as_bytes(), 0, 5));
        std::fs::write(&path, [0xb8, 0x0f, 0xa3, 0, 0]).unwrap();
        assert!(!asks(path.as_os_str().as_bytes(), 0, 5));
        assert!(asks(b"/nowhere", 0, 5));
        let mut names = vec![b'x'; CHUNK_BYTES - 5];
        std::fs::write(&path, &names).unwrap();
        assert!(!is_told(path.as_os_str().as_bytes()));
        names.extend_from_slice(b"\0__cpu_model\0");
        std::fs::write(&path, names).unwrap();
        assert!(is_told(path.as_os_str().as_bytes()));
    }
}
