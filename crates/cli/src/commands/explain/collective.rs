//! Which way a blocking collective takes on all ranks of a job, and why.

use super::findings::{finding, text};
use crate::jobs::Job;
use anyhow::anyhow;
use eyrie_core::coll::told::{Asked, way};
use eyrie_state::{history, home};
use eyrie_terminal::{FAILED, Failure, print, print_json};
use serde_json::json;

pub fn explain(job: &Job, name: &str, bytes: u64, as_json: bool) -> Result<i32, Failure> {
    let record = match job {
        Job::Ended(found) => Some(found.record.clone()),
        Job::There(job) => history::of(&home::home()?, &job.id).map(|found| found.record),
    };
    let record =
        record.ok_or_else(|| Failure::new(FAILED, anyhow!("there is no record of the job")))?;
    let asked = Asked {
        name,
        bytes,
        ranks: record.size,
        clusters: &record.rank_clusters,
        canonical: record.reduce_order == "canonical",
    };
    let (what, why) =
        way(&asked).ok_or_else(|| Failure::new(FAILED, anyhow!("{name} is not known")))?;
    match as_json {
        true => {
            let findings = [json!({ "what": format!("{what}\n{why}"), "remedy": null })];
            print_json(&json!({
                "job": record.job, "rank": null, "node": null, "findings": findings,
            }))?;
        }
        false => print(&text(&[finding(format!("{name} of {bytes} bytes: {what}\n{why}"), "")])),
    }
    Ok(0)
}
