//! Conversations with the stores of other nodes: files are brought there and fetched from there.

use crate::expected_images::Token;
use crate::second_level::FetchOrder;
use crate::store_protocol::{
    AHEAD_BYTES, Answer, Ask, ENCODING, HERALD, Identity, MAX_FILE_BYTES, Members, StoreError,
    Talk, Way, receive, send, take, write_all,
};
use eyrie_control::auth::{Hello, Key, Role};
use eyrie_control::{encode, gateway};
use eyrie_tls::{Call, Secret, prepare};
use eyrie_vault::encoding::Message;
use eyrie_vault::geometry::CHUNK_BYTES;
use std::io::{self, IoSlice, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::PoisonError;
use std::time::Duration;

/// A conversation with the store of another node.
pub struct Client {
    talk: Talk,
    /// The job's, as long as files may come from where they are if that is not there.
    key: Option<Key>,
    /// By which it ends when nothing comes of it any more.
    call: Call,
}

impl Client {
    pub fn connect(own: &Identity, members: &Members, node: u32) -> Result<Client, StoreError> {
        Client::connect_within(own, members, node, own.silence)
    }

    /// The same, where what does not come about within that time is tried again, or elsewhere. It
    /// ends when that node is a member no more, or the gateway on the way is gone.
    pub fn connect_within(
        own: &Identity,
        members: &Members,
        node: u32,
        limit: Duration,
    ) -> Result<Client, StoreError> {
        let found = || {
            let members = members.lock().unwrap_or_else(PoisonError::into_inner);
            members.iter().find(|(n, ..)| *n == node).copied()
        };
        let (_, epoch, address) = found().ok_or(StoreError::NoMember(node))?;
        let to = (node, epoch);
        let call = own.routes.call(own.node, to);
        // What is heard of from now on ends it.
        if found().is_none_or(|(_, now, _)| now != epoch) {
            return Err(StoreError::NoMember(node));
        }
        let ours = (own.node, own.epoch);
        let socket = call.connect((&own.secret, &own.job), ours, address, limit)?;
        prepare(&socket, own.silence)?;
        let hello = Hello::new(Role::StoreClient, &own.job, ours, to)?;
        let (stream, _) = own.secret.call(socket, &hello, Role::StoreServer)?;
        let key = Some(own.secret.key().clone());
        Ok(Client { talk: Talk::with_capacity(AHEAD_BYTES, stream), key, call })
    }

    /// Goes on with a conversation.
    pub fn again((stream, call): Way) -> Client {
        Client { talk: Talk::with_capacity(AHEAD_BYTES, stream), key: None, call }
    }

    /// Brings a file.
    pub fn put(&mut self, folder: &Path, name: &str) -> Result<(), StoreError> {
        let file = eyrie_image::open_plain(&folder.join(name))?;
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
    pub fn begin_stream(mut self, name: &str, key: Token) -> Result<Option<Way>, StoreError> {
        // Nothing follows that might have been read ahead.
        Ok(self.wants_stream(name, key)?.then(|| (self.talk.into_inner(), self.call)))
    }

    /// Begins to bring more of such an image, beside the connection by which it comes.
    pub fn beside(mut self, name: &str, key: Token) -> Result<Way, StoreError> {
        let goes = self.ask(&Ask::Beside { name: name.to_string(), key })?;
        goes.ok_or(StoreError::Protocol)?;
        Ok((self.talk.into_inner(), self.call))
    }

    /// Whether a file is to be brought as images are that are just being written, or is there.
    pub fn wants_stream(&mut self, name: &str, key: Token) -> Result<bool, StoreError> {
        Ok(self.ask(&Ask::Stream { name: name.to_string(), key })?.is_some())
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
        let silence = self.talk.get_ref().socket().read_timeout()?;
        self.wait(if here { Some(ENCODING) } else { silence })?;
        send(self.talk.get_mut(), &Ask::Get { name: name.to_string(), here })?;
        let answer: Answer = receive(&mut self.talk)?;
        self.wait(silence)?;
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
    fn wait(&self, patience: Option<Duration>) -> io::Result<()> {
        self.talk.get_ref().socket().set_read_timeout(patience)
    }
}

/// What a part of a sum brings.
fn content(message: &Message) -> &[u8] {
    message.block.as_ref().map_or(&[], |(_, bytes)| bytes)
}

/// Tells a node, by its store, where the gateway of its cluster is: which start of it, and where.
pub fn tell_gateway(
    (job, secret): (&str, &Secret),
    node: &gateway::StoreAddress,
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
