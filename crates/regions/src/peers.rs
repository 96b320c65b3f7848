//! The other processes. What is asked of them is the greatest of numbers that each names, and,
//! where nodes do not see each other's folders, to pass bytes on: so any MPI will do, and none.
//!
//! Kept true: nothing is asked outside of functions that all processes call together, and only of
//! the thread that called; where a process may be restored alone (`inputs`) it tells the others
//! what it told them then.

use crate::error::RegionsError;
use crate::inputs::{self, Inputs};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::ffi::{c_int, c_void};
use std::fmt;
use std::rc::Rc;

/// Takes the greatest of each of these numbers over all processes, in place; 0: done. All
/// processes call it, as often, with as many numbers.
pub type Most = unsafe extern "C" fn(context: *mut c_void, values: *mut i64, count: c_int) -> c_int;

/// Gives every process the bytes of all: of each so many, which begin at its place in `all`.
pub type Gather = unsafe extern "C" fn(
    context: *mut c_void,
    own: *const c_void,
    counts: *const c_int,
    places: *const c_int,
    all: *mut c_void,
) -> c_int;

/// Begins to send bytes, which may be used again at once; those between two processes arrive in
/// order. To -1: waits until all that was sent is taken.
pub type SendTo = unsafe extern "C" fn(
    context: *mut c_void,
    to: c_int,
    bytes: *const c_void,
    count: c_int,
) -> c_int;

/// Waits for the next bytes from any process.
pub type ReceiveAny = unsafe extern "C" fn(
    context: *mut c_void,
    bytes: *mut c_void,
    room: c_int,
    from: *mut c_int,
    count: *mut c_int,
) -> c_int;

/// How bytes are passed on.
#[derive(Debug, Clone, Copy)]
pub struct Post {
    pub gather: Gather,
    pub send: SendTo,
    pub receive: ReceiveAny,
}

/// This process among the others.
pub struct Peers {
    pub rank: u32,
    pub ranks: u32,
    most: Option<Most>,
    post: Option<Post>,
    context: *mut c_void,
    inputs: Option<Rc<dyn Inputs>>,
}

impl fmt::Debug for Peers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "process {} of {}", self.rank, self.ranks)
    }
}

impl Peers {
    /// A process by itself.
    pub fn alone() -> Peers {
        let context = std::ptr::null_mut();
        Peers { rank: 0, ranks: 1, most: None, post: None, context, inputs: None }
    }

    /// A process that has its number from somewhere, and agrees with nobody.
    pub fn standalone(rank: u32) -> Peers {
        Peers { rank, ranks: rank.saturating_add(1), ..Peers::alone() }
    }

    /// Whether this process does what is done once: protecting parts of all.
    pub fn leads(&self) -> bool {
        self.rank == 0
    }

    /// Whether there is nobody to agree with.
    pub fn silent(&self) -> bool {
        self.most.is_none()
    }

    /// # Safety
    ///
    /// `most` may be called with `context` as long as this is used.
    pub unsafe fn new(
        (rank, ranks): (c_int, c_int),
        most: Option<Most>,
        context: *mut c_void,
    ) -> Result<Peers, RegionsError> {
        let bad = |why: &str| RegionsError::Use(why.into());
        let (Ok(rank), Ok(ranks)) = (u32::try_from(rank), u32::try_from(ranks)) else {
            return Err(bad("a process has a number from 0 on"));
        };
        if rank >= ranks {
            return Err(bad("a process's number is below how many there are"));
        }
        if ranks > 1 && most.is_none() {
            return Err(bad("several processes need the function by which they agree"));
        }
        Ok(Peers { rank, ranks, most, post: None, context, inputs: None })
    }

    /// The same, with a way for bytes.
    ///
    /// # Safety
    ///
    /// These may be called with the context that the processes were given as long as this is used.
    #[must_use]
    pub unsafe fn with_post(
        self,
        gather: Option<Gather>,
        send: Option<SendTo>,
        receive: Option<ReceiveAny>,
    ) -> Peers {
        let all = gather.zip(send).zip(receive);
        let post = all.map(|((gather, send), receive)| Post { gather, send, receive });
        let inputs = if post.is_some() && self.ranks > 1 { inputs::found() } else { None };
        Peers { post, ..self }.with_inputs(inputs)
    }

    /// Whether bytes can be passed on.
    pub fn has_post(&self) -> bool {
        self.post.is_some() && self.ranks > 1
    }

    /// The same, where a process may be restored alone and repeat what it did.
    #[must_use]
    pub fn with_inputs(self, inputs: Option<Rc<dyn Inputs>>) -> Peers {
        Peers { inputs, ..self }
    }

    /// Whether a process may be restored alone, and what it finds out is recorded for that.
    pub fn records(&self) -> bool {
        self.inputs.is_some()
    }

    /// Whether this process is doing again what it did.
    pub fn repeats(&self) -> bool {
        self.inputs.as_ref().is_some_and(|inputs| inputs.repeats())
    }

    /// Where what this process finds out is recorded.
    pub fn inputs(&self) -> Option<&Rc<dyn Inputs>> {
        self.inputs.as_ref()
    }

    /// Does something with files that no image is to be taken in the middle of. No other process is
    /// asked anything meanwhile, and nothing is recorded.
    pub fn undisturbed<T>(
        &self,
        work: impl FnOnce() -> Result<T, RegionsError>,
    ) -> Result<T, RegionsError> {
        let Some(inputs) = &self.inputs else { return work() };
        let done = inputs::undisturbed(inputs.as_ref(), || Ok(work()));
        done.unwrap_or_else(|error| Err(RegionsError::Use(error.to_string())))
    }

    /// What this process found out, as it found it out when it did that first.
    pub fn settled<T: Serialize + DeserializeOwned>(&self, own: T) -> Result<T, RegionsError> {
        let Some(inputs) = &self.inputs else { return Ok(own) };
        let bad = |_| RegionsError::Use("what was recorded cannot be read".into());
        let own = postcard::to_allocvec(&own).map_err(bad)?;
        postcard::from_bytes(&inputs.settle(&own)?).map_err(bad)
    }

    /// How something went here, as it went first.
    pub fn settled_end<T>(&self, done: Result<T, RegionsError>) -> Result<T, RegionsError> {
        let Some(inputs) = &self.inputs else { return done };
        let own = done.as_ref().err().map(RegionsError::to_string);
        match (self.settled(own.clone())?, done) {
            (None, Err(error)) => {
                inputs.diverge(&format!("a checkpoint of regions cannot be repeated: {error}"));
                Err(error)
            }
            (Some(why), _) if own.as_ref() != Some(&why) => Err(RegionsError::Use(why)),
            (_, done) => done,
        }
    }

    /// The greatest of each number over all processes.
    pub fn most(&self, values: &mut [i64]) -> Result<(), RegionsError> {
        if self.inputs.is_some() {
            let settled = self.settled(values.to_vec())?;
            if settled.len() != values.len() {
                return Err(RegionsError::Use("what was recorded is of another call".into()));
            }
            values.copy_from_slice(&settled);
        }
        self.agree(values)
    }

    fn agree(&self, values: &mut [i64]) -> Result<(), RegionsError> {
        let (Some(most), true) = (self.most, self.ranks > 1) else { return Ok(()) };
        let count = c_int::try_from(values.len()).unwrap_or(c_int::MAX);
        // SAFETY: whoever made this promised that it may be called; it writes `count` numbers.
        match unsafe { most(self.context, values.as_mut_ptr(), count) } {
            0 => Ok(()),
            code => Err(RegionsError::Peers(code)),
        }
    }

    /// Whether all processes did well; what went wrong here is what is told here.
    pub fn all<T>(&self, done: Result<T, RegionsError>) -> Result<T, RegionsError> {
        let done = self.settled_end(done);
        let mut worst = [if done.is_ok() { -1 } else { i64::from(self.rank) }];
        self.agree(&mut worst)?;
        match (done, worst) {
            (Ok(_), [other]) if other >= 0 => Err(RegionsError::Other(other)),
            (done, _) => done,
        }
    }

    /// The least of a number over all processes.
    pub fn least(&self, value: i64) -> Result<i64, RegionsError> {
        let mut values = [-value];
        self.most(&mut values)?;
        Ok(-values[0])
    }

    /// Whether all processes name the same number.
    pub fn same(&self, value: i64) -> Result<bool, RegionsError> {
        let mut values = [value, -value];
        self.most(&mut values)?;
        Ok(values[0] == -values[1])
    }

    fn post(&self) -> Result<Post, RegionsError> {
        self.post.ok_or_else(|| RegionsError::Use("the processes have no way for bytes".into()))
    }

    /// The bytes of all processes, each of which may have any number of them.
    pub fn gather(&self, own: &[u8]) -> Result<Vec<Vec<u8>>, RegionsError> {
        let settled = self.inputs.as_ref().map(|inputs| inputs.settle(own)).transpose()?;
        let own = settled.as_deref().unwrap_or(own);
        let length = i32::try_from(own.len()).unwrap_or(-1);
        let ranks = self.ranks as usize;
        let raw = self.gather_counts(&length.to_le_bytes(), &vec![4; ranks])?;
        let count = |four: &[u8]| {
            let four = four.try_into().unwrap_or([0xff; 4]);
            c_int::from_le_bytes(four)
        };
        let counts: Vec<c_int> = raw.chunks_exact(4).map(count).collect();
        let total: i64 = counts.iter().map(|count| i64::from(*count)).sum();
        if counts.len() != ranks || counts.iter().any(|c| *c < 0) || i32::try_from(total).is_err() {
            return Err(RegionsError::Use("the processes have too much to tell each other".into()));
        }
        let all = if total > 0 { self.gather_counts(own, &counts)? } else { Vec::new() };
        let mut rest = &all[..];
        let mut take = |count: &c_int| {
            let (own, more) = rest.split_at(usize::try_from(*count).unwrap_or(0).min(rest.len()));
            rest = more;
            own.to_vec()
        };
        Ok(counts.iter().map(&mut take).collect())
    }

    fn gather_counts(&self, own: &[u8], counts: &[c_int]) -> Result<Vec<u8>, RegionsError> {
        let Post { gather, .. } = self.post()?;
        let mut total: c_int = 0;
        let mut places = Vec::with_capacity(counts.len());
        for count in counts {
            places.push(total);
            total = total.saturating_add(*count);
        }
        let mut all = vec![0u8; usize::try_from(total).unwrap_or(0)];
        let (counts, places, to) = (counts.as_ptr(), places.as_ptr(), all.as_mut_ptr().cast());
        // SAFETY: whoever made this promised that it may be called; there are as many counts and
        // places as processes, own bytes as the count says, and room for the bytes of all.
        match unsafe { gather(self.context, own.as_ptr().cast(), counts, places, to) } {
            0 => Ok(all),
            code => Err(RegionsError::Peers(code)),
        }
    }

    /// Begins to send bytes to a process.
    pub fn send(&self, to: u32, bytes: &[u8]) -> Result<(), RegionsError> {
        let count = c_int::try_from(bytes.len()).unwrap_or(c_int::MAX);
        self.sent(c_int::try_from(to).unwrap_or(c_int::MAX), bytes.as_ptr(), count)
    }

    /// Waits until all that was sent is taken.
    pub fn flush(&self) -> Result<(), RegionsError> {
        self.sent(-1, std::ptr::null(), 0)
    }

    fn sent(&self, to: c_int, bytes: *const u8, count: c_int) -> Result<(), RegionsError> {
        // SAFETY: whoever made this promised that it may be called; there are as many bytes.
        match unsafe { (self.post()?.send)(self.context, to, bytes.cast(), count) } {
            0 => Ok(()),
            code => Err(RegionsError::Peers(code)),
        }
    }

    /// Waits for the next bytes, `most` of them, and says who sent them.
    pub fn receive(&self, most: usize) -> Result<(u32, Vec<u8>), RegionsError> {
        let mut bytes = vec![0u8; most];
        let room = c_int::try_from(most).unwrap_or(c_int::MAX);
        let (mut from, mut count): (c_int, c_int) = (-1, -1);
        let to = bytes.as_mut_ptr().cast();
        // SAFETY: whoever made this promised that it may be called; there is as much room.
        match unsafe {
            (self.post()?.receive)(self.context, to, room, &raw mut from, &raw mut count)
        } {
            0 => {}
            code => return Err(RegionsError::Peers(code)),
        }
        bytes.truncate(usize::try_from(count).unwrap_or(0));
        let from = u32::try_from(from).ok().filter(|from| *from < self.ranks);
        let strange = || RegionsError::Use("something came from a process that is none".into());
        Ok((from.ok_or_else(strange)?, bytes))
    }
}
