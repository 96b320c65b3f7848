//! How what nodes have comes to where a whole job is restarted from, past the controller where that
//! can be.
//!
//! Kept true: what a node says that it has brought is taken for what it is of, and for nothing
//! else.

use crate::Job;
use crate::saving::model::Routes;
use eyrie_control::Way;
use eyrie_control::node::ToNode;
use std::collections::BTreeMap;
use std::fmt;

impl fmt::Display for Routes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let by = |wanted: Way| self.nodes.values().filter(|(way, _)| *way == wanted).count();
        let words = [
            (by(Way::Store), "sent to the object store"),
            (by(Way::Folder), "written into the folder"),
            (by(Way::Controller), "brought through the controller"),
        ];
        let words = words.iter().filter(|(count, _)| *count > 0);
        let words: Vec<String> = words.map(|(count, how)| format!("{how} by {count}")).collect();
        write!(f, "{}", words.join(", "))
    }
}

impl Job {
    /// Tells all nodes how what they are going to bring may come past the controller. `stored`: it
    /// is to go to the object store, of which it is known what is in it.
    pub(crate) fn offer_routes(&mut self, attempt: u32, stored: bool) {
        let mut homes: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
        for rank in 0..self.size() {
            homes.entry(self.nodes.placement.home(rank)).or_default().push(rank);
        }
        for (node, sealed) in self.outside.store.ways(attempt, stored, &homes) {
            self.nodes.all[node as usize].send(ToNode::Ways { attempt, sealed });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use eyrie_control::node::Determinants;
    use eyrie_control::{Delivered, StoredFile};

    fn said(way: Way, why: Option<&str>, names: &[&str]) -> Delivered {
        let file = |name: &&str| StoredFile {
            name: name.to_string(),
            object: format!("data/{name}"),
            bytes: 10,
            hash: String::new(),
        };
        let (why, files) = (why.map(String::from), names.iter().map(file).collect());
        Delivered { determinants: Determinants::default(), way, why, files, sent_bytes: 7 }
    }

    #[test]
    fn what_a_node_says_is_of_the_rank_it_says_it_of() {
        let mut routes = Routes::default();
        let own = ["images/rank-3.gen-2", "images/rank-3.gen-2.log"];
        routes.take(0, 3, said(Way::Store, None, &own)).unwrap();
        for wrong in ["images/rank-4.gen-2", "saved", "rank-3.gen-2", "images/../saved", ""] {
            assert!(routes.take(0, 3, said(Way::Store, None, &[wrong])).is_err(), "{wrong}");
        }
        assert!(routes.is_stored(3) && !routes.is_stored(4));
        assert_eq!((routes.stored_bytes(), routes.sent_bytes()), (20, 7));
        routes.take(1, 4, said(Way::Controller, Some("no route"), &[])).unwrap();
        routes.take(1, 5, said(Way::Store, None, &[])).unwrap();
        let told = routes.told();
        assert_eq!((told[0].way.as_str(), &told[0].why), ("store", &None));
        let (way, why) = (told[1].way.as_str(), told[1].why.as_deref());
        assert_eq!((way, why), ("controller", Some("no route")));
        let text = "sent to the object store by 1, brought through the controller by 1";
        assert_eq!(routes.to_string(), text);
    }
}
