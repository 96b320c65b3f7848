//! `MPI_Comm_join` (MPI 5.0 section 11.10.4): two ranks that have a socket in common. Over it each
//! says who it is; all that follows are messages.
//!
//! Kept true: what the other one said is recorded, so that a replay needs no socket.

use eyrie_ledger::door::{Call, Verdict};

use crate::consts::COMM_SELF;
use crate::engine::Wake;
use crate::env::{packed, unpacked};
use crate::error::{Res, class};
use crate::handle::Handle;
use crate::machine::Machine;

/// What one end says: `MAGIC`, the job, the rank, the greatest context, the number of its program.
pub const HELLO_BYTES: usize = 28;
const MAGIC: u64 = 0x6e69_6f6a_7972_7965;

struct Hello {
    job: u64,
    rank: u32,
    greatest: u32,
    program: u32,
}

impl Hello {
    fn bytes(&self) -> Vec<u8> {
        let mut all = MAGIC.to_le_bytes().to_vec();
        all.extend(self.job.to_le_bytes());
        all.extend(self.rank.to_le_bytes());
        all.extend(self.greatest.to_le_bytes());
        all.extend(self.program.to_le_bytes());
        all
    }

    fn of(bytes: &[u8]) -> Option<Hello> {
        let long = |at: usize| Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?));
        let rest = long(16)?;
        let program = u32::from_le_bytes(bytes.get(24..28)?.try_into().ok()?);
        (long(0)? == MAGIC).then_some(Hello {
            job: long(8)?,
            rank: rest as u32,
            greatest: (rest >> 32) as u32,
            program,
        })
    }
}

impl Machine {
    /// An inter-communicator of this rank with that at the other end. `swap` says what it is given
    /// once, and gives what the other one says when it is there. One of another job is refused.
    pub fn comm_join(
        &mut self,
        mut swap: impl FnMut(&[u8]) -> Res<Option<Vec<u8>>>,
    ) -> Res<Handle> {
        let local = self.comms.get(COMM_SELF)?;
        let greatest = self.greatest_context_of(&local)?;
        let job = self.comms.dynamic.job_number();
        let me = self.world().0;
        let program = self.endpoint.world();
        let own = Hello { job, rank: me, greatest, program }.bytes();
        let theirs = self.heard(|| swap(&own))?;
        let theirs = Hello::of(&theirs).ok_or(class::OTHER)?;
        if theirs.job != job || theirs.rank == me || theirs.rank >= self.world().1 {
            return Err(class::UNSUPPORTED_OPERATION);
        }
        self.join_groups(&local, greatest, &[theirs.greatest, theirs.rank, theirs.program])
    }

    /// What comes, or came when this was done first; nothing where that failed.
    fn heard(&mut self, mut look: impl FnMut() -> Res<Option<Vec<u8>>>) -> Res<Vec<u8>> {
        loop {
            match self.ask(Call::Input) {
                Verdict::Forced(eyrie_ledger::door::Outcome::Many(words)) => {
                    return unpacked(&words).ok_or(class::INTERN);
                }
                Verdict::Forced(_) | Verdict::Fruitless => self.misreplayed(Call::Input),
                Verdict::Live => {}
            }
            let mut come = None;
            let look = |_: &mut Machine| {
                if come.is_none() {
                    come = look().map_or(Some(Vec::new()), |came| came);
                }
                come.is_some()
            };
            if self.wait_until(look) == Wake::Restored && come.is_none() {
                continue;
            }
            let come = come.unwrap_or_default();
            self.record(Call::Input, &packed(&come));
            return Ok(come);
        }
    }
}

impl super::state::Dynamic {
    /// FNV-1a.
    fn job_number(&self) -> u64 {
        let mix = |sum: u64, byte: u8| (sum ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
        self.job.bytes().fold(0xcbf2_9ce4_8422_2325, mix)
    }
}
