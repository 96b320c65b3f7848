//! What of a collective call is the same on all ranks, as ranks tell it each other where a program
//! is checked in full (`EYRIE_CHECK=full`; `coll::agreeing` compares).

/// Room for a function's name.
const NAME_BYTES: usize = 40;
/// Bytes of a call as it is told.
pub(crate) const CALL_BYTES: usize = NAME_BYTES + 4 + 4 + 8;
/// An argument that a function has not, or that need not be the same.
pub(crate) const NOTHING: u32 = u32::MAX;
const NO_BYTES: u64 = u64::MAX;
/// An operation of the program's own: another number on each rank.
const OWN_OPERATION: u32 = u32::MAX - 1;

/// What of a collective call is the same on all ranks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Collective {
    pub name: &'static str,
    pub root: Option<i32>,
    /// A predefined operation by its handle, or one of the program's own.
    pub op: Option<Operation>,
    /// Bytes of the data, or of a block of it, where all have as many.
    pub bytes: Option<u64>,
}

/// An operation of a reduction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    Predefined(u32),
    Own,
}

/// What is checked of the call that runs, and what was found.
#[derive(Default)]
pub struct Agreement {
    /// The call that begins, if it is to be compared.
    pub call: Option<Collective>,
    /// How it differs from another rank's.
    pub difference: Option<String>,
}

impl Collective {
    pub(crate) fn told(&self) -> [u8; CALL_BYTES] {
        let mut told = [0; CALL_BYTES];
        let name = &self.name.as_bytes()[..self.name.len().min(NAME_BYTES)];
        told[..name.len()].copy_from_slice(name);
        let op = match self.op {
            None => NOTHING,
            Some(Operation::Predefined(op)) => op,
            Some(Operation::Own) => OWN_OPERATION,
        };
        let root = self.root.map_or(NOTHING, |root| root as u32);
        let (_, numbers) = told.split_at_mut(NAME_BYTES);
        numbers[..4].copy_from_slice(&root.to_le_bytes());
        numbers[4..8].copy_from_slice(&op.to_le_bytes());
        numbers[8..].copy_from_slice(&self.bytes.unwrap_or(NO_BYTES).to_le_bytes());
        told
    }
}

/// A call that was told, in words.
pub(crate) fn in_words(told: &[u8]) -> String {
    let Some((name, numbers)) = told.split_at_checked(NAME_BYTES) else { return String::new() };
    let name = name.split(|b| *b == 0).next().unwrap_or_default();
    let mut words = String::from_utf8_lossy(name).into_owned();
    let word = |at: usize| numbers.get(at..at + 4).and_then(|b| b.try_into().ok());
    let word = |at: usize| word(at).map_or(NOTHING, u32::from_le_bytes);
    let bytes = u64::from(word(8)) | u64::from(word(12)) << 32;
    let mut parts = Vec::new();
    if word(0) != NOTHING {
        parts.push(format!("root {}", word(0) as i32));
    }
    match word(4) {
        NOTHING => {}
        OWN_OPERATION => parts.push(String::from("an operation of its own")),
        op => parts
            .push(crate::op::name(op).map_or_else(|| format!("operation {op:#x}"), String::from)),
    }
    if bytes != NO_BYTES {
        parts.push(format!("{bytes} bytes"));
    }
    if !parts.is_empty() {
        words.push_str(&format!(" ({})", parts.join(", ")));
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_told_in_words() {
        let call = Collective { bytes: Some(80), root: Some(3), name: "MPI_Bcast", op: None };
        assert_eq!(in_words(&call.told()), "MPI_Bcast (root 3, 80 bytes)");
        let sum = Some(Operation::Predefined(0x21));
        let call = Collective { op: sum, ..call };
        assert_eq!(in_words(&call.told()), "MPI_Bcast (root 3, MPI_SUM, 80 bytes)");
        let call = Collective { name: "MPI_Barrier", root: None, op: None, bytes: None };
        assert_eq!(in_words(&call.told()), "MPI_Barrier");
    }
}
