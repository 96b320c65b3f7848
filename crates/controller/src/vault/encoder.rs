//! Which encoder a round of the vault is made with, and why.
//!
//! Kept true: the slowest link and the slowest node that take part count; what was not measured is
//! the model's assumption, and is said to be so.

use eyrie_control::vault::{Link, Manner};
use eyrie_protocol::membership::Member;
use eyrie_vault::Scheme;
use eyrie_vault::coordinator::Choose;
use eyrie_vault::cost::{self, Measured};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::{Arc, Mutex, PoisonError};

/// What a round has to send for its rate to say something of a link.
const ENOUGH_BYTES: u64 = 4 << 20;

/// What nodes measured when they first took part.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Links(BTreeMap<Member, Link>);

impl Links {
    pub fn note(&mut self, member: Member, link: Link) {
        self.0.insert(member, link);
    }

    /// These have new epochs, and the links that they had.
    pub fn renew(&mut self, live: &[Member]) {
        let known = std::mem::take(&mut self.0);
        let now = |member: Member| live.iter().find(|m| m.node == member.node).copied();
        self.0 = known.into_iter().filter_map(|(m, link)| Some((now(m)?, link))).collect();
    }

    /// In a round a member sent so many bytes in so long: its link is not slower than that.
    pub fn at_least(&mut self, member: Member, bytes: u64, us: u64) {
        if let Some(link) = self.0.get_mut(&member).filter(|_| bytes >= ENOUGH_BYTES && us > 0) {
            let rate = u128::from(bytes) * 1_000_000 / u128::from(us);
            link.rate = link.rate.max(u64::try_from(rate).unwrap_or(u64::MAX));
        }
    }

    /// Bytes a second that the slowest one carries, of those that are known.
    pub fn slowest(&self) -> Option<u64> {
        self.0.values().map(|link| link.rate).min()
    }

    /// Whether all of these have measured; what others did is forgotten.
    pub fn are_known(&mut self, members: &[Member]) -> bool {
        self.0.retain(|member, _| members.contains(member));
        self.0.len() == members.len()
    }

    /// What the model is told, and how that is known.
    fn measured(&self, rate: u64) -> (Measured, String) {
        let mut told = Measured::default();
        let all = || self.0.values();
        let mut text = String::from("nothing is measured yet");
        if let Some(link) = all().map(|l| l.rate).min() {
            told.link = link as f64;
            told.latency = all().map(|l| l.latency_ns).max().unwrap_or(0) as f64 / 1e9;
            told.coding = all().map(|l| l.coding).min().unwrap_or(0) as f64;
            text = told.to_string();
        }
        if rate > 0 {
            let _ = write!(text, ", at most {:.1} MB/s", rate as f64 / 1e6);
        }
        (limited(told, rate), text)
    }
}

fn limited(told: Measured, rate: u64) -> Measured {
    let link = if rate > 0 { told.link.min(rate as f64) } else { told.link };
    Measured { link, ..told }
}

/// The links as they are when all have offered, and what was picked for them.
#[derive(Default)]
pub(crate) struct Pick {
    links: Mutex<(Measured, String)>,
    why: Mutex<String>,
}

impl Pick {
    pub fn learn(&self, links: &Links, rate: u64) {
        let measured = links.measured(rate);
        *self.links.lock().unwrap_or_else(PoisonError::into_inner) = measured;
    }

    /// Why it is that encoder.
    pub fn why(&self) -> String {
        self.why.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Picks, as the manner says or the model.
    pub fn chooser(self: &Arc<Pick>, scheme: Scheme, manner: &Manner) -> Choose {
        let (pick, given) = (Arc::clone(self), manner.encoder);
        Box::new(move |payloads: &[u64]| {
            let (measured, known) =
                pick.links.lock().unwrap_or_else(PoisonError::into_inner).clone();
            let choice = cost::choose(&measured, scheme, payloads);
            let mut why = match given {
                Some(given) => format!("{given} by --encoder; auto would be {choice}"),
                None => choice.to_string(),
            };
            let _ = write!(why, " ({known})");
            *pick.why.lock().unwrap_or_else(PoisonError::into_inner) = why;
            given.unwrap_or(choice.encoder)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use eyrie_vault::Encoder;

    fn member(node: u32) -> Member {
        Member { node, epoch: 1 }
    }

    #[test]
    fn the_slowest_counts_and_an_encoder_that_was_given_is_taken() {
        let mut links = Links::default();
        links.note(member(0), Link { rate: 1 << 30, latency_ns: 20_000, coding: 1 << 32 });
        links.note(member(1), Link { rate: 1 << 20, latency_ns: 90_000, coding: 1 << 31 });
        assert!(links.are_known(&[member(0), member(1)]));
        let (told, text) = links.measured(0);
        assert_eq!((told.link, told.latency, told.coding), (1048576.0, 9e-5, 2147483648.0));
        assert!(text.contains("1.0 MB/s, 0.090 ms"), "{text}");
        assert_eq!(links.measured(1000).0.link, 1000.0);
        links.at_least(member(1), 8 << 20, 4_000_000);
        assert_eq!(links.measured(0).0.link, 2097152.0);
        links.at_least(member(1), 8 << 20, 9_000_000);
        links.at_least(member(1), 1 << 20, 1);
        assert_eq!(links.measured(0).0.link, 2097152.0);
        assert!(!links.are_known(&[member(0), member(2)]), "who left is forgotten");
        let scheme = "rs:2+1".parse().unwrap();
        let (pick, mut manner) = (Arc::new(Pick::default()), Manner::default());
        pick.learn(&links, manner.rate);
        manner.encoder = Some(Encoder::FanIn);
        assert_eq!(pick.chooser(scheme, &manner)(&[1; 3]), Encoder::FanIn);
        assert!(pick.why().starts_with("fanin by --encoder; auto would be"), "{}", pick.why());
    }
}
