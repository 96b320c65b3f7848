//! Metrics as text: OpenMetrics, and the older text format, which node_exporter's textfile
//! collector and `promtool check metrics` read.

use super::families::{Family, Kind, Snapshot};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::exemplar::Exemplar;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::{Registry, Unit};
use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt;

/// What all names begin with.
const PREFIX: &str = "eyrie";

/// The same numbers in both formats.
pub struct Texts {
    pub open_metrics: String,
    pub plain: String,
}

pub fn texts(snapshot: Snapshot) -> Texts {
    let labels = snapshot.labels.clone().into_iter();
    let labels = labels.map(|(name, value)| (Cow::Borrowed(name), Cow::Owned(value)));
    let mut registry = Registry::with_prefix_and_labels(PREFIX, labels);
    registry.register_collector(Box::new(snapshot));
    let mut open_metrics = String::new();
    if prometheus_client::encoding::text::encode(&mut open_metrics, &registry).is_err() {
        tracing::error!("metrics are not encoded");
    }
    Texts { plain: plain(&open_metrics), open_metrics }
}

impl Collector for Snapshot {
    fn encode(&self, mut encoder: DescriptorEncoder) -> Result<(), fmt::Error> {
        for family in &self.families {
            let unit = family.unit.map(|unit| Unit::Other(unit.into()));
            let kind = match &family.kind {
                Kind::Counter => MetricType::Counter,
                Kind::Gauge => MetricType::Gauge,
                Kind::Histogram(_) => MetricType::Histogram,
            };
            let (name, help) = (family.name, family.help);
            let metric = encoder.encode_descriptor(name, help, unit.as_ref(), kind)?;
            samples(family, metric)?;
        }
        Ok(())
    }
}

fn samples(family: &Family, mut metric: MetricEncoder) -> Result<(), fmt::Error> {
    if let Kind::Histogram(histogram) = &family.kind {
        let none = None::<&HashMap<usize, Exemplar<NoLabelSet, f64>>>;
        let count = histogram.classes.iter().map(|(_, count)| count).sum();
        return metric.encode_histogram(histogram.sum, count, &histogram.classes, none);
    }
    for sample in &family.samples {
        let encoder = metric.encode_family(&sample.labels)?;
        match family.kind {
            Kind::Counter => ConstCounter::new(sample.value).encode(encoder)?,
            _ => ConstGauge::new(sample.value).encode(encoder)?,
        }
    }
    Ok(())
}

/// The older format of what is OpenMetrics: there a counter's own name ends with `_total`, and
/// there are neither units nor an end.
fn plain(open_metrics: &str) -> String {
    let mut text = String::with_capacity(open_metrics.len());
    let mut help = None;
    for line in open_metrics.lines() {
        let Some(comment) = line.strip_prefix("# ") else {
            text += &format!("{line}\n");
            continue;
        };
        let mut words = comment.splitn(3, ' ');
        match (words.next(), words.next(), words.next()) {
            (Some("HELP"), Some(name), Some(rest)) => help = Some((name, rest)),
            (Some("TYPE"), Some(name), Some(kind)) => {
                let total = if kind == "counter" { "_total" } else { "" };
                if let Some((_, rest)) = help.take().filter(|(of, _)| *of == name) {
                    text += &format!("# HELP {name}{total} {rest}\n");
                }
                text += &format!("# TYPE {name}{total} {kind}\n");
            }
            // Units, and the end.
            _ => {}
        }
    }
    text
}
