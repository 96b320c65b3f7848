//! A member while it encodes: its parts in the sums of its group, over its files.
//!
//! Kept true: what is sent was held against its checksum when it was read; what is kept of others'
//! messages that come early is bounded, as they send no more than they have credit for.

use crate::block::{self, Block};
use crate::change::Runs;
use crate::code::{Linear, kernel};
use crate::disk::Disk;
use crate::files;
use crate::flow::{self, Action, Encoder, Flow, Task, Unexpected};
use crate::geometry::{CHUNK_BYTES, Cell, Geometry};
use crate::member::{DEPTH, Member, MemberError};
use crate::record::{self, Hash, Prepared, Summary, hash};
use crate::update::Updating;
use std::collections::{BTreeMap, VecDeque};

/// Most messages that are kept until this member is told to encode.
const MAX_EARLY: usize = 4096;

/// What members tell each other while they encode; of a sum, by stripe and position.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    pub task: (usize, usize),
    /// A row of a sum, or credit for one more.
    pub block: Option<(u64, Block)>,
}

/// Messages to members of the group, by their number in it.
pub type Messages = Vec<(usize, Message)>;

/// A member's parts in the sums of a generation.
pub(crate) struct Encoding {
    geometry: Geometry,
    own: usize,
    numbers: Vec<u32>,
    /// By stripe.
    flows: BTreeMap<usize, Flow>,
    parity: Vec<Hash>,
    /// If parity is updated, and not made anew.
    updating: Option<Updating>,
    settled: bool,
}

impl Drop for Encoding {
    fn drop(&mut self) {
        block::release();
    }
}

impl<D: Disk> Member<D> {
    /// Begins to encode: with the members of this group, whose payloads have these lengths.
    pub fn encode(
        &mut self,
        group: &[u32],
        payloads: &[u64],
        encoder: Encoder,
    ) -> Result<Messages, MemberError> {
        let generation = self.writing()?.0.generation;
        let (geometry, own) = self.geometry(group, payloads, generation)?;
        let tasks = flow::encoding(&geometry, encoder);
        self.begin_flows(geometry, (group, own), &tasks, None)
    }

    /// Begins to update the parity of the generation that this one was built on: these chunks of
    /// each member differ.
    pub fn update(
        &mut self,
        group: &[u32],
        payloads: &[u64],
        changed: &[Runs],
        encoder: Encoder,
    ) -> Result<Messages, MemberError> {
        let refused = || MemberError::Refused("there is no such parity to update".into());
        let own_changes = self.changed();
        let (writing, _) = self.writing()?;
        let base = writing.base.as_ref().filter(|base| base.nodes == group).ok_or_else(refused)?;
        let (laid, old) = (base.laid, base.geometry.clone());
        let (geometry, own) = self.geometry(group, payloads, laid)?;
        if changed.len() != group.len() || own_changes.as_ref() != changed.get(own) {
            return Err(refused());
        }
        let tasks = flow::differences(&geometry, &old, changed, encoder);
        let updating = Updating::new(&geometry, own, &tasks);
        self.begin_flows(geometry, (group, own), &tasks, Some(updating))
    }

    /// The geometry of the group, and this member's number in it.
    fn geometry(
        &mut self,
        group: &[u32],
        payloads: &[u64],
        laid: u64,
    ) -> Result<(Geometry, usize), MemberError> {
        let (node, scheme) = (self.node(), self.identity.scheme);
        let (writing, _) = self.writing()?;
        let refused = || MemberError::Refused("the group to encode is not this node's".into());
        let own = group.iter().position(|n| *n == node).ok_or_else(refused)?;
        let offered = writing.offer.as_ref().map(|offer| offer.payload);
        let geometry = Geometry::new(scheme, laid, payloads).ok_or_else(refused)?;
        if group.len() != payloads.len() || offered != Some(payloads[own]) {
            return Err(refused());
        }
        Ok((geometry, own))
    }

    fn begin_flows(
        &mut self,
        geometry: Geometry,
        (group, own): (&[u32], usize),
        tasks: &[Task],
        updating: Option<Updating>,
    ) -> Result<Messages, MemberError> {
        let parity = vec![[0; 16]; geometry.parity_chunks(own) as usize];
        let of = |task: &Task| Some((task.stripe, Flow::new(task, own, DEPTH)?));
        let flows: BTreeMap<_, _> = tasks.iter().filter_map(of).collect();
        let stripes: Vec<usize> = flows.keys().copied().collect();
        let numbers = group.to_vec();
        let settled = false;
        let encoding = Encoding { geometry, own, numbers, flows, parity, updating, settled };
        self.encoding = Some(encoding);
        let mut messages = Messages::new();
        for stripe in stripes {
            let actions = self.flow(stripe)?.start();
            messages.extend(self.carry_out(stripe, actions)?);
        }
        for (from, message) in std::mem::take(&mut self.early) {
            messages.extend(self.message(from, message)?);
        }
        Ok(messages)
    }

    fn encoding(&mut self) -> Result<(&mut Encoding, &mut D, u64), MemberError> {
        let none = || MemberError::Refused("nothing is being encoded".into());
        let generation = self.writing.as_ref().ok_or_else(none)?.generation;
        Ok((self.encoding.as_mut().ok_or_else(none)?, &mut self.disk, generation))
    }

    fn flow(&mut self, stripe: usize) -> Result<&mut Flow, MemberError> {
        let (encoding, ..) = self.encoding()?;
        encoding.flows.get_mut(&stripe).ok_or(MemberError::Unexpected(Unexpected))
    }

    /// A member of the group says something.
    pub fn message(&mut self, from: u32, message: Message) -> Result<Messages, MemberError> {
        if self.encoding.is_none() && self.writing.is_some() {
            if self.early.len() >= MAX_EARLY {
                return Err(MemberError::Unexpected(Unexpected));
            }
            self.early.push((from, message));
            return Ok(Messages::new());
        }
        let (encoding, ..) = self.encoding()?;
        let number = encoding.numbers.iter().position(|node| *node == from);
        let number = number.ok_or(MemberError::Unexpected(Unexpected))?;
        let Message { task: (stripe, position), block } = message;
        let flow = self.flow(stripe)?;
        let actions = match block {
            Some((row, bytes)) => flow.arrived((number, position), row, bytes)?,
            None => flow.credited(position)?,
        };
        self.carry_out(stripe, actions)
    }

    fn carry_out(&mut self, stripe: usize, actions: Vec<Action>) -> Result<Messages, MemberError> {
        let mut messages = Messages::new();
        let mut actions: VecDeque<Action> = actions.into();
        while let Some(action) = actions.pop_front() {
            match action {
                Action::Load(cell) => {
                    let mut bytes = self.load(cell)?;
                    if self.encoding()?.0.updating.is_some() {
                        bytes = self.differs(cell, bytes)?;
                    }
                    actions.extend(self.flow(stripe)?.loaded(cell.row, bytes)?);
                }
                Action::Store { cell, mut bytes } => {
                    let (encoding, ..) = self.encoding()?;
                    let spot = encoding.geometry.spot(cell);
                    if encoding.updating.is_some() {
                        bytes = self.updated(cell, bytes, spot.bytes)?;
                    }
                    let (encoding, disk, generation) = self.encoding()?;
                    disk.write_at(&files::parity(generation), spot.offset, &bytes)?;
                    let number = encoding.geometry.parity_number(cell);
                    encoding.parity[number] = hash(&bytes);
                    actions.extend(self.flow(stripe)?.stored(cell.position)?);
                }
                Action::Send { to, position, row, bytes } => {
                    let task = (stripe, position);
                    messages.push((to, Message { task, block: Some((row, bytes)) }));
                }
                Action::Credit { to, position } => {
                    messages.push((to, Message { task: (stripe, position), block: None }));
                }
            }
        }
        Ok(messages)
    }

    fn load(&mut self, cell: Cell) -> Result<Block, MemberError> {
        let node = self.node();
        let spot = self.encoding()?.0.geometry.spot(cell);
        let (writing, disk) = self.writing()?;
        let mut bytes = Block::new(spot.bytes as usize);
        if bytes.is_empty() {
            return Ok(bytes);
        }
        disk.read_at(&files::data(writing.generation), spot.offset, &mut bytes)?;
        let chunk = spot.offset / CHUNK_BYTES;
        if files::chunk_holds(&writing.manifest, &writing.raw, chunk, &bytes) {
            return Ok(bytes);
        }
        Err(MemberError::ReadBack(node))
    }

    /// When all is encoded, makes it durable, once, and says what there is.
    pub fn settle(&mut self) -> Result<Option<Summary>, MemberError> {
        let vault = self.identity.vault;
        let Some(encoding) = &mut self.encoding else { return Ok(None) };
        if encoding.settled || !encoding.flows.values().all(Flow::done) {
            return Ok(None);
        }
        if let Some(updating) = encoding.updating.take() {
            let geometry = encoding.geometry.clone();
            let kept = self.keep_parity(&updating, &geometry)?;
            let (encoding, ..) = self.encoding()?;
            kept.into_iter().for_each(|(number, sum)| encoding.parity[number] = sum);
        }
        let (Some(writing), Some(encoding)) = (&self.writing, &mut self.encoding) else {
            return Ok(None);
        };
        let (generation, term, disk) = (writing.generation, writing.term, &mut self.disk);
        let Some(mut summary) = writing.offer.clone() else { return Ok(None) };
        let table = encoding.parity.concat();
        let (data, parity) = (files::data(generation), files::parity(generation));
        disk.write_at(&parity, encoding.geometry.parity_bytes(encoding.own), &table)?;
        disk.sync(&data)?;
        disk.sync(&parity)?;
        disk.sync_names()?;
        summary.parity_hash = hash(&table);
        let prepared = Prepared { vault, generation, term, summary: summary.clone() };
        let bytes = record::encode(&prepared).map_err(MemberError::Encode)?;
        disk.replace(&files::prepared(generation), &bytes)?;
        encoding.settled = true;
        Ok(Some(summary))
    }
}

/// The sum of cells times factors.
pub(crate) fn sum(cells: &[(u8, Vec<u8>)], bytes: usize) -> Vec<u8> {
    let mut sum = vec![0; bytes];
    for (factor, cell) in cells {
        let term = &cell[..cell.len().min(bytes)];
        Linear::one(kernel::best(), *factor).add(0, term, &mut [&mut sum]);
    }
    sum
}
