//! What was found, and what to type against it.

use serde_json::{Value, json};

/// How much it matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// As it should be.
    Fine,
    /// Jobs run, and something costs more than it need.
    Costs,
    /// Jobs do not run, or are not protected.
    Stops,
}

impl Level {
    const ALL: [Level; 3] = [Level::Fine, Level::Costs, Level::Stops];

    pub fn name(self) -> &'static str {
        match self {
            Level::Fine => "fine",
            Level::Costs => "costs",
            Level::Stops => "stops",
        }
    }
}

/// One thing that was looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// None: this machine.
    pub host: Option<String>,
    /// What was looked at.
    pub about: String,
    pub level: Level,
    pub text: String,
    /// What to type.
    pub remedy: Option<String>,
}

impl Finding {
    pub fn fine(about: &str, text: impl Into<String>) -> Finding {
        let (about, text) = (about.into(), text.into());
        Finding { host: None, about, level: Level::Fine, text, remedy: None }
    }

    pub fn costs(about: &str, text: impl Into<String>, remedy: impl Into<String>) -> Finding {
        let remedy = Some(remedy.into());
        Finding { level: Level::Costs, remedy, ..Finding::fine(about, text) }
    }

    pub fn stops(about: &str, text: impl Into<String>, remedy: impl Into<String>) -> Finding {
        Finding { level: Level::Stops, ..Finding::costs(about, text, remedy) }
    }

    /// The same, found on another host.
    pub fn on(mut self, host: &str) -> Finding {
        self.host = Some(host.to_string());
        self
    }

    pub fn to_json(&self) -> Value {
        json!({
            "host": self.host, "about": self.about, "level": self.level.name(), "text": self.text,
            "remedy": self.remedy,
        })
    }

    /// As another host has told it.
    pub fn from_json(value: &Value) -> Option<Finding> {
        let text = |name: &str| value[name].as_str().map(str::to_string);
        let level = text("level")?;
        Some(Finding {
            host: None,
            about: text("about")?,
            level: Level::ALL.into_iter().find(|l| l.name() == level)?,
            text: text("text")?,
            remedy: text("remedy"),
        })
    }
}

/// The exit code for what was found.
pub fn exit_code(all: &[Finding]) -> i32 {
    match all.iter().map(|f| f.level).max() {
        None | Some(Level::Fine) => 0,
        Some(Level::Costs) => 1,
        Some(Level::Stops) => 2,
    }
}
