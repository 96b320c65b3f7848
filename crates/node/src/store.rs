//! Images on other nodes: a node serves its folder of images, and its part of the vault, to the
//! other members of the job.
//!
//! Kept true: only files of ranks, by names that are checked, and only for current members that
//! know the job's key; a file appears under its name when all of it is there.

use crate::agent::lacks;
use crate::calls::{Call, Calls};
use crate::depot::{FetchOrder, Redirects};
use crate::feed;
use crate::files::{self, Named};
use crate::invited::{Invited, Token};
use crate::lanes::Way;
use crate::pour;
use crate::vault::{Door, MAX_RANGE_BYTES, Work};
use eyrie_control::auth::{AuthError, Hello, Key, Role};
use eyrie_control::frame::{HEADER_BYTES, MAX_FRAME_BYTES};
use eyrie_control::gateway;
use eyrie_control::node::Refusals;
use eyrie_control::{Decoder, FrameError, encode};
use eyrie_image::{ImageError, create_private};
use eyrie_tls::{Caller, Callers, Routes, Secret, Stream, prepare};
use eyrie_vault::block::Block;
use eyrie_vault::encoding::Message;
use eyrie_vault::geometry::CHUNK_BYTES;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::{self, BufReader, IoSlice, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Longest silence in the middle of a conversation.
pub const SILENCE: Duration = Duration::from_secs(20);
/// The same while the other end looks whether the process of an image can run there, for which it
/// reads the files that this has mapped.
pub const FITTING: Duration = Duration::from_secs(60);
/// Longest silence between the parts of two sums of the vault.
const ENCODING: Duration = Duration::from_secs(600);
/// Bytes that are read ahead: words are short, and a part of a sum follows its own at once.
const AHEAD_BYTES: usize = 16 << 10;
/// So much of a file is taken at once: little enough to be in a cache when it is written.
pub const COPY_BYTES: usize = 256 << 10;
/// Longest file that is taken.
pub const MAX_FILE_BYTES: u64 = 1 << 46;

/// What a client asks.
#[derive(Debug, Serialize, Deserialize)]
enum Ask {
    /// Take this file, whose bytes follow, unless it is there.
    Put { name: String, bytes: u64 },
    /// Give this file. With `here`: from here, also if it is in an object store.
    Get { name: String, here: bool },
    /// Take this of a sum that the vault makes; so many bytes follow. It is not answered.
    Part { generation: u64, task: (usize, usize), row: Option<u64>, bytes: u32 },
    /// Give these bytes of a file of the vault, as many as there are.
    Range { name: String, at: u64, bytes: u32 },
    /// How long is this file of the vault?
    Length { name: String },
    /// Take this image, which is just being written, unless it is there (`pour`), by this key
    /// (`invited`).
    Pour { name: String, key: Token },
    /// Take more of this image, which comes by another connection, by the same key.
    Beside { name: String, key: Token },
    /// Take so many bytes, which follow, and leave them: how fast is the way here?
    Probe { bytes: u32 },
    /// The gateway of this node's cluster is there now.
    Gateway { at: SocketAddr },
}

/// The number by which a gateway calls the store of a node, to say where it is; its epoch is that
/// of its start.
const HERALD: u32 = u32::MAX - 8;

#[derive(Debug, Serialize, Deserialize)]
pub enum Answer {
    /// Put: go on. Get, range: so many bytes follow. Length, probe: it is that.
    Go(u64),
    /// Put: it is there. Length: it is not.
    Done,
    Failed(String),
    /// Get: it is in an object store, and this says how it is fetched (`depot::FetchOrder`).
    Elsewhere(Vec<u8>),
    /// Get: it is in an object store, from which it does not come now, for this reason.
    Later(String),
}

/// Why a file cannot be brought or fetched.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    #[error("node {0} is no member of the job")]
    NoMember(u32),
    #[error(transparent)]
    Auth(#[from] AuthError),
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error(transparent)]
    Frame(#[from] FrameError),
    #[error("the other node answers: {0}")]
    Refused(String),
    #[error("the other node cannot give it now: {0}")]
    Later(String),
    #[error("it does not keep to the protocol")]
    Protocol,
    #[error("it is not brought: {0}")]
    Image(#[from] ImageError),
    #[error("an image comes without a key for that, or with one that was used before")]
    Uninvited,
}

/// Who a node of the job is.
#[derive(Clone)]
pub struct Identity {
    pub job: String,
    pub node: u32,
    pub epoch: u64,
    pub secret: Secret,
    /// How the others are reached.
    pub routes: Routes,
}

/// Callers that were turned away.
#[derive(Default)]
pub struct TurnedAway {
    strangers: AtomicU64,
    fenced: AtomicU64,
    malformed: AtomicU64,
    uninvited: AtomicU64,
}

impl TurnedAway {
    pub fn now(&self) -> Refusals {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let (strangers, fenced) = (get(&self.strangers), get(&self.fenced));
        let (malformed, uninvited) = (get(&self.malformed), get(&self.uninvited));
        Refusals { strangers, fenced, malformed, uninvited }
    }

    fn count(&self, error: &StoreError) {
        let counter = match error {
            // A node that ends hangs up.
            StoreError::Auth(AuthError::Io(_)) | StoreError::Io(_) => return,
            StoreError::Auth(_) => &self.strangers,
            StoreError::NoMember(_) => &self.fenced,
            StoreError::Frame(_) | StoreError::Protocol => &self.malformed,
            StoreError::Uninvited => &self.uninvited,
            StoreError::Refused(_) | StoreError::Later(_) | StoreError::Image(_) => return,
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }
}

/// The other members, by node: epoch, and where their store is.
pub type Members = Arc<Mutex<Vec<(u32, u64, SocketAddr)>>>;

/// A connection of which is read ahead. What is written goes by its stream.
pub type Talk = BufReader<Stream>;

pub fn send<T: Serialize>(stream: &mut Stream, message: &T) -> Result<(), StoreError> {
    Ok(stream.write_all(&encode(message)?)?)
}

pub fn receive<T: DeserializeOwned>(stream: &mut impl Read) -> Result<T, StoreError> {
    let mut head = [0; HEADER_BYTES];
    stream.read_exact(&mut head)?;
    let length = u32::from_le_bytes(head) as usize;
    if length > MAX_FRAME_BYTES {
        return Err(FrameError::TooLong(length).into());
    }
    let mut payload = vec![0; length];
    stream.read_exact(&mut payload)?;
    let mut decoder = Decoder::new();
    decoder.push(&head);
    decoder.push(&payload);
    decoder.next_message()?.ok_or(StoreError::Protocol)
}

/// Writes all pieces, one behind the other.
fn write_all(stream: &mut Stream, mut pieces: &mut [IoSlice<'_>]) -> io::Result<()> {
    // Those that are empty are passed by.
    IoSlice::advance_slices(&mut pieces, 0);
    while !pieces.is_empty() {
        match stream.write_vectored(pieces) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(count) => IoSlice::advance_slices(&mut pieces, count),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// What a part of a sum brings.
fn content(message: &Message) -> &[u8] {
    message.block.as_ref().map_or(&[], |(_, bytes)| bytes)
}

/// Copies all there is. [`io::copy`] would ask for 8 KiB at a time.
fn copy(from: &mut impl Read, to: &mut impl Write) -> io::Result<u64> {
    let (mut buffer, mut all) = (vec![0; COPY_BYTES], 0);
    loop {
        match from.read(&mut buffer) {
            Ok(0) => return Ok(all),
            Ok(count) => {
                to.write_all(&buffer[..count])?;
                all += count as u64;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// Takes `bytes` from `from` into the file `name`, if they are admitted when all are there.
fn take(
    from: &mut impl Read,
    folder: &Path,
    name: &str,
    bytes: u64,
    admit: impl FnOnce() -> Result<(), StoreError>,
) -> Result<(), StoreError> {
    // The same file may be on its way twice.
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let unborn = folder.join(format!(".{name}.{count}.part"));
    let result = create_private(&unborn)
        .and_then(|mut file| copy(&mut from.take(bytes), &mut file))
        .and_then(
            |got| if got == bytes { Ok(()) } else { Err(io::ErrorKind::UnexpectedEof.into()) },
        )
        .map_err(StoreError::Io)
        .and_then(|()| admit())
        .and_then(|()| Ok(std::fs::rename(&unborn, folder.join(name))?));
    if result.is_err() {
        let _ = std::fs::remove_file(&unborn);
    }
    result
}

/// What a store has besides its folder.
#[derive(Clone, Default)]
pub struct Doors {
    pub vault: Option<Door>,
    /// Images that may come while they are written.
    pub invited: Arc<Invited>,
    /// Of an archive: files that are in an object store.
    pub elsewhere: Arc<Redirects>,
    /// Features of the processor that images which come may miss.
    pub ignored: Arc<[String]>,
}

/// Serves `folder` to the members, until the process ends.
pub fn serve(
    listener: TcpListener,
    own: Identity,
    folder: PathBuf,
    members: Members,
    turned_away: Arc<TurnedAway>,
    doors: Doors,
) -> io::Result<()> {
    let callers = Callers::default();
    let accept = move || {
        loop {
            let Ok(call) = callers.next(&listener) else { continue };
            let (own, folder, members) = (own.clone(), folder.clone(), Arc::clone(&members));
            let doors = doors.clone();
            let turned_away = Arc::clone(&turned_away);
            let work = move || {
                if let Err(error) = converse(call, &own, &folder, &members, doors) {
                    turned_away.count(&error);
                    tracing::warn!(%error, "store: a connection is closed");
                }
            };
            if let Err(error) = std::thread::Builder::new().name("eyrie-store".into()).spawn(work) {
                tracing::warn!(%error, "store");
            }
        }
    };
    std::thread::Builder::new().name("eyrie-store".into()).spawn(accept)?;
    Ok(())
}

fn converse(
    (socket, unknown): (TcpStream, Caller),
    own: &Identity,
    folder: &Path,
    members: &Members,
    doors: Doors,
) -> Result<(), StoreError> {
    prepare(&socket, SILENCE)?;
    let hello = |caller: &Hello| {
        let to = (caller.node, caller.epoch);
        Hello::new(Role::StoreServer, &own.job, (own.node, own.epoch), to)
    };
    let (stream, other) = own.secret.answer(socket, &own.job, Role::StoreClient, hello)?;
    drop(unknown);
    if other.node == HERALD {
        return hear_gateway(stream, own, other.epoch);
    }
    let caller = (other.node, other.epoch);
    admit(members, caller)?;
    let Doors { vault, invited, elsewhere, ignored } = doors;
    let mut talk = Talk::with_capacity(AHEAD_BYTES, stream);
    let mut vault = vault.map(|door| Visit { door, from: other.node, generation: None });
    loop {
        let ask = match receive(&mut talk) {
            Ok(ask) => ask,
            Err(StoreError::Io(error)) if error.kind() == io::ErrorKind::UnexpectedEof => {
                return Ok(());
            }
            Err(error) => {
                vault.iter().for_each(Visit::broke);
                return Err(error);
            }
        };
        // It may have been fenced since its last word.
        admit(members, caller).inspect_err(|_| vault.iter().for_each(Visit::broke))?;
        match ask {
            Ask::Put { name, bytes } => {
                of_image(talk.get_mut(), &name)?;
                put(&mut talk, folder, &name, bytes, || admit(members, caller))?;
            }
            Ask::Get { name, here } => {
                of_image(talk.get_mut(), &name)?;
                talk.get_ref().socket().set_read_timeout(Some(SILENCE))?;
                if !redirected(talk.get_mut(), own, folder, &name, here, &elsewhere)? {
                    give(talk.get_mut(), folder, &name)?;
                }
            }
            Ask::Pour { name, key } => {
                let named = of_image(talk.get_mut(), &name)?;
                if !invited.admit(named, &name, &key) {
                    return uninvited(talk.get_mut());
                }
                if folder.join(&name).exists() {
                    send(talk.get_mut(), &Answer::Done)?;
                } else {
                    let still = || admit(members, caller);
                    pour::take(&mut talk, folder, &name, (&own.job, &ignored), &invited, still)?;
                }
            }
            Ask::Beside { name, key } => {
                let named = of_image(talk.get_mut(), &name)?;
                match invited.coming(named, &name, &key) {
                    Some(file) => pour::take_beside(&mut talk, file)?,
                    None => return uninvited(talk.get_mut()),
                }
            }
            ask => of_vault(&mut talk, vault.as_mut().ok_or(StoreError::Protocol)?, ask)?,
        }
    }
}

/// Turns away who brings an image without a key for that.
fn uninvited(stream: &mut Stream) -> Result<(), StoreError> {
    send(stream, &Answer::Failed(StoreError::Uninvited.to_string()))?;
    Err(StoreError::Uninvited)
}

/// An error unless the caller is a member in this very incarnation.
fn admit(members: &Members, caller: (u32, u64)) -> Result<(), StoreError> {
    let members = members.lock().unwrap_or_else(PoisonError::into_inner);
    match members.iter().any(|(node, epoch, _)| (*node, *epoch) == caller) {
        true => Ok(()),
        false => Err(StoreError::NoMember(caller.0)),
    }
}

/// A gateway says where it is, and nothing else.
fn hear_gateway(mut stream: Stream, own: &Identity, number: u64) -> Result<(), StoreError> {
    let Ask::Gateway { at } = receive(&mut stream)? else { return Err(StoreError::Protocol) };
    tracing::info!("the gateway of this cluster is at {at}");
    own.routes.set_door(number, at);
    send(&mut stream, &Answer::Done)
}

/// Tells a node, by its store, where the gateway of its cluster is: which start of it, and where.
pub fn tell_gateway(
    (job, secret): (&str, &Secret),
    node: &gateway::Door,
    (number, at): (u64, SocketAddr),
    patience: Duration,
) -> Result<(), StoreError> {
    let socket = TcpStream::connect_timeout(&node.at, patience)?;
    prepare(&socket, patience)?;
    let (own, to) = ((HERALD, number), (node.node, node.epoch));
    let hello = Hello::new(Role::StoreClient, job, own, to)?;
    let (mut stream, _) = secret.call(socket, &hello, Role::StoreServer)?;
    send(&mut stream, &Ask::Gateway { at })?;
    match receive(&mut stream)? {
        Answer::Done => Ok(()),
        Answer::Failed(text) => Err(StoreError::Refused(text)),
        _ => Err(StoreError::Protocol),
    }
}

/// What `name` says; an error unless it is that of an image.
fn of_image(stream: &mut Stream, name: &str) -> Result<Named, StoreError> {
    if let Some(named) = files::parse(name) {
        return Ok(named);
    }
    send(stream, &Answer::Failed(format!("'{name}' is no name of an image")))?;
    Err(StoreError::Protocol)
}

/// Whoever calls the vault of this node.
struct Visit {
    door: Door,
    from: u32,
    /// The generation that parts came of.
    generation: Option<u64>,
}

impl Visit {
    /// What was to come does not.
    fn broke(&self) {
        if let Some(generation) = self.generation {
            self.door.tell(Work::Broken { from: self.from, generation });
        }
    }
}

fn of_vault(talk: &mut Talk, visit: &mut Visit, ask: Ask) -> Result<(), StoreError> {
    match ask {
        Ask::Part { generation, task, row, bytes } => {
            if visit.generation.replace(generation).is_none() {
                talk.get_ref().socket().set_read_timeout(Some(ENCODING))?;
            }
            let length = u64::from(bytes);
            if length > CHUNK_BYTES {
                return Err(StoreError::Protocol);
            }
            let mut bytes = Block::new(length as usize);
            if let Err(error) = talk.read_exact(&mut bytes) {
                visit.broke();
                return Err(error.into());
            }
            let message = Message { task, block: row.map(|row| (row, bytes)) };
            visit.door.tell(Work::Said { from: visit.from, generation, message });
            Ok(())
        }
        Ask::Range { name, at, bytes } => {
            let found = visit.door.range(&name, at, bytes.min(MAX_RANGE_BYTES));
            match found {
                Ok(found) => {
                    let head = encode(&Answer::Go(found.len() as u64))?;
                    Ok(write_all(talk.get_mut(), &mut [IoSlice::new(&head), IoSlice::new(&found)])?)
                }
                Err(error) => send(talk.get_mut(), &Answer::Failed(format!("{name}: {error}"))),
            }
        }
        Ask::Length { name } => match visit.door.length(&name) {
            Ok(Some(bytes)) => send(talk.get_mut(), &Answer::Go(bytes)),
            Ok(None) => send(talk.get_mut(), &Answer::Done),
            Err(error) => send(talk.get_mut(), &Answer::Failed(format!("{name}: {error}"))),
        },
        Ask::Probe { bytes } => {
            let bytes = u64::from(bytes);
            let taken = copy(&mut Read::by_ref(talk).take(bytes), &mut io::sink())?;
            send(talk.get_mut(), &Answer::Go(taken))
        }
        _ => Err(StoreError::Protocol),
    }
}

fn put(
    talk: &mut Talk,
    folder: &Path,
    name: &str,
    bytes: u64,
    admit: impl FnOnce() -> Result<(), StoreError>,
) -> Result<(), StoreError> {
    if folder.join(name).exists() {
        return send(talk.get_mut(), &Answer::Done);
    }
    if bytes > MAX_FILE_BYTES {
        return Err(StoreError::Protocol);
    }
    send(talk.get_mut(), &Answer::Go(bytes))?;
    match take(talk, folder, name, bytes, admit) {
        Ok(()) => send(talk.get_mut(), &Answer::Done),
        Err(error) => {
            let _ = send(talk.get_mut(), &Answer::Failed(error.to_string()));
            Err(error)
        }
    }
}

/// Tells who asks for a file that is in an object store only how to fetch it; who cannot is given
/// it from `here`, where it is fetched to. Whether nothing else is to be said.
fn redirected(
    stream: &mut Stream,
    own: &Identity,
    folder: &Path,
    name: &str,
    here: bool,
    elsewhere: &Redirects,
) -> Result<bool, StoreError> {
    if folder.join(name).exists() {
        return Ok(false);
    }
    let told = match elsewhere.tell(own.secret.key(), name) {
        None => return Ok(false),
        Some(Ok(_)) if here => match elsewhere.fetch(name, folder) {
            Ok(()) => return Ok(false),
            Err(error) => Err(error),
        },
        Some(told) => told,
    };
    let answer = match told {
        Ok(sealed) => {
            // It says nothing until it has fetched it there, or could not.
            stream.socket().set_read_timeout(Some(ENCODING))?;
            Answer::Elsewhere(sealed)
        }
        Err(error) if error.may_pass() => Answer::Later(format!("{name}: {error}")),
        Err(error) => Answer::Failed(format!("{name}: {error}")),
    };
    send(stream, &answer).map(|()| true)
}

fn give(stream: &mut Stream, folder: &Path, name: &str) -> Result<(), StoreError> {
    feed::settle_file(&folder.join(name));
    let opened = File::open(folder.join(name)).and_then(|f| Ok((f.metadata()?.len(), f)));
    match opened {
        Ok((bytes, file)) => {
            send(stream, &Answer::Go(bytes))?;
            Ok(stream.send_file(&file, bytes)?)
        }
        // It may be right all the same: whoever wants it asks again.
        Err(error) if lacks(&error) => Err(error.into()),
        Err(error) => send(stream, &Answer::Failed(format!("{name}: {error}"))),
    }
}

/// A conversation with the store of another node.
pub struct Client {
    talk: Talk,
    /// The job's, as long as files may come from where they are if that is not there.
    key: Option<Key>,
    /// Ends it when the other is no member any more.
    call: Option<Call>,
}

impl Client {
    pub fn connect(own: &Identity, members: &Members, node: u32) -> Result<Client, StoreError> {
        Client::connect_within(own, members, node, SILENCE)
    }

    /// The same, where what does not come about within that time is tried again, or elsewhere.
    pub fn connect_within(
        own: &Identity,
        members: &Members,
        node: u32,
        limit: Duration,
    ) -> Result<Client, StoreError> {
        let found = {
            let members = members.lock().unwrap_or_else(PoisonError::into_inner);
            members.iter().find(|(n, ..)| *n == node).copied()
        };
        let (_, epoch, address) = found.ok_or(StoreError::NoMember(node))?;
        let to = (node, epoch);
        let ends = ((own.node, own.epoch), to);
        let socket = own.routes.connect(&own.secret, &own.job, ends, address, limit)?;
        prepare(&socket, SILENCE)?;
        let hello = Hello::new(Role::StoreClient, &own.job, (own.node, own.epoch), to)?;
        let (stream, _) = own.secret.call(socket, &hello, Role::StoreServer)?;
        let key = Some(own.secret.key().clone());
        Ok(Client { talk: Talk::with_capacity(AHEAD_BYTES, stream), key, call: None })
    }

    /// The same; it ends when that node is no member any more.
    pub fn connect_noted(
        own: &Identity,
        members: &Members,
        node: u32,
        calls: &Arc<Calls>,
    ) -> Result<Client, StoreError> {
        let epoch = || {
            let members = members.lock().unwrap_or_else(PoisonError::into_inner);
            members.iter().find(|(n, ..)| *n == node).map(|m| m.1)
        };
        let before = epoch().ok_or(StoreError::NoMember(node))?;
        let mut client = Client::connect(own, members, node)?;
        let call = calls.note((node, before), client.talk.get_ref().socket())?;
        // What is heard of from now on ends it.
        if epoch() != Some(before) {
            return Err(StoreError::NoMember(node));
        }
        client.call = Some(call);
        Ok(client)
    }

    /// Goes on with a conversation.
    pub fn again(stream: Stream, call: Option<Call>) -> Client {
        Client { talk: Talk::with_capacity(AHEAD_BYTES, stream), key: None, call }
    }

    /// Brings a file.
    pub fn put(&mut self, folder: &Path, name: &str) -> Result<(), StoreError> {
        let file = File::open(folder.join(name))?;
        let bytes = file.metadata()?.len();
        if self.ask(&Ask::Put { name: name.to_string(), bytes })?.is_none() {
            return Ok(());
        }
        self.talk.get_ref().send_file(&file, bytes)?;
        self.answer()?.map_or(Ok(()), |_| Err(StoreError::Protocol))
    }

    /// Asks, and hears what it is told to go on with, or that there is nothing to be done.
    fn ask(&mut self, ask: &Ask) -> Result<Option<u64>, StoreError> {
        send(self.talk.get_mut(), ask)?;
        self.answer()
    }

    fn answer(&mut self) -> Result<Option<u64>, StoreError> {
        match receive(&mut self.talk)? {
            Answer::Go(number) => Ok(Some(number)),
            Answer::Done => Ok(None),
            Answer::Failed(text) => Err(StoreError::Refused(text)),
            _ => Err(StoreError::Protocol),
        }
    }

    /// Begins to bring an image that is just being written. `None`: it is there.
    pub fn pour(mut self, name: &str, key: Token) -> Result<Option<Way>, StoreError> {
        // Nothing follows that might have been read ahead.
        Ok(self.wants_poured(name, key)?.then(|| (self.talk.into_inner(), self.call)))
    }

    /// Begins to bring more of such an image, beside the connection by which it comes.
    pub fn beside(mut self, name: &str, key: Token) -> Result<Way, StoreError> {
        let goes = self.ask(&Ask::Beside { name: name.to_string(), key })?;
        goes.ok_or(StoreError::Protocol)?;
        Ok((self.talk.into_inner(), self.call))
    }

    /// Whether a file is to be brought as images are that are just being written, or is there.
    pub fn wants_poured(&mut self, name: &str, key: Token) -> Result<bool, StoreError> {
        Ok(self.ask(&Ask::Pour { name: name.to_string(), key })?.is_some())
    }

    /// Its connection.
    pub fn talk(&mut self) -> &mut Talk {
        &mut self.talk
    }

    /// Brings parts of sums that the vault makes, with as few calls of the system as can be.
    pub fn parts(&mut self, generation: u64, messages: &[Message]) -> Result<(), StoreError> {
        let mut heads = Vec::with_capacity(messages.len());
        for message in messages {
            let row = message.block.as_ref().map(|(row, _)| *row);
            let bytes = content(message).len() as u32;
            heads.push(encode(&Ask::Part { generation, task: message.task, row, bytes })?);
        }
        let both = heads.iter().zip(messages).flat_map(|(head, m)| [&head[..], content(m)]);
        let mut pieces: Vec<IoSlice<'_>> = both.map(IoSlice::new).collect();
        Ok(write_all(self.talk.get_mut(), &mut pieces)?)
    }

    /// Bytes of a file of the vault there: as many as there are.
    pub fn range(&mut self, name: &str, at: u64, bytes: u32) -> Result<Vec<u8>, StoreError> {
        self.ask_range(name, at, bytes)?;
        self.take_range(bytes)
    }

    /// Asks for the same, without waiting for it: it is what is taken next.
    pub fn ask_range(&mut self, name: &str, at: u64, bytes: u32) -> Result<(), StoreError> {
        send(self.talk.get_mut(), &Ask::Range { name: name.to_string(), at, bytes })
    }

    /// What was asked for, of so many bytes at most.
    pub fn take_range(&mut self, bytes: u32) -> Result<Vec<u8>, StoreError> {
        match receive(&mut self.talk)? {
            Answer::Go(length) if length <= u64::from(bytes) => {
                let mut found = vec![0; length as usize];
                self.talk.read_exact(&mut found)?;
                Ok(found)
            }
            Answer::Failed(text) => Err(StoreError::Refused(text)),
            _ => Err(StoreError::Protocol),
        }
    }

    /// Sends so many bytes, and waits until they are there.
    pub fn probe(&mut self, bytes: u32) -> Result<(), StoreError> {
        send(self.talk.get_mut(), &Ask::Probe { bytes })?;
        let zeros = [0; CHUNK_BYTES as usize];
        let mut left = bytes as usize;
        while left > 0 {
            let now = left.min(zeros.len());
            self.talk.get_mut().write_all(&zeros[..now])?;
            left -= now;
        }
        match receive(&mut self.talk)? {
            Answer::Go(taken) if taken == u64::from(bytes) => Ok(()),
            _ => Err(StoreError::Protocol),
        }
    }

    /// The length of a file of the vault there; `None`: it is not there.
    pub fn length(&mut self, name: &str) -> Result<Option<u64>, StoreError> {
        self.ask(&Ask::Length { name: name.to_string() })
    }

    /// Nothing is fetched from elsewhere any more.
    pub fn only_from_there(&mut self) {
        self.key = None;
    }

    /// Whether that is so, also as it failed.
    pub fn is_only_from_there(&self) -> bool {
        self.key.is_none()
    }

    /// Fetches a file, from wherever it is.
    pub fn get(&mut self, folder: &Path, name: &str) -> Result<(), StoreError> {
        self.ask_for(folder, name, self.key.is_none())
    }

    fn ask_for(&mut self, folder: &Path, name: &str, here: bool) -> Result<(), StoreError> {
        // The other end may have to read all of it first.
        self.wait(if here { ENCODING } else { SILENCE })?;
        send(self.talk.get_mut(), &Ask::Get { name: name.to_string(), here })?;
        let answer: Answer = receive(&mut self.talk)?;
        self.wait(SILENCE)?;
        match answer {
            Answer::Go(bytes) if bytes <= MAX_FILE_BYTES => {
                take(&mut self.talk, folder, name, bytes, || Ok(()))
            }
            Answer::Failed(text) => Err(StoreError::Refused(text)),
            Answer::Later(text) => Err(StoreError::Later(text)),
            Answer::Elsewhere(sealed) if !here => {
                let key = self.key.as_ref().ok_or(StoreError::Protocol)?;
                let fetched = FetchOrder::open(key, &sealed).and_then(|o| o.try_out(folder));
                let Err(error) = fetched else { return Ok(()) };
                tracing::warn!(name, %error, "the object store is not read from here");
                self.key = None;
                self.ask_for(folder, name, true)
            }
            _ => Err(StoreError::Protocol),
        }
    }

    /// How long it may be silent.
    fn wait(&self, patience: Duration) -> io::Result<()> {
        self.talk.get_ref().socket().set_read_timeout(Some(patience))
    }
}

#[cfg(test)]
#[path = "store_tests.rs"]
pub(crate) mod tests;
