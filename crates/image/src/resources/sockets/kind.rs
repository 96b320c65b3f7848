//! Sockets behind descriptors, by where they lead: to a process of the same image, to one of
//! another image of the set, to one on another node.

use crate::error::{CaptureError, RestoreError};
use crate::resources::open::{Open, cannot};
use crate::resources::resource::{Look, Made, Making, Resource};
use crate::resources::sockets;
use eyrie_image_format::state::resources::{Apart, Between, Socket};
use eyrie_image_format::state::{Description, Target};

impl Resource for Socket {
    fn capture(this: &Open, look: &mut Look<'_>) -> Result<Option<Target>, CaptureError> {
        if !this.is_socket() {
            return Ok(None);
        }
        if let Some(looked_at) = look.known.between.socket(this) {
            return looked_at.map(Some);
        }
        let socket = sockets::capture(this, look.all, look.remote, &look.known.patience)?;
        Ok(socket.map(Target::Socket))
    }

    fn restore(&self, _: &Description, making: &mut Making<'_>) -> Result<Made, RestoreError> {
        match there(self, making)? {
            Some(made) => Ok(made),
            None => sockets::restore(making.connections, self).map(Made::New),
        }
    }
}

impl Resource for Between {
    fn restore(&self, _: &Description, making: &mut Making<'_>) -> Result<Made, RestoreError> {
        together(&self.socket, making)
    }
}

impl Resource for Apart {
    fn restore(&self, _: &Description, making: &mut Making<'_>) -> Result<Made, RestoreError> {
        together(&self.socket, making)
    }
}

/// One that was made with the others of its set.
fn together(socket: &Socket, making: &Making<'_>) -> Result<Made, RestoreError> {
    match there(socket, making)? {
        Some(made) => Ok(made),
        None => Err(cannot(sockets::AGAIN, sockets::alone(socket))),
    }
}

/// One that is there already.
fn there(socket: &Socket, making: &Making<'_>) -> Result<Option<Made>, RestoreError> {
    let Some(fd) = making.sockets.0.get(&socket.id) else { return Ok(None) };
    fd.try_clone().map(|fd| Some(Made::New(fd))).map_err(|e| cannot(sockets::AGAIN, e))
}
