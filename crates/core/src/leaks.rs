//! What a program has not freed when it ends, where that is kept (`made`).

use std::collections::BTreeMap;

use crate::machine::Machine;
use crate::made::{Maker, caller};

/// Objects of one kind that one call made at one place.
#[derive(Debug, PartialEq, Eq)]
pub struct Leak {
    pub kind: &'static str,
    pub call: &'static str,
    pub at: Option<String>,
    pub count: usize,
}

impl Machine {
    /// All that the program has made and not freed.
    pub fn leaks(&self) -> Vec<Leak> {
        let mut found = BTreeMap::new();
        let mut add = |kind, makers: &mut dyn Iterator<Item = &Maker>| {
            for maker in makers {
                *found.entry((kind, maker.call, caller(&maker.at))).or_insert(0) += 1;
            }
        };
        add("communicator", &mut self.comms.slab.makers());
        add("group", &mut self.groups.slab.makers());
        add("datatype", &mut self.types.derived.makers());
        add("operation", &mut self.ops.user.makers());
        add("request", &mut self.engine.reqs.makers());
        add("error handler", &mut self.errhandlers.slab.makers());
        add("info object", &mut self.infos.slab.makers());
        add("file", &mut self.files.slab.makers());
        add("window", &mut self.windows.slab.makers());
        add("session", &mut self.sessions.0.makers());
        let leak = |((kind, call, at), count)| Leak { kind, call, at, count };
        found.into_iter().map(leak).collect()
    }
}
