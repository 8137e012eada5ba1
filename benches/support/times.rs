//! How long something took, many times.

use std::time::Duration;

#[derive(Debug, Default)]
pub(crate) struct Times(Vec<Duration>);

impl Times {
    pub(crate) fn add(&mut self, took: Duration) {
        let place = self.0.partition_point(|other| *other <= took);
        self.0.insert(place, took);
    }

    /// The value in milliseconds below which this many percent of them lie.
    pub(crate) fn percentile(&self, percent: usize) -> f64 {
        let place = (self.0.len() * percent / 100).min(self.0.len().saturating_sub(1));
        millis(self.0.get(place).copied().unwrap_or_default())
    }

    /// A row of a table; none where nothing was measured.
    pub(crate) fn print(&self, name: &str) {
        if self.0.is_empty() {
            return;
        }
        let [p50, p90, p99] = [50, 90, 99].map(|percent| self.percentile(percent));
        println!("{name:32} {p50:9.3} {p90:9.3} {p99:9.3} {:>7}", self.0.len());
    }
}

pub(crate) fn header() {
    println!("{:32} {:>9} {:>9} {:>9} {:>7}", "", "p50 ms", "p90 ms", "p99 ms", "times");
}

pub(crate) fn millis(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1000.0
}
