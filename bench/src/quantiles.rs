//! Latencies as quantiles.

use hdrhistogram::Histogram;
use serde::Serialize;
use std::time::Duration;

/// Quantiles of a latency in microseconds.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Quantiles {
    /// How many were measured.
    pub count: u64,
    /// The median.
    pub p50: f64,
    /// 99 of 100 were at most this.
    pub p99: f64,
    /// 999 of 1,000 were at most this.
    pub p999: f64,
    /// The longest.
    pub max: f64,
}

/// Collects latencies.
pub struct Recorder(Histogram<u64>);

impl Quantiles {
    /// An empty collection.
    pub fn recorder() -> Recorder {
        Recorder(Histogram::new_with_bounds(1, 600_000_000_000, 3).expect("the bounds are in order"))
    }
}

impl Recorder {
    /// Adds one latency.
    pub fn record(&mut self, latency: Duration) {
        self.0.saturating_record(u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX));
    }

    /// Adds all of another collection.
    pub fn merge(&mut self, other: &Self) {
        self.0.add(&other.0).expect("both have the same bounds");
    }

    /// The quantiles of what was added.
    pub fn finish(&self) -> Quantiles {
        let at = |quantile| self.0.value_at_quantile(quantile) as f64 / 1000.0;
        Quantiles {
            count: self.0.len(),
            p50: at(0.5),
            p99: at(0.99),
            p999: at(0.999),
            max: self.0.max() as f64 / 1000.0,
        }
    }
}
