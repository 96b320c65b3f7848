//! A grid file as it is read, and what is wrong with one.

use super::*;
use crate::file::Value;

const WHOLE: &str = r#"
program = ["./heat", "4000"]
ranks = 8

[run]
ckpt-every = 30
tls = true

[environment]
OMP_NUM_THREADS = 1
EMPTY = ""

[clusters.east]
hosts = ["node1:4", "node[2-3]"]
slots = 2

[clusters.west]
hosts = "login7"
launcher = "ssh"
rsh = "ssh -p 2222"
key = "~/.ssh/grid"
user = "me"
prefix = "/opt/eyrie"
gateway = "login7"
gateway-address = "203.0.113.7:7400"

[clusters.north]
hosts = ["n[1-2]"]
launcher = "slurm"
job = 4711
via = "ssh login.north"

[[link]]
between = ["east", "west"]
rate = 400
latency = "10ms"

[[link]]
between = ["north", "east"]
rate = 62.5
latency = "250us"
"#;

fn parse(text: &str) -> anyhow::Result<Grid> {
    Grid::parse(Path::new("grid.toml"), text)
}

fn option(grid: &Grid, key: &str) -> Option<String> {
    let found = grid.run.entries.iter().find(|entry| entry.key == key);
    found.map(|entry| entry.value.to_string())
}

#[test]
fn a_whole_job_is_read() {
    let grid = parse(WHOLE).unwrap();
    assert_eq!(grid.program, ["./heat", "4000"]);
    assert_eq!(grid.environment[0], ("OMP_NUM_THREADS".into(), "1".into()));
    assert_eq!(grid.environment[1], ("EMPTY".into(), String::new()));
    let names: Vec<&str> = grid.clusters.iter().map(|c| c.name.as_str()).collect();
    assert_eq!(names, ["east", "west", "north"]);
    let [east, west, north] = &grid.clusters[..] else { panic!() };
    assert_eq!(
        (&east.hosts[..], east.slots),
        (&["node1:4", "node[2-3]"].map(String::from)[..], Some(2))
    );
    assert_eq!(east.launcher, Launcher::Shell { rsh: None, key: None });
    let (rsh, key) = (Some("ssh -p 2222".into()), Some("~/.ssh/grid".into()));
    assert_eq!(west.launcher, Launcher::Shell { rsh, key });
    assert_eq!(west.gateway_address.as_deref(), Some("203.0.113.7:7400"));
    assert_eq!(north.launcher, Launcher::Slurm { job: 4711, via: Some("ssh login.north".into()) });
    let link = grid.link(1, 0).unwrap();
    assert_eq!((link.rate, link.latency_ms, link.place.line), (Some(400.0), Some(10.0), 33));
    assert_eq!(grid.link(0, 2).unwrap().latency_ms, Some(0.25));
    assert!(grid.link(1, 2).is_none());
    assert_eq!(option(&grid, "np").as_deref(), Some("8"));
    assert_eq!(option(&grid, "ckpt-every").as_deref(), Some("30"));
    assert_eq!(option(&grid, "wan-only").as_deref(), Some("true"));
    // One of the three links has no rate.
    assert_eq!(option(&grid, "wan-rate"), None);
}

#[test]
fn what_the_table_of_options_says_goes_before_what_links_and_clusters_come_to() {
    let two = "[clusters.a]\nhosts = ['x']\n[clusters.b]\nhosts = ['y']\n[[link]]\nbetween = ['a', \
               'b']\nrate = 99.5\n";
    let grid = parse(two).unwrap();
    assert_eq!(option(&grid, "wan-rate").as_deref(), Some("99"));
    let grid = parse(&format!("{two}[run]\nwan-rate = 7\nwan-only = false\n")).unwrap();
    assert_eq!(option(&grid, "wan-rate").as_deref(), Some("7"));
    let only = grid.run.entries.iter().find(|entry| entry.key == "wan-only").unwrap();
    assert_eq!(only.value, Value::Flag(false));
    // One cluster is a job as any other.
    let one = parse("[clusters.a]\nhosts = ['x']\n").unwrap();
    assert!(one.run.entries.is_empty());
    assert!(option(&parse(&format!("{two}[run]\nha = 'etcd://x'")).unwrap(), "wan-only").is_none());
}

#[test]
fn what_is_wrong_is_told_with_its_line_and_what_is_like_it() {
    let a = "[clusters.a]\nhosts = ['x']\n";
    for (text, told) in [
        ("".into(), "grid.toml: name 1 to 64 clusters"),
        ("[clusters.a\n".into(), "grid.toml, line 1: "),
        ("[clusters.a]\nhsts = ['x']".into(), "line 2: [clusters.a] has no key hsts; is it hosts?"),
        ("[clusters.a]\nzebra = 1".into(), "line 2: [clusters.a] has no key zebra: it has hosts, "),
        ("[clusters.a]\n".into(), "line 1: [clusters.a] has no hosts"),
        ("[clusters.a]\nhosts = []".into(), "[clusters.a] has no hosts"),
        ("[clusters.a]\nhosts = true".into(), "line 2: hosts: write a list"),
        ("clusters = 3".into(), "line 1: clusters: write [clusters]"),
        ("[clusters.'a b']\nhosts = ['x']".into(), "line 1: 'a b' is no name"),
        (
            "program = 1\nprogramm = 2".into(),
            "line 2: the file has no key programm; is it program?",
        ),
        (format!("{a}{a}"), "line 3: duplicate key"),
        (format!("{a}{a}"), "two clusters, or two keys, have one name"),
        (format!("{a}slots = 0"), "line 3: slots = 0: write a number from 1 on"),
        (format!("{a}launcher = 'shh'"), "line 3: launcher = \"shh\": is it ssh?"),
        (format!("{a}launcher = 'pmix'"), "line 3: a launcher that speaks pmix starts Eyrie"),
        (format!("{a}launcher = 'slurm'"), "line 3: launcher = \"slurm\" takes job = N"),
        (format!("{a}via = 'x'"), "line 3: via is for launcher = \"slurm\""),
        (
            format!("{a}launcher = 'slurm'\nrsh = 'x'\njob = 1"),
            "line 4: rsh is for launcher = \"ssh\"",
        ),
        (format!("{a}gateway-address = '1.2.3.4'"), "line 3: gateway-address: write gateway, too"),
        (format!("{a}[[link]]\n"), "line 3: a link is between two clusters"),
        (format!("{a}[[link]]\nbetween = ['a', 'b']"), "line 4: there is no cluster b; is it a?"),
        (format!("{a}[[link]]\nbetween = ['a', 'a']"), "line 4: a link is between two different"),
        (format!("{a}[link]\n"), "line 3: link: write [[link]]"),
        (format!("{a}[environment]\n'A=B' = 1"), "line 4: 'A=B' is no name of a variable"),
        (format!("{a}[run]\nhosts = 'x'"), "line 4: [run] hosts: write hosts = [...] under"),
        (format!("{a}[run]\nnp = 3"), "line 4: [run] np: write ranks = N"),
    ] {
        let refusal = format!("{:#}", parse(&text).expect_err(&text));
        assert!(refusal.contains(told), "{text:?}: {refusal}");
    }
    let two = "[clusters.a]\nhosts = ['x']\n[clusters.b]\nhosts = ['y']\n[[link]]\nbetween = ['a', \
               'b']\n";
    for (text, told) in [
        ("rate = 0", "line 7: rate: Mbit/s, from"),
        ("rate = 'fast'", "line 7: rate = fast: write a number"),
        ("latency = 10", "line 7: latency = 10: write a time with its unit, as \"10ms\""),
        ("latency = '2h'", "line 7: latency: a minute at most"),
        ("[[link]]\nbetween = ['b', 'a']", "line 7: this link is in line 5 already"),
    ] {
        let refusal = format!("{:#}", parse(&format!("{two}{text}")).expect_err(text));
        assert!(refusal.contains(told), "{text:?}: {refusal}");
    }
}
