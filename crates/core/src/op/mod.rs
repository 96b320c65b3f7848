//! Reduction operations (MPI 5.0 section 6.9): predefined ones, the program's own, and applying
//! them to two buffers.
//!
//! Kept true: the left operand is the incoming buffer, as the standard orders it; a predefined
//! operation is applied only to element kinds it is defined for; results are deterministic.

mod kernel;
mod number;

pub(crate) use kernel::Kernel;

#[cfg(test)]
mod tests;

use std::rc::Rc;

use crate::datatype::Datatype;
use crate::error::{Res, class};
use crate::handle::{Handle, Kind, Slab};

pub const SUM: Handle = Handle(0x21);
pub const MIN: Handle = Handle(0x22);
pub const MAX: Handle = Handle(0x23);
pub const PROD: Handle = Handle(0x24);
pub const BAND: Handle = Handle(0x28);
pub const BOR: Handle = Handle(0x29);
pub const BXOR: Handle = Handle(0x2a);
pub const LAND: Handle = Handle(0x30);
pub const LOR: Handle = Handle(0x31);
pub const LXOR: Handle = Handle(0x32);
pub const MINLOC: Handle = Handle(0x38);
pub const MAXLOC: Handle = Handle(0x39);
pub const REPLACE: Handle = Handle(0x3c);
pub const NO_OP: Handle = Handle(0x3d);

/// A predefined operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Builtin {
    Sum,
    Min,
    Max,
    Prod,
    BitAnd,
    BitOr,
    BitXor,
    LogicAnd,
    LogicOr,
    LogicXor,
    MinLoc,
    MaxLoc,
    Replace,
    NoOp,
}

const BUILTINS: [(Handle, Builtin); 14] = [
    (SUM, Builtin::Sum),
    (MIN, Builtin::Min),
    (MAX, Builtin::Max),
    (PROD, Builtin::Prod),
    (BAND, Builtin::BitAnd),
    (BOR, Builtin::BitOr),
    (BXOR, Builtin::BitXor),
    (LAND, Builtin::LogicAnd),
    (LOR, Builtin::LogicOr),
    (LXOR, Builtin::LogicXor),
    (MINLOC, Builtin::MinLoc),
    (MAXLOC, Builtin::MaxLoc),
    (REPLACE, Builtin::Replace),
    (NO_OP, Builtin::NoOp),
];

/// The name of a predefined operation, by its handle.
pub fn name(op: u32) -> Option<&'static str> {
    const NAMES: [&str; 14] = [
        "MPI_SUM",
        "MPI_MIN",
        "MPI_MAX",
        "MPI_PROD",
        "MPI_BAND",
        "MPI_BOR",
        "MPI_BXOR",
        "MPI_LAND",
        "MPI_LOR",
        "MPI_LXOR",
        "MPI_MINLOC",
        "MPI_MAXLOC",
        "MPI_REPLACE",
        "MPI_NO_OP",
    ];
    let at = BUILTINS.iter().position(|(handle, _)| handle.0 == op)?;
    NAMES.get(at).copied()
}

/// A function of the program: `(in, inout, elements, datatype)`.
pub type UserFunction = Box<dyn Fn(*mut u8, *mut u8, i64, Handle)>;

enum Function {
    Builtin(Builtin),
    User(UserFunction),
}

/// A reduction operation.
pub struct Op {
    function: Function,
    commutative: bool,
}

impl Op {
    pub fn is_commutative(&self) -> bool {
        self.commutative
    }

    pub fn builtin(&self) -> Option<Builtin> {
        match self.function {
            Function::Builtin(b) => Some(b),
            Function::User(_) => None,
        }
    }

    /// The loop that applies it to elements of a predefined datatype, if there is one.
    pub(crate) fn kernel_of(&self, dt: &Datatype) -> Option<Kernel> {
        kernel::find(self.builtin()?, dt.element()?)
    }

    /// Whether a reduction may use the operation on the datatype; `Err(class::OP)` if not.
    /// `MPI_REPLACE` and `MPI_NO_OP` are for one-sided accumulation only.
    pub fn check(&self, dt: &Datatype) -> Res<()> {
        let Function::Builtin(builtin) = self.function else { return Ok(()) };
        let kernel = dt.element().and_then(|element| kernel::find(builtin, element));
        kernel.map(|_| ()).ok_or(class::OP)
    }
}

/// All operations of a process.
pub struct OpTable {
    builtin: Vec<(Handle, Rc<Op>)>,
    pub(crate) user: Slab<Rc<Op>>,
}

impl Default for OpTable {
    fn default() -> Self {
        Self::new()
    }
}

impl OpTable {
    pub fn new() -> Self {
        let make = |(h, b): (Handle, Builtin)| {
            // Replacing keeps the last operand, so its order matters.
            let commutative = !matches!(b, Builtin::Replace | Builtin::NoOp);
            (h, Rc::new(Op { function: Function::Builtin(b), commutative }))
        };
        OpTable { builtin: BUILTINS.map(make).to_vec(), user: Slab::new(Kind::Op) }
    }

    pub fn get(&self, h: Handle) -> Res<Rc<Op>> {
        if h.is_dynamic() {
            return self.user.get(h).cloned().ok_or(class::OP);
        }
        let found = self.builtin.iter().find(|(handle, _)| *handle == h);
        found.map(|(_, op)| Rc::clone(op)).ok_or(class::OP)
    }

    pub fn create_user(&mut self, function: UserFunction, commutative: bool) -> Res<Handle> {
        self.user.insert(Rc::new(Op { function: Function::User(function), commutative }))
    }

    /// Puts another function into the place of that of a user's operation.
    pub fn replace_user(&mut self, h: Handle, function: UserFunction) -> Res<()> {
        let op = self.user.get_mut(h).ok_or(class::OP)?;
        *op = Rc::new(Op { function: Function::User(function), commutative: op.commutative });
        Ok(())
    }

    pub fn is_commutative(&self, h: Handle) -> Res<bool> {
        Ok(self.get(h)?.commutative)
    }

    /// Frees a handle and sets it to `MPI_OP_NULL`; predefined operations cannot be freed.
    pub fn free(&mut self, h: &mut Handle) -> Res<()> {
        self.user.remove(*h).ok_or(class::OP)?;
        *h = crate::consts::OP_NULL;
        Ok(())
    }
}

/// `inout[i] = invec[i] op inout[i]` for `count` elements of the datatype.
///
/// # Safety
/// Both buffers hold `count` elements of `dt`, do not overlap, and `inout` may be written.
pub unsafe fn reduce_local(
    op: &Op,
    dt: &Rc<Datatype>,
    dt_handle: Handle,
    invec: *const u8,
    inout: *mut u8,
    count: u64,
) -> Res<()> {
    let builtin = match &op.function {
        Function::User(function) => {
            let n = i64::try_from(count).map_err(|_| class::COUNT)?;
            function(invec.cast_mut(), inout, n, dt_handle);
            return Ok(());
        }
        Function::Builtin(b) => *b,
    };
    match builtin {
        Builtin::NoOp => return Ok(()),
        // SAFETY: the caller's promise.
        Builtin::Replace => return unsafe { copy(dt, invec, inout, count) },
        _ => {}
    }
    let element = dt.element().ok_or(class::OP)?;
    let kernel = kernel::find(builtin, element).ok_or(class::OP)?;
    if count != 0 {
        // SAFETY: a datatype with an element is an array of it, of which both buffers have `count`.
        unsafe { kernel(invec, inout, count as usize) }
    }
    Ok(())
}

/// Copies `count` elements of any layout.
///
/// # Safety
/// As for `reduce_local`.
unsafe fn copy(dt: &Datatype, from: *const u8, to: *mut u8, count: u64) -> Res<()> {
    let total = dt.bytes(count).ok_or(class::VALUE_TOO_LARGE)?;
    let mut chunk = [0u8; 4096];
    let mut at = 0;
    while at < total {
        let n = (total - at).min(chunk.len() as u64);
        let chunk = &mut chunk[..n as usize];
        // SAFETY: the range lies within the stream of the caller's elements.
        unsafe {
            dt.pack_range(from, count, at, chunk);
            dt.unpack_range(to, count, at, chunk);
        }
        at += n;
    }
    Ok(())
}
