//! What is typed, and the `eyrie run` that it becomes.

use crate::command_line::{self, Cli, Command};
use crate::front::table::{self, Means};
use crate::front::walk::{Asked, Known, Mode, walk};
use clap::FromArgMatches;
use std::ffi::OsString;

fn asked(mode: Mode, line: &str) -> Result<(String, Vec<String>), String> {
    let sub = if mode == Mode::Own { "verify" } else { "run" };
    let words: Vec<OsString> = line.split_whitespace().map(OsString::from).collect();
    match walk(&words, &Known::of(&command_line::command(), sub), mode)? {
        Asked::Job(job) => {
            let words = job.words("EYRIE".as_ref(), sub);
            let words: Vec<_> = words.iter().map(|w| w.to_string_lossy().into_owned()).collect();
            Ok((words[2..].join(" "), job.notes))
        }
        Asked::Help => Ok(("HELP".into(), Vec::new())),
        Asked::Version => Ok(("VERSION".into(), Vec::new())),
    }
}

/// Typed, and what `eyrie run` gets.
const TABLE: [(&str, &str); 71] = [
    ("-n 4 ./a b -n 9", "-n 4 -- ./a b -n 9"),
    ("-np 4 ./a", "-n 4 -- ./a"),
    ("--np 4 ./a", "-n 4 -- ./a"),
    ("-np=4 ./a", "-n 4 -- ./a"),
    ("-c 4 ./a", "-n 4 -- ./a"),
    ("-n4 ./a", "-n 4 -- ./a"),
    ("./a", "-- ./a"),
    ("-n 2 -hosts a,b ./a", "--hosts=a,b -n 2 -- ./a"),
    ("-host a:2,b -n 2 ./a", "--hosts=a:2,b -n 2 -- ./a"),
    ("--host a -n 2 ./a", "--hosts=a -n 2 -- ./a"),
    ("--host=a -n 2 ./a", "--hosts=a -n 2 -- ./a"),
    ("-H a -n 2 ./a", "--hosts=a -n 2 -- ./a"),
    ("-f hosts -n 2 ./a", "--hosts=./hosts -n 2 -- ./a"),
    ("-hostfile /x/h -n 2 ./a", "--hosts=/x/h -n 2 -- ./a"),
    ("--hostfile h ./a", "--hosts=./h -- ./a"),
    ("-machinefile h ./a", "--hosts=./h -- ./a"),
    ("-ppn 2 -n 4 ./a", "--ppn=2 -n 4 -- ./a"),
    ("-N 2 ./a", "--ppn=2 -- ./a"),
    ("--map-by ppr:2:node ./a", "--ppn=2 -- ./a"),
    ("--map-by node ./a", "--map=cyclic -- ./a"),
    ("--map-by slot:OVERSUBSCRIBE ./a", "--oversubscribe -- ./a"),
    ("--map-by :OVERSUBSCRIBE ./a", "--oversubscribe -- ./a"),
    ("--oversubscribe -n 9 ./a", "--oversubscribe -n 9 -- ./a"),
    ("-bind-to core ./a", "--bind=core -- ./a"),
    ("--bind-to core:overload-allowed ./a", "--bind=core -- ./a"),
    ("--bind-to=package ./a", "--bind=socket -- ./a"),
    ("-l ./a", "-l -- ./a"),
    ("-prepend-rank ./a", "--label -- ./a"),
    ("--tag-output ./a", "--label -- ./a"),
    ("-genvall -x PATH --allow-run-as-root ./a", "-- ./a"),
    ("-genv A 1 -n 2 ./a", "-n 2 -- EYRIE __part -n 2 -env A 1 -words=1 ./a"),
    ("-env A 1 ./a", "-- EYRIE __part -n 1 -env A 1 -words=1 ./a"),
    ("-x A=1=2 ./a", "-- EYRIE __part -n 1 -env A 1=2 -words=1 ./a"),
    ("-wdir /tmp ./a b", "-- EYRIE __part -n 1 -wdir /tmp -words=2 ./a b"),
    ("-n 1 ./a : -n 2 ./b", "-n 3 -- EYRIE __part -n 1 -words=1 ./a -n 2 -words=1 ./b"),
    ("./a x : ./b", "-n 2 -- EYRIE __part -n 1 -words=2 ./a x -n 1 -words=1 ./b"),
    (
        "-genv G 1 -n 1 -env A 2 ./a : -wdir / ./b",
        "-n 2 -- EYRIE __part -n 1 -env G 1 -env A 2 -words=1 ./a \
         -n 1 -wdir / -env G 1 -words=1 ./b",
    ),
    ("-n 2 -- ./a : b", "-n 2 -- ./a : b"),
    ("--ckpt-every 5 -n 2 ./a", "--ckpt-every 5 -n 2 -- ./a"),
    ("--ft=none -lv -n 2 ./a", "--ft=none -lv -n 2 -- ./a"),
    ("-launcher-exec rsh -hosts a ./a", "--rsh=rsh --hosts=a -- ./a"),
    ("--rankfile r -n 2 ./a", "--rankfile r -n 2 -- ./a"),
    // Of documentation, tutorials and batch scripts.
    ("-np4 ./a", "-n 4 -- ./a"),
    ("--n 4 ./a", "-n 4 -- ./a"),
    ("-genv A=1 -n 2 ./a", "-n 2 -- EYRIE __part -n 2 -env A 1 -words=1 ./a"),
    ("-n 2 -env A=1=2 ./a", "-n 2 -- EYRIE __part -n 2 -env A 1=2 -words=1 ./a"),
    ("-np 4 --output tag ./a", "--label -n 4 -- ./a"),
    ("--output tag-detailed,tag -np 4 ./a", "--label -n 4 -- ./a"),
    ("-np 4 --with-ft ulfm ./a", "--on-failure=report -n 4 -- ./a"),
    ("-np 4 --with-ft none ./a", "-n 4 -- ./a"),
    ("-np 8 --map-by slot:OVERSUBSCRIBE --oversubscribe ./a", "--oversubscribe -n 8 -- ./a"),
    (
        "-np 1 --bind-to core -l ./a : -np 1 --bind-to core -l ./b",
        "--bind=core -l -n 2 -- EYRIE __part -n 1 -words=1 ./a -n 1 -words=1 ./b",
    ),
    (
        "-n 1 -host a ./a : -n 1 -host a ./b",
        "--hosts=a -n 2 -- EYRIE __part -n 1 -words=1 ./a -n 1 -words=1 ./b",
    ),
    (
        "-np 4 -H localhost:4 -bind-to none -map-by slot -x PATH -x A ./a",
        "--hosts=localhost:4 --bind=none -n 4 -- ./a",
    ),
    ("--map-by slot:PE=1 --bind-to core -np 4 ./a", "--bind=core -n 4 -- ./a"),
    ("--map-by ppr:4:node:OVERSUBSCRIBE ./a", "--ppn=4 --oversubscribe -- ./a"),
    ("-np 4 --use-hwthread-cpus --bind-to hwthread ./a", "--bind=hwthread -n 4 -- ./a"),
    ("-np 2 --allow-run-as-root --oversubscribe ./a", "--oversubscribe -n 2 -- ./a"),
    ("-machinefile /x/machines -np 16 ./a", "--hosts=/x/machines -n 16 -- ./a"),
    ("-bootstrap slurm -n 8 -ppn 4 ./a", "--ppn=4 -n 8 -- ./a"),
    ("-launcher ssh -f h -n 8 ./a", "--hosts=./h -n 8 -- ./a"),
    ("-rmk pbs -launcher fork -n 2 ./a", "-n 2 -- ./a"),
    ("-perhost 2 -hosts a,b -n 4 ./a", "--ppn=2 --hosts=a,b -n 4 -- ./a"),
    ("-hosts=a,b -ppn=2 -n=4 ./a", "--hosts=a,b --ppn=2 -n 4 -- ./a"),
    ("-genvall -genv A 0 -np 2 ./a", "-n 2 -- EYRIE __part -n 2 -env A 0 -words=1 ./a"),
    ("-np 2 -envall -wdir=/tmp ./a", "-n 2 -- EYRIE __part -n 2 -wdir /tmp -words=1 ./a"),
    ("-demux select -disable-x -n 2 ./a", "-n 2 -- ./a"),
    ("-line-label -n 2 ./a", "--label -n 2 -- ./a"),
    ("--n 2 --novm --leave-session-attached ./a", "-n 2 -- ./a"),
    ("-np 4 python -m mpi4py.futures x.py", "-n 4 -- python -m mpi4py.futures x.py"),
    ("-n 2 env A=1 ./a : b", "-n 3 -- EYRIE __part -n 2 -words=3 env A=1 ./a -n 1 -words=1 b"),
];

#[test]
fn what_is_typed_becomes_an_eyrie_run() {
    for (line, want) in TABLE {
        for mode in [Mode::Mpiexec, Mode::Run] {
            let (words, notes) = asked(mode, line).unwrap_or_else(|e| panic!("{line}: {e}"));
            assert_eq!(words, want, "{mode:?}: {line}");
            assert_eq!(notes, Vec::<String>::new(), "{line}");
            let all = ["eyrie", "run"].into_iter().chain(words.split(' '));
            let parsed = command_line::command().try_get_matches_from(all);
            let parsed = parsed.and_then(|m| Cli::from_arg_matches(&m)).map(|cli| cli.command);
            assert!(matches!(parsed, Ok(Command::Run(_))), "{line}: {parsed:?}");
        }
    }
}

#[test]
fn what_eyrie_does_not_do_is_refused_with_what_to_do() {
    let table = [
        ("-outfile-pattern x ./a", "-outfile-pattern is nothing that Eyrie does: redirect"),
        ("--timeout 60 ./a", "timeout 60 before"),
        ("--rank-by core ./a", "--rankfile"),
        ("--map-by socket:PE=2 ./a", "'PE=2'"),
        ("--map-by dist ./a", "slot, node"),
        ("-bind-to user:0,1 ./a", "--rankfile"),
        ("-genvnone ./a", "env -u"),
        ("-stdin all ./a", "< /dev/null"),
        ("-n 1 ./a : -host b ./b", "before the first one"),
        ("-hosts a -hosts b ./a", "twice"),
        ("-n 2 -n 3 ./a", "twice"),
        ("-n 1 ./a :", "behind ':'"),
        ("-n 1 ./a : -n 2", "program 2"),
        ("-genv A", "a value is missing"),
        ("-configfile /no/such ./a", "/no/such"),
        ("-hostz a ./a", "'-hostz'; is it -host"),
        ("-nofork ./a", "'-nofork'"),
        ("-soft 2:8:2 ./a", "-n 4"),
        ("-arch x86 ./a", "--hosts a,b"),
        ("-initial-errhandler mpi_errors_return ./a", "MPI_Comm_set_errhandler"),
        ("--output file=out ./a", "redirect in a shell"),
        ("--output tag,xml ./a", "'xml'"),
        ("-output-filename o ./a", "redirect in a shell"),
        ("--with-ft lots ./a", "ulfm or none"),
        ("-n 2 -disable-auto-cleanup ./a", "--on-failure report"),
        ("-gtool x -n 2 ./a", "TOOL ./a"),
        ("-check_mpi -n 2 ./a", "TOOL ./a"),
        ("--xterm 0 ./a", "xterm -e ./a"),
        ("-enable-x ./a", "--rsh 'ssh -X'"),
        ("--launch-agent x ./a", "--prefix DIR"),
        ("--add-host b ./a", "eyrie grow"),
        ("-hosts-group n[1-4] ./a", "-hosts n1,n2,n3"),
        ("-skip-launch-node ./a", "-hosts n1"),
        ("--bysocket ./a", "--rankfile"),
        ("--map-by ppr:2:socket:PE=4 ./a", "ppr:N:node"),
        ("--map-by socket:PE=4 ./a", "'PE=4'"),
        ("--map-by seq ./a", "slot, node"),
        ("-bind-to rr ./a", "--rankfile"),
        ("--bind-to l3cache ./a", "--rankfile"),
        ("-umask 027 ./a", "umask 027"),
        ("--stop-on-exec ./a", "replay --gdb"),
        ("--server-wait-time 5 ./a", "leave it out"),
        ("--set-cwd-to-session-dir ./a", "-wdir DIR"),
        ("-xyz ./a", "'-xyz'"),
        ("-ppn x ./a", "-ppn x"),
    ];
    for (line, told) in table {
        for mode in [Mode::Mpiexec, Mode::Run] {
            let error = asked(mode, line).unwrap_err();
            assert!(error.contains(told), "{mode:?}: {line}: {error}");
        }
    }
    for line in ["-n x ./a", "-n 0 ./a", "-n 2", "-hosts a"] {
        assert!(asked(Mode::Mpiexec, line).is_err(), "{line}");
    }
}

#[test]
fn what_changes_nothing_is_ignored_and_what_one_may_expect_is_told_once() {
    let (words, notes) = asked(Mode::Mpiexec, "--mca btl ^x --mca a b -n 2 ./a").unwrap();
    assert_eq!((words.as_str(), notes.len()), ("-n 2 -- ./a", 1));
    assert!(notes[0].contains("--mca is ignored"), "{notes:?}");
    let (words, notes) = asked(Mode::Mpiexec, "-genvlist A,B -report-bindings ./a").unwrap();
    assert_eq!((words.as_str(), notes.len()), ("-- ./a", 2));
    // What is told of, and that the words behind it are not taken for a program.
    for (line, told) in [
        ("--display map,bind -np 2 ./a", "eyrie status last"),
        ("-display-devel-map -np 2 ./a", "eyrie status last"),
        ("--report-pid - -np 2 ./a", "eyrie ps"),
        ("--debug-daemons -np 2 ./a", "-v tells"),
        ("-d -np 2 ./a", "-v tells"),
        ("--forward-signals SIGURG -np 2 ./a", "USR1"),
        ("--runtime-options report-state -np 2 ./a", "none of them"),
        ("--spawn-timeout 9 -np 2 ./a", "--join-limit"),
        ("--max-restarts 3 -np 2 ./a", "as often as they die"),
        ("-rdma -np 2 ./a", "--transport"),
        ("-am ft-enable-mpi -np 2 ./a", "Open MPI"),
        ("--prtemca a b --pmixmca c d -np 2 ./a", "Open MPI"),
    ] {
        let (words, notes) = asked(Mode::Mpiexec, line).unwrap_or_else(|e| panic!("{line}: {e}"));
        assert_eq!(words, "-n 2 -- ./a", "{line}");
        assert!(notes.iter().all(|note| note.contains(told)) && !notes.is_empty(), "{notes:?}");
    }
    for line in ["-h", "--help", "-help", ""] {
        assert_eq!(asked(Mode::Mpiexec, line).unwrap().0, "HELP", "{line}");
    }
    for line in ["-V", "--version", "-version"] {
        assert_eq!(asked(Mode::Mpiexec, line).unwrap().0, "VERSION", "{line}");
    }
}

#[test]
fn where_another_mpi_is_says_nothing_of_where_eyrie_is() {
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().display();
    let line = format!("--prefix {place} -np 2 ./a");
    let words = |line| asked(Mode::Mpiexec, line).unwrap();
    assert_eq!(words(&line), (format!("--prefix={place} -n 2 -- ./a"), Vec::new()));
    let bin = folder.path().join("bin");
    std::fs::create_dir(&bin).unwrap();
    std::fs::write(bin.join("orted"), "").unwrap();
    let (told, notes) = words(&line);
    assert_eq!(told, "-n 2 -- ./a");
    assert!(notes[0].contains("another MPI"), "{notes:?}");
    std::fs::write(bin.join("eyrie"), "").unwrap();
    assert_eq!(words(&line).0, format!("--prefix={place} -n 2 -- ./a"));
}

#[test]
fn other_commands_take_their_own_options_only() {
    let own = |line| asked(Mode::Own, line).map(|(words, _)| words);
    assert_eq!(own("-n 2 -lv ./a : b").unwrap(), "-n 2 -lv -- ./a : b");
    assert_eq!(own("-n2 --seeds=3 -- ./a").unwrap(), "-n2 --seeds=3 -- ./a");
    for line in ["-hosts a ./a", "-genv A B ./a"] {
        assert!(own(line).unwrap_err().contains("unexpected argument '-"), "{line}");
    }
}

#[test]
fn every_name_is_in_the_table_once() {
    for word in ["-np", "-hosts", "--bind-to", "-wdir", "--tag-output", "-configfile"] {
        assert!(table::find(word).is_some(), "{word}");
    }
    let all: Vec<_> = table::names().collect();
    let twice = all.iter().find(|name| all.iter().filter(|n| n == name).count() > 1);
    assert_eq!(twice, None);
    for word in ["-n=2", "--n=2"] {
        assert_eq!(table::find(word), Some((Means::Ranks, Some("2"))));
    }
    assert_eq!(table::find("--n"), table::find("-n"));
    assert_eq!(table::find("-f").map(|(m, _)| m), Some(Means::HostFile));
}
