//! What the metadata services of EC2, GCE and Azure say of a machine's end.
//!
//! Kept true: only what ends the machine or stops it for long counts: not a live migration, nor a
//! freeze of seconds, nor what is about another machine of the same service.

use crate::commands::notice::http::{Answer, Service};
use anyhow::{Context, anyhow};
use clap::ValueEnum;
use serde_json::Value;
use std::time::Duration;

/// Where all of them are, and where GCE's has a name, too.
pub const USUAL: &str = "http://169.254.169.254";
/// How long a token of EC2 is good.
const TOKEN_S: &str = "600";
const GOOGLE: (&str, &str) = ("Metadata-Flavor", "Google");
const AZURE: (&str, &str) = ("Metadata", "true");
const AZURE_EVENTS: &str = "/metadata/scheduledevents?api-version=2020-07-01";
const AZURE_NAME: &str = "/metadata/instance/compute/name?api-version=2021-02-01&format=text";
const SOON: Duration = Duration::ZERO;

/// Whose machine this is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Cloud {
    /// Amazon EC2 (metadata service of version 2)
    Ec2,
    /// Google Compute Engine
    Gce,
    /// Microsoft Azure (scheduled events)
    Azure,
    /// The one of these that answers
    Auto,
}

impl Cloud {
    pub fn name(self) -> &'static str {
        match self {
            Cloud::Ec2 => "EC2",
            Cloud::Gce => "GCE",
            Cloud::Azure => "Azure",
            Cloud::Auto => "EC2, GCE or Azure",
        }
    }
}

/// A metadata service, and what is known of it.
pub struct Metadata {
    service: Service,
    cloud: Cloud,
    rebalance: bool,
    /// EC2: what shows who asks. Azure: this machine's name.
    own: Option<String>,
    /// GCE: the state of the answer that came last.
    etag: Option<String>,
}

impl Metadata {
    /// `rebalance`: recommendations count, too.
    pub fn new(cloud: Cloud, base: &str, rebalance: bool) -> Metadata {
        let service = Service::at(base);
        Metadata { service, cloud, rebalance, own: None, etag: None }
    }

    pub fn cloud(&self) -> Cloud {
        self.cloud
    }

    /// Whose service answers there, if it is to be found out. An error: none does.
    pub fn find(&mut self) -> anyhow::Result<()> {
        if self.cloud != Cloud::Auto {
            return Ok(());
        }
        let google = self.service.get("/computeMetadata/v1/instance/id", GOOGLE, SOON);
        let azure = || self.service.get(AZURE_EVENTS, AZURE, SOON);
        let is_good = |answer: anyhow::Result<Answer>| answer.is_ok_and(|a| a.code == 200);
        self.cloud = if google.as_ref().is_ok_and(|a| a.code == 200) {
            Cloud::Gce
        } else if is_good(azure()) {
            Cloud::Azure
        } else {
            self.renew()?;
            Cloud::Ec2
        };
        Ok(())
    }

    /// Why this machine is about to end, if it is. `waits`: so long may be waited for news.
    pub fn look(&mut self, waits: Duration) -> anyhow::Result<Option<String>> {
        match self.cloud {
            Cloud::Ec2 => self.ec2(),
            Cloud::Gce => self.gce(waits),
            Cloud::Azure => self.azure(),
            Cloud::Auto => Err(anyhow!("it is not known whose machine this is")),
        }
    }

    /// Whether `look` itself waits for news.
    pub fn waits(&self) -> bool {
        self.cloud == Cloud::Gce && self.etag.is_some()
    }

    /// EC2's token.
    fn renew(&mut self) -> anyhow::Result<()> {
        let ttl = ("X-aws-ec2-metadata-token-ttl-seconds", TOKEN_S);
        let answer = self.service.put("/latest/api/token", ttl)?;
        self.own = answer.good("the service's token")?;
        self.own.as_ref().map(drop).ok_or_else(|| anyhow!("the service has no tokens"))
    }

    fn ec2_at(&mut self, path: &str) -> anyhow::Result<Option<String>> {
        for fresh in [false, true] {
            if fresh || self.own.is_none() {
                self.renew()?;
            }
            let token = self.own.clone().unwrap_or_default();
            let answer = self.service.get(path, ("X-aws-ec2-metadata-token", &token), SOON)?;
            // The token is too old.
            if answer.code != 401 || fresh {
                return answer.good(path);
            }
        }
        Ok(None)
    }

    fn ec2(&mut self) -> anyhow::Result<Option<String>> {
        if let Some(body) = self.ec2_at("/latest/meta-data/spot/instance-action")? {
            return Ok(Some(of_ec2(&body)));
        }
        if !self.rebalance {
            return Ok(None);
        }
        let advice = self.ec2_at("/latest/meta-data/events/recommendations/rebalance")?;
        Ok(advice.map(|_| String::from("EC2 recommends to rebalance this instance")))
    }

    fn gce(&mut self, waits: Duration) -> anyhow::Result<Option<String>> {
        let mut path = String::from("/computeMetadata/v1/instance/preempted");
        if let Some(etag) = &self.etag {
            let seconds = waits.as_secs().max(1);
            path += &format!("?wait_for_change=true&last_etag={etag}&timeout_sec={seconds}");
        }
        let answer = self.service.get(&path, GOOGLE, waits.max(Duration::from_secs(1)))?;
        self.etag = answer.etag.clone().filter(|etag| etag.chars().all(char::is_alphanumeric));
        if answer.good("GCE's preempted")?.is_some_and(|body| body.trim() == "TRUE") {
            return Ok(Some(String::from("GCE pre-empts this instance")));
        }
        let path = "/computeMetadata/v1/instance/maintenance-event";
        let event = self.service.get(path, GOOGLE, SOON)?.good("GCE's maintenance-event")?;
        Ok(event.and_then(|event| of_gce(&event)))
    }

    fn azure(&mut self) -> anyhow::Result<Option<String>> {
        if self.own.is_none() {
            let answer = self.service.get(AZURE_NAME, AZURE, SOON)?;
            self.own = answer.good("Azure's name of the machine")?;
        }
        let body = self.service.get(AZURE_EVENTS, AZURE, SOON)?.good("Azure's events")?;
        body.map_or(Ok(None), |body| of_azure(&body, self.own.as_deref()))
    }
}

/// `{"action": "terminate", "time": "2026-11-29T08:22:00Z"}`.
fn of_ec2(body: &str) -> String {
    let told: Value = serde_json::from_str(body).unwrap_or_default();
    let text = |name: &str| told.get(name).and_then(Value::as_str).map(String::from);
    let action = text("action").unwrap_or_else(|| String::from("interrupt"));
    let time = text("time").map(|time| format!(" at {time}")).unwrap_or_default();
    format!("EC2 is to {action} this instance{time}")
}

/// `NONE`, `MIGRATE_ON_HOST_MAINTENANCE`, `TERMINATE_ON_HOST_MAINTENANCE`.
fn of_gce(event: &str) -> Option<String> {
    let ends = event.trim().starts_with("TERMINATE");
    ends.then(|| String::from("GCE is to terminate this instance for maintenance"))
}

/// `{"Events": [{"EventType": "Preempt", "Resources": ["node7"], "NotBefore": "..."}]}`.
fn of_azure(body: &str, own: Option<&str>) -> anyhow::Result<Option<String>> {
    let told: Value = serde_json::from_str(body).context("Azure's events")?;
    let events = told.get("Events").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    let text = |event: &Value, name: &str| event.get(name)?.as_str().map(String::from);
    let is_ours = |event: &&Value| {
        let named = event.get("Resources").and_then(Value::as_array);
        let all = named.map_or(&[][..], Vec::as_slice);
        own.is_none_or(|own| all.iter().any(|one| one.as_str() == Some(own)))
    };
    let ends = |event: &&Value| {
        let kind = text(event, "EventType").unwrap_or_default();
        ["Preempt", "Terminate", "Reboot", "Redeploy"].contains(&kind.as_str())
    };
    Ok(events.iter().filter(is_ours).find(ends).map(|event| {
        let kind = text(event, "EventType").unwrap_or_default().to_lowercase();
        let when = text(event, "NotBefore").filter(|when| !when.is_empty());
        let when = when.map(|when| format!(", not before {when}")).unwrap_or_default();
        format!("Azure is to {kind} this machine{when}")
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_ends_the_machine_is_told_from_what_does_not() {
        assert_eq!(
            of_ec2(r#"{"action": "stop", "time": "T"}"#),
            "EC2 is to stop this instance at T"
        );
        assert_eq!(of_ec2("?"), "EC2 is to interrupt this instance");
        assert!(of_gce("TERMINATE_ON_HOST_MAINTENANCE\n").is_some());
        assert_eq!([of_gce("NONE"), of_gce("MIGRATE_ON_HOST_MAINTENANCE")], [None, None]);
        let event = |kind: &str, of: &str| {
            let body = format!(
                r#"{{"DocumentIncarnation": 1, "Events": [{{"EventId": "1", "EventType": "{kind}",
                "Resources": ["{of}"], "EventStatus": "Scheduled", "NotBefore": ""}}]}}"#
            );
            of_azure(&body, Some("n1")).unwrap()
        };
        assert_eq!(event("Preempt", "n1").as_deref(), Some("Azure is to preempt this machine"));
        assert!(event("Redeploy", "n1").is_some() && event("Terminate", "n1").is_some());
        assert_eq!([event("Freeze", "n1"), event("Preempt", "n2")], [None, None]);
        assert_eq!(of_azure(r#"{"Events": []}"#, None).unwrap(), None);
        assert!(of_azure("<html>", None).is_err());
    }
}
