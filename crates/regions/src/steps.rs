//! The steps of a checkpoint that a process does by itself: no other one is asked.

use crate::config::Config;
use crate::error::{RegionsError, file, part};
use crate::label::{Label, Stamp};
use crate::part::Writer;
use crate::peers::Peers;
use crate::second::{self, Second};
use crate::{parity, store};
use std::path::{Path, PathBuf};

/// Makes the folders into which this process writes, if they are not there.
pub fn make(second: Option<&Second>, folder: &Path) -> Result<(), RegionsError> {
    let own = [store::parts(folder), store::files(folder)];
    own.iter().try_for_each(|place| store::make(place))?;
    second.map_or(Ok(()), Second::make)
}

/// Makes this process's place ready. Returns how many runs there were before, as far as it knows.
/// `looks`: into the vault, too; `gone`: processes that are on other nodes now.
pub fn prepare(
    (config, second): (&Config, Option<&Second>),
    folder: &Path,
    peers: &Peers,
    (looks, gone): (bool, &[u32]),
) -> Result<u32, RegionsError> {
    let mut seen = Vec::new();
    make(second, folder)?;
    for place in [store::parts(folder), store::files(folder)] {
        store::clean(&place, peers.rank)?;
        gone.iter().try_for_each(|rank| store::clean(&place, *rank))?;
    }
    for folder in &config.folders {
        seen.extend(store::list(&store::parts(folder))?);
    }
    if let Some(second) = second {
        second.clean(peers.rank)?;
        seen.extend(second.seen(peers.rank)?);
    }
    let vault = if looks { parity::look(config)? } else { None };
    if let Some(mut vault) = vault {
        seen.extend(parity::list(&mut vault).0.into_iter().map(|held| held.label));
    }
    Ok(seen.iter().map(|label| label.stamp.life()).max().unwrap_or(0))
}

/// Makes a part whole: what was written of it, and files of the program's.
pub fn finish(
    writer: &mut Writer,
    files: &[(String, PathBuf)],
    (label, ranks): (&Label, u32),
) -> Result<(), RegionsError> {
    for (name, path) in files {
        writer.add_file(name, path).map_err(file("read", path))?;
    }
    let name = PathBuf::from(label.to_string());
    writer.finish(label, ranks).map_err(part(&name)).map(|_| ())
}

/// Protects what all processes have written: one does it for all, if that is how it is done (`keep`
/// says which checkpoints stay then). Each brings its part to the second level, if it is given:
/// from memory, where that holds it, as its file may be on another node.
pub fn secure(
    config: &Config,
    (label, ranks): (&Label, u32),
    (path, held): (&Path, Option<&[u8]>),
    second: Option<&Second>,
    keep: Option<&Vec<(i64, Stamp)>>,
) -> Result<(), RegionsError> {
    let again = || parity::repeats(config, label);
    // Each may fail because an image of this process was taken in the middle of it; not what is
    // done with bytes that are held: whether those were stored before is told by what is recorded.
    if let Some(second) = second {
        if let Some(bytes) = held {
            second.bring(second::Part::Held(bytes), label)?;
        } else {
            let copied = second.bring(second::Part::At(path), label);
            if copied.is_err() && !second.has(label) && !again() {
                return copied;
            }
        }
    }
    if let Some(keep) = keep.filter(|_| config.vaulted() && label.rank == 0 && !again()) {
        let protected = parity::protect(config, (label, ranks), keep);
        if protected.is_err() && !again() {
            return protected;
        }
    }
    Ok(())
}
