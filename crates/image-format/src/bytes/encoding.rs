//! The encoding of the image's tables: little-endian numbers, counted lists, fields in order.
//!
//! Decoding trusts nothing: a count is held against the bytes that are left before anything is
//! allocated, and every structure's smallest size is known, so that the memory used is bounded by
//! the size of the input.

/// Why bytes could not be decoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Malformed {
    /// They end too early.
    Short,
    /// A list claims more elements than bytes are left.
    Count,
    /// A tag or flag has no meaning.
    Tag,
    /// Bytes are left over.
    Trailing,
}

/// Bytes being decoded.
pub struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    /// Starts at the first byte.
    pub fn new(bytes: &'a [u8]) -> Reader<'a> {
        Reader { rest: bytes }
    }

    /// The next `n` bytes.
    pub fn take(&mut self, n: usize) -> Result<&'a [u8], Malformed> {
        let (head, rest) = self.rest.split_at_checked(n).ok_or(Malformed::Short)?;
        self.rest = rest;
        Ok(head)
    }

    /// Holds if everything was read.
    pub fn finish(self) -> Result<(), Malformed> {
        if self.rest.is_empty() { Ok(()) } else { Err(Malformed::Trailing) }
    }
}

/// A value of the image's tables.
pub trait Wire: Sized {
    /// Its smallest encoding, in bytes; never zero.
    const MIN_BYTES: usize;
    /// Appends it.
    fn put(&self, out: &mut Vec<u8>);
    /// Reads it back.
    fn get(from: &mut Reader<'_>) -> Result<Self, Malformed>;
}

/// Encodes one value.
pub fn encode<T: Wire>(value: &T) -> Vec<u8> {
    let mut out = Vec::new();
    value.put(&mut out);
    out
}

/// Decodes one value that takes up all of `bytes`.
pub fn decode<T: Wire>(bytes: &[u8]) -> Result<T, Malformed> {
    let mut from = Reader::new(bytes);
    let value = T::get(&mut from)?;
    from.finish()?;
    Ok(value)
}

macro_rules! wire_number {
    ($($t:ty),*) => {$(
        impl Wire for $t {
            const MIN_BYTES: usize = size_of::<$t>();
            fn put(&self, out: &mut Vec<u8>) {
                out.extend_from_slice(&self.to_le_bytes());
            }
            fn get(from: &mut Reader<'_>) -> Result<Self, Malformed> {
                let mut raw = [0; size_of::<$t>()];
                raw.copy_from_slice(from.take(size_of::<$t>())?);
                Ok(<$t>::from_le_bytes(raw))
            }
        }
    )*};
}
wire_number!(u8, u32, u64, i32, i64);

impl Wire for bool {
    const MIN_BYTES: usize = 1;
    fn put(&self, out: &mut Vec<u8>) {
        out.push(u8::from(*self));
    }
    fn get(from: &mut Reader<'_>) -> Result<Self, Malformed> {
        match u8::get(from)? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(Malformed::Tag),
        }
    }
}

impl<T: Wire, const N: usize> Wire for [T; N] {
    const MIN_BYTES: usize = T::MIN_BYTES * N;
    fn put(&self, out: &mut Vec<u8>) {
        self.iter().for_each(|e| e.put(out));
    }
    fn get(from: &mut Reader<'_>) -> Result<Self, Malformed> {
        let list = (0..N).map(|_| T::get(from)).collect::<Result<Vec<T>, Malformed>>()?;
        list.try_into().map_err(|_| Malformed::Count)
    }
}

impl<T: Wire> Wire for Vec<T> {
    const MIN_BYTES: usize = 4;
    fn put(&self, out: &mut Vec<u8>) {
        (self.len() as u32).put(out);
        self.iter().for_each(|e| e.put(out));
    }
    fn get(from: &mut Reader<'_>) -> Result<Self, Malformed> {
        let count = u32::get(from)? as usize;
        if count > from.rest.len() / T::MIN_BYTES {
            return Err(Malformed::Count);
        }
        (0..count).map(|_| T::get(from)).collect()
    }
}

impl<T: Wire> Wire for Option<T> {
    const MIN_BYTES: usize = 1;
    fn put(&self, out: &mut Vec<u8>) {
        self.is_some().put(out);
        self.iter().for_each(|e| e.put(out));
    }
    fn get(from: &mut Reader<'_>) -> Result<Self, Malformed> {
        if bool::get(from)? { Ok(Some(T::get(from)?)) } else { Ok(None) }
    }
}

/// Defines a structure together with its encoding: its fields in order.
macro_rules! wire_struct {
    ($(#[$doc:meta])* pub struct $name:ident {
        $($(#[$fdoc:meta])* pub $field:ident: $t:ty,)*
    }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq)]
        pub struct $name {
            $($(#[$fdoc])* pub $field: $t,)*
        }
        impl $crate::bytes::encoding::Wire for $name {
            const MIN_BYTES: usize = 0 $(+ <$t as $crate::bytes::encoding::Wire>::MIN_BYTES)*;
            fn put(&self, out: &mut Vec<u8>) {
                $($crate::bytes::encoding::Wire::put(&self.$field, out);)*
            }
            fn get(
                from: &mut $crate::bytes::encoding::Reader<'_>,
            ) -> Result<Self, $crate::bytes::encoding::Malformed> {
                Ok(Self { $($field: $crate::bytes::encoding::Wire::get(from)?,)* })
            }
        }
    };
}
pub(crate) use wire_struct;

/// Defines an enum together with its encoding: a tag byte, then the fields in order.
macro_rules! wire_enum {
    ($(#[$doc:meta])* pub enum $name:ident {
        $($(#[$vdoc:meta])* $variant:ident = $tag:literal
            { $($(#[$fdoc:meta])* $field:ident: $t:ty,)* },)*
    }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq)]
        pub enum $name {
            $($(#[$vdoc])* $variant { $($(#[$fdoc])* $field: $t,)* },)*
        }
        impl $crate::bytes::encoding::Wire for $name {
            const MIN_BYTES: usize = 1;
            fn put(&self, out: &mut Vec<u8>) {
                match self {
                    $($name::$variant { $($field,)* } => {
                        out.push($tag);
                        $($crate::bytes::encoding::Wire::put($field, out);)*
                    })*
                }
            }
            fn get(
                from: &mut $crate::bytes::encoding::Reader<'_>,
            ) -> Result<Self, $crate::bytes::encoding::Malformed> {
                match <u8 as $crate::bytes::encoding::Wire>::get(from)? {
                    $($tag => Ok($name::$variant {
                        $($field: $crate::bytes::encoding::Wire::get(from)?,)*
                    }),)*
                    _ => Err($crate::bytes::encoding::Malformed::Tag),
                }
            }
        }
    };
}
pub(crate) use wire_enum;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_longer_than_its_bytes_is_refused_before_it_is_allocated() {
        let mut bytes = Vec::new();
        u32::MAX.put(&mut bytes);
        bytes.extend_from_slice(&[0; 64]);
        assert_eq!(decode::<Vec<u64>>(&bytes), Err(Malformed::Count));
    }

    #[test]
    fn bytes_left_over_are_refused() {
        let mut bytes = encode(&vec![1u64, 2]);
        assert_eq!(decode::<Vec<u64>>(&bytes), Ok(vec![1, 2]));
        bytes.push(0);
        assert_eq!(decode::<Vec<u64>>(&bytes), Err(Malformed::Trailing));
    }
}
