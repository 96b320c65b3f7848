//! The system calls that the restorer makes, one after the other, in the order in which they are
//! put here.

use crate::error::RestoreError;
use crate::kernel::restorer_area::Area;
use eyrie_restorer::plan::{DATA_OFFSET, Header, MAGIC, MAX_PLAN_BYTES, Step, expect};

/// Name of the mapping that stands where the vdso of another kernel was.
pub const OLD_VDSO_NAME: &[u8] = b"eyrie: vdso of another kernel";

/// A plan being made.
#[derive(Default)]
pub struct Plan {
    /// Where it is carried out.
    pub area: Area,
    steps: Vec<Step>,
    /// What each step is for.
    names: Vec<String>,
    data: Vec<u8>,
    /// `struct prctl_mm_map`, to be used once more when the restorer is gone.
    pub layout: [u64; 13],
}

impl Plan {
    /// An empty one, to be carried out there.
    pub fn new(area: Area) -> Plan {
        Plan { area, ..Plan::default() }
    }

    pub fn step(&mut self, name: impl Into<String>, call: libc::c_long, args: &[u64]) -> &mut Step {
        let mut all = [0; 6];
        all[..args.len()].copy_from_slice(args);
        let step = Step { call: call as u32, expect: expect::SUCCESS, args: all, value: 0 };
        self.names.push(name.into());
        self.steps.push(step);
        let last = self.steps.len() - 1;
        &mut self.steps[last]
    }

    pub fn exact(&mut self, name: impl Into<String>, call: libc::c_long, args: &[u64], value: u64) {
        let step = self.step(name, call, args);
        step.expect = expect::VALUE;
        step.value = value;
    }

    pub fn tolerant(&mut self, name: &str, call: libc::c_long, args: &[u64]) {
        self.step(name, call, args).expect = expect::ANY;
    }

    /// Puts bytes beside the steps and returns their address in the restorer.
    pub fn put(&mut self, bytes: &[u8]) -> u64 {
        self.data.resize(self.data.len().next_multiple_of(16), 0);
        let at = self.area.plan() + DATA_OFFSET + self.data.len() as u64;
        self.data.extend_from_slice(bytes);
        at
    }

    pub fn words(&mut self, words: &[u64]) -> u64 {
        let bytes: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).collect();
        self.put(&bytes)
    }

    pub fn text(&mut self, text: &[u8]) -> u64 {
        let mut bytes = text.to_vec();
        bytes.push(0);
        self.put(&bytes)
    }

    #[cfg(test)]
    pub fn steps(&self) -> &[Step] {
        &self.steps
    }

    /// What step `i` was for.
    pub fn name(&self, i: u64) -> &str {
        self.names.get(i as usize).map_or("finish its plan", |n| n)
    }

    /// Head and steps, and the data that goes to [`DATA_OFFSET`].
    pub fn encode(&self) -> Result<(Vec<u8>, &[u8]), RestoreError> {
        let steps = self.steps.len() as u64;
        let head = Header { magic: MAGIC, steps, done: 0, result: 0 };
        let mut out = Vec::new();
        for word in [head.magic, head.steps, head.done, head.result as u64] {
            out.extend_from_slice(&word.to_le_bytes());
        }
        for step in &self.steps {
            out.extend_from_slice(&step.call.to_le_bytes());
            out.extend_from_slice(&step.expect.to_le_bytes());
            step.args.iter().for_each(|a| out.extend_from_slice(&a.to_le_bytes()));
            out.extend_from_slice(&step.value.to_le_bytes());
        }
        let fits = out.len() as u64 <= DATA_OFFSET
            && DATA_OFFSET + self.data.len() as u64 <= MAX_PLAN_BYTES;
        if !fits {
            return Err(RestoreError::Machine("its memory is in too many pieces".into()));
        }
        Ok((out, &self.data))
    }
}
