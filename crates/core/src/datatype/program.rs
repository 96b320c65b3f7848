//! Compiled datatypes: programs of contiguous and strided runs, built bottom-up and normalised.
//!
//! Kept true: a program lists bytes in the order of the packed stream; neighbours that touch in
//! memory are one run, equal runs at equal distances are one strided instruction, and nesting
//! that only repeats is folded. Sizes and bounds fit in `i64`, so moving needs no checks.
//! Moving the bytes is `exec`.

use std::rc::Rc;

use crate::error::{Res, class};

/// Parts of an inner list that are copied into the list around it rather than referred to.
const INLINE_PARTS_MAX: usize = 64;
/// A list longer than this takes no more inner lists in: they are shared instead.
const INLINE_LIST_MAX: usize = 4096;
/// Nesting that is still compiled (the executor recurses). Inlining keeps real types far below.
const DEPTH_MAX: u32 = 256;

/// A node and where it lies relative to the element's address.
#[derive(Clone, Debug)]
pub(crate) struct Program {
    pub(super) disp: i64,
    pub(super) node: Rc<Node>,
}

#[derive(Debug)]
pub(crate) struct Node {
    /// Bytes of packed stream.
    pub(super) size: u64,
    /// First byte and one past the last, relative to the program's `disp`.
    low: i64,
    high: i64,
    depth: u32,
    pub(super) code: Code,
}

#[derive(Debug)]
pub(super) enum Code {
    /// `size` bytes without a gap.
    Run,
    /// `count` runs of `len` bytes, `stride` apart.
    Strided { len: u64, stride: i64, count: u64 },
    /// Runs of `len` bytes at the listed displacements.
    Blocks { len: u64, disps: Box<[i64]> },
    /// Runs at the listed displacements; run `i` is `starts[i]..starts[i + 1]` of the stream.
    Runs { disps: Box<[i64]>, starts: Box<[u64]> },
    /// `count` times `body`, `stride` apart.
    Repeat { body: Program, stride: i64, count: u64 },
    /// Different parts; part `i` is `starts[i]..starts[i + 1]` of the stream.
    Seq { parts: Box<[Program]>, starts: Box<[u64]> },
}

/// `a * b` where a product of sizes or displacements that overflows is the caller's error.
pub(super) fn mul(a: i64, b: i64) -> Res<i64> {
    a.checked_mul(b).ok_or(class::VALUE_TOO_LARGE)
}

/// `a + b`, likewise.
pub(super) fn add(a: i64, b: i64) -> Res<i64> {
    a.checked_add(b).ok_or(class::VALUE_TOO_LARGE)
}

/// A stream size that also fits in `i64`.
pub(super) fn size_of(count: u64, size: u64) -> Res<u64> {
    match count.checked_mul(size) {
        Some(n) if i64::try_from(n).is_ok() => Ok(n),
        _ => Err(class::VALUE_TOO_LARGE),
    }
}

/// Lowest and highest offset of `count` copies `stride` apart.
pub(super) fn span(count: u64, stride: i64) -> Res<(i64, i64)> {
    if count <= 1 {
        return Ok((0, 0));
    }
    let last = i64::try_from(count - 1).map_err(|_| class::VALUE_TOO_LARGE)?;
    let end = mul(last, stride)?;
    Ok((end.min(0), end.max(0)))
}

impl Program {
    /// `len` bytes at `disp`.
    pub(crate) fn run(disp: i64, len: u64) -> Res<Program> {
        let high = i64::try_from(len).map_err(|_| class::VALUE_TOO_LARGE)?;
        add(disp, high)?;
        Ok(Program {
            disp,
            node: Rc::new(Node { size: len, low: 0, high, depth: 0, code: Code::Run }),
        })
    }

    pub(crate) fn empty() -> Program {
        Program {
            disp: 0,
            node: Rc::new(Node { size: 0, low: 0, high: 0, depth: 0, code: Code::Run }),
        }
    }

    pub(crate) fn size(&self) -> u64 {
        self.node.size
    }

    /// First byte and one past the last byte that the program touches; (0, 0) for none.
    pub(crate) fn bounds(&self) -> (i64, i64) {
        if self.node.size == 0 {
            return (0, 0);
        }
        (self.disp + self.node.low, self.disp + self.node.high)
    }

    /// Displacement and length when the program is one run.
    pub(crate) fn as_run(&self) -> Option<(i64, u64)> {
        matches!(self.node.code, Code::Run).then_some((self.disp, self.node.size))
    }

    fn new(disp: i64, size: u64, bounds: (i64, i64), depth: u32, code: Code) -> Res<Program> {
        if depth > DEPTH_MAX {
            return Err(class::OTHER);
        }
        let (low, high) = bounds;
        add(disp, low)?;
        add(disp, high)?;
        Ok(Program { disp, node: Rc::new(Node { size, low, high, depth, code }) })
    }

    pub(crate) fn shifted(&self, by: i64) -> Res<Program> {
        let disp = add(self.disp, by)?;
        add(disp, self.node.low)?;
        add(disp, self.node.high)?;
        Ok(Program { disp, node: Rc::clone(&self.node) })
    }

    /// `count` copies, `stride` bytes apart.
    pub(crate) fn repeat(&self, count: u64, stride: i64) -> Res<Program> {
        let node = &*self.node;
        let size = size_of(count, node.size)?;
        if size == 0 {
            return Ok(Program::empty());
        }
        if count == 1 {
            return Ok(self.clone());
        }
        let (first, last) = span(count, stride)?;
        let bounds = (add(node.low, first)?, add(node.high, last)?);
        let (depth, code) = match &node.code {
            Code::Run if stride == node.size as i64 => {
                return Program::run(self.disp, size);
            }
            Code::Run => (0, Code::Strided { len: node.size, stride, count }),
            &Code::Strided { len, stride: inner, count: n }
                if i64::try_from(n).ok().and_then(|n| inner.checked_mul(n)) == Some(stride) =>
            {
                (0, Code::Strided { len, stride: inner, count: n * count })
            }
            Code::Repeat { body, stride: inner, count: n }
                if i64::try_from(*n).ok().and_then(|n| inner.checked_mul(n)) == Some(stride) =>
            {
                let code = Code::Repeat { body: body.clone(), stride: *inner, count: n * count };
                (node.depth, code)
            }
            _ => {
                // The body's own displacement moves out, so that the loop starts at zero.
                let body = Program { disp: 0, node: Rc::clone(&self.node) };
                (node.depth + 1, Code::Repeat { body, stride, count })
            }
        };
        Program::new(self.disp, size, bounds, depth, code)
    }
}

/// One part while a sequence is being built: a run, or a larger node.
struct Item {
    disp: i64,
    len: u64,
    node: Option<Rc<Node>>,
}

/// Builds a program from parts in stream order.
pub(crate) struct Builder {
    items: Vec<Item>,
}

impl Builder {
    pub(crate) fn new() -> Self {
        Builder { items: Vec::new() }
    }

    fn run(&mut self, disp: i64, len: u64) -> Res<()> {
        if let Some(last) = self.items.last_mut()
            && last.node.is_none()
            && last.disp + last.len as i64 == disp
        {
            last.len = size_of(1, last.len + len)?;
            add(last.disp, last.len as i64)?;
            return Ok(());
        }
        add(disp, i64::try_from(len).map_err(|_| class::VALUE_TOO_LARGE)?)?;
        self.items.push(Item { disp, len, node: None });
        Ok(())
    }

    /// Appends `part` at `disp`.
    pub(crate) fn place(&mut self, part: &Program, disp: i64) -> Res<()> {
        let node = &part.node;
        if node.size == 0 {
            return Ok(());
        }
        let at = add(disp, part.disp)?;
        if matches!(node.code, Code::Run) {
            return self.run(at, node.size);
        }
        if self.items.len() > INLINE_LIST_MAX {
            return self.refer(&part.shifted(disp)?);
        }
        match &node.code {
            &Code::Strided { len, stride, count } if count <= INLINE_PARTS_MAX as u64 => {
                for i in 0..count as i64 {
                    self.run(add(at, i * stride)?, len)?;
                }
                return Ok(());
            }
            Code::Blocks { len, disps } if disps.len() <= INLINE_PARTS_MAX => {
                for d in disps {
                    self.run(add(at, *d)?, *len)?;
                }
                return Ok(());
            }
            Code::Runs { disps, starts } if disps.len() <= INLINE_PARTS_MAX => {
                for (d, w) in disps.iter().zip(starts.windows(2)) {
                    self.run(add(at, *d)?, w[1] - w[0])?;
                }
                return Ok(());
            }
            Code::Seq { parts, .. } if parts.len() <= INLINE_PARTS_MAX => {
                for p in parts {
                    // Runs may merge with what is here; anything else is referred to.
                    if p.as_run().is_some() {
                        self.run(add(at, p.disp)?, p.size())?;
                    } else {
                        self.refer(&p.shifted(at)?)?;
                    }
                }
                return Ok(());
            }
            _ => {}
        }
        self.refer(&Program { disp: at, node: Rc::clone(node) })
    }

    fn refer(&mut self, part: &Program) -> Res<()> {
        part.shifted(0)?;
        let node = Some(Rc::clone(&part.node));
        self.items.push(Item { disp: part.disp, len: part.size(), node });
        Ok(())
    }

    pub(crate) fn finish(self) -> Res<Program> {
        let items = self.items;
        match &items[..] {
            [] => return Ok(Program::empty()),
            [Item { disp, len, node: None }] => return Program::run(*disp, *len),
            [Item { disp, node: Some(node), .. }] => {
                return Ok(Program { disp: *disp, node: Rc::clone(node) });
            }
            _ => {}
        }
        if items.iter().all(|item| item.node.is_none()) { runs(&items) } else { seq(&items) }
    }
}

fn total(items: &[Item]) -> Res<u64> {
    items.iter().try_fold(0u64, |sum, item| {
        let sum = sum.checked_add(item.len).ok_or(class::VALUE_TOO_LARGE)?;
        size_of(1, sum)
    })
}

fn starts(items: &[Item]) -> Box<[u64]> {
    let mut at = 0;
    let ends = items.iter().map(|item| {
        at += item.len;
        at
    });
    std::iter::once(0).chain(ends).collect()
}

fn runs(items: &[Item]) -> Res<Program> {
    let size = total(items)?;
    let base = items[0].disp;
    // A displacement far from the first may not be representable relative to it.
    let relative = |item: &Item| item.disp.checked_sub(base).ok_or(class::VALUE_TOO_LARGE);
    let disps = items.iter().map(relative).collect::<Res<Box<[i64]>>>()?;
    let (mut low, mut high) = (0, 0);
    for (d, item) in disps.iter().zip(items) {
        low = low.min(*d);
        high = high.max(add(*d, item.len as i64)?);
    }
    let len = items[0].len;
    if items.iter().any(|item| item.len != len) {
        let code = Code::Runs { disps, starts: starts(items) };
        return Program::new(base, size, (low, high), 0, code);
    }
    let stride = disps[1];
    let even = disps.windows(2).all(|w| w[1].checked_sub(w[0]) == Some(stride));
    let code = if even {
        Code::Strided { len, stride, count: items.len() as u64 }
    } else {
        Code::Blocks { len, disps }
    };
    Program::new(base, size, (low, high), 0, code)
}

fn seq(items: &[Item]) -> Res<Program> {
    let size = total(items)?;
    let part = |item: &Item| match &item.node {
        None => Program::run(item.disp, item.len),
        Some(node) => Ok(Program { disp: item.disp, node: Rc::clone(node) }),
    };
    let parts = items.iter().map(part).collect::<Res<Box<[Program]>>>()?;
    let (mut low, mut high, mut depth) = (i64::MAX, i64::MIN, 0);
    for p in &parts {
        low = low.min(p.bounds().0);
        high = high.max(p.bounds().1);
        depth = depth.max(p.node.depth + 1);
    }
    Program::new(0, size, (low, high), depth, Code::Seq { parts, starts: starts(items) })
}
