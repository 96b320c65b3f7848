//! What drives the controller: gives it its time, what happens, and its timers when they are due.
//!
//! Kept true: whoever gets at the controller has told it what the clocks show; timers that are due
//! come before what nodes and tasks say; all that has come in a turn is made durable together, and
//! has its effects then (`Job::end_turn`).

use crate::outside::Hands;
use eyrie_connection::send_queue::SendQueue;
use eyrie_control::JobSpec;
use eyrie_controller::{Job, Msg, Now, Place};
use eyrie_launcher::node_launcher::NodeLauncher;
use eyrie_process::clock::Moment;
use std::cell::{Ref, RefCell, RefMut};
use std::rc::Rc;
use std::time::{Duration, Instant, SystemTime};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender};

/// Most messages in a turn.
const TURN: usize = 64;

/// The clocks of this process.
#[derive(Clone, Copy)]
struct Clocks {
    steady: Instant,
    boot: Moment,
    origin: SystemTime,
}

impl Clocks {
    fn now(&self) -> Now {
        let (steady, boot) = (self.steady.elapsed(), self.boot.elapsed());
        Now { steady, boot, wall: SystemTime::now(), origin: self.origin }
    }
}

/// What a controller is begun with.
pub struct Driver {
    pub console: SendQueue,
    pub tell: UnboundedSender<Msg>,
    clocks: Clocks,
}

impl Driver {
    pub fn new(console: SendQueue, tell: UnboundedSender<Msg>) -> Driver {
        let (steady, boot, origin) = (Instant::now(), Moment::now(), SystemTime::now());
        Driver { console, tell, clocks: Clocks { steady, boot, origin } }
    }

    pub fn now(&self) -> Now {
        self.clocks.now()
    }

    /// What a controller of this job acts through.
    pub(crate) fn hands(&self, place: &Place, spec: &JobSpec, crew: Option<NodeLauncher>) -> Hands {
        Hands::new(place, spec, crew, &self.console, &self.tell)
    }

    /// `hands`: what the controller acts through.
    pub(crate) fn share(&self, job: Job, hands: Hands) -> Shared {
        Shared { job: Rc::new(RefCell::new(job)), hands, clocks: self.clocks }
    }
}

/// Handle by which tasks reach the controller.
#[derive(Clone)]
pub struct Shared {
    job: Rc<RefCell<Job>>,
    pub(crate) hands: Hands,
    clocks: Clocks,
}

impl Shared {
    pub fn borrow(&self) -> Ref<'_, Job> {
        let job = self.job.borrow();
        job.set_now(self.clocks.now());
        job
    }

    pub fn borrow_mut(&self) -> RefMut<'_, Job> {
        let job = self.job.borrow_mut();
        job.set_now(self.clocks.now());
        job
    }

    /// Waits for what happens next, or for the next timer. None: nobody is left who could say
    /// anything.
    pub async fn next(&self, told: &mut UnboundedReceiver<Msg>) -> Option<Msg> {
        loop {
            let due = self.borrow_mut().due_timer();
            if due.is_some() {
                return due;
            }
            let wait = self.borrow().next_timer();
            tokio::select! {
                biased;
                message = told.recv() => return message,
                () = tokio::time::sleep(wait), if wait < Duration::MAX => {}
            }
        }
    }

    /// Takes what is due.
    pub fn fire_due(&self) {
        let mut job = self.borrow_mut();
        for _ in 0..TURN {
            let Some(timer) = job.due_timer() else { return };
            job.take(timer);
        }
    }

    /// Takes a message, and what has come meanwhile: that is one turn.
    pub fn take(&self, first: Msg, told: &mut UnboundedReceiver<Msg>) {
        let mut job = self.borrow_mut();
        job.take(first);
        for _ in 1..TURN {
            if job.exit_code().is_some() {
                return;
            }
            job.set_now(self.clocks.now());
            let Some(message) = job.due_timer().or_else(|| told.try_recv().ok()) else { return };
            job.take(message);
        }
    }
}
