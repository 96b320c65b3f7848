//! What a part of a checkpoint is called: the names of its file and of its object in a vault.
//!
//! Kept true: parts of one checkpoint have one stamp, and no two checkpoints have the same; so
//! parts of different runs are not put together, whatever is left in which folder.

use std::fmt;

/// Longest name of a checkpoint.
pub const MAX_NAME_BYTES: usize = 128;
/// Bits of the number of a process's life, of those of its checkpoints, and of a run's number: so
/// that all fit into the signed numbers that processes compare.
const LIFE_BITS: u32 = 31;
const SERIAL_BITS: u32 = 31;
const RUN_BITS: u32 = 63;

/// Which checkpoint of which run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Stamp {
    /// Later ones are greater.
    pub order: i64,
    /// Random; 63 bits.
    pub run: i64,
}

impl Stamp {
    /// `life`: how many runs went before; `serial`: how many checkpoints of this one.
    pub fn new(life: u32, serial: u32, run: u64) -> Stamp {
        let (life, serial) = (i64::from(life), i64::from(serial));
        let (lives, serials) = ((1i64 << LIFE_BITS) - 1, (1i64 << SERIAL_BITS) - 1);
        let run = (run & ((1u64 << RUN_BITS) - 1)).cast_signed();
        Stamp { order: (life & lives) << SERIAL_BITS | (serial & serials), run }
    }

    pub fn life(self) -> u32 {
        u32::try_from(self.order >> SERIAL_BITS).unwrap_or(u32::MAX)
    }

    fn sound(self) -> bool {
        (0..1i64 << (LIFE_BITS + SERIAL_BITS)).contains(&self.order) && self.run >= 0
    }
}

/// A part of a checkpoint.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Label {
    pub name: String,
    pub version: i64,
    pub stamp: Stamp,
    pub rank: u32,
}

/// Whether a checkpoint may have this name.
pub fn good_name(name: &str) -> bool {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"-._".contains(&b);
    (1..=MAX_NAME_BYTES).contains(&name.len()) && !name.starts_with('.') && name.bytes().all(plain)
}

impl fmt::Display for Label {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Stamp { order, run } = self.stamp;
        write!(f, "{}.{}.{order:016x}{run:016x}.{}", self.name, self.version, self.rank)
    }
}

impl Label {
    /// Whether it is of this checkpoint, or of a later one of the same run and name.
    pub fn follows(&self, other: &Label) -> bool {
        let (own, theirs) = (self.stamp, other.stamp);
        self.name == other.name && own.run == theirs.run && own.order >= theirs.order
    }

    /// The label that a text is; `None`: it is none.
    pub fn parse(text: &str) -> Option<Label> {
        let mut words = text.rsplitn(4, '.');
        let rank = words.next()?.parse().ok()?;
        let stamp = words.next()?;
        let version = words.next()?.parse().ok().filter(|v| *v >= 0)?;
        let name = words.next().filter(|name| good_name(name))?.to_string();
        let number = |text: Option<&str>| i64::from_str_radix(text?, 16).ok();
        let (order, run) = (number(stamp.get(..16))?, number(stamp.get(16..))?);
        let label = Label { name, version, stamp: Stamp { order, run }, rank };
        // One text for each label: signs, capitals and zeros in front are none.
        Some(label).filter(|label| label.stamp.sound() && label.to_string() == text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn texts_are_read_and_written() {
        let stamp = Stamp::new(3, 7, u64::MAX);
        let label = Label { name: "heat.2d".into(), version: 40, stamp, rank: 2 };
        let text = "heat.2d.40.00000001800000077fffffffffffffff.2";
        assert_eq!(label.to_string(), text);
        assert_eq!(Label::parse(text), Some(label));
        assert_eq!(stamp.life(), 3);
        assert!(Stamp::new(4, 0, 0) > Stamp::new(3, u32::MAX, u64::MAX));
        assert!(Stamp::new(u32::MAX, u32::MAX, 0).sound());
    }

    #[test]
    fn other_texts_are_none() {
        let stamp = "00000001800000077fffffffffffffff";
        for text in [
            format!("heat.040.{stamp}.2"),
            format!("heat.-1.{stamp}.2"),
            format!("heat.40.{stamp}.+2"),
            format!("heat.40.{stamp}0.2"),
            format!("heat.40.{}.2", stamp.to_uppercase()),
            format!("heat.40.f{}.2", &stamp[1..]),
            format!(".heat.40.{stamp}.2"),
            format!(".40.{stamp}.2"),
            format!("he/at.40.{stamp}.2"),
            format!("heat.40.{stamp}.2.part"),
            "heat".into(),
            String::new(),
        ] {
            assert_eq!(Label::parse(&text), None, "{text}");
        }
        assert!(!good_name(&"x".repeat(129)) && good_name(&"x".repeat(128)));
    }

    proptest! {
        #[test]
        fn any_text_is_refused_or_its_label(text in ".{0,80}") {
            if let Some(label) = Label::parse(&text) {
                prop_assert_eq!(label.to_string(), text);
            }
        }
    }
}
