//! The runs of a datatype: which bytes of memory, or of a file, a range of its packed stream is.
//!
//! `exec` moves bytes between memory and the stream; files have no addresses, so what accesses them
//! asks here where each part of the stream lies. Nothing is listed: runs are told one by one.

use super::Datatype;
use super::program::{Code, Program};
use crate::error::{Res, class};

/// What is told of each run: its place and its length. It may end the walk by `false`.
pub type Tell<'a> = &'a mut dyn FnMut(i64, u64) -> Res<bool>;

impl Datatype {
    /// Tells the runs of bytes `[skip, skip + len)` of the packed stream of endless elements, the
    /// first of them at `at`. Runs that touch come one by one.
    pub fn runs(&self, at: i64, skip: u64, len: u64, tell: Tell) -> Res<bool> {
        repeated(&self.layout.program, self.extent, at, skip, len, tell)
    }

    /// Whether the bytes of one element lie in the order of its stream.
    pub fn is_ascending(&self) -> bool {
        self.size == 0 || ends(&self.layout.program).is_some()
    }
}

fn shift(at: i64, by: i64) -> Res<i64> {
    at.checked_add(by).ok_or(class::ARG)
}

fn nth(at: i64, index: u64, stride: i64) -> Res<i64> {
    let index = i64::try_from(index).map_err(|_| class::ARG)?;
    shift(at, index.checked_mul(stride).ok_or(class::ARG)?)
}

/// Those of copies of `body` that lie `stride` apart.
fn repeated(body: &Program, stride: i64, at: i64, skip: u64, len: u64, tell: Tell) -> Res<bool> {
    let size = body.size();
    if size == 0 {
        return Ok(true);
    }
    if let Some((disp, _)) = body.as_run().filter(|(_, run)| i64::try_from(*run) == Ok(stride)) {
        return if len == 0 { Ok(true) } else { tell(nth(shift(at, disp)?, skip, 1)?, len) };
    }
    each(size, skip, len, |i, from, n| of_one(body, nth(at, i, stride)?, from, n, tell))
}

/// Calls `f(part, offset in it, bytes)` for each part of `size` bytes that the range meets.
fn each(
    size: u64,
    skip: u64,
    mut len: u64,
    mut f: impl FnMut(u64, u64, u64) -> Res<bool>,
) -> Res<bool> {
    let (mut i, mut from) = (skip / size, skip % size);
    while len > 0 {
        let n = len.min(size - from);
        if !f(i, from, n)? {
            return Ok(false);
        }
        (i, from, len) = (i + 1, 0, len - n);
    }
    Ok(true)
}

/// The same for parts that begin at the given places of the stream.
fn pieces(
    starts: &[u64],
    skip: u64,
    len: u64,
    mut f: impl FnMut(usize, u64, u64) -> Res<bool>,
) -> Res<bool> {
    let mut i = starts.partition_point(|s| *s <= skip) - 1;
    let (mut at, end) = (skip, skip + len);
    while at < end {
        let n = starts[i + 1].min(end) - at;
        if n > 0 && !f(i, at - starts[i], n)? {
            return Ok(false);
        }
        (at, i) = (at + n, i + 1);
    }
    Ok(true)
}

/// Those of one copy of `program`; the range lies within it.
fn of_one(program: &Program, at: i64, skip: u64, len: u64, tell: Tell) -> Res<bool> {
    let at = shift(at, program.disp)?;
    match &program.node.code {
        Code::Run => tell(nth(at, skip, 1)?, len),
        &Code::Strided { len: run, stride, .. } => {
            each(run, skip, len, |i, from, n| tell(nth(nth(at, i, stride)?, from, 1)?, n))
        }
        Code::Blocks { len: run, disps } => each(*run, skip, len, |i, from, n| {
            tell(nth(shift(at, disps[i as usize])?, from, 1)?, n)
        }),
        Code::Runs { disps, starts } => {
            pieces(starts, skip, len, |i, from, n| tell(nth(shift(at, disps[i])?, from, 1)?, n))
        }
        Code::Repeat { body, stride, .. } => repeated(body, *stride, at, skip, len, tell),
        Code::Seq { parts, starts } => {
            pieces(starts, skip, len, |i, from, n| of_one(&parts[i], at, from, n, tell))
        }
    }
}

/// Where the first and the last run begin, if none begins before the one that precedes it.
fn ends(program: &Program) -> Option<(i64, i64)> {
    let (first, last) = match &program.node.code {
        Code::Run => (0, 0),
        &Code::Strided { stride, count, .. } => (0, last_of(stride, count)?),
        Code::Blocks { disps, .. } | Code::Runs { disps, .. } => {
            (*disps.first()?, disps.is_sorted().then_some(*disps.last()?)?)
        }
        Code::Repeat { body, stride, count } => {
            let (first, last) = ends(body)?;
            let apart = *count == 1 || first.checked_add(*stride)? >= last;
            (first, apart.then_some(last.checked_add(last_of(*stride, *count)?)?)?)
        }
        Code::Seq { parts, .. } => {
            let mut all = parts.iter().map(ends);
            let (first, mut last) = all.next()??;
            for part in all {
                let (next, end) = part?;
                if next < last {
                    return None;
                }
                last = end;
            }
            (first, last)
        }
    };
    Some((program.disp.checked_add(first)?, program.disp.checked_add(last)?))
}

fn last_of(stride: i64, count: u64) -> Option<i64> {
    let steps = i64::try_from(count).ok()?.checked_sub(1)?;
    (stride >= 0 || steps == 0).then_some(stride.checked_mul(steps)?)
}

#[cfg(test)]
mod tests {
    use crate::datatype::TypeTable;
    use crate::datatype::predefined::{BYTE, INT};
    use crate::handle::Handle;

    fn listed(t: &TypeTable, h: Handle, at: i64, skip: u64, len: u64) -> Vec<(i64, u64)> {
        let mut list = Vec::new();
        let told = t.get(h).unwrap().runs(at, skip, len, &mut |at, n| {
            list.push((at, n));
            Ok(true)
        });
        assert_eq!(told, Ok(true));
        list
    }

    /// Every range of the stream is told as the bytes that the whole stream has there.
    #[test]
    fn ranges_are_parts_of_the_whole() {
        let mut t = TypeTable::new();
        let vector = t.vector(3, 2, 5, INT).unwrap();
        let blocks = t.indexed(&[1, 1, 1], &[0, 3, 7], INT).unwrap();
        let runs = t.indexed(&[1, 3, 2], &[1, 3, 9], BYTE).unwrap();
        let nested = t.hvector(2, 1, 100, vector).unwrap();
        let mixed = t.structure(&[2, 1], &[0, 300], &[blocks, nested]).unwrap();
        for h in [BYTE, vector, blocks, runs, nested, mixed] {
            let spread = |runs: Vec<(i64, u64)>| {
                runs.iter().flat_map(|&(at, n)| at..at + n as i64).collect::<Vec<_>>()
            };
            let size = t.get(h).unwrap().size;
            let whole = spread(listed(&t, h, 10, 0, 3 * size));
            assert_eq!(whole.len() as u64, 3 * size);
            for skip in 0..2 * size {
                for len in [0, 1, 3, size].into_iter().filter(|len| *len <= size) {
                    let part = spread(listed(&t, h, 10, skip, len));
                    assert_eq!(part[..], whole[skip as usize..(skip + len) as usize]);
                }
            }
            assert!(t.get(h).unwrap().is_ascending());
        }
    }

    #[test]
    fn what_goes_back_is_not_ascending() {
        let mut t = TypeTable::new();
        let back = t.indexed(&[1, 1], &[3, 0], INT).unwrap();
        let twice = t.hvector(2, 1, 4, back).unwrap();
        let woven = t.vector(2, 1, 2, INT).unwrap();
        let crossed = t.hvector(2, 1, 4, woven).unwrap();
        for h in [back, twice, crossed] {
            assert!(!t.get(h).unwrap().is_ascending());
        }
        assert!(t.get(woven).unwrap().is_ascending());
    }

    #[test]
    fn one_run_over_all_elements_and_an_early_end() {
        let mut t = TypeTable::new();
        let flat = t.contiguous(5, INT).unwrap();
        assert_eq!(listed(&t, flat, 7, 13, 1000), [(20, 1000)]);
        let vector = t.vector(3, 1, 2, INT).unwrap();
        let mut seen = 0;
        let ended = t.get(vector).unwrap().runs(0, 0, 12, &mut |_, _| {
            seen += 1;
            Ok(seen < 2)
        });
        assert_eq!((ended, seen), (Ok(false), 2));
    }
}
