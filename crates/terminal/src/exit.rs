//! Exit codes, and what each says: the one table of them. `docs/reference/exit-codes.md` is made
//! of it.

/// Exit code when all ranks ended well, or what was asked for is done.
pub const DONE: i32 = 0;
/// Exit code when we could not do our part.
pub const FAILED: i32 = 1;
/// Exit code of wrong arguments.
pub const USAGE: i32 = 2;
/// Exit code of a job that was saved and has ended. HTCondor expects it of such a program.
pub const SAVED: i32 = 85;
/// Exit code of a program that cannot be run, in the habit of shells.
pub const UNUSABLE: i32 = 126;
/// Exit code of a program that is not found, in the habit of shells.
pub const NOT_FOUND: i32 = 127;
/// What is added to the number of a signal that ended a process.
pub const SIGNAL: i32 = 128;
/// Exit code when the reader of standard output went away, as of a program that SIGPIPE ends.
pub const READER_GONE: i32 = SIGNAL + libc::SIGPIPE;

/// Those of commands that run a job, in order; `None` is any code above.
pub const OF_JOBS: &[(Option<i32>, &str)] = &[
    (Some(DONE), "All ranks ended with 0, after `MPI_Finalize` if they had called `MPI_Init`."),
    (
        Some(FAILED),
        "Eyrie could not do its part, and said why on standard error; so if standard output is \
         full or closed. Or a rank ended with 0 between `MPI_Init` and `MPI_Finalize`. Or \
         `MPI_Abort` had a code whose low eight bits are 0.",
    ),
    (Some(USAGE), "Wrong arguments; nothing was started."),
    (Some(SAVED), "The job was saved and has ended: `eyrie restart` goes on."),
    (
        Some(UNUSABLE),
        "The program cannot be run: no right to, a folder, another architecture, linked to a \
         foreign MPI.",
    ),
    (Some(NOT_FOUND), "The program is not found."),
    (Some(READER_GONE), "Who read standard output went away, as with a program that SIGPIPE ends."),
    (
        None,
        "128 + signal: a signal ended a rank that was not brought back, or the job was ended by \
         SIGINT (130), SIGTERM (143) or SIGHUP (129). Any other code is that of the first rank \
         that failed, or the low eight bits of that of `MPI_Abort`.",
    ),
];

/// The table as Markdown.
pub fn table() -> String {
    let rows = OF_JOBS.iter().map(|(code, text)| match code {
        Some(code) => format!("| {code} | {text} |\n"),
        None => format!("| any other | {text} |\n"),
    });
    format!("| code | when |\n|---|---|\n{}", rows.collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_code_is_told_once_and_in_order() {
        let codes: Vec<i32> = OF_JOBS.iter().filter_map(|(code, _)| *code).collect();
        assert!(codes.is_sorted() && codes.windows(2).all(|two| two[0] != two[1]), "{codes:?}");
        assert!(OF_JOBS.last().is_some_and(|(code, _)| code.is_none()));
        assert_eq!((READER_GONE, table().lines().count()), (141, OF_JOBS.len() + 2));
    }
}
