//! Layouts: what a datatype means, apart from its name, handle and history.
//!
//! Kept true: the lower and upper bound follow the standard's typemap rules (explicit bounds of
//! resized constituents win over elements; empty constituents without bounds count for nothing),
//! or MPICH's (`Bounds`). As in MPICH, only struct types are padded to the alignment of their
//! elements.

use std::rc::Rc;

use super::basic::Basic;
use super::predefined::Element;
use super::program::{Builder, Program, add, mul, span};
use super::signature::Signature;
use crate::error::Res;

/// What the bounds of resized constituents mean for a type that contains them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Bounds {
    /// They are its bounds, whatever else it has (MPI 5.0 section 5.1.7).
    #[default]
    Standard,
    /// They count as those of any other constituent, and the type is padded as any other. Empty
    /// constituents count where they lie, and a struct of one type alone is not padded.
    Mpich,
}

/// Size, bounds, elements and program of a datatype.
#[derive(Clone, Debug)]
pub(crate) struct Layout {
    pub(super) lb: i64,
    pub(super) ub: i64,
    /// The bounds were given by the program (resized), not computed.
    explicit: bool,
    pub(super) rule: Bounds,
    align: u64,
    pub(super) program: Program,
    pub(super) signature: Rc<Signature>,
}

impl Layout {
    pub(super) fn extent(&self) -> i64 {
        // Checked where the layout was made.
        self.ub - self.lb
    }

    pub(super) fn basic(b: Basic) -> Res<Layout> {
        Ok(Layout {
            lb: 0,
            ub: b.size() as i64,
            explicit: false,
            rule: Bounds::default(),
            align: b.align(),
            program: Program::run(0, b.size())?,
            signature: Rc::new(Signature::basic(b)),
        })
    }

    pub(super) fn element(e: Element) -> Res<Layout> {
        match e {
            Element::One(b) => Layout::basic(b),
            Element::Pair(value, index) => {
                let mut pair = LayoutBuilder::new();
                pair.place(0, 1, 0, &Layout::basic(value)?)?;
                let at = pair_index_offset(value, index);
                pair.place(at as i64, 1, 0, &Layout::basic(index)?)?;
                pair.finish_padded()
            }
        }
    }

    pub(super) fn resized(&self, lb: i64, extent: i64) -> Res<Layout> {
        let ub = add(lb, extent)?;
        Ok(Layout { lb, ub, explicit: true, ..self.clone() })
    }

    /// Whether nothing of it counts for the bounds of a type that contains it.
    fn is_void(&self) -> bool {
        self.signature.elements() == 0 && !self.explicit && self.rule == Bounds::Standard
    }
}

/// Offset of the index in a value-index pair.
pub(crate) fn pair_index_offset(value: Basic, index: Basic) -> u64 {
    value.size().next_multiple_of(index.align())
}

/// Lowest and highest offset seen.
#[derive(Clone, Copy, Default)]
struct Range(Option<(i64, i64)>);

impl Range {
    fn include(&mut self, low: i64, high: i64) {
        self.0 = Some(match self.0 {
            None => (low, high),
            Some((l, h)) => (l.min(low), h.max(high)),
        });
    }
}

/// Builds a layout from copies of others, in typemap order.
pub(super) struct LayoutBuilder {
    program: Builder,
    signature: Signature,
    /// Bounds of all elements, and of constituents with explicit bounds.
    elements: Range,
    markers: Range,
    align: u64,
    /// The last repeated part: blocks of equal length share one program.
    last: Option<(Program, u64, i64, Program)>,
}

impl LayoutBuilder {
    pub(super) fn new() -> Self {
        LayoutBuilder {
            program: Builder::new(),
            signature: Signature::default(),
            elements: Range::default(),
            markers: Range::default(),
            align: 1,
            last: None,
        }
    }

    /// Appends `count` copies of `old` at `disp`, `stride` apart.
    pub(super) fn place(&mut self, disp: i64, count: u64, stride: i64, old: &Layout) -> Res<()> {
        if count == 0 || old.is_void() {
            return Ok(());
        }
        let (first, last) = span(count, stride)?;
        let low = add(add(disp, first)?, old.lb)?;
        let high = add(add(disp, last)?, old.ub)?;
        if old.explicit && old.rule == Bounds::Standard {
            self.markers.include(low, high);
        } else {
            self.elements.include(low, high);
        }
        self.align = self.align.max(old.align);
        self.signature.append(&old.signature, count)?;
        let part = self.repeated(&old.program, count, stride)?;
        self.program.place(&part, disp)
    }

    fn repeated(&mut self, body: &Program, count: u64, stride: i64) -> Res<Program> {
        if count == 1 {
            return Ok(body.clone());
        }
        if let Some((b, n, s, part)) = &self.last
            && (*n, *s) == (count, stride)
            && b.disp == body.disp
            && Rc::ptr_eq(&b.node, &body.node)
        {
            return Ok(part.clone());
        }
        let part = body.repeat(count, stride)?;
        self.last = Some((body.clone(), count, stride, part.clone()));
        Ok(part)
    }

    pub(super) fn finish(self) -> Res<Layout> {
        let explicit = self.markers.0.is_some();
        let (lb, ub) = self.markers.0.or(self.elements.0).unwrap_or((0, 0));
        ub.checked_sub(lb).ok_or(crate::error::class::VALUE_TOO_LARGE)?;
        Ok(Layout {
            lb,
            ub,
            explicit,
            rule: Bounds::default(),
            align: self.align,
            program: self.program.finish()?,
            signature: Rc::new(self.signature),
        })
    }

    /// As `finish`, with the extent rounded up as a C compiler pads a struct.
    pub(super) fn finish_padded(self) -> Res<Layout> {
        let mut layout = self.finish()?;
        let align = layout.align as i64;
        let excess = layout.extent().rem_euclid(align);
        if !layout.explicit && excess != 0 {
            layout.ub = add(layout.ub, align - excess)?;
        }
        Ok(layout)
    }
}

/// `count` blocks of `block` copies of `old`, block starts `stride` bytes apart.
pub(super) fn blocks(count: u64, block: u64, stride: i64, old: &Layout) -> Res<Layout> {
    let mut inner = LayoutBuilder::new();
    inner.place(0, block, old.extent(), old)?;
    let inner = inner.finish()?;
    let mut outer = LayoutBuilder::new();
    outer.place(0, count, stride, &inner)?;
    outer.finish()
}

/// Displacement of element `index` of an array of `old`.
pub(super) fn index_disp(index: i64, old: &Layout) -> Res<i64> {
    mul(index, old.extent())
}
