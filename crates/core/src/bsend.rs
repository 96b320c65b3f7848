//! Buffered mode (MPI 5.0 section 3.6). The send log is the buffer, so the program's own is only
//! remembered and given back; a buffered send completes when it is in the log.

use crate::error::{Res, class};
use crate::machine::Machine;

/// The buffer that the program attached.
#[derive(Default)]
pub(crate) struct Attached(Option<(usize, i64)>);

impl Machine {
    pub fn buffer_attach(&mut self, addr: *mut u8, bytes: i64) -> Res<()> {
        if self.attached.0.is_some() {
            return Err(class::BUFFER);
        }
        if bytes < 0 {
            return Err(class::ARG);
        }
        self.attached.0 = Some((addr.expose_provenance(), bytes));
        Ok(())
    }

    /// Gives the buffer back once buffered sends no longer need it.
    pub fn buffer_detach(&mut self) -> Res<(*mut u8, i64)> {
        self.drain_sends();
        match self.attached.0.take() {
            Some((addr, bytes)) => Ok((std::ptr::with_exposed_provenance_mut(addr), bytes)),
            None => Ok((std::ptr::null_mut(), 0)),
        }
    }
}
