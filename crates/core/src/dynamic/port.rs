//! Ports (MPI 5.0 section 11.8): a rank that opened one waits there for a group that calls it.
//!
//! A port's name says the job, the rank, the number of its program and which of its ports it is.
//! Who connects sends its group to that rank; accepting takes the first that has come, and answers
//! with its own group.

use super::state::LIBRARY_TAG;
use crate::comm::PORTS_CTX;
use crate::error::{Res, class};
use crate::handle::Handle;
use crate::machine::Machine;

impl Machine {
    /// `MPI_Open_port`: its name.
    pub fn open_port(&mut self) -> Res<String> {
        let ports = &mut self.comms.dynamic.ports;
        let number = ports.opened;
        if number >= LIBRARY_TAG {
            return Err(class::PORT);
        }
        ports.opened += 1;
        ports.open.insert(number);
        let (me, program) = (self.world().0, self.endpoint.world());
        Ok(self.comms.dynamic.port_name(me, program, number))
    }

    /// `MPI_Close_port`: of this rank's own.
    pub fn close_port(&mut self, name: &[u8]) -> Res<()> {
        let number = self.own_port(name)?;
        self.comms.dynamic.ports.open.remove(&number);
        Ok(())
    }

    fn own_port(&self, name: &[u8]) -> Res<i32> {
        let (rank, program, number) = self.comms.dynamic.port(name)?;
        let own = (rank, program) == (self.world().0, self.endpoint.world())
            && self.comms.dynamic.ports.open.contains(&number);
        if own { Ok(number) } else { Err(class::PORT) }
    }

    /// `MPI_Comm_accept`: the port counts at the root only, which has opened it.
    pub fn comm_accept(&mut self, port: &[u8], root: i32, comm: Handle) -> Res<Handle> {
        self.meet_group(comm, root, |m, own| {
            let number = m.own_port(port)?;
            let all = m.everybody(PORTS_CTX);
            let (from, theirs) = m.recv_words_of_any(&all, number)?;
            m.learn_addresses(theirs.get(1..).ok_or(class::INTERN)?)?;
            m.send_words(&all, from, number | LIBRARY_TAG, own)?;
            Ok(theirs)
        })
    }

    /// `MPI_Comm_connect`: the port counts at the root only. It waits until somebody accepts.
    pub fn comm_connect(&mut self, port: &[u8], root: i32, comm: Handle) -> Res<Handle> {
        self.meet_group(comm, root, |m, own| {
            let (to, program, number) = m.comms.dynamic.port(port)?;
            let (me, ranks) = m.world();
            if to == me || to >= ranks {
                return Err(class::PORT);
            }
            let all = m.everybody(PORTS_CTX);
            m.endpoint.address(to, program);
            m.send_words(&all, to, number, own)?;
            m.recv_words(&all, to, number | LIBRARY_TAG)
        })
    }
}
