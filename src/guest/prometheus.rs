//! Metrics as text: the format 0.0.4 of Prometheus, and `OpenMetrics` 1.0.0, which differs in few places.
//!
//! Implementation note: why not a crate. `prometheus-client` wants a registry of metrics that live; here is one snapshot,
//! whose names and labels are written once.

use std::fmt::{Display, Write as _};

use axum::http::HeaderValue;

use crate::protocol::Metrics;

/// Which of the two.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Dialect {
    /// Prometheus' own.
    Prometheus,
    /// `OpenMetrics`: counters lose their `_total` in the lines about them, and the text has an end.
    OpenMetrics,
}

impl Dialect {
    /// The type that goes with it.
    pub(super) const fn content_type(self) -> HeaderValue {
        HeaderValue::from_static(match self {
            Self::Prometheus => "text/plain; version=0.0.4; charset=utf-8",
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        })
    }
}

/// The metrics in this form.
pub(super) fn text(metrics: &Metrics, dialect: Dialect) -> String {
    let mut page = Page { text: String::with_capacity(16 * 1024), dialect };
    guest(&mut page, metrics);
    disks_and_networks(&mut page, metrics);
    agent(&mut page, metrics);
    if dialect == Dialect::OpenMetrics {
        page.text += "# EOF\n";
    }
    page.text
}

fn guest(page: &mut Page, metrics: &Metrics) {
    let cpu = &metrics.cpu_seconds;
    let modes = [
        ("user", cpu.user),
        ("nice", cpu.nice),
        ("system", cpu.system),
        ("idle", cpu.idle),
        ("iowait", cpu.iowait),
        ("irq", cpu.irq),
        ("softirq", cpu.softirq),
        ("steal", cpu.steal),
    ];
    page.counter("podlink_guest_cpu_seconds", "Processor time of all processors, by mode.").by("mode", modes);
    page.gauge("podlink_guest_cpus", "Processors.").alone(metrics.cpus);
    if let Some(load) = metrics.load {
        let names = ["1m", "5m", "15m"];
        page.gauge("podlink_guest_load", "Programs that run or want to, on average.")
            .by("over", names.into_iter().zip(load));
    }
    let memory = &metrics.memory;
    let kinds = [
        ("total", memory.total),
        ("free", memory.free),
        ("available", memory.available),
        ("buffers", memory.buffers),
        ("cached", memory.cached),
    ];
    page.gauge("podlink_guest_memory_bytes", "Memory.").by("kind", kinds);
    let kinds = [("total", memory.swap_total), ("free", memory.swap_free)];
    page.gauge("podlink_guest_swap_bytes", "Swap.").by("kind", kinds);
    page.gauge("podlink_guest_processes", "Processes that there are.").alone(metrics.processes);
    let states = [("running", metrics.processes_running), ("blocked", metrics.processes_blocked)];
    page.gauge("podlink_guest_processes_by_state", "What runs or could, and what waits for a disk.")
        .by("state", states);
    if let Some(forks) = metrics.forks {
        page.counter("podlink_guest_forks", "Processes and threads that were ever started.").alone(forks);
    }
    page.gauge("podlink_guest_uptime_seconds", "Since the guest's start.").alone(metrics.uptime_seconds);
}

fn disks_and_networks(page: &mut Page, metrics: &Metrics) {
    let disks = &metrics.disks;
    let sizes = disks.iter().map(|disk| (&*disk.mount, disk.size_bytes));
    page.gauge("podlink_guest_filesystem_size_bytes", "File systems on disks.").by("mount", sizes);
    let free = disks.iter().map(|disk| (&*disk.mount, disk.available_bytes));
    page.gauge("podlink_guest_filesystem_available_bytes", "What can still be written to them.").by("mount", free);

    let disks = &metrics.disk_io;
    let bytes = |way: fn(&crate::protocol::DiskIo) -> u64| disks.iter().map(move |disk| (&*disk.device, way(disk)));
    page.counter("podlink_guest_disk_read_bytes", "Bytes read.").by("device", bytes(|disk| disk.read_bytes));
    page.counter("podlink_guest_disk_written_bytes", "Bytes written.").by("device", bytes(|disk| disk.written_bytes));
    page.counter("podlink_guest_disk_reads", "Reads that were done.").by("device", bytes(|disk| disk.reads));
    page.counter("podlink_guest_disk_writes", "Writes that were done.").by("device", bytes(|disk| disk.writes));
    let busy = disks.iter().map(|disk| (&*disk.device, disk.busy_seconds));
    page.counter("podlink_guest_disk_busy_seconds", "Time in which something was under way.").by("device", busy);

    let each = |way: fn(&crate::protocol::NetworkIo) -> u64| {
        metrics.network.iter().map(move |interface| (&*interface.interface, way(interface)))
    };
    for (name, help, way) in [
        ("receive_bytes", "Bytes received.", (|i| i.received_bytes) as fn(&crate::protocol::NetworkIo) -> u64),
        ("receive_packets", "Packets received.", |i| i.received_packets),
        ("receive_errors", "Packets that came broken.", |i| i.receive_errors),
        ("receive_drops", "Packets that came and were dropped.", |i| i.receive_drops),
        ("send_bytes", "Bytes sent.", |i| i.sent_bytes),
        ("send_packets", "Packets sent.", |i| i.sent_packets),
        ("send_errors", "Packets that could not be sent.", |i| i.send_errors),
        ("send_drops", "Packets that were to be sent and were dropped.", |i| i.send_drops),
    ] {
        page.counter(&format!("podlink_guest_network_{name}"), help).by("interface", each(way));
    }
}

fn agent(page: &mut Page, metrics: &Metrics) {
    let agent = &metrics.agent;
    page.gauge("podlink_agent_build", "Always 1; the version is in the label.").by("version", [(&*agent.version, 1)]);
    page.gauge("podlink_agent_uptime_seconds", "Since the agent's start.").alone(agent.uptime_seconds);
    page.gauge("podlink_agent_resident_bytes", "Memory that the agent holds.").alone(agent.resident_bytes);
    page.gauge("podlink_agent_open_files", "Files and sockets that it holds open.").alone(agent.open_files);
    let requests = &agent.requests;
    let classes = [
        ("1xx", requests.informational),
        ("2xx", requests.success),
        ("3xx", requests.redirect),
        ("4xx", requests.client_error),
        ("5xx", requests.server_error),
        ("lost", requests.lost),
    ];
    page.counter("podlink_agent_requests", "Requests by the class of their answer.").by("class", classes);
    let calls = &agent.calls;
    page.counter("podlink_agent_calls_started", "Calls that began to run.").alone(calls.started);
    let outcomes = [
        ("succeeded", calls.succeeded),
        ("failed", calls.failed),
        ("timed_out", calls.timed_out),
        ("cancelled", calls.cancelled),
        ("stopped", calls.stopped),
        ("spawn_failed", calls.spawn_failed),
        ("refused", calls.refused),
        ("faulty", calls.faulty),
    ];
    page.counter("podlink_agent_calls_ended", "Calls that ended, by how.").by("outcome", outcomes);
    let now = [("running", agent.calls_running), ("queued", agent.calls_queued)];
    page.gauge("podlink_agent_calls", "Calls that run and wait now.").by("state", now);
    page.counter("podlink_agent_output_bytes", "Output that programs wrote.").alone(agent.output_bytes);
    page.counter("podlink_agent_killed_processes", "Processes that the agent ended.").alone(agent.killed);
    page.counter("podlink_agent_surviving_processes", "Processes that would not end.").alone(agent.survivors);
    page.counter("podlink_agent_connections", "Connections that were accepted.").alone(agent.connections);
    page.gauge("podlink_agent_open_connections", "Connections that are served now.").alone(agent.connections_open);
    page.counter("podlink_agent_auth_failures", "Requests without the right token.").alone(agent.auth_failures);
}

/// The text in the making.
struct Page {
    text: String,
    dialect: Dialect,
}

impl Page {
    /// What only goes up; its name without the `_total` that its samples bear.
    fn counter(&mut self, name: &str, help: &str) -> Family<'_> {
        let about = match self.dialect {
            Dialect::Prometheus => format!("{name}_total"),
            Dialect::OpenMetrics => name.to_owned(),
        };
        self.family(&about, format!("{name}_total"), "counter", help)
    }

    /// What goes up and down.
    fn gauge(&mut self, name: &str, help: &str) -> Family<'_> {
        self.family(name, name.to_owned(), "gauge", help)
    }

    fn family(&mut self, about: &str, sample: String, kind: &str, help: &str) -> Family<'_> {
        let help = escaped(help, self.dialect == Dialect::OpenMetrics);
        // writing into a String does not fail
        let _ = writeln!(self.text, "# HELP {about} {help}\n# TYPE {about} {kind}");
        Family { text: &mut self.text, sample }
    }
}

/// The samples of one name.
struct Family<'a> {
    text: &'a mut String,
    sample: String,
}

impl Family<'_> {
    fn alone(self, value: impl Display) {
        let _ = writeln!(self.text, "{} {value}", self.sample);
    }

    /// A sample for each value of a label.
    fn by<'v>(self, label: &str, samples: impl IntoIterator<Item = (&'v str, impl Display)>) {
        for (name, value) in samples {
            let _ = writeln!(self.text, "{}{{{label}=\"{}\"}} {value}", self.sample, escaped(name, true));
        }
    }
}

/// Backslashes and line feeds, and quotes in values of labels.
fn escaped(text: &str, quotes: bool) -> String {
    let text = text.replace('\\', "\\\\").replace('\n', "\\n");
    if quotes { text.replace('"', "\\\"") } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(dialect: Dialect) -> Page {
        Page { text: String::new(), dialect }
    }

    #[test]
    fn a_family_is_as_the_format_has_it() {
        let mut prometheus = page(Dialect::Prometheus);
        prometheus.counter("a_b", "Two\nlines \\ \"q\".").by("k", [("x\"\\\ny", 1.5), ("", 0.0)]);
        prometheus.gauge("g", "G.").alone(3_u64);
        assert_eq!(
            prometheus.text,
            "# HELP a_b_total Two\\nlines \\\\ \"q\".\n# TYPE a_b_total counter\na_b_total{k=\"x\\\"\\\\\\ny\"} 1.5\n\
             a_b_total{k=\"\"} 0\n# HELP g G.\n# TYPE g gauge\ng 3\n"
        );
        let mut open = page(Dialect::OpenMetrics);
        open.counter("a_b", "Two \"q\".").alone(u64::MAX);
        assert_eq!(open.text, "# HELP a_b Two \\\"q\\\".\n# TYPE a_b counter\na_b_total 18446744073709551615\n");
    }
}
