//! The ways on which a node's parts of sums go to the others of its group: one thread for each, so
//! that one whose link is busy keeps nothing from the others.
//!
//! Kept true: what goes to one node goes in order; as much waits as the others gave credit for, no
//! more; who drops the lines waits for nobody.

use super::work::Work;
use crate::store_client::Client;
use crate::store_protocol::{Identity, Members, StoreError};
use eyrie_vault::encoding::Message;
use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};

/// So many parts leave at once, if they are there.
const MAX_PARTS: usize = 16;

/// The lines of one generation.
pub(super) struct ParityLinks {
    generation: u64,
    own: Identity,
    members: Members,
    /// Who is told when one breaks.
    tell: Sender<Work>,
    ready: BTreeMap<u32, Vec<Message>>,
    open: BTreeMap<u32, Sender<Vec<Message>>>,
}

impl ParityLinks {
    pub fn new(
        generation: u64,
        own: Identity,
        members: Members,
        tell: Sender<Work>,
    ) -> ParityLinks {
        let (ready, open) = (BTreeMap::new(), BTreeMap::new());
        ParityLinks { generation, own, members, tell, ready, open }
    }

    /// A message to a node, which leaves with the next ones.
    pub fn add(&mut self, to: u32, message: Message) {
        self.ready.entry(to).or_default().push(message);
    }

    /// Brings what was added to the nodes, as soon as that can be.
    pub fn leave(&mut self) -> io::Result<()> {
        for (to, messages) in std::mem::take(&mut self.ready) {
            let line = match self.open.get(&to) {
                Some(line) => line,
                None => {
                    let line = self.begin(to)?;
                    self.open.entry(to).or_insert(line)
                }
            };
            // A line that broke has told so.
            let _ = line.send(messages);
        }
        Ok(())
    }

    fn begin(&self, to: u32) -> io::Result<Sender<Vec<Message>>> {
        let (line, waiting) = mpsc::channel();
        let (generation, tell) = (self.generation, self.tell.clone());
        let (own, members) = (self.own.clone(), Arc::clone(&self.members));
        let work = move || {
            if let Err(error) = carry(&own, &members, (to, generation), &waiting) {
                let why = format!("node {to}: {error}");
                let _ = tell.send(Work::Stuck { generation, why });
            }
        };
        std::thread::Builder::new().name("eyrie-line".into()).spawn(work)?;
        Ok(line)
    }
}

fn carry(
    own: &Identity,
    members: &Members,
    (to, generation): (u32, u64),
    waiting: &Receiver<Vec<Message>>,
) -> Result<(), StoreError> {
    let mut client = Client::connect(own, members, to)?;
    while let Ok(mut parts) = waiting.recv() {
        while parts.len() < MAX_PARTS
            && let Ok(more) = waiting.try_recv()
        {
            parts.extend(more);
        }
        client.parts(generation, &parts)?;
    }
    Ok(())
}
