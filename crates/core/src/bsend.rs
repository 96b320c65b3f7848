//! Buffered mode (MPI 5.0 sections 3.6 and 3.7.9). The send log is the buffer, so those of the
//! program are only remembered and given back; a buffered send completes when it is in the log.

use crate::consts::COMM_SELF;
use crate::error::{Res, class};
use crate::handle::Handle;
use crate::machine::Machine;
use crate::status::Status;

/// Whose buffer it is: of all communicators, of one, or of those of a session.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BufferOf {
    Process,
    Comm(Handle),
    Session(Handle),
}

/// A buffer that the program attached.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Buffer {
    /// Address and bytes.
    Given(usize, i64),
    /// `MPI_BUFFER_AUTOMATIC`: the library's own.
    Automatic,
}

/// Where one is remembered.
#[derive(Default)]
pub(crate) struct Attached(Option<Buffer>);

impl Attached {
    fn attach(&mut self, buffer: Buffer) -> Res<()> {
        if self.0.is_some() {
            return Err(class::BUFFER);
        }
        if matches!(buffer, Buffer::Given(_, bytes) if bytes < 0) {
            return Err(class::ARG);
        }
        self.0 = Some(buffer);
        Ok(())
    }
}

impl Machine {
    fn with_buffer<R>(&mut self, of: BufferOf, f: impl FnOnce(&mut Attached) -> R) -> Res<R> {
        Ok(match of {
            BufferOf::Process => f(&mut self.attached),
            BufferOf::Comm(comm) => f(&mut self.comms.get_ref(comm)?.buffer.borrow_mut()),
            BufferOf::Session(session) => f(&mut self.sessions.get_mut(session)?.buffer),
        })
    }

    pub fn buffer_attach(&mut self, of: BufferOf, buffer: Buffer) -> Res<()> {
        self.with_buffer(of, |attached| attached.attach(buffer))?
    }

    /// Gives the buffer back once buffered sends no longer need it; `None` if there is none.
    pub fn buffer_detach(&mut self, of: BufferOf) -> Res<Option<Buffer>> {
        self.buffer_flush(of)?;
        self.with_buffer(of, |attached| attached.0.take())
    }

    /// All that was sent so far is on its way.
    pub fn buffer_flush(&mut self, of: BufferOf) -> Res<()> {
        self.with_buffer(of, |_| ())?;
        self.drain_sends();
        Ok(())
    }

    /// The same without waiting. A buffered send has returned when the log has it, so that nothing
    /// is left to wait for.
    pub fn buffer_iflush(&mut self, of: BufferOf) -> Res<Handle> {
        self.with_buffer(of, |_| ())?;
        let handle = if let BufferOf::Comm(comm) = of { comm } else { COMM_SELF };
        let comm = self.comms.get(handle)?;
        self.finished_request(&comm, handle, Status::EMPTY)
    }
}
