//! The table of datatypes: handles, life time, commit, introspection.
//!
//! Kept true: predefined datatypes are always committed and never freed; freeing a handle frees
//! the object only when nothing else refers to it.

use std::rc::Rc;

use super::contents::{Combiner, Contents, Made};
use super::layout::{Bounds, Layout};
use super::predefined::{FIRST, LIMIT, PREDEFINED, TypeClass, sized};
use super::{Datatype, Element, f90};
use crate::consts::DATATYPE_NULL;
use crate::error::{Res, class};
use crate::handle::{Handle, Kind, Slab};

/// All datatypes of a process.
pub struct TypeTable {
    predefined: Vec<Option<Rc<Datatype>>>,
    pub(crate) derived: Slab<Rc<Datatype>>,
    pub(super) f90: f90::Cache,
    pub(super) rule: Bounds,
}

impl Default for TypeTable {
    fn default() -> Self {
        Self::new()
    }
}

fn named(h: Handle, name: &str, element: Element) -> Res<Datatype> {
    let mut t = Datatype::new(Layout::element(element)?, Made::new(Combiner::Named, Vec::new()));
    t.element = Some(element);
    t.predefined.set(Some(h));
    t.committed.set(true);
    t.set_name(name.as_bytes());
    Ok(t)
}

impl TypeTable {
    pub fn new() -> Self {
        let mut predefined = vec![None; (LIMIT - FIRST) as usize];
        for row in PREDEFINED {
            // The layouts of basic elements are far from every limit, so this is always `Ok`.
            if let Ok(t) = named(row.handle, row.name, row.element) {
                predefined[(row.handle.0 - FIRST) as usize] = Some(Rc::new(t));
            }
        }
        TypeTable {
            predefined,
            derived: Slab::new(Kind::Datatype),
            f90: f90::Cache::default(),
            rule: Bounds::default(),
        }
    }

    /// Chooses how types that are made from now on get their bounds.
    pub fn set_rule(&mut self, rule: Bounds) {
        self.rule = rule;
    }

    /// The datatype of a handle, borrowed.
    pub fn get_ref(&self, h: Handle) -> Res<&Rc<Datatype>> {
        let found = if h.is_dynamic() {
            self.derived.get(h)
        } else {
            let index = h.0.checked_sub(FIRST).ok_or(class::TYPE)?;
            self.predefined.get(index as usize).and_then(Option::as_ref)
        };
        found.ok_or(class::TYPE)
    }

    pub fn get(&self, h: Handle) -> Res<Rc<Datatype>> {
        self.get_ref(h).map(Rc::clone)
    }

    /// The predefined datatype whose elements a datatype is made of, all of one kind.
    pub(crate) fn predefined_of(&self, t: &Datatype) -> Option<Handle> {
        let alike = |p: &&Rc<Datatype>| match t.element() {
            Some(element) => p.element() == Some(element),
            None => t.uniform().is_some() && p.uniform() == t.uniform(),
        };
        let own = self.predefined.iter().flatten().find(alike).and_then(|p| p.predefined());
        own.or_else(|| {
            // Of pairs, which are not of one kind: what it was made of.
            let mut of = t.made.types.iter().map(|old| self.predefined_of(old));
            let first = of.next()??;
            of.all(|other| other == Some(first)).then_some(first)
        })
    }

    /// The datatype of a handle, for use in communication: it must be committed.
    pub fn get_committed(&self, h: Handle) -> Res<&Rc<Datatype>> {
        let t = self.get_ref(h)?;
        if t.committed.get() { Ok(t) } else { Err(class::TYPE) }
    }

    pub(super) fn insert(&mut self, t: Datatype) -> Res<Handle> {
        self.derived.insert(Rc::new(t))
    }

    pub(super) fn add(&mut self, mut layout: Layout, made: Made) -> Res<Handle> {
        layout.rule = self.rule;
        self.insert(Datatype::new(layout, made))
    }

    pub fn commit(&self, h: Handle) -> Res<()> {
        self.get_ref(h)?.committed.set(true);
        Ok(())
    }

    /// Frees a handle and sets it to `MPI_DATATYPE_NULL`.
    pub fn free(&mut self, h: &mut Handle) -> Res<()> {
        if self.get_ref(*h)?.predefined.get().is_some() {
            return Err(class::TYPE);
        }
        self.derived.remove(*h).ok_or(class::TYPE)?;
        *h = DATATYPE_NULL;
        Ok(())
    }

    /// A duplicate: same layout, committed as the original is, without its name.
    pub fn dup(&mut self, old: Handle) -> Res<Handle> {
        let old = self.get(old)?;
        let mut t = Datatype::new(old.layout.clone(), Made::of(Combiner::Dup, &old));
        t.element = old.element;
        t.committed.set(old.committed.get());
        self.insert(t)
    }

    /// The handle of a predefined datatype, a new one of another.
    pub(crate) fn handle_of(&mut self, t: &Rc<Datatype>) -> Res<Handle> {
        match t.predefined.get() {
            Some(h) => Ok(h),
            None => self.derived.insert(Rc::clone(t)),
        }
    }

    /// Constructor arguments of a derived datatype.
    pub fn contents(&mut self, h: Handle) -> Res<Contents> {
        let t = self.get(h)?;
        if t.made.combiner == Combiner::Named {
            return Err(class::TYPE);
        }
        let lists = t.made.list(t.form.get());
        let mut datatypes = Vec::with_capacity(t.made.types.len());
        for old in &t.made.types {
            datatypes.push(self.handle_of(old)?);
        }
        Ok(Contents {
            integers: lists.integers,
            addresses: lists.addresses,
            large_counts: lists.counts,
            datatypes,
        })
    }

    /// The predefined datatype of a type class (`MPI_TYPECLASS_*`) and size.
    pub fn match_size(&self, type_class: i32, bytes: i32) -> Res<Handle> {
        let type_class = TypeClass::from_abi(type_class).ok_or(class::ARG)?;
        sized(type_class, bytes).ok_or(class::ARG)
    }

    /// The predefined pair of a value and an index type, or `MPI_DATATYPE_NULL`
    /// (`MPI_Type_get_value_index`).
    pub fn value_index(&self, value: Handle, index: Handle) -> Res<Handle> {
        use super::predefined as p;
        self.get_ref(value)?;
        self.get_ref(index)?;
        Ok(match (value, index) {
            (p::FLOAT, p::INT) => p::FLOAT_INT,
            (p::DOUBLE, p::INT) => p::DOUBLE_INT,
            (p::LONG, p::INT) => p::LONG_INT,
            (p::INT, p::INT) => p::TWO_INT,
            (p::SHORT, p::INT) => p::SHORT_INT,
            (p::LONG_DOUBLE, p::INT) => p::LONG_DOUBLE_INT,
            (p::REAL, p::REAL) => p::TWO_REAL,
            (p::DOUBLE_PRECISION, p::DOUBLE_PRECISION) => p::TWO_DOUBLE_PRECISION,
            (p::INTEGER, p::INTEGER) => p::TWO_INTEGER,
            _ => DATATYPE_NULL,
        })
    }

    /// Live derived datatypes (for leak reports and tests).
    pub fn derived_count(&self) -> usize {
        self.derived.len()
    }
}
