//! Opening again what processes had open and mapped, after holding it against what was recorded.
//!
//! Nothing outside is changed here: files that have to be cut back are noted, and cut only when
//! everything else has succeeded. One [`Reopener`] serves all processes that were frozen together:
//! what they share is made once.

use crate::error::{RestoreError, file_error};
use crate::resources;
use crate::resources::files::appends::{self, Cuts};
use crate::resources::files::mapped;
use crate::resources::files::open_files::is_the_same;
use crate::resources::files::stored;
use crate::resources::files::undo::{FileNote, Undo};
use crate::resources::pidfds::{Pidfd, Pidfds};
use crate::resources::proc_files;
use crate::resources::resource::{Commons, Made, Making};
use crate::resources::sockets::connections::{Connections, MadeSockets};
use crate::restore::options::RestoreOptions;
use crate::restore::shared_memory::{self, Remade};
use crate::restore::sockets::sockets_of;
use eyrie_image_format::read::image::Image;
use eyrie_image_format::state::files::path_of;
use eyrie_image_format::state::resources::OpenFile;
use eyrie_image_format::state::{Description, FileId, State};
use std::collections::HashMap;
use std::fs;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::path::PathBuf;
use std::sync::Arc;

/// Status flags that `F_SETFL` sets. `O_ASYNC` is left to the process itself.
const SET_FLAGS: i32 = libc::O_APPEND | libc::O_NONBLOCK | libc::O_DIRECT | libc::O_NOATIME;

/// What one restored process gets.
pub struct Reopened {
    /// For each description, a descriptor; of what only the process itself can open, one that has
    /// its place until then.
    pub descriptions: Vec<RawFd>,
    /// For each mapped file, a descriptor.
    pub files: Vec<RawFd>,
    /// Shared objects without a path.
    pub anonymous: Vec<Arc<Remade>>,
}

/// Opens files again, for one process after the other.
pub struct Reopener<'a> {
    stdio: &'a [OwnedFd; 3],
    segments: &'a [(String, OwnedFd)],
    /// Descriptions by their number.
    known: HashMap<u64, RawFd>,
    /// Sockets that are made here.
    connections: Connections,
    /// Those that are there already.
    made: &'a MadeSockets,
    /// Shared objects without a path, which processes of a family may have in common.
    anonymous: shared_memory::SharedObjects,
    /// What descriptions of one kind have in common.
    common: Commons,
    /// Status flags to be set when all contents are in place.
    flags: Vec<(RawFd, u32)>,
    cuts: Cuts,
    undo: Undo,
    /// Keeps the descriptors open.
    open: Vec<OwnedFd>,
}

impl<'a> Reopener<'a> {
    /// For the processes of `images`, with the streams and segments that are handed over.
    pub fn new(
        stdio: &'a [OwnedFd; 3],
        segments: &'a [(String, OwnedFd)],
        options: &'a RestoreOptions,
        images: &[&Image],
    ) -> Reopener<'a> {
        let states = || images.iter().map(|image| &image.state);
        // Before anything is open for writing: these ask who else has it so.
        let how = (options.files, options.appended);
        let others = (&*options.shared, &options.made, &options.before);
        let mut undo = Undo::look(states(), how, options.aside.clone(), others);
        undo.recorded = options.recorded.clone();
        let place = |id: &FileId| Some(undo.found(id)).filter(|p| !options.shared.contains(p));
        let cuts = Cuts::find(states(), options.appended, place);
        let sockets = images.iter().flat_map(|image| sockets_of(image));
        Reopener {
            stdio,
            segments,
            known: HashMap::new(),
            connections: Connections::new(&options.addresses, sockets.map(|(_, socket)| socket)),
            made: &options.sockets,
            anonymous: shared_memory::SharedObjects::of(images),
            common: Commons::default(),
            flags: Vec::new(),
            cuts,
            undo,
            open: Vec::new(),
        }
    }

    /// What was not as it was of files, once all is done, and files that are not open.
    pub fn file_notes(&mut self) -> (Vec<FileNote>, Vec<PathBuf>, Vec<PathBuf>) {
        let undone = self.undo.undone();
        (std::mem::take(&mut self.undo.notes), self.undo.touched(), undone)
    }

    /// Opens everything of one process.
    pub fn open(&mut self, image: &Image) -> Result<Reopened, RestoreError> {
        let state = &image.state;
        let anonymous = self.anonymous.remake(state)?;
        let mut all = Reopened { descriptions: vec![], files: vec![], anonymous };
        for description in &state.descriptions {
            let known = self.known.get(&description.id).copied();
            let fd = match known {
                Some(fd) => fd,
                None => self.description(description, &all.anonymous)?,
            };
            self.known.insert(description.id, fd);
            all.descriptions.push(fd);
        }
        for number in 0..state.files.len() {
            let (path, stands_in) = self.undo.place(&state.files[number])?;
            let mut file = mapped::reopen(state, number, (&path, stands_in));
            if let Err(RestoreError::File { .. }) = file
                && let Some(made) = self.undo.instead(&state.files[number])
            {
                file = mapped::reopen(state, number, (&made?, true));
            }
            let file = file?;
            let fd = self.keep(file.into());
            all.files.push(fd);
        }
        Ok(all)
    }

    /// Makes one open file description.
    fn description(
        &mut self,
        description: &Description,
        anonymous: &[Arc<Remade>],
    ) -> Result<RawFd, RestoreError> {
        let objects = |i: u32, flags: i32, offset: u64| anonymous[i as usize].open(flags, offset);
        let mut making = Making {
            stdio: self.stdio,
            segments: self.segments,
            sockets: self.made,
            connections: &mut self.connections,
            objects: &objects,
            undo: &mut self.undo,
            cuts: &mut self.cuts,
            common: &mut self.common,
        };
        match resources::kind(&description.target).restore(description, &mut making)? {
            Made::New(fd) => {
                self.flags.push((fd.as_raw_fd(), description.flags));
                Ok(self.keep(fd))
            }
            Made::Whole(fd) => Ok(self.keep(fd)),
            Made::There(fd) => Ok(fd),
        }
    }

    /// What is opened when all processes are made.
    pub fn pidfds(&mut self) -> &[Pidfd] {
        &self.common.of::<Pidfds>().0
    }

    fn keep(&mut self, fd: OwnedFd) -> RawFd {
        let number = fd.as_raw_fd();
        self.open.push(fd);
        number
    }

    /// To be called when everything of all processes is open: nothing is put into pipes and sockets
    /// any more.
    pub fn settle(&mut self) -> Result<(), RestoreError> {
        self.connections.settle()?;
        for (fd, flags) in self.flags.drain(..) {
            // SAFETY: sets flags of a descriptor of ours.
            unsafe { libc::fcntl(fd, libc::F_SETFL, flags as i32 & SET_FLAGS) };
        }
        self.common.settle();
        Ok(())
    }

    /// The last step, which changes what others can see.
    pub fn finish(&mut self) -> Result<(), RestoreError> {
        self.anonymous.reserve()?;
        self.anonymous.seal()?;
        let anonymous = &self.anonymous;
        self.undo.compare(&|id| anonymous.content(id))?;
        self.cuts.cut()?;
        anonymous.put_back()?;
        self.undo.put_back(&|id| anonymous.content(id))
    }
}

/// An error if the working folder, or a file that the process has open, is not here, or is another.
/// Nothing is opened, and sizes do not count: what a process that is still there elsewhere has
/// written may not be seen here yet.
pub fn are_here(state: &State) -> Result<(), RestoreError> {
    let look = |path: &[u8]| match fs::metadata(path_of(path)) {
        Ok(meta) => Ok(meta),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Err(file_error(path, "is not here")),
        Err(e) => Err(file_error(path, format!("cannot be looked at: {e}"))),
    };
    if !look(&state.cwd)?.is_dir() {
        return Err(file_error(&state.cwd, "is no folder; the process works there"));
    }
    for description in &state.descriptions {
        let Some(OpenFile { id, dir }) = description.target.file() else { continue };
        if !proc_files::is_own(id) && !stored::stands_in(state, id) {
            is_the_same(id, &look(&id.path)?, *dir, appends::writes(description))?;
        }
    }
    Ok(())
}
