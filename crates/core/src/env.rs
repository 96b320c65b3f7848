//! What a program may ask of its surroundings, and a rank that comes back finds otherwise: the
//! time, and the machine it is on. Both go through the door.

use eyrie_ledger::clock;
use eyrie_ledger::door::{Call, Outcome, Verdict};

use crate::error::Res;
use crate::machine::Machine;

impl Machine {
    /// The program may call MPI in several threads, one at a time. Whether its times are recorded.
    pub fn threaded(&mut self) -> bool {
        self.endpoint.door.threaded()
    }

    /// `MPI_Wtime`, in nanoseconds.
    #[inline]
    pub fn wtime(&mut self) -> u64 {
        let time = match self.endpoint.door.time(clock::now) {
            Ok(time) => time,
            Err(d) => self.endpoint.diverged(&d),
        };
        if self.endpoint.end_replay() {
            self.release_held();
        }
        time
    }

    /// `MPI_Get_processor_name`: the name that `find` finds, or was found before.
    pub fn processor_name(&mut self, find: impl FnOnce() -> Res<Vec<u8>>) -> Res<Vec<u8>> {
        match self.ask(Call::Name) {
            Verdict::Live => {
                let name = find()?;
                self.endpoint.door.record(Call::Name, &packed(&name));
                Ok(name)
            }
            Verdict::Forced(Outcome::Many(words)) => match unpacked(&words) {
                Some(name) => Ok(name),
                None => self.misreplayed(Call::Name),
            },
            Verdict::Forced(Outcome::One(_)) | Verdict::Fruitless => self.misreplayed(Call::Name),
        }
    }
}

/// Length and bytes, four in a word.
fn packed(bytes: &[u8]) -> Outcome {
    let mut words = vec![bytes.len() as u32];
    words.extend(bytes.chunks(4).map(|four| {
        let mut word = [0; 4];
        word[..four.len()].copy_from_slice(four);
        u32::from_le_bytes(word)
    }));
    Outcome::Many(words)
}

fn unpacked(words: &[u32]) -> Option<Vec<u8>> {
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
}
