//! [`Metrics`]: the recorder of a server's metrics, which `GET /metrics` shows in the text format of Prometheus.

use std::fmt;
use std::time::Duration;

use axum::http::Method;
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};

/// The interval at which samples are merged. It bounds the memory if no client fetches the metrics.
pub(crate) const UPKEEP: Duration = Duration::from_secs(5);

/// The upper bounds of the histogram buckets for durations, in seconds.
const BUCKETS: [f64; 14] =
    [0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 60.0, 600.0];

/// The recorder of the process's metrics.
#[derive(Clone)]
pub struct Metrics {
    handle: PrometheusHandle,
}

impl Metrics {
    /// Installs the recorder of this process. Call it before the runtime starts.
    ///
    /// # Errors
    /// If the process already has a recorder.
    pub fn install() -> Result<Self, String> {
        let builder =
            PrometheusBuilder::new().set_buckets_for_metric(Matcher::Suffix("_seconds".to_owned()), &BUCKETS);
        let builder = builder.map_err(|error| error.to_string())?;
        let handle = builder.install_recorder().map_err(|error| error.to_string())?;
        Ok(Self { handle })
    }

    /// All metrics as text.
    pub(crate) fn render(&self) -> String {
        self.handle.render()
    }

    /// Merges the samples periodically. It never returns.
    pub(crate) async fn keep_up(self) {
        loop {
            tokio::time::sleep(UPKEEP).await;
            self.handle.run_upkeep();
        }
    }
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Metrics")
    }
}

/// Counts an answered request. `route` is the path of the route, with placeholders.
pub(crate) fn count_request(route: &str, method: &Method, status: u16, took: Duration) {
    let (route, method) = (route.to_owned(), method_label(method));
    metrics::counter!("conjure_http_requests_total", "route" => route.clone(), "method" => method, "status" => status.to_string())
        .increment(1);
    metrics::histogram!("conjure_http_request_duration_seconds", "route" => route, "method" => method)
        .record(took.as_secs_f64());
}

/// The label of a method. Clients can invent methods, and each would be a new series.
fn method_label(method: &Method) -> &'static str {
    match method.as_str() {
        "GET" => "GET",
        "HEAD" => "HEAD",
        "POST" => "POST",
        "DELETE" => "DELETE",
        _ => "other",
    }
}

/// Counts an open event stream until it is dropped.
#[derive(Debug)]
pub(crate) struct OpenStream(());

impl OpenStream {
    pub(crate) fn count() -> Self {
        metrics::gauge!("conjure_event_streams_open").increment(1.0);
        Self(())
    }
}

impl Drop for OpenStream {
    fn drop(&mut self) {
        metrics::gauge!("conjure_event_streams_open").decrement(1.0);
    }
}
