//! How a datatype was made: envelope and contents (MPI 5.0 section 5.1.13).
//!
//! Kept true: constructor arguments are kept as the program gave them; a constituent is kept alive
//! by being listed here. The shapes of the small and the large count form are both derived.

use std::rc::Rc;

use super::Datatype;
use crate::handle::Handle;

/// `MPI_COMBINER_*` of the standard ABI.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(i32)]
pub enum Combiner {
    Named = 101,
    Dup = 102,
    Contiguous = 103,
    Vector = 104,
    Hvector = 105,
    Indexed = 106,
    Hindexed = 107,
    IndexedBlock = 108,
    HindexedBlock = 109,
    Struct = 110,
    Subarray = 111,
    Darray = 112,
    F90Real = 113,
    F90Complex = 114,
    F90Integer = 115,
    Resized = 116,
}

/// Whether the arguments came as `int` and `MPI_Aint`, or as `MPI_Count` (the `_c` procedures).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Form {
    Small,
    Large,
}

/// One constructor argument, by the list it goes to in the small and in the large form.
#[derive(Clone, Copy, Debug)]
enum Arg {
    /// An integer in both forms.
    Int(i64),
    /// An integer in the small form, a count in the large.
    Count(i64),
    /// An address in the small form, a count in the large.
    Addr(i64),
}

/// A constructor call.
#[derive(Debug)]
pub(crate) struct Made {
    pub(super) combiner: Combiner,
    args: Vec<Arg>,
    pub(super) types: Vec<Rc<Datatype>>,
}

impl Made {
    pub(super) fn new(combiner: Combiner, types: Vec<Rc<Datatype>>) -> Made {
        Made { combiner, args: Vec::new(), types }
    }

    pub(super) fn of(combiner: Combiner, old: &Rc<Datatype>) -> Made {
        Made::new(combiner, vec![Rc::clone(old)])
    }

    /// The type of which this is a duplicate, or one element.
    pub(super) fn same(&self) -> Option<&Rc<Datatype>> {
        let one = matches!(self.args[..], [Arg::Count(1)]);
        let same = self.combiner == Combiner::Dup || (self.combiner == Combiner::Contiguous && one);
        self.types.first().filter(|_| same)
    }

    pub(super) fn ints(mut self, values: &[i64]) -> Made {
        self.args.extend(values.iter().map(|v| Arg::Int(*v)));
        self
    }

    pub(super) fn counts(mut self, values: &[i64]) -> Made {
        self.args.extend(values.iter().map(|v| Arg::Count(*v)));
        self
    }

    pub(super) fn addrs(mut self, values: &[i64]) -> Made {
        self.args.extend(values.iter().map(|v| Arg::Addr(*v)));
        self
    }

    pub(super) fn list(&self, form: Form) -> Lists {
        let mut lists = Lists::default();
        for arg in &self.args {
            match (*arg, form) {
                (Arg::Int(v), _) | (Arg::Count(v), Form::Small) => lists.integers.push(v),
                (Arg::Addr(v), Form::Small) => lists.addresses.push(v),
                (Arg::Count(v) | Arg::Addr(v), Form::Large) => lists.counts.push(v),
            }
        }
        lists
    }
}

#[derive(Default)]
pub(super) struct Lists {
    pub integers: Vec<i64>,
    pub addresses: Vec<i64>,
    pub counts: Vec<i64>,
}

/// What `MPI_Type_get_envelope(_c)` tells.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Envelope {
    pub combiner: Combiner,
    pub integers: usize,
    pub addresses: usize,
    /// Zero unless the datatype was made by a `_c` procedure.
    pub large_counts: usize,
    pub datatypes: usize,
}

/// What `MPI_Type_get_contents(_c)` tells. Derived constituents have fresh handles, which the
/// program frees.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Contents {
    /// Fit in `int` when the datatype was made by a small-count procedure.
    pub integers: Vec<i64>,
    pub addresses: Vec<i64>,
    pub large_counts: Vec<i64>,
    pub datatypes: Vec<Handle>,
}
