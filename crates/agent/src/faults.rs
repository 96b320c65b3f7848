//! Faults of this node, told from faults of an image.
//!
//! Kept true: what fails because this node lacks something - room, files, memory, processes, a
//! feature of the processor - says nothing against an image, wherever it lies.
//! A file that is not here, or is another, may be right elsewhere.

use super::network::MoveError;
use super::state::launch_error::LaunchError;
use eyrie_control::node::{Choice, Fault};
use eyrie_image::RestoreError;
use eyrie_ledger::saved::SavedError;
use eyrie_ledger::segment::SegmentError;
use eyrie_state::shortage::{is_unread, lacks};
use std::io;
use std::path::Path;

/// What can be started from an image that is good, if its process cannot run here, or lacks files.
pub(super) fn fit(choice: Choice, image: &Path, restorer: bool, ignored: &[String]) -> Choice {
    let Choice::Image(meta) = &choice else { return choice };
    if !restorer {
        return Choice::Unfit(LaunchError::NoRestorer.to_string());
    }
    match eyrie_image::tree_fits_here(image, ignored) {
        Err(error @ RestoreError::Machine(_)) => Choice::Unfit(error.to_string()),
        Err(error @ RestoreError::File { .. }) => {
            Choice::Lacks { generation: meta.generation, why: error.to_string() }
        }
        _ => choice,
    }
}

fn of_call(error: &io::Error) -> Fault {
    if lacks(error) { Fault::Place } else { Fault::Unknown }
}

/// Whose fault it is that a process was not started.
pub(super) fn of_launch(error: &LaunchError) -> Fault {
    match error {
        LaunchError::NoRestorer => Fault::Place,
        // Whoever has it here has it nowhere else.
        LaunchError::Restore(RestoreError::Number { .. }) => Fault::Place,
        LaunchError::Sockets(_) => Fault::Unknown,
        LaunchError::Restore(RestoreError::Image(error)) if is_unread(error) => Fault::Place,
        LaunchError::Restore(RestoreError::Image(_)) => Fault::Image,
        LaunchError::Restore(RestoreError::File { .. } | RestoreError::Locked { .. }) => {
            Fault::Files
        }
        LaunchError::Os(source)
        | LaunchError::Restore(
            RestoreError::Os { source, .. } | RestoreError::Step { source, .. },
        ) => of_call(source),
        LaunchError::Restore(_) => Fault::Unknown,
    }
}

/// Whose fault it is that the log of a rank is not here.
pub(super) fn of_move(error: &MoveError) -> Fault {
    let source = match error {
        MoveError::Io(source)
        | MoveError::Saved(
            SavedError::Io(source) | SavedError::Segment(SegmentError::Os(source)),
        ) => source,
        _ => return Fault::Image,
    };
    if lacks(source) { Fault::Place } else { Fault::Image }
}

#[cfg(test)]
mod tests {
    use super::*;
    use eyrie_image::ImageError;
    use eyrie_state::shortage::is_full;

    fn os(code: i32) -> io::Error {
        io::Error::from_raw_os_error(code)
    }

    #[test]
    fn what_a_node_lacks_is_no_fault_of_an_image() {
        let read = |code| ImageError::Read { path: "i".into(), source: os(code) };
        let within = |code| ImageError::Ancestor { name: "a".into(), source: read(code).into() };
        for code in [libc::EMFILE, libc::ENOMEM] {
            assert!(is_unread(&read(code)) && is_unread(&within(code)));
        }
        for code in [libc::ENOENT, libc::EIO] {
            assert!(!is_unread(&read(code)) && !is_unread(&within(code)));
        }
        assert!(!is_unread(&ImageError::Checksum("it".into())));
        let launch = |source| of_launch(&RestoreError::Os { what: "fork", source }.into());
        assert_eq!(launch(os(libc::EAGAIN)), Fault::Place);
        assert_eq!(launch(os(libc::EPERM)), Fault::Unknown);
        assert_eq!(of_launch(&RestoreError::Image(read(libc::ENOENT)).into()), Fault::Image);
        assert_eq!(of_launch(&os(libc::EMFILE).into()), Fault::Place);
        let gone = RestoreError::File { path: "/lib/l".into(), what: "is gone".into() };
        assert_eq!(of_launch(&gone.into()), Fault::Files);
        assert_eq!(of_move(&os(libc::ENOENT).into()), Fault::Image);
        assert!(is_full(&os(libc::ENOSPC)) && is_full(&os(libc::EDQUOT)));
    }
}
