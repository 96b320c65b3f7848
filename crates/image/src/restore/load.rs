//! Filling the memory of a process that is being made from an image.
//!
//! Blocks are read by a few threads, held against their checksums, and what they hold is written to
//! where it belongs. Nothing of the process runs before all of them are in: one that is damaged
//! ends the restore like damage that is found when the image is opened.

use crate::error::RestoreError;
use crate::restore::shared_memory::Remade;
use eyrie_image_format::read::blocks::{Blocks, Piece};
use eyrie_image_format::read::image::Image;
use eyrie_image_format::state::object_of;
use eyrie_image_format::support::parallel;
use std::io;
use std::sync::Arc;

/// Ranges of one call (`IOV_MAX`).
const MAX_RANGES: usize = 1024;

/// Writes the content of `image` that belongs at addresses of which `now` holds to the memory of
/// `pid`, whose regions are mapped writable, and to its shared objects.
pub fn fill(
    image: &Image,
    pid: libc::pid_t,
    anonymous: &[Arc<Remade>],
    now: impl Fn(u64) -> bool + Sync,
) -> Result<(), RestoreError> {
    let wants = &image.wants;
    parallel::for_each(
        parallel::threads_that_read(),
        wants.blocks.len(),
        Blocks::once,
        |blocks, i| {
            let wanted = &wants.blocks[i];
            // Whichever was stored first: a file may have memory before objects, or behind them,
            // and one that was put together may have both in a block.
            let pieces = wants.pieces_of(wanted).iter().filter(|p| now(p.address)).cloned();
            let (shared, memory): (Vec<Piece>, Vec<Piece>) =
                pieces.partition(|p| object_of(p.address).is_some());
            if shared.is_empty() && memory.is_empty() {
                return Ok(());
            }
            let pages = blocks.wanted(&image.parts, wanted)?;
            share(anonymous, &shared, pages)?;
            memory.chunks(MAX_RANGES).try_for_each(|pieces| write(pid, pieces, pages))
        },
    )
}

fn share(anonymous: &[Arc<Remade>], pieces: &[Piece], pages: &[u8]) -> Result<(), RestoreError> {
    for piece in pieces {
        let place = object_of(piece.address).and_then(|(i, at)| Some((anonymous.get(i)?, at)));
        let (object, at) =
            place.ok_or_else(|| RestoreError::Machine("an unknown object".into()))?;
        object.fill(at, &pages[piece.offset..piece.offset + piece.bytes])?;
    }
    Ok(())
}

fn write(pid: libc::pid_t, pieces: &[Piece], pages: &[u8]) -> Result<(), RestoreError> {
    let fail = |source| RestoreError::Os { what: "write the restored process's memory", source };
    let local: Vec<libc::iovec> = pieces
        .iter()
        .map(|p| libc::iovec {
            iov_base: pages[p.offset..p.offset + p.bytes].as_ptr().cast_mut().cast(),
            iov_len: p.bytes,
        })
        .collect();
    let remote: Vec<libc::iovec> = pieces
        .iter()
        .map(|p| libc::iovec { iov_base: p.address as *mut libc::c_void, iov_len: p.bytes })
        .collect();
    let count = pieces.len() as libc::c_ulong;
    let (local, remote) = (local.as_ptr(), remote.as_ptr());
    // SAFETY: the local ranges lie within `pages` and are only read; the kernel checks the others.
    let n = unsafe { libc::process_vm_writev(pid, local, count, remote, count, 0) };
    match usize::try_from(n) {
        Ok(n) if n == pieces.iter().map(|p| p.bytes).sum::<usize>() => Ok(()),
        Ok(_) => Err(fail(io::Error::from_raw_os_error(libc::ENOMEM))),
        Err(_) => match io::Error::last_os_error() {
            e if e.raw_os_error() == Some(libc::ESRCH) => {
                Err(RestoreError::Died("it was killed".into()))
            }
            e => Err(fail(e)),
        },
    }
}
