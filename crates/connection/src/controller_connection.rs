//! The connection of a node daemon to its controller, and the next one when that ends.
//!
//! Kept true: an end that the controller's machine tells of (its process died) is not the node's:
//! it calls again, at the same address, as long as the job's limit lets it, while its ranks go on.
//! Silence is: a node that is cut off must not go on; one that its controller can kill bears it for
//! as long as it would be without one. Who is told to go, goes. With `--ha` etcd says where the
//! controller is, and `protocol::leader_lease` for how long it is looked for. A node that reaches
//! its controller through gateways only calls through the one that it was told of last: how those
//! answer says nothing of the controller, so it waits no longer than it was granted.

use crate::node_connection::{self, Beat, End, Limits};
use crate::node_session::NodeSession;
use eyrie_control::ToNode;
use eyrie_control::auth::{AuthError, Hello, Role};
use eyrie_ha::Watch;
use eyrie_process::clock::Moment;
use eyrie_protocol::failure_detector::Disconnected;
use eyrie_protocol::leader_lease;
use eyrie_protocol::session::Numbered;
use eyrie_protocol::timing::Detector;
use eyrie_tls::{CONTROLLER, Call, Routes, Secret, Stream};
use std::io;
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::time::{Duration, Instant};
use tokio::sync::mpsc::UnboundedSender;

/// Longest wait for an answer to the first call; longer each time.
const FIRST_CALL: Duration = Duration::from_millis(50);
/// Longest wait for an answer to a later call.
const CALL: Duration = Duration::from_secs(1);
/// The same through gateways.
const FAR_CALL: Duration = Duration::from_secs(5);
/// So many times as long as for one answer the first of such calls are made anew.
const FAR_TIMES: u32 = 3;
/// Between two calls.
const PAUSE: Duration = Duration::from_millis(25);
/// The same where etcd is asked, too.
const ASKING: Duration = Duration::from_millis(100);
/// Longest wait there for the answer of who is called: it may be stopped, and another one lead.
const GREETING_AGAIN: Duration = Duration::from_secs(2);

/// How the controller is called.
pub struct Caller {
    pub controller: SocketAddr,
    pub job: String,
    /// Number and epoch that this daemon was started with.
    pub own: (u32, u64),
    pub secret: Secret,
    /// How long it is called again when it is gone.
    pub limit: Duration,
    /// With `--ha`: says where the controller is.
    pub watch: Option<Arc<Watch>>,
    /// It is reached through gateways only, as these say.
    pub through: Option<Routes>,
    /// It can kill this node: both are processes of one machine, and of one network.
    pub near: bool,
    /// What silence the two ends bear.
    pub detector: Detector,
    /// Longest wait for the controller's answer at the beginning.
    pub greeting: Duration,
}

/// A connection on which both ends have proved themselves.
pub struct Called {
    pub stream: Stream,
    /// Of the controller.
    term: u64,
    /// By which it ends when the gateway on the way is gone.
    call: Option<Call>,
}

/// One on which nothing is said yet.
type Reached = (TcpStream, Option<Call>);

impl Caller {
    fn limits(&self) -> Limits {
        match self.near {
            true => Limits::of_near(self.detector, self.limit),
            false => Limits::of_node(self.detector, self.through.is_some()),
        }
    }

    /// The first call.
    pub fn call(&self) -> Result<Called, AuthError> {
        let greet = |socket| self.greet((socket, None), self.greeting);
        if self.through.is_some() {
            return self.first_through();
        }
        match self.first().map_err(AuthError::Io).and_then(greet) {
            Err(AuthError::Io(error)) if self.limit > Duration::ZERO => {
                let silence = Duration::from_millis(self.detector.silence_least_ms);
                self.again(silence, Duration::ZERO).ok_or(AuthError::Io(error))
            }
            called => called,
        }
    }

    /// What is sent first may be lost, as a bridge takes a moment to notice a new network, and
    /// would be sent again a second later only.
    fn first(&self) -> io::Result<TcpStream> {
        let begun = Instant::now();
        let mut wait = FIRST_CALL;
        loop {
            match TcpStream::connect_timeout(&self.controller, wait) {
                Err(error)
                    if error.kind() == io::ErrorKind::TimedOut
                        && begun.elapsed() < self.greeting =>
                {
                    wait *= 2;
                }
                called => return called,
            }
        }
    }

    /// The same through gateways, which may not reach each other yet, or die.
    fn first_through(&self) -> Result<Called, AuthError> {
        let (begun, limit) = (Instant::now(), self.greeting * FAR_TIMES);
        loop {
            match self.connect(FAR_CALL).and_then(|reached| self.greet(reached, self.greeting)) {
                Err(AuthError::Io(_) | AuthError::Silent) if begun.elapsed() < limit => {
                    std::thread::sleep(PAUSE);
                }
                called => return called,
            }
        }
    }

    /// Makes a connection to where the controller is, or was.
    fn connect(&self, wait: Duration) -> Result<Reached, AuthError> {
        let Some(routes) = &self.through else {
            return Ok((TcpStream::connect_timeout(&self.controller, wait)?, None));
        };
        let call = routes.call(self.own.0, (CONTROLLER, 0));
        let job = (&self.secret, self.job.as_str());
        let socket = call.connect(job, self.own, self.controller, wait)?;
        Ok((socket, Some(call)))
    }

    fn greet(&self, (socket, call): Reached, limit: Duration) -> Result<Called, AuthError> {
        socket.set_nodelay(true)?;
        socket.set_read_timeout(Some(limit))?;
        let done = hang_up_after(&socket, limit)?;
        let hello = Hello::new(Role::Node, &self.job, self.own, (0, 0))?;
        let (stream, other) = self.secret.call(socket, &hello, Role::Controller)?;
        drop(done);
        stream.socket().set_write_timeout(None)?;
        Ok(Called { stream, term: other.epoch, call })
    }

    /// Calls until there is a controller again. None: that takes too long, or for as long as
    /// `silence` it is not known that the controller's machine is there and its process is not;
    /// for `before` that is so. Who takes the call and does not greet may live, and have given
    /// this node up.
    fn again(&self, silence: Duration, before: Duration) -> Option<Called> {
        if let Some(watch) = &self.watch {
            return self.look_for(watch);
        }
        let begun = Moment::now();
        let now = || (before + begun.elapsed()).as_millis() as u64;
        let mut adrift = Disconnected::new(silence.as_millis() as u64, 0);
        // A call that is lost between gateways, as one of them dies, ends in no other way.
        let (most, greeting, limit) = match self.through {
            None => (CALL, Duration::MAX, self.limit),
            Some(_) => (FAR_CALL, FAR_CALL, self.limit.max(silence)),
        };
        // At the end of that the controller counts on this node's being gone.
        while begun.elapsed() < limit && !adrift.is_over(now()) {
            let left =
                |adrift: &Disconnected| Duration::from_millis(adrift.left_ms(now())).max(PAUSE);
            let calls = now();
            match self.connect(left(&adrift).min(most)) {
                Ok(reached) => match self.greet(reached, left(&adrift).min(greeting)) {
                    // Unless this node stood still meanwhile.
                    Ok(called) if !adrift.is_over(now()) => return Some(called),
                    Ok(_) => {}
                    Err(AuthError::Io(error)) => tracing::debug!(%error, "no greeting"),
                    // Another program listens there by now.
                    Err(error) => tracing::warn!("who answers is not the controller: {error}"),
                },
                // What a gateway's machine answers is not the controller's word.
                Err(AuthError::Io(error))
                    if self.through.is_none() && is_an_answer(error.kind()) =>
                {
                    adrift.answered(calls);
                }
                Err(_) => {}
            }
            std::thread::sleep(PAUSE);
        }
        None
    }

    /// The same where etcd knows. None: that takes too long, or for a while neither a controller
    /// answered nor etcd said that there is none.
    fn look_for(&self, watch: &Watch) -> Option<Called> {
        let begun = Moment::now();
        // For the first controller, too; of another one it is known already.
        watch.parted(Duration::ZERO, Duration::ZERO);
        while begun.elapsed() < self.limit {
            watch.ask();
            for place in watch.places(self.controller) {
                // Whoever counts on this node's end does by then.
                let left = || watch.left().max(PAUSE);
                let called = TcpStream::connect_timeout(&place, left().min(CALL));
                let greet = |socket| self.greet((socket, None), left().min(GREETING_AGAIN));
                match called.map_err(AuthError::Io).and_then(greet) {
                    Ok(called) if watch.met(called.term) => return Some(called),
                    Ok(_) => {}
                    Err(AuthError::Io(_)) => {}
                    Err(error) => tracing::warn!("who answers is not the controller: {error}"),
                }
            }
            if watch.is_lost() {
                tracing::warn!("no controller is reached from here, nor word that one may come");
                return None;
            }
            std::thread::sleep(ASKING);
        }
        None
    }
}

/// Ends a connection after so long, unless what is returned is dropped before.
fn hang_up_after(socket: &TcpStream, limit: Duration) -> io::Result<mpsc::Sender<()>> {
    let (done, over) = mpsc::channel::<()>();
    let socket = socket.try_clone()?;
    let work = move || {
        if over.recv_timeout(limit) == Err(mpsc::RecvTimeoutError::Timeout) {
            let _ = socket.shutdown(Shutdown::Both);
        }
    };
    std::thread::Builder::new().name("eyrie-hurry".into()).spawn(work)?;
    Ok(done)
}

/// The connection that there is, and the controller's term.
type Current = Arc<Mutex<Option<(u64, Arc<Stream>)>>>;

/// Leaves a controller that has a successor, though it may not know it.
fn leave_the_deposed(watch: &Arc<Watch>, current: &Current) -> io::Result<()> {
    let current = Arc::clone(current);
    Watch::follow(watch, move |term| {
        let current = current.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, stream)) = current.as_ref().filter(|(known, _)| *known < term) {
            tracing::warn!("controller {term} leads now");
            let _ = stream.shutdown(Shutdown::Both);
        }
    })
}

/// Whether the machine is there, and only nobody listens.
fn is_an_answer(kind: io::ErrorKind) -> bool {
    [io::ErrorKind::ConnectionRefused, io::ErrorKind::ConnectionReset].contains(&kind)
}

/// Serves the connection, and those after it, in a thread: `orders` gets what the controllers say.
pub fn keep(
    caller: Caller,
    called: Called,
    post: Arc<NodeSession>,
    orders: UnboundedSender<ToNode>,
) -> io::Result<()> {
    let current = Current::default();
    caller.watch.iter().try_for_each(|watch| leave_the_deposed(watch, &current))?;
    let work = move || {
        let mut line = Some(called);
        let mut limits = Arc::new(caller.limits());
        while let Some(called) = line.take() {
            let taken = caller.watch.as_ref().is_none_or(|watch| watch.met(called.term));
            let served = match taken {
                true => serve(called, &post, &orders, &limits, (&current, &caller.watch)),
                false => Ok(Some(End::Broke(String::from("another one leads by now")))),
            };
            let end = match served {
                Ok(end) => end,
                Err(error) => Some(End::Broke(error.to_string())),
            };
            post.disconnect();
            // The end may have been on its way for long.
            let [silence, before] = [limits.bears(), limits.silent()].map(Duration::from_millis);
            caller.watch.iter().for_each(|watch| watch.parted(before, silence));
            match end {
                None => tracing::warn!("the controller does not want this node any more"),
                Some(end) => {
                    tracing::warn!("the controller is gone: {end}");
                    let told = matches!(end, End::Closed | End::Broke(_));
                    // Of a machine that is gone nothing is heard.
                    let told = told || (caller.watch.is_some() && matches!(end, End::Silent(_)));
                    if told && !post.is_over() {
                        line = caller.again(silence, before);
                        limits = Arc::new(limits.again());
                    }
                }
            }
        }
        // The sender of orders goes, and with that the node.
    };
    std::thread::Builder::new().name("eyrie-line".into()).spawn(work)?;
    Ok(())
}

/// Serves one connection. Returns its end; none: the node was told to go.
fn serve(
    called: Called,
    post: &Arc<NodeSession>,
    orders: &UnboundedSender<ToNode>,
    limits: &Arc<Limits>,
    (current, watch): (&Current, &Option<Arc<Watch>>),
) -> io::Result<Option<End>> {
    let Called { stream, term, call: _call } = called;
    let stream = Arc::new(stream);
    let held = Some((term, Arc::clone(&stream)));
    *current.lock().unwrap_or_else(PoisonError::into_inner) = held;
    let (beats, used_to) = (Arc::clone(post), Arc::clone(limits));
    let beat = move || beats.beat(used_to.says());
    let sender = node_connection::write(Arc::clone(&stream), limits.heartbeat(), beat)?;
    // The first word, before anything is heard here: how much was heard from those before.
    sender.send(post.beat(limits.says()));
    if !post.connect(sender, term) {
        return Ok(Some(End::Broke(String::from("it is one of an earlier term"))));
    }
    let (over, ended) = mpsc::channel();
    let (post, orders, told) = (Arc::clone(post), orders.clone(), Arc::clone(limits));
    let watch = watch.clone();
    let hear = move |frame: Result<Numbered<ToNode>, End>| {
        let take = |said| match said {
            ToNode::Beat { .. } | ToNode::Dismissed => Some(said),
            order => {
                let _ = orders.send(order);
                None
            }
        };
        let end = match frame.map(|frame| post.hear(frame, take).map(Option::flatten)) {
            // Before this node gives the controller up, the controller has given this node up.
            Ok(Ok(Some(ToNode::Beat { timeout_ms, stamp_ms }))) => {
                let (timeout_ms, sure) = leader_lease::hear(timeout_ms);
                if let (Some(watch), Some(stamp_ms)) = (&watch, stamp_ms) {
                    watch.beaten(told.ago(stamp_ms), sure);
                }
                return told.tell(Beat { timeout_ms, stamp_ms });
            }
            Ok(Ok(Some(_))) => None,
            Ok(Ok(None)) => return,
            Ok(Err(foreign)) => Some(End::Malformed(foreign.to_string())),
            Err(end) => Some(end),
        };
        let _ = over.send(end);
    };
    node_connection::read(Arc::clone(&stream), Arc::clone(limits), hear)?;
    let end = ended.recv().unwrap_or(Some(End::Closed));
    let _ = stream.shutdown(Shutdown::Both);
    Ok(end)
}
