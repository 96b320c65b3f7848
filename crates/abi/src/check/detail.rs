//! Which argument is wrong, in words.

use eyrie_core::error::{Class, class};
use eyrie_core::handle::Handle;
use eyrie_core::machine::Machine;

use super::told::{Argument, Told};

/// Most arguments that are told where it is not known which is wrong.
const MOST: usize = 8;

/// How arguments are called in the standard, where they are called otherwise here.
const NAMES: [(&str, &str); 12] = [
    ("sbuf", "sendbuf"),
    ("rbuf", "recvbuf"),
    ("scount", "sendcount"),
    ("rcount", "recvcount"),
    ("scounts", "sendcounts"),
    ("rcounts", "recvcounts"),
    ("stype", "sendtype"),
    ("rtype", "recvtype"),
    ("stag", "sendtag"),
    ("rtag", "recvtag"),
    ("eh", "errhandler"),
    ("inout", "inoutbuf"),
];

/// Handles that are nothing, or predefined, by their names.
const HANDLES: [(u32, &str); 15] = [
    (0x20, "MPI_OP_NULL"),
    (0x100, "MPI_COMM_NULL"),
    (0x101, "MPI_COMM_WORLD"),
    (0x102, "MPI_COMM_SELF"),
    (0x108, "MPI_GROUP_NULL"),
    (0x109, "MPI_GROUP_EMPTY"),
    (0x110, "MPI_WIN_NULL"),
    (0x118, "MPI_FILE_NULL"),
    (0x120, "MPI_SESSION_NULL"),
    (0x128, "MPI_MESSAGE_NULL"),
    (0x130, "MPI_INFO_NULL"),
    (0x140, "MPI_ERRHANDLER_NULL"),
    (0x180, "MPI_REQUEST_NULL"),
    (0x200, "MPI_DATATYPE_NULL"),
    (0x207, "MPI_PACKED"),
];

/// The arguments that an error of this class is about.
fn is_about(class: Class, argument: &Argument) -> bool {
    let name = argument.name;
    let handle = matches!(argument.told, Told::Handle(..));
    match class {
        class::RANK => {
            name.contains("rank")
                || ["dest", "source", "target", "leader"].iter().any(|n| name.contains(n))
        }
        class::ROOT => name == "root",
        class::TAG => name.ends_with("tag"),
        class::COUNT => name.contains("count") || name == "n" || name == "size",
        class::TYPE => name.contains("type") || name.ends_with("dt"),
        class::COMM => {
            handle && (name.contains("comm") || ["local", "peer", "a", "b"].contains(&name))
        }
        class::OP => name == "op",
        class::GROUP => name.contains("group"),
        class::BUFFER => name.contains("buf"),
        class::REQUEST => name.contains("request"),
        class::WIN => name.contains("win"),
        class::INFO => name == "info",
        class::ERRHANDLER => name == "eh",
        class::KEYVAL => name.contains("key"),
        class::DISP | class::RMA_RANGE => name.contains("disp") || name.contains("offset"),
        class::DIMS => name.contains("dims"),
        class::FILE => name == "fh" || name.contains("file"),
        class::AMODE => name.contains("amode"),
        class::ASSERT => name.contains("assert"),
        class::LOCKTYPE => name.contains("lock"),
        class::SESSION => name == "session",
        class::ARG => true,
        _ => false,
    }
}

/// Whether a value of that class may well be right.
fn may_be_right(class: Class, told: Told, ranks: Option<i64>) -> bool {
    match (class, told) {
        (class::RANK | class::ROOT, Told::Number(n)) => ranks.is_some_and(|r| (0..r).contains(&n)),
        (class::TAG | class::COUNT, Told::Number(n)) => n >= 0,
        (class::BUFFER, Told::Address(at)) => at != 0,
        _ => false,
    }
}

fn value(told: Told) -> String {
    match told {
        Told::Number(n) => n.to_string(),
        Told::Address(0) => String::from("null"),
        Told::Address(at) => format!("{at:#x}"),
        Told::Handle(handle, bits) => {
            let known = HANDLES.iter().find(|(h, _)| *h == handle.0).map(|(_, name)| *name);
            known
                .or_else(|| eyrie_core::op::name(handle.0))
                .map_or_else(|| format!("{bits:#x}"), String::from)
        }
        Told::Other => String::from("of no use"),
    }
}

/// What is known of a wrong call: the argument, or those among which it is, with the values.
pub fn of(m: &Machine, class: Class, on: Handle, arguments: &[Argument]) -> String {
    let remote = m.comm_remote_size(on).or_else(|_| m.comm_size(on));
    let ranks = remote.ok().map(i64::from);
    let about: Vec<&Argument> =
        arguments.iter().filter(|a| a.told != Told::Other && is_about(class, a)).collect();
    let wrong: Vec<&&Argument> =
        about.iter().filter(|a| !may_be_right(class, a.told, ranks)).collect();
    let named = if wrong.is_empty() { about.iter().collect() } else { wrong };
    let name = |own: &'static str| NAMES.iter().find(|(n, _)| *n == own).map_or(own, |(_, n)| *n);
    let words = named.iter().take(MOST).map(|a| format!("{} is {}", name(a.name), value(a.told)));
    let mut text = words.collect::<Vec<_>>().join(", ");
    if let (class::RANK | class::ROOT, Some(ranks), false) = (class, ranks, text.is_empty()) {
        text.push_str(&format!("; the communicator has {ranks} ranks"));
    }
    text
}
