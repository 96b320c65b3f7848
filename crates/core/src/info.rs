//! Info objects (MPI 5.0 chapter 10): ordered pairs of byte strings.
//!
//! Kept true: keys are unique and keep the order in which they were first set, so that
//! `MPI_Info_get_nthkey` walks them in a fixed order.

use crate::consts::{INFO_ENV, INFO_NULL};
use crate::error::{Res, class};
use crate::handle::{Handle, Kind, Slab};
use crate::machine::Machine;

/// Most bytes of a key, without the terminator (the smaller of both ABIs' limits).
pub const MAX_KEY_BYTES: usize = 254;
/// Most bytes of a value, without the terminator.
pub const MAX_VALUE_BYTES: usize = 1023;

type Text = Box<[u8]>;

/// One info object.
#[derive(Clone, Default, Debug)]
pub struct Info {
    pairs: Vec<(Text, Text)>,
}

impl Info {
    pub fn get(&self, key: &[u8]) -> Option<&[u8]> {
        self.pairs.iter().find(|(k, _)| **k == *key).map(|(_, v)| &**v)
    }

    pub fn set(&mut self, key: &[u8], value: &[u8]) {
        match self.pairs.iter_mut().find(|(k, _)| **k == *key) {
            Some(pair) => pair.1 = value.into(),
            None => self.pairs.push((key.into(), value.into())),
        }
    }

    /// Whether the key was there.
    pub fn delete(&mut self, key: &[u8]) -> bool {
        let before = self.pairs.len();
        self.pairs.retain(|(k, _)| **k != *key);
        self.pairs.len() != before
    }

    /// All pairs in their order.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.pairs.iter().map(|(k, v)| (&**k, &**v))
    }
}

/// All info objects the program holds, and `INFO_ENV`.
pub struct InfoTable {
    pub(crate) slab: Slab<Info>,
    env: Info,
}

impl Default for InfoTable {
    fn default() -> Self {
        Self::new()
    }
}

impl InfoTable {
    pub fn new() -> Self {
        let mut env = Info::default();
        env.set(b"arch", std::env::consts::ARCH.as_bytes());
        InfoTable { slab: Slab::new(Kind::Info), env }
    }

    /// Fills `INFO_ENV` (by the ABI layer): maxprocs, wdir and the like.
    pub fn set_env(&mut self, key: &[u8], value: &[u8]) {
        self.env.set(key, value);
    }

    pub fn get(&self, h: Handle) -> Res<&Info> {
        if h == INFO_ENV { Ok(&self.env) } else { self.slab.get(h).ok_or(class::INFO) }
    }

    /// The object of an argument that may be `INFO_NULL`.
    pub fn get_optional(&self, h: Handle) -> Res<Option<&Info>> {
        if h == INFO_NULL { Ok(None) } else { self.get(h).map(Some) }
    }

    pub fn insert(&mut self, info: Info) -> Res<Handle> {
        self.slab.insert(info)
    }

    pub fn remove(&mut self, h: Handle) -> Res<Info> {
        self.slab.remove(h).ok_or(class::INFO)
    }

    /// An object to be changed; `INFO_ENV` is read-only for the program.
    pub fn get_mut(&mut self, h: Handle) -> Res<&mut Info> {
        self.slab.get_mut(h).ok_or(class::INFO)
    }
}

fn check_key(key: &[u8]) -> Res<()> {
    if key.is_empty() || key.len() > MAX_KEY_BYTES { Err(class::INFO_KEY) } else { Ok(()) }
}

impl Machine {
    pub fn info_create(&mut self) -> Res<Handle> {
        self.infos.insert(Info::default())
    }

    pub fn info_set(&mut self, info: Handle, key: &[u8], value: &[u8]) -> Res<()> {
        let info = self.infos.get_mut(info)?;
        check_key(key)?;
        if value.len() > MAX_VALUE_BYTES {
            return Err(class::INFO_VALUE);
        }
        info.set(key, value);
        Ok(())
    }

    /// Serves Info_get, Info_get_string and Info_get_valuelen.
    pub fn info_get(&self, info: Handle, key: &[u8]) -> Res<Option<&[u8]>> {
        let info = self.infos.get(info)?;
        check_key(key)?;
        Ok(info.get(key))
    }

    pub fn info_nkeys(&self, info: Handle) -> Res<i32> {
        Ok(self.infos.get(info)?.pairs.len() as i32)
    }

    pub fn info_nthkey(&self, info: Handle, n: i32) -> Res<&[u8]> {
        let pairs = &self.infos.get(info)?.pairs;
        let pair = usize::try_from(n).ok().and_then(|n| pairs.get(n)).ok_or(class::ARG)?;
        Ok(&pair.0)
    }

    pub fn info_dup(&mut self, info: Handle) -> Res<Handle> {
        let copy = self.infos.get(info)?.clone();
        self.infos.insert(copy)
    }

    pub fn info_delete(&mut self, info: Handle, key: &[u8]) -> Res<()> {
        let info = self.infos.get_mut(info)?;
        check_key(key)?;
        if info.delete(key) { Ok(()) } else { Err(class::INFO_NOKEY) }
    }

    pub fn info_free(&mut self, info: &mut Handle) -> Res<()> {
        self.infos.slab.remove(*info).ok_or(class::INFO)?;
        *info = INFO_NULL;
        Ok(())
    }

    /// A copy of `INFO_ENV`.
    pub fn info_create_env(&mut self) -> Res<Handle> {
        self.info_dup(INFO_ENV)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_keep_the_order_of_their_first_setting() {
        let mut info = Info::default();
        info.set(b"b", b"1");
        info.set(b"a", b"2");
        info.set(b"b", b"");
        let pairs: Vec<_> = info.iter().collect();
        assert_eq!(pairs, [(&b"b"[..], &b""[..]), (b"a", b"2")]);
        assert!(info.delete(b"b"));
        assert!(!info.delete(b"b"));
        assert_eq!(info.get(b"b"), None);
    }

    #[test]
    fn the_environment_is_not_writable() {
        let mut table = InfoTable::new();
        assert!(table.get(INFO_ENV).is_ok());
        assert_eq!(table.get_mut(INFO_ENV).map(|_| ()), Err(class::INFO));
        assert!(table.get_optional(INFO_NULL).unwrap().is_none());
        assert_eq!(table.get(INFO_NULL).map(|_| ()), Err(class::INFO));
    }
}
