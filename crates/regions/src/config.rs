//! Options: from the program, from the environment (which goes before), or from a file of VeloC's.

use crate::error::RegionsError;
use crate::second::Level;
use eyrie_vault::Scheme;
use std::collections::BTreeSet;
use std::path::PathBuf;

/// Most folders: members of a vault.
const MAX_FOLDERS: usize = 1 << 16;

/// What a program or its user chose.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// One for each node.
    pub folders: Vec<PathBuf>,
    pub scheme: Scheme,
    /// Checkpoints of a name that are kept.
    pub keep: usize,
    /// The second level.
    pub persistent: Option<Level>,
    /// Every how many checkpoints go there.
    pub every: u32,
    /// Whether protection and the second level are left to a thread.
    pub background: bool,
    /// Which of the folders is this process's; else they are dealt out.
    pub node: Option<usize>,
    /// Who makes parity.
    pub parity: Parity,
    /// What fails together with this node; else its machine.
    pub domain: Option<String>,
    /// The file with the key that parts are encrypted with.
    pub key: Option<PathBuf>,
}

/// Who makes parity.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Parity {
    /// All nodes, if one process does not see the folders of all.
    Auto,
    /// All nodes together, each from its own folder.
    Nodes,
    /// One process, which sees all folders.
    One,
}

/// The variable of each option.
const VARIABLES: [(&str, &str); 10] = [
    ("folders", "EYRIE_VAULT_FOLDERS"),
    ("vault", "EYRIE_VAULT"),
    ("keep", "EYRIE_REGIONS_KEEP"),
    ("persistent", "EYRIE_REGIONS_PERSISTENT"),
    ("every", "EYRIE_REGIONS_EVERY"),
    ("mode", "EYRIE_REGIONS_MODE"),
    ("node", "EYRIE_REGIONS_NODE"),
    ("parity", "EYRIE_REGIONS_PARITY"),
    ("domain", "EYRIE_REGIONS_DOMAIN"),
    ("key", "EYRIE_REGIONS_KEY"),
];

fn refuse(option: &str, why: impl ToString) -> RegionsError {
    RegionsError::Option { option: option.into(), why: why.to_string() }
}

fn number(option: &str, value: &str, least: u32) -> Result<u32, RegionsError> {
    let number = value.parse().ok().filter(|n| *n >= least);
    number.ok_or_else(|| refuse(option, format!("'{value}' is no number from {least} on")))
}

impl Config {
    /// `text`: options as `KEY=VALUE`, apart by `;` or on lines of their own.
    pub fn read(
        text: &str,
        variable: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Config, RegionsError> {
        let mut config = Config::default();
        for option in text.split([';', '\n']).map(str::trim).filter(|o| !o.is_empty()) {
            let (key, value) = option.split_once('=').unwrap_or((option, ""));
            config.set(key.trim(), value.trim())?;
        }
        config.end(variable)
    }

    /// `text`: a configuration of VeloC's. What has no meaning here is passed over.
    pub fn read_veloc(
        text: &str,
        variable: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Config, RegionsError> {
        let mut config = Config { keep: usize::MAX, ..Config::default() };
        let plain = |line: &'_ str| line.split(['#', ';']).next().unwrap_or("").trim().to_string();
        for line in text.lines().map(plain).filter(|line| !line.is_empty()) {
            let Some((key, value)) = line.split_once('=') else { continue };
            let (key, value) = (key.trim(), value.trim());
            match key {
                "scratch" => config.folders = vec![value.into()],
                "scratch_versions" if value != "0" => config.set("keep", value)?,
                "persistent_interval" => match value.parse::<i64>() {
                    Ok(0) => config.every = 1,
                    Ok(..0) => config.every = 0,
                    _ => {
                        return Err(refuse(
                            key,
                            "seconds are not counted here; set 0, -1, or every=N",
                        ));
                    }
                },
                "persistent" | "mode" | "folders" | "vault" | "keep" | "every" | "parity"
                | "key" => {
                    config.set(key, value)?;
                }
                _ => {}
            }
        }
        config.end(variable)
    }

    fn set(&mut self, key: &str, value: &str) -> Result<(), RegionsError> {
        match key {
            "folders" => {
                self.folders =
                    value.split(':').filter(|f| !f.is_empty()).map(PathBuf::from).collect();
            }
            "vault" => self.scheme = value.parse().map_err(|error| refuse(key, error))?,
            "keep" => self.keep = number(key, value, 1)? as usize,
            "persistent" => {
                let level = (!value.is_empty()).then(|| Level::parse(value));
                self.persistent = level.transpose().map_err(|error| refuse(key, error))?;
            }
            "every" => self.every = number(key, value, 0)?,
            "mode" => {
                self.background = match value {
                    "sync" => false,
                    "async" => true,
                    _ => return Err(refuse(key, format!("'{value}' is neither sync nor async"))),
                };
            }
            "node" => self.node = Some(number(key, value, 0)? as usize),
            "parity" => {
                self.parity = match value {
                    "auto" => Parity::Auto,
                    "nodes" => Parity::Nodes,
                    "one" => Parity::One,
                    _ => return Err(refuse(key, format!("'{value}' is not auto, nodes or one"))),
                };
            }
            "domain" => self.domain = (!value.is_empty()).then(|| value.into()),
            "key" => self.key = (!value.is_empty()).then(|| value.into()),
            _ => {
                let all = VARIABLES.map(|(key, _)| key).join(", ");
                return Err(refuse(key, format!("there is none of that name; there are {all}")));
            }
        }
        Ok(())
    }

    fn end(mut self, variable: &dyn Fn(&str) -> Option<String>) -> Result<Config, RegionsError> {
        for (key, name) in VARIABLES {
            if let Some(value) = variable(name).filter(|value| !value.is_empty()) {
                self.set(key, &value)?;
            }
        }
        let different: BTreeSet<&PathBuf> = self.folders.iter().collect();
        if self.folders.is_empty() {
            return Err(refuse("folders", "name where checkpoints go (EYRIE_VAULT_FOLDERS=A:B:C)"));
        }
        if different.len() != self.folders.len() || self.folders.len() > MAX_FOLDERS {
            return Err(refuse("folders", "a folder is named twice, or there are too many"));
        }
        if self.node.is_some_and(|node| node >= self.folders.len()) {
            return Err(refuse("node", "there are not as many folders"));
        }
        Ok(self)
    }

    /// Whether so many folders are enough for the scheme.
    pub fn suffices(&self, have: usize) -> Result<(), RegionsError> {
        let need = self.scheme.least();
        if have < need {
            let why = format!("{} needs {need} folders, and there are {have}", self.scheme);
            return Err(refuse("vault", why));
        }
        Ok(())
    }

    /// Whether parts are protected by others.
    pub fn vaulted(&self) -> bool {
        self.scheme != Scheme::Local
    }

    /// Which of the folders is a process's, as far as this one knows.
    pub fn folder_of(&self, rank: u32, ranks: u32) -> usize {
        let place = u64::from(rank) * self.folders.len() as u64 / u64::from(ranks.max(1));
        usize::try_from(place).unwrap_or(0).min(self.folders.len().saturating_sub(1))
    }
}

impl Default for Config {
    fn default() -> Config {
        Config {
            folders: Vec::new(),
            scheme: Scheme::Local,
            keep: 2,
            persistent: None,
            every: 1,
            background: false,
            node: None,
            parity: Parity::Auto,
            domain: None,
            key: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn none(_: &str) -> Option<String> {
        None
    }

    #[test]
    fn options_are_read_and_the_environment_goes_before() {
        let text = "folders = /a:/b:/c; vault=rs:2+1; keep=3\npersistent=/p;mode=async;every=4";
        let config = Config::read(text, &none).unwrap();
        assert_eq!(config.folders, ["/a", "/b", "/c"].map(PathBuf::from));
        assert!(config.vaulted() && config.background);
        assert_eq!((config.keep, config.every), (3, 4));
        assert_eq!(config.persistent, Some(Level::Folder("/p".into())));
        let far = Config::read("folders=/a;persistent=s3://b/heat/;key=/k", &none).unwrap();
        assert!(matches!(&far.persistent, Some(Level::Objects(_))));
        assert_eq!(far.persistent.unwrap().to_string(), "s3://b/heat");
        assert_eq!(far.key, Some("/k".into()));
        let folders = (0..6).map(|rank| config.folder_of(rank, 6)).collect::<Vec<_>>();
        assert_eq!(folders, [0, 0, 1, 1, 2, 2]);
        let set = |name: &str| (name == "EYRIE_VAULT").then(|| "local".to_string());
        assert!(!Config::read(text, &set).unwrap().vaulted());
    }

    #[test]
    fn what_makes_no_sense_is_told_why() {
        let why = |text: &str| Config::read(text, &none).unwrap_err().to_string();
        assert!(why("").contains("EYRIE_VAULT_FOLDERS"));
        assert!(why("folders=/a:/a").contains("named twice"));
        let few = Config::read("folders=/a:/b;vault=rs:2+2", &none).unwrap();
        let few = few.suffices(2).unwrap_err().to_string();
        assert!(few.contains("rs:2+2 needs 3 folders"));
        assert!(why("folders=/a;parity=two").contains("not auto, nodes or one"));
        assert!(why("folders=/a;vault=raid").contains("is no scheme"));
        assert!(why("folders=/a;keep=0").contains("'0' is no number from 1 on"));
        assert!(why("folders=/a;node=1").contains("not as many folders"));
        assert!(why("folders=/a;mode=later").contains("neither sync nor async"));
        let near = Config::read("folders=/a;persistent=file:///b/heat", &none).unwrap();
        assert_eq!(near.persistent.unwrap().to_string(), "/b/heat");
        assert!(why("folders=/a;persistent=s3://").contains("write s3://BUCKET"));
        assert!(why("folders=/a;colour=red").contains("there are folders, vault"));
    }

    #[test]
    fn a_configuration_of_veloc_is_read() {
        let text = "# where\nscratch = /tmp/s ; here\npersistent=/p\nmode = async\n\
                    axl_type = posix\nscratch_versions=3\npersistent_interval = -1\n";
        let config = Config::read_veloc(text, &none).unwrap();
        assert_eq!(config.folders, [PathBuf::from("/tmp/s")]);
        assert_eq!((config.keep, config.every, config.background), (3, 0, true));
        assert_eq!(Config::read_veloc("scratch=/s", &none).unwrap().keep, usize::MAX);
        let seconds = Config::read_veloc("scratch=/s\npersistent_interval=60", &none);
        assert!(seconds.unwrap_err().to_string().contains("seconds are not counted"));
    }
}
