//! Attribute caching (MPI 5.0 section 7.7) on communicators, datatypes and windows.
//!
//! Attributes lie beside the objects, by handle. Kept true: a callback is called through `lend`
//! with the table free, so it may set, get or delete attributes itself; therefore each step looks
//! the table up anew and never keeps an index across a call. An attribute whose delete function
//! fails stays. A freed keyval that attributes still use remains one, for those who saved its
//! number, until the last of them is gone. Values are pointers or integers of the program: never
//! looked into.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::rc::Rc;

use crate::consts;
use crate::error::{Class, Res, class};
use crate::handle::Handle;
use crate::machine::Machine;
use crate::rma::{WIN_BASE, WIN_MODEL};

/// What a keyval may be used on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AttrKind {
    Comm,
    Type,
    Win,
}

/// `(old object, keyval, value)` -> the value for the new object, `None` (flag false) or an error
/// code. The extra state and the calling convention are the closure's affair.
pub type CopyFn = Rc<dyn Fn(Handle, i32, usize) -> Result<Option<usize>, i32>>;
/// `(object, keyval, value)` -> error code, 0 for success.
pub type DeleteFn = Rc<dyn Fn(Handle, i32, usize) -> i32>;

/// What a duplication does with an attribute.
#[derive(Clone)]
pub enum CopyRule {
    /// `MPI_*_NULL_COPY_FN`
    Null,
    /// `MPI_*_DUP_FN`
    Dup,
    Call(CopyFn),
}

pub const KEYVAL_INVALID: i32 = 0;
pub const TAG_UB: i32 = 501;
pub const IO: i32 = 502;
pub const HOST: i32 = 503;
pub const WTIME_IS_GLOBAL: i32 = 504;
pub const APPNUM: i32 = 505;
pub const LASTUSEDCODE: i32 = 506;
pub const UNIVERSE_SIZE: i32 = 507;

const PREDEFINED: usize = (UNIVERSE_SIZE - TAG_UB + 1) as usize;
/// Dynamic keyvals count up from here: clear of both ABIs' predefined ones, never used twice.
const FIRST_KEYVAL: i32 = 0x1_0000;

struct Keyval {
    kind: AttrKind,
    copy: CopyRule,
    delete: Option<DeleteFn>,
    /// The program gave it up; attributes may still use it.
    freed: Cell<bool>,
}

#[derive(Clone)]
struct Entry {
    keyval: i32,
    functions: Rc<Keyval>,
    value: usize,
}

/// All keyvals and attributes of this rank.
pub struct AttrTable {
    keyvals: BTreeMap<i32, Rc<Keyval>>,
    next: i32,
    /// By object, in the order in which they were first set.
    sets: BTreeMap<Handle, Vec<Entry>>,
    /// The program gets addresses into this box.
    predefined: Box<[Cell<i32>; PREDEFINED]>,
}

impl AttrTable {
    /// `ranks`: size of COMM_WORLD.
    pub fn new(ranks: u32) -> Self {
        let predefined: Box<[Cell<i32>; PREDEFINED]> = Box::default();
        let set = |keyval: i32, value: i32| predefined[(keyval - TAG_UB) as usize].set(value);
        set(TAG_UB, consts::TAG_UB);
        set(IO, consts::ANY_SOURCE);
        set(HOST, consts::PROC_NULL);
        // A rank may go on on another machine, whose clock is another one.
        set(WTIME_IS_GLOBAL, 0);
        set(APPNUM, 0);
        set(LASTUSEDCODE, crate::errhandler::FIRST_DYNAMIC - 1);
        set(UNIVERSE_SIZE, ranks as i32);
        AttrTable {
            keyvals: BTreeMap::new(),
            next: FIRST_KEYVAL,
            sets: BTreeMap::new(),
            predefined,
        }
    }

    /// What the program's part of the job is called by number, and how many ranks there may be.
    pub(crate) fn set_started(&self, appnum: i32, universe: u32) {
        self.predefined[(APPNUM - TAG_UB) as usize].set(appnum);
        self.predefined[(UNIVERSE_SIZE - TAG_UB) as usize].set(universe as i32);
    }

    /// What this ABI calls `MPI_ANY_SOURCE` and `MPI_PROC_NULL`: the values of `MPI_IO` and
    /// `MPI_HOST`.
    pub fn set_ranks(&self, any_source: i32, proc_null: i32) {
        self.predefined[(IO - TAG_UB) as usize].set(any_source);
        self.predefined[(HOST - TAG_UB) as usize].set(proc_null);
    }

    pub(crate) fn set_last_used_code(&self, code: i32) {
        self.predefined[(LASTUSEDCODE - TAG_UB) as usize].set(code);
    }

    fn predefined(&self, keyval: i32) -> Option<&Cell<i32>> {
        usize::try_from(keyval.checked_sub(TAG_UB)?).ok().and_then(|at| self.predefined.get(at))
    }

    fn keyval(&self, kind: AttrKind, keyval: i32) -> Res<&Rc<Keyval>> {
        self.keyvals.get(&keyval).filter(|k| k.kind == kind).ok_or(class::KEYVAL)
    }

    fn find(&self, object: Handle, keyval: i32) -> Option<&Entry> {
        self.sets.get(&object)?.iter().find(|e| e.keyval == keyval)
    }

    /// The keyval comes along: a callback may have deleted its last attribute meanwhile.
    fn put(&mut self, object: Handle, entry: Entry) {
        self.keyvals.entry(entry.keyval).or_insert_with(|| entry.functions.clone());
        let set = self.sets.entry(object).or_default();
        match set.iter_mut().find(|e| e.keyval == entry.keyval) {
            Some(old) => *old = entry,
            None => set.push(entry),
        }
    }

    fn take(&mut self, object: Handle, keyval: i32) {
        let Some(set) = self.sets.get_mut(&object) else { return };
        set.retain(|e| e.keyval != keyval);
        if set.is_empty() {
            self.sets.remove(&object);
        }
        self.forget_if_unused(keyval);
    }

    /// Drops a keyval that was freed once no attribute uses it.
    fn forget_if_unused(&mut self, keyval: i32) {
        let freed = self.keyvals.get(&keyval).is_some_and(|k| k.freed.get());
        if freed && !self.sets.values().flatten().any(|e| e.keyval == keyval) {
            self.keyvals.remove(&keyval);
        }
    }
}

impl Machine {
    /// `delete` `None` is `MPI_*_NULL_DELETE_FN`.
    pub fn keyval_create(
        &mut self,
        kind: AttrKind,
        copy: CopyRule,
        delete: Option<DeleteFn>,
    ) -> Res<i32> {
        let keyval = self.attrs.next;
        self.attrs.next = keyval.checked_add(1).ok_or(class::OTHER)?;
        let freed = Cell::new(false);
        self.attrs.keyvals.insert(keyval, Rc::new(Keyval { kind, copy, delete, freed }));
        Ok(keyval)
    }

    /// Sets `keyval` to `KEYVAL_INVALID`; through a saved copy it can be used, and freed again,
    /// while an attribute uses it.
    pub fn keyval_free(&mut self, kind: AttrKind, keyval: &mut i32) -> Res<()> {
        self.attrs.keyval(kind, *keyval)?.freed.set(true);
        self.attrs.forget_if_unused(*keyval);
        *keyval = KEYVAL_INVALID;
        Ok(())
    }

    fn attr_object(&self, kind: AttrKind, object: Handle) -> Res<()> {
        match kind {
            AttrKind::Comm => self.comms.get(object).map(|_| ()),
            AttrKind::Type => self.types.get(object).map(|_| ()),
            AttrKind::Win => self.windows.get(object).map(|_| ()),
        }
    }

    /// Errors other than classes are the codes of the program's callbacks (also below).
    pub fn attr_set(
        &mut self,
        kind: AttrKind,
        object: Handle,
        keyval: i32,
        value: usize,
    ) -> Res<()> {
        self.attr_object(kind, object)?;
        let functions = self.attrs.keyval(kind, keyval)?.clone();
        if let Some(old) = self.attrs.find(object, keyval).cloned() {
            self.attr_call_delete(object, &old)?;
        }
        self.attrs.put(object, Entry { keyval, functions, value });
        Ok(())
    }

    /// For predefined attributes the value is the address of a C `int`.
    pub fn attr_get(&self, kind: AttrKind, object: Handle, keyval: i32) -> Res<Option<usize>> {
        self.attr_object(kind, object)?;
        if kind == AttrKind::Comm
            && let Some(cell) = self.attrs.predefined(keyval)
        {
            return Ok(Some(cell.as_ptr() as usize));
        }
        if kind == AttrKind::Win && (WIN_BASE..=WIN_MODEL).contains(&keyval) {
            return Ok(self.win_attribute(object, keyval));
        }
        self.attrs.keyval(kind, keyval)?;
        Ok(self.attrs.find(object, keyval).map(|e| e.value))
    }

    /// Value of a predefined attribute as a number (for Fortran).
    pub fn attr_predefined(&self, keyval: i32) -> Option<i32> {
        self.attrs.predefined(keyval).map(Cell::get)
    }

    pub fn attr_delete(&mut self, kind: AttrKind, object: Handle, keyval: i32) -> Res<()> {
        self.attr_object(kind, object)?;
        self.attrs.keyval(kind, keyval)?;
        let entry = self.attrs.find(object, keyval).cloned().ok_or(class::KEYVAL)?;
        self.attr_call_delete(object, &entry)?;
        self.attrs.take(object, keyval);
        Ok(())
    }

    fn attr_call_delete(&mut self, object: Handle, entry: &Entry) -> Res<()> {
        let Some(delete) = entry.functions.delete.clone() else { return Ok(()) };
        match self.lend(|| delete(object, entry.keyval, entry.value)) {
            0 => Ok(()),
            code => Err(Class(code)),
        }
    }

    /// Copies by the copy functions, last set first, as MPICH does; the copies stand in the order
    /// of what they are copies of. `comm_dup` does it itself, Type_dup calls it once the new type
    /// exists.
    pub fn attr_copy_all(&mut self, kind: AttrKind, from: Handle, to: Handle) -> Res<()> {
        self.attr_object(kind, from)?;
        let entries = self.attrs.sets.get(&from).cloned().unwrap_or_default();
        for entry in entries.into_iter().rev() {
            let value = match entry.functions.copy.clone() {
                CopyRule::Null => None,
                CopyRule::Dup => Some(entry.value),
                CopyRule::Call(copy) => self
                    .lend(|| copy(from, entry.keyval, entry.value))
                    .map_err(|code| if code == 0 { class::OTHER } else { Class(code) })?,
            };
            if let Some(value) = value {
                self.attrs.put(to, Entry { value, ..entry });
            }
        }
        if let Some(copies) = self.attrs.sets.get_mut(&to) {
            copies.reverse();
        }
        Ok(())
    }

    /// Runs the delete functions, last set first; `comm_free` does it itself, Type_free calls it
    /// before the type goes, MPI_Finalize calls it with (Comm, COMM_SELF) before anything else.
    pub fn attr_delete_all(&mut self, kind: AttrKind, object: Handle) -> Res<()> {
        self.attr_object(kind, object)?;
        while let Some(entry) = self.attrs.sets.get(&object).and_then(|s| s.last()).cloned() {
            self.attr_call_delete(object, &entry)?;
            self.attrs.take(object, entry.keyval);
        }
        Ok(())
    }
}
