//! Datatypes (MPI 5.0 chapter 5): constructors, bounds, packing, introspection.
//!
//! A datatype is built bottom-up into a `layout` (bounds, `signature` of basic elements, compiled
//! `program`). `table` owns the handles; an object lives as long as a handle, another datatype or
//! an operation refers to it. Data is moved by `exec`, at any offset of the packed stream, with no
//! buffer between.

mod array;
mod basic;
mod construct;
mod contents;
mod exec;
mod external32;
mod f90;
mod layout;
mod mapped;
mod pack;
pub mod predefined;
mod program;
mod runs;
mod signature;
mod table;

#[cfg(test)]
mod tests;

use std::cell::{Cell, RefCell};
use std::mem;
use std::rc::Rc;

pub use array::{DISTRIBUTE_BLOCK, DISTRIBUTE_CYCLIC, DISTRIBUTE_DFLT_DARG, DISTRIBUTE_NONE};
pub use array::{Darray, ORDER_C, ORDER_FORTRAN};
pub use basic::Basic;
pub use contents::{Combiner, Contents, Envelope, Form};
pub use layout::Bounds;
#[cfg(test)]
pub(crate) use layout::pair_index_offset;
pub use predefined::Element;
pub use signature::Signature;
pub use table::TypeTable;

use crate::consts::UNDEFINED;
use crate::handle::Handle;
use contents::Made;
use layout::Layout;

/// One datatype.
#[derive(Debug)]
pub struct Datatype {
    /// Bytes of data in one element.
    pub size: u64,
    pub lb: i64,
    pub extent: i64,
    pub true_lb: i64,
    pub true_extent: i64,
    pub committed: Cell<bool>,
    layout: Layout,
    made: Made,
    form: Cell<Form>,
    name: RefCell<Vec<u8>>,
    /// The handle of a datatype that the program neither makes nor frees.
    predefined: Cell<Option<Handle>>,
    element: Option<Element>,
}

impl Datatype {
    fn new(layout: Layout, made: Made) -> Datatype {
        let (low, high) = layout.program.bounds();
        Datatype {
            size: layout.program.size(),
            lb: layout.lb,
            extent: layout.extent(),
            true_lb: low,
            true_extent: high - low,
            committed: Cell::new(false),
            layout,
            made,
            form: Cell::new(Form::Small),
            name: RefCell::new(Vec::new()),
            predefined: Cell::new(None),
            element: None,
        }
    }

    /// The element that predefined operations work on: that of predefined datatypes and of their
    /// duplicates, `None` for other derived datatypes.
    pub fn element(&self) -> Option<Element> {
        self.element
    }

    /// Elements that follow each other have nothing between them, nor in them.
    pub fn is_gapless(&self) -> bool {
        i64::try_from(self.size) == Ok(self.extent)
    }

    /// The basic kind when all elements are of one kind.
    pub fn uniform(&self) -> Option<Basic> {
        self.layout.signature.uniform()
    }

    /// Whether bytes of its data mean nothing, and must not be sent as they are.
    #[inline]
    pub fn is_padded(&self) -> bool {
        self.layout.signature.is_padded()
    }

    pub fn signature(&self) -> &Signature {
        &self.layout.signature
    }

    /// The handle of a predefined datatype.
    pub fn predefined(&self) -> Option<Handle> {
        self.predefined.get()
    }

    /// Whole elements in `bytes` bytes of data (`MPI_Get_count`), or `UNDEFINED`.
    pub fn count_in(&self, bytes: u64) -> i64 {
        match (self.size, bytes) {
            (_, 0) => 0,
            (0, _) => i64::from(UNDEFINED),
            (size, _) if !bytes.is_multiple_of(size) => i64::from(UNDEFINED),
            (size, _) => (bytes / size) as i64,
        }
    }

    /// Basic elements in `bytes` bytes of data (`MPI_Get_elements`), or `UNDEFINED`.
    pub fn elements_in(&self, bytes: u64) -> i64 {
        if bytes == 0 {
            return 0;
        }
        if self.size == 0 {
            return i64::from(UNDEFINED);
        }
        let signature = &self.layout.signature;
        let whole = (bytes / self.size) * signature.elements();
        match bytes % self.size {
            0 => whole as i64,
            rest => signature
                .elements_in(rest)
                .map_or(i64::from(UNDEFINED), |part| (whole + part) as i64),
        }
    }

    /// Bytes that hold `count` elements given that they fit in `i64`.
    pub fn bytes(&self, count: u64) -> Option<u64> {
        count.checked_mul(self.size).filter(|n| i64::try_from(*n).is_ok())
    }

    pub fn name(&self) -> Vec<u8> {
        self.name.borrow().clone()
    }

    pub fn set_name(&self, name: &[u8]) {
        *self.name.borrow_mut() = name.to_vec();
    }

    /// Notes that a `_c` procedure made the datatype: envelope and contents then have counts.
    pub fn set_form(&self, form: Form) {
        self.form.set(form);
    }

    pub fn form(&self) -> Form {
        self.form.get()
    }

    pub fn envelope(&self) -> Envelope {
        let lists = self.made.list(self.form.get());
        Envelope {
            combiner: self.made.combiner,
            integers: lists.integers.len(),
            addresses: lists.addresses.len(),
            large_counts: lists.counts.len(),
            datatypes: self.made.types.len(),
        }
    }
}

impl Drop for Datatype {
    /// Long chains of datatypes are released in a loop: recursion could exhaust the stack.
    fn drop(&mut self) {
        let mut released = mem::take(&mut self.made.types);
        while let Some(old) = released.pop() {
            if let Some(mut last) = Rc::into_inner(old) {
                released.append(&mut last.made.types);
            }
        }
    }
}
