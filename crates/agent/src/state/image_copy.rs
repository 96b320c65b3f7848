//! Where a new image goes besides this node, and why it is not there.

use eyrie_exchange::expected_images::Token;
use eyrie_exchange::image_stream::SharedOutcome;
use eyrie_exchange::store_protocol::StoreError;
use eyrie_ledger::saved;
use std::collections::BTreeSet;
use std::fs::File;

/// Where a new image goes besides this node.
pub(crate) struct Copy {
    pub partner: Option<u32>,
    /// Generations whose files it lacks.
    pub missing: Vec<u32>,
    /// By which it lets the image in while that is written.
    pub key: Option<Token>,
    /// What has become of that.
    pub poured: SharedOutcome,
    /// Generations that are known to be there.
    pub known: BTreeSet<u32>,
    /// What the rank has sent, as far as that was copied while it stood.
    pub log: Option<Sent>,
}

impl Copy {
    pub fn to(partner: Option<u32>, missing: Vec<u32>, key: Option<Token>) -> Copy {
        let (poured, known) = (SharedOutcome::default(), BTreeSet::new());
        Copy { partner, missing, key, poured, known, log: None }
    }
}

/// Why an image is not on its partner.
#[derive(Debug)]
pub struct NotThere {
    pub text: String,
    /// A later attempt would fail for the same reason.
    pub lasting: bool,
    /// As the other node is lost, or seems to be.
    pub lost: bool,
}

impl NotThere {
    pub(crate) fn once(why: impl ToString) -> NotThere {
        NotThere { text: why.to_string(), lasting: false, lost: false }
    }

    /// An image was not brought to this node.
    pub(crate) fn of(partner: u32, error: &StoreError) -> NotThere {
        use std::io::ErrorKind::{
            BrokenPipe, ConnectionAborted, ConnectionRefused, ConnectionReset, UnexpectedEof,
        };
        let breaks =
            [BrokenPipe, ConnectionAborted, ConnectionRefused, ConnectionReset, UnexpectedEof];
        match error {
            StoreError::NoMember(_) => NotThere {
                text: format!("node {partner}, where its copy was to go, is no longer there"),
                lasting: false,
                lost: true,
            },
            error => NotThere {
                lost: matches!(error, StoreError::Io(e) if breaks.contains(&e.kind())),
                ..NotThere::once(format!("its copy on node {partner}: {error}"))
            },
        }
    }
}

/// What a rank had sent at the moment of a set.
pub enum Sent {
    /// All of that, as a saved log.
    All(File),
    /// To its own unit.
    Inner(saved::LogCopy),
}
