//! What a leader writes: one thread, which gathers what there is into transactions.
//!
//! Kept true: all is written in the order it was given in; what is told to be durable is, and
//! everything before it, once (`protocol::election`). A journal is replaced by the one key that
//! names it.

use super::lease::{self, Side};
use super::{CONTROLLER, ENDED, ENDED_SECS, Health, INPUT, Lead, News, PRINTED, Place};
use eyrie_protocol::election::Claim;
use eyrie_protocol::election::JOURNAL;
use eyrie_protocol::election::JournalKeys;
use eyrie_protocol::election::Op;
use eyrie_protocol::election::Outcome;
use eyrie_protocol::election::TermWriter;
use eyrie_protocol::election::Txn;
use eyrie_state::home;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

/// Longest chunk. etcd takes requests of 1.5 MiB.
const CHUNK_BYTES: usize = 512 << 10;
/// Most steps of a transaction; etcd takes 128.
const STEPS: usize = 60;
/// From this length on a journal is replaced, if most of it is not needed any more.
const LONG_BYTES: u64 = 16 << 20;
/// Between two attempts.
const PAUSE: Duration = Duration::from_millis(100);

enum Work {
    /// Record, or records, behind what is there; durable up to the number.
    Append(u64, Vec<u8>),
    /// A journal that takes the place of the one that is there.
    Renew(u64, Vec<u8>),
    Put(String, Vec<u8>),
    /// The job has ended with this exit code; to be told when that is done.
    End(i32, Box<dyn FnOnce() + Send>),
}

/// The end of the thread that the job has.
pub struct Writer {
    queue: Sender<Work>,
    next: u64,
    bytes: u64,
    /// The journal's length when it was new.
    base: u64,
}

impl Writer {
    /// Starts the thread. What `eyrie run` has printed is counted in that folder.
    pub fn new(lead: &Lead, folder: &Path, health: &Arc<Health>) -> io::Result<Writer> {
        let (queue, work) = channel();
        let mut thread = Thread {
            place: Arc::clone(&lead.place),
            pen: TermWriter::new(Claim { token: lead.token.clone(), term: lead.term }),
            health: Arc::clone(health),
            volume: JournalKeys::new(lead.generation),
            printed: (folder.join(home::PRINTED), Vec::new()),
        };
        let run = move || thread.run(&work);
        std::thread::Builder::new().name("eyrie-etcd".into()).spawn(run)?;
        Ok(Writer { queue, next: 0, bytes: 0, base: 0 })
    }

    fn give(&self, work: Work) {
        // The thread ends only when this controller is to.
        let _ = self.queue.send(work);
    }

    /// Returns the number that is told when it is durable.
    pub fn append(&mut self, bytes: Vec<u8>) -> u64 {
        self.next += 1;
        self.bytes += bytes.len() as u64;
        self.give(Work::Append(self.next, bytes));
        self.next
    }

    /// The same for a whole journal.
    pub fn renew(&mut self, bytes: Vec<u8>) -> u64 {
        self.next += 1;
        (self.bytes, self.base) = (bytes.len() as u64, bytes.len() as u64);
        self.give(Work::Renew(self.next, bytes));
        self.next
    }

    /// Whether the journal is to be replaced.
    pub fn is_long(&self) -> bool {
        self.bytes > LONG_BYTES.max(4 * self.base)
    }

    /// Standard input from this position on.
    pub fn input(&self, at: u64, bytes: &[u8]) {
        self.give(Work::Put(format!("{INPUT}{at:016x}"), bytes.to_vec()));
    }

    /// Where the controller is.
    pub fn announce(&self, text: String) {
        self.give(Work::Put(CONTROLLER.to_string(), text.into_bytes()));
    }

    /// Nothing of the job stays, but that it has ended.
    pub fn end(&self, code: i32, done: impl FnOnce() + Send + 'static) {
        self.give(Work::End(code, Box::new(done)));
    }
}

struct Thread {
    place: Arc<Place>,
    pen: TermWriter,
    health: Arc<Health>,
    volume: JournalKeys,
    /// The file, and what etcd has of it.
    printed: (PathBuf, Vec<u8>),
}

/// It leads no more, or is not to go on.
struct Over;

/// What is gathered for a transaction.
#[derive(Default)]
struct Batch {
    steps: Vec<Op>,
    bytes: usize,
    /// The chunk that is being filled.
    chunk: Vec<u8>,
    upto: Option<u64>,
}

impl Thread {
    fn run(&mut self, work: &Receiver<Work>) {
        while let Ok(first) = work.recv() {
            let mut batch = Batch::default();
            let mut next = Some(first);
            while let Some(work_) = next.take() {
                if self.gather(&mut batch, work_).is_err() {
                    return;
                }
                if batch.bytes + batch.chunk.len() < CHUNK_BYTES && batch.steps.len() < STEPS {
                    next = work.try_recv().ok();
                }
            }
            if self.flush(&mut batch).is_err() {
                return;
            }
        }
    }

    fn gather(&mut self, batch: &mut Batch, work: Work) -> Result<(), Over> {
        match work {
            Work::Append(number, bytes) => {
                for part in bytes.chunks(CHUNK_BYTES) {
                    if batch.chunk.len() + batch.bytes + part.len() > 2 * CHUNK_BYTES {
                        // Half a record is none yet.
                        self.flush(batch)?;
                    }
                    batch.chunk.extend_from_slice(part);
                }
                batch.upto = Some(number);
            }
            Work::Renew(number, bytes) => {
                self.flush(batch)?;
                self.renew(&bytes)?;
                batch.upto = Some(number);
            }
            Work::Put(name, value) => {
                self.fill(batch);
                batch.bytes += value.len();
                batch.steps.push(Op::put(&name, value));
            }
            Work::End(code, done) => {
                self.flush(batch)?;
                self.end(code)?;
                done();
            }
        }
        Ok(())
    }

    /// What was gathered of the journal is a step of its own.
    fn fill(&mut self, batch: &mut Batch) {
        if batch.chunk.is_empty() {
            return;
        }
        for part in batch.chunk.chunks(CHUNK_BYTES) {
            batch.bytes += part.len();
            batch.steps.push(self.volume.append(part.to_vec()));
        }
        batch.chunk.clear();
    }

    fn flush(&mut self, batch: &mut Batch) -> Result<(), Over> {
        self.fill(batch);
        let Batch { mut steps, upto, .. } = std::mem::take(batch);
        if !steps.is_empty() {
            let printed = std::fs::read(&self.printed.0).unwrap_or_default();
            if printed != self.printed.1 {
                steps.push(Op::put(PRINTED, printed.clone()));
                self.printed.1 = printed;
            }
            self.commit(&self.pen.write(steps), false, 0)?;
        }
        if let Some(number) = upto {
            self.health.tell(News::Committed(number));
        }
        Ok(())
    }

    fn renew(&mut self, bytes: &[u8]) -> Result<(), Over> {
        for steps in self.volume.renew(bytes.chunks(CHUNK_BYTES).map(<[u8]>::to_vec)) {
            self.commit(&self.pen.write(steps), false, 0)?;
        }
        Ok(())
    }

    fn end(&mut self, code: i32) -> Result<(), Over> {
        self.health.ending();
        // Without a lease it would stay for ever.
        let lease = self.place.client.grant(ENDED_SECS).unwrap_or(0);
        let value = code.to_string().into_bytes();
        let ended = Op::Put { key: ENDED.to_string(), value, leased: true };
        let below = [JOURNAL, INPUT].map(|name| Op::DeleteAll(name.to_string()));
        let goes = [CONTROLLER, PRINTED].map(|name| Op::Delete(name.to_string()));
        let txn = self.pen.end(vec![ended], below.into_iter().chain(goes));
        self.commit(&txn, true, lease)
    }

    /// Writes, as long as it takes; not as one who does not lead.
    fn commit(&mut self, txn: &Txn, ends: bool, lease: i64) -> Result<(), Over> {
        loop {
            if self.health.is_over() {
                return Err(Over);
            }
            let came = self.place.carry_out(txn, lease);
            let why = match came.map(|(held, seen)| self.pen.judge(held, &seen, ends)) {
                Ok(Outcome::Done) => {
                    self.health.report(Side::Writer, None);
                    return Ok(());
                }
                Ok(Outcome::Deposed) => {
                    self.health.depose(lease::why(&self.place));
                    return Err(Over);
                }
                Ok(Outcome::Lapsed) => {
                    // The other thread takes the lead again.
                    self.health.lapsed();
                    String::from("the lease ran out")
                }
                Err(error) => error.to_string(),
            };
            self.health.report(Side::Writer, Some(why));
            std::thread::sleep(PAUSE);
        }
    }
}
