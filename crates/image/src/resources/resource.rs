//! What a kind of resource is to the rest of the code: how a descriptor of it is captured, made
//! again, and put in its place in the process that is restored. What it is in an image, and whether
//! that can be believed, stands beside its bytes ([`eyrie_image_format::state::resources`]).
//!
//! All kinds are in one table ([`crate::resources`]); nobody else tells them apart.

use crate::error::{CaptureError, RestoreError};
use crate::kernel::descriptor_moves;
use crate::kernel::remote_descriptors::RemoteDescriptors;
use crate::kernel::script::Plan;
use crate::resources::files::appends::Cuts;
use crate::resources::files::undo::Undo;
use crate::resources::known::Known;
use crate::resources::open::Open;
use crate::resources::shared_memory::objects::AnonymousObjects;
use crate::resources::sockets::connections::{Connections, MadeSockets};
use eyrie_image_format::state::{Description, State, Target};
use std::any::{Any, TypeId};
use std::collections::HashMap;
use std::fs::File;
use std::os::fd::{OwnedFd, RawFd};

/// What is looked at besides a descriptor itself when it is captured.
pub struct Look<'a> {
    /// What all processes have open that are frozen together.
    pub all: &'a [Open],
    /// Borrows descriptors of the process.
    pub remote: &'a RemoteDescriptors,
    /// The shared objects of the process.
    pub anonymous: &'a mut AnonymousObjects,
    /// What is known of all processes.
    pub known: &'a mut Known,
}

/// A description that was made again.
pub enum Made {
    /// Its status flags are still to be set, when all contents are in place.
    New(OwnedFd),
    /// It is as it is to be; or it stands in the place of one that only the process itself can
    /// open.
    Whole(OwnedFd),
    /// It was there already, and is somebody else's.
    There(RawFd),
}

/// What there is to make descriptions of.
pub struct Making<'a> {
    /// The standard streams that are handed over.
    pub stdio: &'a [OwnedFd; 3],
    /// The segments that are handed over.
    pub segments: &'a [(String, OwnedFd)],
    /// Sockets that are there already.
    pub sockets: &'a MadeSockets,
    /// Sockets that are made here.
    pub connections: &'a mut Connections,
    /// Opens a shared object without a path: its index, flags, offset.
    pub objects: &'a dyn Fn(u32, i32, u64) -> Result<File, RestoreError>,
    /// Where files are by now.
    pub undo: &'a mut Undo,
    /// Files that are to be cut back.
    pub cuts: &'a mut Cuts,
    /// What descriptions of one kind have in common.
    pub common: &'a mut Commons,
}

/// What descriptions of one kind have in common while they are made: the two ends of a pipe.
pub trait Common: Any {
    /// Everything of all processes is open, with its flags.
    fn settle(&mut self) {}
}

/// All of these, by their types.
#[derive(Default)]
pub struct Commons(HashMap<TypeId, Box<dyn Common>>);

impl Commons {
    /// What one kind has in common.
    pub fn of<T: Common + Default>(&mut self) -> &mut T {
        let common = self.0.entry(TypeId::of::<T>()).or_insert_with(|| Box::new(T::default()));
        let any: &mut dyn Any = common.as_mut();
        match any.downcast_mut() {
            Some(common) => common,
            None => unreachable!("it stands under its own type"),
        }
    }

    /// Everything of all processes is open.
    pub fn settle(&mut self) {
        self.0.values_mut().for_each(|common| common.settle());
    }
}

/// A description in the process that is being restored.
pub struct Place<'a> {
    /// All of the process.
    pub state: &'a State,
    /// Its lowest descriptor.
    pub fd: u64,
    /// Number of the process.
    pub pid: libc::pid_t,
}

/// A kind of resource, as it is in an image.
pub trait Resource {
    /// What a descriptor is, if it is of this kind. Kinds are asked in the order of the table;
    /// the first that knows it decides. One that cannot be brought back is refused.
    fn capture(_: &Open, _: &mut Look<'_>) -> Result<Option<Target>, CaptureError>
    where
        Self: Sized,
    {
        Ok(None)
    }

    /// Adds what refers to other descriptions, when all of the process are known: `ids` are their
    /// numbers, in order.
    fn complete(&mut self, _: &Open, _: &[Open], _ids: &[u64]) -> Result<(), CaptureError> {
        Ok(())
    }

    /// Makes it again.
    fn restore(
        &self,
        description: &Description,
        making: &mut Making<'_>,
    ) -> Result<Made, RestoreError>;

    /// Whether it is there before a restore begins.
    fn is_given(&self) -> bool {
        false
    }

    /// Numbers of descriptors that it takes for a moment in the restored process.
    fn numbers(&self) -> Vec<u32> {
        Vec::new()
    }

    /// What the process does when one of its descriptors, `fd`, is in place.
    fn place(&self, _: &mut Plan, _: &Description, _fd: u64) {}

    /// What the process does when all descriptors are in place: `own` is this one's, `places` are
    /// those of all descriptions.
    fn register(
        &self,
        _plan: &mut Plan,
        _table: &mut descriptor_moves::Table,
        _state: &State,
        _places: &[Option<u64>],
        _own: u64,
    ) {
    }

    /// What the process does when nothing is mapped yet but what is `taken`: maps by the descriptor
    /// `own` what it brings back of mappings.
    fn map(&self, _: &mut Plan, _own: u64, _taken: &mut Vec<(u64, u64)>) {}

    /// What the process does last, when its memory is there and nothing is closed any more.
    fn finish(&self, _: &mut Plan, _: &Place<'_>) {}
}
