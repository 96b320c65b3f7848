//! An image on its way to another node while it is written: a conversation with the other's store.
//! The images of child processes, of which that of their parent tells, come behind it.
//!
//! Parts come in any order: where each belongs (u64), how long it is (u32, not 0), its bytes; all
//! numbers little endian. Behind the last stands the length of the file, and 0. Where the other
//! node is far parts come by several connections (`parallel_streams`).
//!
//! Kept true: the file appears under its name when all of it has come, and only if that is as long
//! as was said, and its process could run there, with the files that it needs; an image that cannot
//! be brought does no harm to the one that is written here.

use crate::expected_images::{ExpectedImages, Token};
use crate::image_files::{self, Named, Part};
use crate::parallel_streams::{HEAD_BYTES, Lanes, MAX_PART_BYTES, Open, head};
use crate::store_client::Client;
use crate::store_protocol::{
    Answer, COPY_BYTES, FITTING, MAX_FILE_BYTES, StoreError, Talk, receive, send,
};
use eyrie_image::{Image, RestoreError, Tap, create_private};
use eyrie_process::reap;
use eyrie_process::stop_points;
use eyrie_tls::Stream;
use std::collections::BTreeSet;
use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Most images that are remembered to be right.
const MAX_VERIFIED: usize = 1 << 12;

/// The sending end.
pub struct ImageStream {
    lanes: Lanes,
    bytes: AtomicU64,
    poured: SharedOutcome,
}

/// What has become of an image that is brought while it is written.
#[derive(Default)]
pub struct Outcome {
    /// Why the process cannot run on the other node, if that says so.
    pub unfit: Option<String>,
    /// The conversation, if the image is there.
    pub client: Option<Client>,
}

/// It is known when the image is written.
pub type SharedOutcome = Arc<Mutex<Outcome>>;

impl ImageStream {
    /// Begins to bring the image `name`. `None`: it is there.
    pub fn begin(
        client: Client,
        name: &str,
        key: Token,
        poured: SharedOutcome,
    ) -> Result<Option<ImageStream>, StoreError> {
        let Some(way) = client.begin_stream(name, key)? else { return Ok(None) };
        let lanes = Lanes::new(way)?;
        Ok(Some(ImageStream { lanes, bytes: AtomicU64::new(0), poured }))
    }

    /// Brings it by several connections, if that pays; so many images go at the same time.
    pub fn widen(&self, together: usize, open: Open) {
        self.lanes.widen(together, open);
    }
}

impl Tap for ImageStream {
    fn put(&self, bytes: &[u8], at: u64) {
        self.bytes.fetch_max(at + bytes.len() as u64, Ordering::Relaxed);
        self.lanes.put(bytes, at);
    }

    fn finish(&mut self, header: &[u8]) {
        self.put(header, 0);
        let length = self.bytes.load(Ordering::Relaxed);
        let Some((mut stream, call)) = self.lanes.finish(length) else { return };
        let mut poured = self.poured.lock().unwrap_or_else(PoisonError::into_inner);
        match taken(&mut stream) {
            Ok(Answer::Done) => {
                stop_points::reach("leave-3");
                poured.client = Some(Client::again((stream, call)));
            }
            Ok(Answer::Failed(why)) => poured.unfit = Some(why),
            Ok(_) => tracing::warn!("an image is not taken by the other node"),
            Err(error) => tracing::warn!(%error, "an image is not taken by the other node"),
        }
    }
}

/// Whether an image is taken, now that all of it was sent.
fn taken(stream: &mut Stream) -> Result<Answer, StoreError> {
    let silence = stream.socket().read_timeout()?;
    stream.socket().set_read_timeout(Some(FITTING))?;
    let answer = receive(stream)?;
    stream.socket().set_read_timeout(silence)?;
    Ok(answer)
}

/// Brings the images of a rank's child processes, which were written before that of their parent,
/// behind it. Returns why their processes cannot run on the other node, if so.
pub fn send_children(
    client: &mut Client,
    images: &Path,
    rank: u32,
    generation: u32,
    key: Token,
) -> Result<Option<String>, StoreError> {
    let is_child = |name: &String| image_files::parse(name).is_some_and(|n| n.part == Part::Child);
    for name in image_files::all(images, rank, generation)?.iter().filter(|name| is_child(name)) {
        if client.wants_stream(name, key)?
            && let Some(why) = send_file(client.talk(), &images.join(name))?
        {
            return Ok(Some(why));
        }
    }
    Ok(None)
}

/// Sends a file as one that is just being written. Returns why it is not taken, if the other says
/// so.
fn send_file(talk: &mut Talk, path: &Path) -> Result<Option<String>, StoreError> {
    let mut file = eyrie_image::open_plain(path)?;
    let (mut buffer, mut at) = (vec![0; MAX_PART_BYTES], 0);
    loop {
        let count = file.read(&mut buffer)?;
        // Without bytes it is the end.
        talk.get_mut().write_all(&head(at, count))?;
        talk.get_mut().write_all(&buffer[..count])?;
        if count == 0 {
            break;
        }
        at += count as u64;
    }
    let silence = talk.get_ref().socket().read_timeout()?;
    talk.get_ref().socket().set_read_timeout(Some(FITTING))?;
    let answer: Answer = receive(talk)?;
    talk.get_ref().socket().set_read_timeout(silence)?;
    match answer {
        Answer::Done => Ok(None),
        Answer::Failed(why) => Ok(Some(why)),
        _ => Err(StoreError::Protocol),
    }
}

/// Why the process of an image cannot run here, if that is known. An error if the image was damaged
/// on its way.
fn unfit(
    image: &Path,
    named: Named,
    (job, ignored): (&str, &[String]),
) -> Result<Option<String>, StoreError> {
    match eyrie_image::fits_here(image, ignored) {
        Err(RestoreError::Machine(why)) => return Ok(Some(why)),
        Err(error @ RestoreError::File { .. }) => return Ok(Some(error.to_string())),
        Err(RestoreError::Image(error)) => return Err(error.into()),
        _ => {}
    }
    let (number, children) = Image::number(image)?;
    if named.part != Part::Child && children == 0 {
        // Any number will do.
        return Ok(None);
    }
    if !eyrie_image::may_choose_numbers() {
        let why = "it has child processes, and to bring those back takes CAP_CHECKPOINT_RESTORE \
                   or CAP_SYS_ADMIN there";
        return Ok(Some(String::from(why)));
    }
    let has = |other| {
        format!("another process there ({other}) has the number {number} of one of its processes")
    };
    Ok(reap::stranger(job, named.rank, number).map(has))
}

/// The receiving end: takes the file `name` of a rank of this job, whose processes may lack these
/// features of the processor here. When all has come the sender must `still` be a member.
pub fn take(
    talk: &mut Talk,
    folder: &Path,
    name: &str,
    job: (&str, &[String]),
    invited: &ExpectedImages,
    still: impl FnOnce() -> Result<(), StoreError>,
) -> Result<(), StoreError> {
    let named = image_files::parse(name).ok_or(StoreError::Protocol)?;
    // The same file may be on its way twice.
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let unborn = folder.join(format!(".{name}.{count}.pour"));
    let result = create_private(&unborn).map_err(StoreError::from).and_then(|file| {
        let file = Arc::new(file);
        invited.comes(named, name, &file);
        send(talk.get_mut(), &Answer::Go(0))?;
        if take_parts(talk, &file)? != file.metadata()?.len() {
            return Err(StoreError::Protocol);
        }
        // Whoever brings more of it has not said that all of that was there.
        Arc::try_unwrap(file).map_err(|_| StoreError::Protocol)?;
        still()?;
        match unfit(&unborn, named, job)? {
            Some(why) => Ok(Err(why)),
            None => Ok(Ok(std::fs::rename(&unborn, folder.join(name))?)),
        }
    });
    match result {
        Ok(Ok(())) => {
            stop_points::reach("leave-4");
            send(talk.get_mut(), &Answer::Done)?;
            // While its rank runs, or the next image comes: it need not be done at the end.
            let (path, named) = (folder.join(name), name.to_string());
            let verify = move || match Image::verify_own(&path, &|_| Ok(())) {
                Ok(identity) => note_verified(identity),
                Err(error) => tracing::warn!(named, %error, "an image that came is not right"),
            };
            let _ = std::thread::Builder::new().name("eyrie-check".into()).spawn(verify);
            Ok(())
        }
        Ok(Err(why)) => {
            let _ = std::fs::remove_file(&unborn);
            send(talk.get_mut(), &Answer::Failed(why))
        }
        Err(error) => {
            // Whoever hears nothing brings the image again, when it is written.
            let _ = std::fs::remove_file(&unborn);
            Err(error)
        }
    }
}

/// Images whose own pages were verified when they had come, or as they did.
static VERIFIED: Mutex<BTreeSet<[u8; 16]>> = Mutex::new(BTreeSet::new());

pub fn note_verified(identity: [u8; 16]) {
    let mut all = VERIFIED.lock().unwrap_or_else(PoisonError::into_inner);
    if all.len() >= MAX_VERIFIED {
        all.clear();
    }
    all.insert(identity);
}

/// Whether the pages of an image were verified just when it had come. Only once: what lies there
/// longer is verified again.
pub fn was_verified(identity: &[u8; 16]) -> bool {
    VERIFIED.lock().unwrap_or_else(PoisonError::into_inner).remove(identity)
}

/// Takes parts of an image that comes by another connection as well, until all that come by this
/// one are there.
pub fn take_beside(talk: &mut Talk, file: Arc<File>) -> Result<(), StoreError> {
    send(talk.get_mut(), &Answer::Go(0))?;
    take_parts(talk, &file)?;
    // Before the word that lets the image be whole.
    drop(file);
    send(talk.get_mut(), &Answer::Done)
}

/// Takes parts. Returns the length that stands behind the last.
fn take_parts(talk: &mut Talk, file: &File) -> Result<u64, StoreError> {
    let mut buffer = vec![0; COPY_BYTES];
    loop {
        let mut head = [0; HEAD_BYTES];
        talk.read_exact(&mut head)?;
        let (at, length) = head.split_at(8);
        let mut at = at.iter().rev().fold(0u64, |n, b| n << 8 | u64::from(*b));
        let length = length.iter().rev().fold(0usize, |n, b| n << 8 | usize::from(*b));
        if length == 0 {
            return Ok(at);
        }
        let end = at.checked_add(length as u64).filter(|end| *end <= MAX_FILE_BYTES);
        let end = end.filter(|_| length <= MAX_PART_BYTES).ok_or(StoreError::Protocol)?;
        while at < end {
            let most = buffer.len().min((end - at) as usize);
            talk.read_exact(&mut buffer[..most])?;
            file.write_all_at(&buffer[..most], at)?;
            at += most as u64;
        }
    }
}

#[cfg(test)]
#[path = "image_stream_tests.rs"]
pub(crate) mod tests;
