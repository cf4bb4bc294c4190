//! One thing that is measured, between two calibrations.

use crate::calibrate::Calibration;
use anyhow::{Context as _, Result};
use serde::Serialize;
use std::fmt::Write as _;
use std::path::Path;
use std::time::Duration;

/// How much the limits may move while a cell is measured before its figures are marked as noise.
const DRIFT_MAX: f64 = 0.2;

/// What measures a cell: it gets an empty directory, the limits before it and how long each part may take.
type Measure = Box<dyn Fn(&Path, &Calibration, Duration) -> Result<Vec<Row>>>;

/// Something to measure.
pub struct Cell {
    /// Its name on the command line and in the results.
    pub name: String,
    /// What is promised of each write that is counted.
    pub durability: &'static str,
    /// How it is measured.
    pub run: Measure,
}

/// One figure.
#[derive(Debug, Clone, Serialize)]
pub struct Row {
    /// What it is.
    pub what: String,
    /// Its value.
    pub value: f64,
    /// Its unit; empty for a ratio.
    pub unit: &'static str,
    /// What it should reach, in words.
    pub target: &'static str,
    /// Whether it does; absent where there is no target.
    pub met: Option<bool>,
}

impl Row {
    /// A figure without a target.
    pub fn figure(what: impl Into<String>, value: f64, unit: &'static str) -> Self {
        Self { what: what.into(), value, unit, target: "", met: None }
    }

    /// A ratio that should be at most `most`.
    pub fn at_most(what: impl Into<String>, value: f64, most: f64, target: &'static str) -> Self {
        Self { what: what.into(), value, unit: "", target, met: Some(value <= most) }
    }

    /// A ratio that should be at least `least`.
    pub fn at_least(what: impl Into<String>, value: f64, least: f64, target: &'static str) -> Self {
        Self { what: what.into(), value, unit: "", target, met: Some(value >= least) }
    }
}

/// A cell's figures and the limits around them.
#[derive(Debug, Serialize)]
pub struct Outcome {
    /// The cell.
    pub name: String,
    /// Its durability.
    pub durability: &'static str,
    /// The limits before it.
    pub before: Calibration,
    /// The largest relative change of a limit until after it.
    pub drift: f64,
    /// Its figures.
    pub rows: Vec<Row>,
}

impl Cell {
    /// Calibrates, measures, and calibrates again.
    pub fn measure(&self, directory: &Path, duration: Duration) -> Result<Outcome> {
        let calibration = duration.min(Duration::from_secs(2));
        let before = Calibration::measure(directory, calibration)?;
        let rows = (self.run)(directory, &before, duration).with_context(|| format!("the cell {}", self.name))?;
        let after = Calibration::measure(directory, calibration)?;
        Ok(Outcome { name: self.name.clone(), durability: self.durability, drift: before.drift(&after), before, rows })
    }
}

impl Outcome {
    /// The cell as Markdown.
    pub fn markdown(&self) -> String {
        let mut text = String::new();
        self.write(&mut text).expect("a string takes everything");
        text
    }

    fn write(&self, text: &mut String) -> std::fmt::Result {
        let limits = &self.before;
        writeln!(text, "### {}\n\nDurability: {}.", self.name, self.durability)?;
        writeln!(
            text,
            "Limits: F {:.0}/{:.0} µs (p50/p99), R1 {:.0} µs, H {:.0}/s; drift {:.0} %{}.\n",
            limits.sync_us.p50,
            limits.sync_us.p99,
            limits.round_trip_us.p50,
            limits.no_op_per_second,
            self.drift * 100.0,
            if self.drift > DRIFT_MAX { " — noise, do not quote" } else { "" }
        )?;
        writeln!(text, "| what | value | target | |\n| --- | --- | --- | --- |")?;
        for row in &self.rows {
            let met = row.met.map_or("", |met| if met { "met" } else { "missed" });
            writeln!(text, "| {} | {:.3} {} | {} | {met} |", row.what, row.value, row.unit, row.target)?;
        }
        Ok(())
    }
}
