//! Images on other nodes: a node serves its folder of images, and its part of the vault, to the
//! other members of the job.
//!
//! Kept true: only files of ranks, by names that are checked, and only for current members that
//! know the job's key; a file appears under its name when all of it is there.

use crate::expected_images::ExpectedImages;
use crate::image_files::{self, Named};
use crate::image_stream::{take as take_image, take_beside};
use crate::lazy_fetch;
use crate::second_level::Redirects;
use crate::store_protocol::{
    AHEAD_BYTES, Answer, Ask, ENCODING, HERALD, Identity, MAX_FILE_BYTES, MAX_RANGE_BYTES, Members,
    StoreError, Talk, copy, receive, send, take, write_all,
};
use crate::vault::{VaultHandle, Work};
use eyrie_control::auth::{AuthError, Hello, Role};
use eyrie_control::encode;
use eyrie_control::node::Refusals;
use eyrie_state::shortage::lacks;
use eyrie_tls::{Caller, Callers, Stream, prepare};
use eyrie_vault::block::Block;
use eyrie_vault::encoding::Message;
use eyrie_vault::geometry::CHUNK_BYTES;
use std::io::{self, IoSlice, Read};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError};

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

/// What a store has besides its folder.
#[derive(Clone, Default)]
pub struct StoreServices {
    pub vault: Option<VaultHandle>,
    /// Images that may come while they are written.
    pub invited: Arc<ExpectedImages>,
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
    services: StoreServices,
) -> io::Result<()> {
    let callers = Callers::default();
    let accept = move || {
        loop {
            let Ok(call) = callers.next(&listener) else { continue };
            let (own, folder, members) = (own.clone(), folder.clone(), Arc::clone(&members));
            let services = services.clone();
            let turned_away = Arc::clone(&turned_away);
            let work = move || {
                if let Err(error) = converse(call, &own, &folder, &members, services) {
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
    services: StoreServices,
) -> Result<(), StoreError> {
    prepare(&socket, own.silence)?;
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
    let StoreServices { vault, invited, elsewhere, ignored } = services;
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
                talk.get_ref().socket().set_read_timeout(Some(own.silence))?;
                if !redirected(talk.get_mut(), own, folder, &name, here, &elsewhere)? {
                    give(talk.get_mut(), folder, &name)?;
                }
            }
            Ask::Stream { name, key } => {
                let named = of_image(talk.get_mut(), &name)?;
                if !invited.admit(named, &name, &key) {
                    return uninvited(talk.get_mut());
                }
                if folder.join(&name).exists() {
                    send(talk.get_mut(), &Answer::Done)?;
                } else {
                    let still = || admit(members, caller);
                    take_image(&mut talk, folder, &name, (&own.job, &ignored), &invited, still)?;
                }
            }
            Ask::Beside { name, key } => {
                let named = of_image(talk.get_mut(), &name)?;
                match invited.coming(named, &name, &key) {
                    Some(file) => take_beside(&mut talk, file)?,
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
    own.routes.set_gateway(number, at);
    send(&mut stream, &Answer::Done)
}

/// What `name` says; an error unless it is that of an image.
fn of_image(stream: &mut Stream, name: &str) -> Result<Named, StoreError> {
    if let Some(named) = image_files::parse(name) {
        return Ok(named);
    }
    send(stream, &Answer::Failed(format!("'{name}' is no name of an image")))?;
    Err(StoreError::Protocol)
}

/// Whoever calls the vault of this node.
struct Visit {
    door: VaultHandle,
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
    lazy_fetch::settle_file(&folder.join(name));
    let opened =
        eyrie_image::open_plain(&folder.join(name)).and_then(|f| Ok((f.metadata()?.len(), f)));
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

#[cfg(test)]
#[path = "image_store_tests.rs"]
pub(crate) mod tests;
