//! Handles of MPI objects and the slabs that hold the objects.
//!
//! Kept true: a predefined object's handle is its integer in the MPI-5 standard ABI (below 0x1000);
//! a dynamic one has bit 31 set, its kind in bits 27..31, its generation in bits 20..27 and its
//! slot in bits 0..20. So a stale or foreign handle is recognised, and both ABIs pass it on as is.

use crate::made::{Maker, Makers};

/// An MPI object as the program names it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
pub struct Handle(pub u32);

/// What a dynamic handle refers to (bits 27..31).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Kind {
    Comm = 0,
    Group = 1,
    Datatype = 2,
    Op = 3,
    Request = 4,
    Errhandler = 5,
    Info = 6,
    Message = 7,
    File = 8,
    Session = 9,
    Win = 10,
}

const SLOT_BITS: u32 = 20;
const GENERATION_BITS: u32 = 7;
const DYNAMIC: u32 = 1 << 31;

impl Handle {
    /// Whether the handle was made at run time (not predefined).
    pub fn is_dynamic(self) -> bool {
        self.0 & DYNAMIC != 0
    }

    fn slot(self) -> usize {
        (self.0 & ((1 << SLOT_BITS) - 1)) as usize
    }

    fn generation(self) -> u8 {
        ((self.0 >> SLOT_BITS) & ((1 << GENERATION_BITS) - 1)) as u8
    }

    fn tagged(kind: Kind, generation: u8, slot: usize) -> Handle {
        let top = DYNAMIC | (kind as u32) << (SLOT_BITS + GENERATION_BITS);
        Handle(top | u32::from(generation) << SLOT_BITS | slot as u32)
    }

    pub(crate) fn has_kind(self, kind: Kind) -> bool {
        self.is_dynamic() && (self.0 >> (SLOT_BITS + GENERATION_BITS)) & 15 == kind as u32
    }
}

struct Slot<T> {
    generation: u8,
    value: Option<T>,
}

/// Objects of one kind, found by handle in constant time.
pub struct Slab<T> {
    kind: Kind,
    slots: Vec<Slot<T>>,
    free: Vec<usize>,
    /// By slot, who made what is there, where that is kept (`made`).
    makers: Makers,
}

impl<T> Slab<T> {
    pub fn new(kind: Kind) -> Self {
        Slab { kind, slots: Vec::new(), free: Vec::new(), makers: Makers::default() }
    }

    /// Stores `value`; `None` when all 2^20 handles of this kind are in use.
    pub fn try_insert(&mut self, value: T) -> Option<Handle> {
        if let Some(slot) = self.free.pop() {
            let entry = &mut self.slots[slot];
            entry.value = Some(value);
            self.makers.note(slot);
            return Some(Handle::tagged(self.kind, entry.generation, slot));
        }
        let slot = self.slots.len();
        if slot >> SLOT_BITS != 0 {
            return None;
        }
        self.slots.push(Slot { generation: 0, value: Some(value) });
        self.makers.note(slot);
        Some(Handle::tagged(self.kind, 0, slot))
    }

    /// Stores `value`.
    pub fn insert(&mut self, value: T) -> crate::error::Res<Handle> {
        self.try_insert(value).ok_or(crate::error::class::OTHER)
    }

    fn find(&self, h: Handle) -> Option<usize> {
        let entry = self.slots.get(h.slot())?;
        (h.has_kind(self.kind) && entry.generation == h.generation()).then_some(h.slot())
    }

    pub fn get(&self, h: Handle) -> Option<&T> {
        self.slots[self.find(h)?].value.as_ref()
    }

    pub fn get_mut(&mut self, h: Handle) -> Option<&mut T> {
        let slot = self.find(h)?;
        self.slots[slot].value.as_mut()
    }

    /// Takes the object out; its handle is stale from now on.
    pub fn remove(&mut self, h: Handle) -> Option<T> {
        let slot = self.find(h)?;
        let entry = &mut self.slots[slot];
        let value = entry.value.take()?;
        entry.generation = (entry.generation + 1) & ((1 << GENERATION_BITS) - 1);
        self.free.push(slot);
        Some(value)
    }

    /// Number of live objects.
    pub fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Who made each live object, if that was kept.
    pub(crate) fn makers(&self) -> impl Iterator<Item = &Maker> {
        let live = self.slots.iter().enumerate().filter(|(_, slot)| slot.value.is_some());
        live.filter_map(|(slot, _)| self.makers.of(slot))
    }

    /// All live objects with their handles.
    pub fn iter(&self) -> impl Iterator<Item = (Handle, &T)> {
        let kind = self.kind;
        self.slots.iter().enumerate().filter_map(move |(i, s)| {
            s.value.as_ref().map(|v| (Handle::tagged(kind, s.generation, i), v))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_removed_handle_is_stale() {
        let mut slab = Slab::new(Kind::Op);
        let a = slab.insert("a").unwrap();
        assert!(a.is_dynamic());
        assert_eq!(slab.remove(a), Some("a"));
        let b = slab.insert("b").unwrap();
        assert_ne!(a, b);
        assert_eq!(slab.get(a), None);
        assert_eq!(slab.get(b), Some(&"b"));
        assert_eq!(slab.len(), 1);
    }

    #[test]
    fn a_handle_of_another_kind_is_refused() {
        let mut ops = Slab::new(Kind::Op);
        let mut groups = Slab::new(Kind::Group);
        let op = ops.insert(1).unwrap();
        groups.insert(1).unwrap();
        assert_eq!(groups.get(op), None);
    }
}
