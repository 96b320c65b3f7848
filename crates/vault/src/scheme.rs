//! Schemes: how a generation is protected, as `--vault` names it.

use crate::code::{Code, Kind, MAX_MEMBERS};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// How what lies on a node is protected against its loss.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Scheme {
    /// Groups of up to `k + m` nodes, any `m` of which may vanish.
    Rs { k: u16, m: u16 },
    /// Groups of up to `k + 1` nodes, any one of which may vanish.
    Xor { k: u16 },
    /// A copy on another node.
    Partner,
    /// Nothing besides the node itself.
    Local,
}

/// Why a text names no scheme.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SchemeError {
    #[error(
        "'{0}' is no scheme; there are rs:K+M (such as rs:4+2), xor:K (such as xor:8), \
         partner, local"
    )]
    Unknown(String),
    #[error("'{0}': give both numbers, as in rs:4+2")]
    Numbers(String),
    #[error("'{text}': {what} must be from 1 to {most}")]
    Range { text: String, what: &'static str, most: usize },
}

impl Scheme {
    /// How many nodes of a group may vanish at once.
    pub fn tolerates(self) -> usize {
        match self {
            Scheme::Rs { m, .. } => usize::from(m),
            Scheme::Xor { .. } | Scheme::Partner => 1,
            Scheme::Local => 0,
        }
    }

    /// Fewest nodes of a group.
    pub fn least(self) -> usize {
        self.tolerates() + 1
    }

    /// Most nodes of a group if there are enough for two; `None`: all are one group.
    pub fn most(self) -> Option<usize> {
        match self {
            Scheme::Rs { k, m } => Some(usize::from(k) + usize::from(m)),
            Scheme::Xor { k } => Some(usize::from(k) + 1),
            Scheme::Partner | Scheme::Local => None,
        }
    }

    /// Most nodes that a group ever has: so many as are not enough for two groups.
    pub fn largest(self) -> usize {
        self.most().map_or(usize::MAX, |most| most.max(2 * self.least() - 1).min(MAX_MEMBERS))
    }

    /// The code of a stripe with so many members of data; `None` without parity.
    pub fn code(self, k: usize) -> Option<Code> {
        match self {
            Scheme::Rs { m, .. } => Code::new(Kind::Cauchy, k, usize::from(m)),
            Scheme::Xor { .. } | Scheme::Partner => Code::new(Kind::Sum, k, 1),
            Scheme::Local => None,
        }
    }
}

impl fmt::Display for Scheme {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Scheme::Rs { k, m } => write!(f, "rs:{k}+{m}"),
            Scheme::Xor { k } => write!(f, "xor:{k}"),
            Scheme::Partner => f.write_str("partner"),
            Scheme::Local => f.write_str("local"),
        }
    }
}

fn number(text: &str, digits: &str, what: &'static str, most: usize) -> Result<u16, SchemeError> {
    let plain = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
    if !plain {
        return Err(SchemeError::Numbers(text.into()));
    }
    let number = digits.parse().ok().filter(|n| (1..=most).contains(&usize::from(*n)));
    number.ok_or(SchemeError::Range { text: text.into(), what, most })
}

impl FromStr for Scheme {
    type Err = SchemeError;

    fn from_str(text: &str) -> Result<Scheme, SchemeError> {
        match text.split_once(':') {
            None if text == "partner" => Ok(Scheme::Partner),
            None if text == "local" => Ok(Scheme::Local),
            Some(("rs", numbers)) => {
                let Some((k, m)) = numbers.split_once('+') else {
                    return Err(SchemeError::Numbers(text.into()));
                };
                let m = number(text, m, "M", MAX_MEMBERS - 1)?;
                let k = number(text, k, "K", MAX_MEMBERS - usize::from(m))?;
                Ok(Scheme::Rs { k, m })
            }
            Some(("xor", k)) => Ok(Scheme::Xor { k: number(text, k, "K", MAX_MEMBERS - 1)? }),
            _ => Err(SchemeError::Unknown(text.into())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_read_and_written() {
        for text in ["rs:4+2", "rs:1+1", "rs:252+3", "xor:8", "partner", "local"] {
            assert_eq!(text.parse::<Scheme>().unwrap().to_string(), text);
        }
        assert_eq!("rs:4+2".parse::<Scheme>().unwrap().tolerates(), 2);
    }

    #[test]
    fn what_is_no_scheme_is_told_why() {
        let why = |text: &str| text.parse::<Scheme>().unwrap_err().to_string();
        assert!(why("raid").contains("rs:K+M"));
        assert!(why("rs:4").contains("both numbers"));
        assert!(why("rs:4+").contains("both numbers"));
        assert!(why("rs:+4+2").contains("both numbers"));
        assert!(why("xor:").contains("both numbers"));
        assert!(why("rs:0+2").contains("K must be from 1 to 253"));
        assert!(why("rs:250+6").contains("K must be from 1 to 249"));
        assert!(why("xor:70000").contains("K must be from 1 to 254"));
        assert!(why("partner:2").contains("no scheme"));
        assert!(why("").contains("no scheme"));
    }
}
