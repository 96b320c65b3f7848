//! What a program may ask of its surroundings, and a rank that comes back finds otherwise: the
//! time, the machine it is on, and whatever else its libraries find out. All go through the door.

use eyrie_ledger::clock::{self, Which};
use eyrie_ledger::divergence::Divergence;
use eyrie_ledger::door::{Call, Outcome, Verdict, What};

use crate::error::{Res, class};
use crate::machine::Machine;

/// Longest input that is recorded at once: a quarter of what the log keeps free for a call.
pub const MAX_INPUT_BYTES: usize = 64 << 10;

impl Machine {
    /// The program may call MPI in several threads, one at a time. Whether its times are recorded.
    pub fn threaded(&mut self) -> bool {
        self.endpoint.door.threaded()
    }

    /// `MPI_Wtime`, in nanoseconds.
    #[inline]
    pub fn wtime(&mut self) -> u64 {
        self.step();
        let time = self.endpoint.door.time(clock::now);
        let time = self.answered(time);
        if self.endpoint.end_replay() {
            self.release_held();
        }
        time
    }

    /// Whether outcomes are recorded.
    pub fn records(&self) -> bool {
        self.endpoint.door.records()
    }

    /// Whether what the C library says is recorded, too.
    pub fn tells(&self) -> bool {
        self.endpoint.door.tells()
    }

    /// A clock of the C library, in nanoseconds; `now` is the machine's.
    #[inline]
    pub fn clock(&mut self, which: Which, now: impl FnOnce() -> u64) -> u64 {
        self.step();
        let time = self.endpoint.door.clock(which, now);
        self.answered(time)
    }

    /// Something else that the C library says. It is given to `take`.
    pub fn tell<R>(
        &mut self,
        what: What,
        find: impl FnOnce(&mut [u8]) -> usize,
        take: impl FnOnce(&[u8]) -> R,
    ) -> R {
        self.step();
        let told = self.endpoint.door.tell(what, find).map(take);
        self.answered(told)
    }

    /// Random bytes; `key` gives those of the kernel's.
    pub fn random(&mut self, bytes: &mut [u8], key: impl FnOnce(&mut [u8]) -> usize) {
        self.step();
        let given = self.endpoint.door.random(bytes, key);
        self.answered(given);
    }

    /// That a replay is over is found out by the next call of MPI: here may be a signal's handler.
    #[inline]
    fn answered<R>(&mut self, answer: Result<R, Divergence>) -> R {
        match answer {
            Ok(answer) => answer,
            Err(d) => self.endpoint.diverged(&d),
        }
    }

    /// `MPI_Get_processor_name`: the name that `find` finds, or was found before.
    pub fn processor_name(&mut self, find: impl FnOnce() -> Res<Vec<u8>>) -> Res<Vec<u8>> {
        self.recorded(Call::Name, find)
    }

    /// The node whose memory this rank has, or had when that was asked first.
    pub(crate) fn node(&mut self) -> u32 {
        match self.ask(Call::Node) {
            Verdict::Live => {
                let own = self.endpoint.node_of(self.endpoint.rank());
                self.record(Call::Node, &Outcome::One(own));
                own
            }
            Verdict::Forced(Outcome::One(was)) => was,
            Verdict::Forced(Outcome::Many(_)) | Verdict::Fruitless => self.misreplayed(Call::Node),
        }
    }

    /// `MPIX_Eyrie_input`: what somebody found out, or had found out when it was done first.
    pub fn input(&mut self, own: &[u8]) -> Res<Vec<u8>> {
        if own.len() > MAX_INPUT_BYTES {
            return Err(class::COUNT);
        }
        self.recorded(Call::Input, || Ok(own.to_vec()))
    }

    /// `MPIX_Eyrie_repeats`: whether what is found out next was found out before.
    pub fn repeats(&self) -> bool {
        self.endpoint.door.replaying()
    }

    /// When this life of the rank began, in ns since 1970 by the clock of files.
    pub fn begun(&self) -> u64 {
        self.endpoint.begun()
    }

    /// The program has opened a file (`told::file_number`) to write to what is in it.
    pub fn note_opened(&self, file: u64) {
        self.endpoint.note_opened(file);
    }

    /// Whether another rank may have; `shared`: ranks of other nodes may see the file, too.
    pub fn is_opened_by_others(&self, file: u64, shared: bool) -> bool {
        self.endpoint.is_opened_by_others(file, shared)
    }

    /// `MPIX_Eyrie_diverge`: what this rank repeats cannot become what it was.
    pub fn diverge(&self, why: &str) -> ! {
        let text = format!("rank {}: {why}", self.endpoint.rank());
        self.endpoint.diverged(&Divergence(text))
    }

    pub(crate) fn recorded(
        &mut self,
        call: Call,
        find: impl FnOnce() -> Res<Vec<u8>>,
    ) -> Res<Vec<u8>> {
        match self.ask(call) {
            Verdict::Live => {
                let found = find()?;
                self.record(call, &packed(&found));
                Ok(found)
            }
            Verdict::Forced(Outcome::Many(words)) => match unpacked(&words) {
                Some(found) => Ok(found),
                None => self.misreplayed(call),
            },
            Verdict::Forced(Outcome::One(_)) | Verdict::Fruitless => self.misreplayed(call),
        }
    }
}

/// Length and bytes, four in a word.
pub(crate) fn packed(bytes: &[u8]) -> Outcome {
    let mut words = vec![bytes.len() as u32];
    words.extend(bytes.chunks(4).map(|four| {
        let mut word = [0; 4];
        word[..four.len()].copy_from_slice(four);
        u32::from_le_bytes(word)
    }));
    Outcome::Many(words)
}

pub(crate) fn unpacked(words: &[u32]) -> Option<Vec<u8>> {
    let (length, rest) = words.split_first()?;
    let bytes: Vec<u8> = rest.iter().flat_map(|word| word.to_le_bytes()).collect();
    Some(bytes.get(..*length as usize)?.to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;

    #[test]
    fn a_name_goes_through_words_and_back() {
        for name in [&b""[..], b"a", b"node", b"node-17", &[b'x'; 255]] {
            let Outcome::Many(words) = packed(name) else { panic!() };
            assert_eq!(unpacked(&words).as_deref(), Some(name));
        }
        assert_eq!(unpacked(&[]), None);
        assert_eq!(unpacked(&[9, 1]), None);
    }

    #[test]
    fn a_rank_that_comes_back_elsewhere_finds_the_name_that_it_found() {
        let seg = testing::segment(1);
        let mut first = testing::machine(seg, 0, 1);
        assert_eq!(first.processor_name(|| Ok(b"one".to_vec())), Ok(b"one".to_vec()));
        let mut again = testing::machine(seg, 0, 2);
        assert_eq!(again.processor_name(|| panic!()), Ok(b"one".to_vec()));
        assert_eq!(again.processor_name(|| Ok(b"two".to_vec())), Ok(b"two".to_vec()));
    }

    #[test]
    fn input_is_what_it_was_the_first_time() {
        let seg = testing::segment(1);
        let mut first = testing::machine(seg, 0, 1);
        assert!(!first.repeats());
        assert_eq!(first.input(b"one"), Ok(b"one".to_vec()));
        assert_eq!(first.input(b""), Ok(Vec::new()));
        let mut again = testing::machine(seg, 0, 2);
        assert!(again.repeats());
        assert_eq!(again.input(b"two"), Ok(b"one".to_vec()));
        assert_eq!(again.input(b"more"), Ok(Vec::new()));
        assert!(!again.repeats());
        let long = vec![7; MAX_INPUT_BYTES];
        assert_eq!(again.input(&long), Ok(long.clone()));
        assert_eq!(again.input(&[0; MAX_INPUT_BYTES + 1]), Err(class::COUNT));
        assert_eq!(testing::machine(seg, 0, 3).input(b"no"), Ok(b"one".to_vec()));
    }
}
