//! A naive model of datatypes: every typemap is expanded to the list of its basic elements.
//! Random descriptions are built both as a model and in a `TypeTable`.

use proptest::prelude::*;

use crate::datatype::predefined as p;
use crate::datatype::{
    Basic, DISTRIBUTE_BLOCK, DISTRIBUTE_CYCLIC, DISTRIBUTE_DFLT_DARG, DISTRIBUTE_NONE, Darray,
    ORDER_C, ORDER_FORTRAN, TypeTable,
};
use crate::handle::Handle;

/// One dimension of a distributed array.
#[derive(Clone, Debug)]
pub struct Dim {
    pub gsize: i64,
    pub distrib: i32,
    pub darg: i32,
    pub procs: i32,
}

/// How a datatype is made.
#[derive(Clone, Debug)]
pub enum Spec {
    Basic(usize),
    Contiguous(i64, Box<Spec>),
    Vector(i64, i64, i64, Box<Spec>),
    Hvector(i64, i64, i64, Box<Spec>),
    Indexed(Vec<(i64, i64)>, Box<Spec>),
    Hindexed(Vec<(i64, i64)>, Box<Spec>),
    IndexedBlock(i64, Vec<i64>, Box<Spec>),
    HindexedBlock(i64, Vec<i64>, Box<Spec>),
    Struct(Vec<(i64, i64, Spec)>),
    Resized(i64, i64, Box<Spec>),
    Dup(Box<Spec>),
    /// Size, subsize and start of each dimension.
    Subarray(Vec<(i64, i64, i64)>, bool, Box<Spec>),
    Darray(Vec<Dim>, i32, bool, Box<Spec>),
}

type Leaf = (Handle, &'static [(i64, Basic)], i64);

pub const LEAVES: [Leaf; 9] = [
    (p::BYTE, &[(0, Basic::Byte)], 1),
    (p::SHORT, &[(0, Basic::I16)], 2),
    (p::INT, &[(0, Basic::I32)], 4),
    (p::INT64_T, &[(0, Basic::I64)], 8),
    (p::DOUBLE, &[(0, Basic::F64)], 8),
    (p::C_DOUBLE_COMPLEX, &[(0, Basic::C64)], 16),
    (p::INTEGER16, &[(0, Basic::I128)], 16),
    (p::DOUBLE_INT, &[(0, Basic::F64), (8, Basic::I32)], 16),
    (p::SHORT_INT, &[(0, Basic::I16), (4, Basic::I32)], 8),
];

/// The expanded typemap.
#[derive(Clone, Debug, Default)]
pub struct Model {
    pub entries: Vec<(i64, Basic)>,
    /// Bounds of copies with and without explicit bounds.
    hard: Option<(i64, i64)>,
    soft: Option<(i64, i64)>,
}

fn widen(range: &mut Option<(i64, i64)>, low: i64, high: i64) {
    let (l, h) = range.unwrap_or((low, high));
    *range = Some((l.min(low), h.max(high)));
}

impl Model {
    pub fn bounds(&self) -> (i64, i64) {
        self.hard.or(self.soft).unwrap_or((0, 0))
    }

    pub fn extent(&self) -> i64 {
        self.bounds().1 - self.bounds().0
    }

    pub fn size(&self) -> u64 {
        self.entries.iter().map(|e| e.1.size()).sum()
    }

    fn copy(&mut self, at: i64, old: &Model) {
        self.entries.extend(old.entries.iter().map(|(d, b)| (d + at, *b)));
        if let Some((l, h)) = old.hard {
            widen(&mut self.hard, l + at, h + at);
        } else if let Some((l, h)) = old.soft {
            widen(&mut self.soft, l + at, h + at);
        }
    }

    fn copies(&mut self, at: i64, count: i64, old: &Model) {
        for i in 0..count {
            self.copy(at + i * old.extent(), old);
        }
    }

    fn resize(mut self, lb: i64, extent: i64) -> Model {
        self.hard = Some((lb, lb + extent));
        self
    }

    fn blocks(old: &Model, blocks: impl Iterator<Item = (i64, i64)>) -> Model {
        let mut m = Model::default();
        for (len, disp) in blocks {
            m.copies(disp, len, old);
        }
        m
    }
}

/// Elements of an array that `owned` selects, in memory order.
fn array(sizes: &[i64], fortran: bool, old: &Model, owned: impl Fn(usize, i64) -> bool) -> Model {
    let mut m = Model::default();
    let total: i64 = sizes.iter().product();
    for linear in 0..total {
        let mut rest = linear;
        let order: Vec<usize> =
            if fortran { (0..sizes.len()).collect() } else { (0..sizes.len()).rev().collect() };
        let mut mine = true;
        for d in order {
            mine &= owned(d, rest % sizes[d]);
            rest /= sizes[d];
        }
        if mine {
            m.copy(linear * old.extent(), old);
        }
    }
    m.resize(0, total * old.extent())
}

fn owns(dim: &Dim, coord: i64, index: i64) -> bool {
    let procs = i64::from(dim.procs);
    let default = dim.darg == DISTRIBUTE_DFLT_DARG;
    match dim.distrib {
        DISTRIBUTE_NONE => true,
        DISTRIBUTE_BLOCK => {
            let even = (dim.gsize + procs - 1) / procs;
            index / (if default { even } else { i64::from(dim.darg) }) == coord
        }
        _ => index / (if default { 1 } else { i64::from(dim.darg) }) % procs == coord,
    }
}

fn order(fortran: bool) -> i32 {
    if fortran { ORDER_FORTRAN } else { ORDER_C }
}

fn unzip(blocks: &[(i64, i64)]) -> (Vec<i64>, Vec<i64>) {
    blocks.iter().copied().unzip()
}

impl Spec {
    /// Builds the datatype and its model. Handles of constituents are freed at once.
    pub fn build(&self, t: &mut TypeTable) -> (Handle, Model) {
        match self {
            Spec::Basic(i) => {
                let (h, entries, extent) = LEAVES[*i];
                (h, Model { entries: entries.to_vec(), hard: None, soft: Some((0, extent)) })
            }
            Spec::Struct(parts) => {
                let mut m = Model::default();
                let (mut lens, mut disps, mut types) = (vec![], vec![], vec![]);
                for (len, disp, spec) in parts {
                    let (h, old) = spec.build(t);
                    m.copies(*disp, *len, &old);
                    lens.push(*len);
                    disps.push(*disp);
                    types.push(h);
                }
                if let Some((l, h)) = m.soft {
                    let align = m.entries.iter().map(|e| e.1.align() as i64).max().unwrap_or(1);
                    m.soft = Some((l, l + (h - l + align - 1) / align * align));
                }
                let new = t.structure(&lens, &disps, &types).unwrap();
                types.into_iter().for_each(|h| drop_handle(t, h));
                (new, m)
            }
            Spec::Contiguous(_, old)
            | Spec::Vector(.., old)
            | Spec::Hvector(.., old)
            | Spec::Indexed(_, old)
            | Spec::Hindexed(_, old)
            | Spec::IndexedBlock(.., old)
            | Spec::HindexedBlock(.., old)
            | Spec::Resized(.., old)
            | Spec::Dup(old)
            | Spec::Subarray(.., old)
            | Spec::Darray(.., old) => {
                let (h, m) = old.build(t);
                let new = self.derive(t, h, &m);
                drop_handle(t, h);
                new
            }
        }
    }

    fn derive(&self, t: &mut TypeTable, h: Handle, m: &Model) -> (Handle, Model) {
        let extent = m.extent();
        match self {
            Spec::Contiguous(n, _) => {
                (t.contiguous(*n, h).unwrap(), Model::blocks(m, std::iter::once((*n, 0))))
            }
            Spec::Vector(n, len, stride, _) => {
                let at = (0..*n).map(|i| (*len, i * stride * extent));
                (t.vector(*n, *len, *stride, h).unwrap(), Model::blocks(m, at))
            }
            Spec::Hvector(n, len, stride, _) => {
                let at = (0..*n).map(|i| (*len, i * stride));
                (t.hvector(*n, *len, *stride, h).unwrap(), Model::blocks(m, at))
            }
            Spec::Indexed(blocks, _) => {
                let (lens, disps) = unzip(blocks);
                let at = blocks.iter().map(|(len, d)| (*len, d * extent));
                (t.indexed(&lens, &disps, h).unwrap(), Model::blocks(m, at))
            }
            Spec::Hindexed(blocks, _) => {
                let (lens, disps) = unzip(blocks);
                let new = t.hindexed(&lens, &disps, h).unwrap();
                (new, Model::blocks(m, blocks.iter().copied()))
            }
            Spec::IndexedBlock(len, disps, _) => {
                let at = disps.iter().map(|d| (*len, d * extent));
                (t.indexed_block(*len, disps, h).unwrap(), Model::blocks(m, at))
            }
            Spec::HindexedBlock(len, disps, _) => {
                let at = disps.iter().map(|d| (*len, *d));
                (t.hindexed_block(*len, disps, h).unwrap(), Model::blocks(m, at))
            }
            Spec::Resized(lb, extent, _) => {
                (t.resized(h, *lb, *extent).unwrap(), m.clone().resize(*lb, *extent))
            }
            Spec::Subarray(dims, fortran, _) => {
                let sizes: Vec<i64> = dims.iter().map(|d| d.0).collect();
                let subs: Vec<i64> = dims.iter().map(|d| d.1).collect();
                let starts: Vec<i64> = dims.iter().map(|d| d.2).collect();
                let owned = |d: usize, i| i >= starts[d] && i < starts[d] + subs[d];
                let new = t.subarray(&sizes, &subs, &starts, order(*fortran), h).unwrap();
                (new, array(&sizes, *fortran, m, owned))
            }
            Spec::Darray(dims, rank, fortran, _) => derive_darray(t, h, m, dims, *rank, *fortran),
            Spec::Dup(_) | Spec::Basic(_) | Spec::Struct(_) => (t.dup(h).unwrap(), m.clone()),
        }
    }
}

fn derive_darray(
    t: &mut TypeTable,
    h: Handle,
    m: &Model,
    dims: &[Dim],
    rank: i32,
    fortran: bool,
) -> (Handle, Model) {
    let gsizes: Vec<i64> = dims.iter().map(|d| d.gsize).collect();
    let distribs: Vec<i32> = dims.iter().map(|d| d.distrib).collect();
    let dargs: Vec<i32> = dims.iter().map(|d| d.darg).collect();
    let psizes: Vec<i32> = dims.iter().map(|d| d.procs).collect();
    let size: i32 = psizes.iter().product();
    let rank = rank % size;
    let coord = |d: usize| {
        let faster: i32 = psizes[d + 1..].iter().product();
        i64::from(rank / faster % psizes[d])
    };
    let args = Darray {
        size,
        rank,
        gsizes: &gsizes,
        distribs: &distribs,
        dargs: &dargs,
        psizes: &psizes,
        order: order(fortran),
    };
    let new = t.darray(args, h).unwrap();
    (new, array(&gsizes, fortran, m, |d, i| owns(&dims[d], coord(d), i)))
}

/// Frees a handle unless it is predefined.
fn drop_handle(t: &mut TypeTable, mut h: Handle) {
    if h.is_dynamic() {
        t.free(&mut h).unwrap();
    }
}

fn dim() -> impl Strategy<Value = Dim> {
    (1i64..5, 0..3, prop_oneof![Just(0), 1..4], 1..3).prop_map(|(gsize, kind, darg, procs)| {
        let dflt = DISTRIBUTE_DFLT_DARG;
        match kind {
            0 => Dim { gsize, distrib: DISTRIBUTE_NONE, darg: dflt, procs: 1 },
            1 => {
                let fits = i64::from(darg) * i64::from(procs) >= gsize;
                let darg = if fits { darg } else { dflt };
                Dim { gsize, distrib: DISTRIBUTE_BLOCK, darg, procs }
            }
            _ => {
                let darg = if darg == 0 { dflt } else { darg };
                Dim { gsize, distrib: DISTRIBUTE_CYCLIC, darg, procs }
            }
        }
    })
}

fn sub() -> impl Strategy<Value = (i64, i64, i64)> {
    (1i64..5)
        .prop_flat_map(|size| (Just(size), 1..=size))
        .prop_flat_map(|(size, sub)| (Just(size), Just(sub), 0..=size - sub))
}

/// Random descriptions, nested up to four deep.
pub fn spec() -> impl Strategy<Value = Spec> {
    let leaf = (0..LEAVES.len()).prop_map(Spec::Basic);
    leaf.prop_recursive(4, 12, 3, |inner| {
        let old = || inner.clone().prop_map(Box::new);
        let blocks = |disp: std::ops::Range<i64>| prop::collection::vec((0i64..4, disp), 0..5);
        let disps = |disp: std::ops::Range<i64>| prop::collection::vec(disp, 0..5);
        let part = (0i64..4, -40i64..80, inner.clone());
        prop_oneof![
            (0i64..5, old()).prop_map(|(n, o)| Spec::Contiguous(n, o)),
            (0i64..5, 0i64..4, -4i64..6, old()).prop_map(|(n, l, s, o)| Spec::Vector(n, l, s, o)),
            (0i64..5, 0i64..4, -40i64..90, old())
                .prop_map(|(n, l, s, o)| Spec::Hvector(n, l, s, o)),
            (blocks(-3..9), old()).prop_map(|(b, o)| Spec::Indexed(b, o)),
            (blocks(-40..90), old()).prop_map(|(b, o)| Spec::Hindexed(b, o)),
            (0i64..4, disps(-3..9), old()).prop_map(|(l, d, o)| Spec::IndexedBlock(l, d, o)),
            (0i64..4, disps(-40..90), old()).prop_map(|(l, d, o)| Spec::HindexedBlock(l, d, o)),
            prop::collection::vec(part, 0..4).prop_map(Spec::Struct),
            (-20i64..20, -10i64..70, old()).prop_map(|(lb, e, o)| Spec::Resized(lb, e, o)),
            old().prop_map(Spec::Dup),
            (prop::collection::vec(sub(), 1..4), any::<bool>(), old())
                .prop_map(|(d, f, o)| Spec::Subarray(d, f, o)),
            (prop::collection::vec(dim(), 1..4), 0..8, any::<bool>(), old())
                .prop_map(|(d, r, f, o)| Spec::Darray(d, r, f, o)),
        ]
    })
}
