//! `podlink pod stats`.

use std::time::Duration;

use super::{
    Exit, Outcome, PodChoice, Printer, block_on, job,
    live::{live, room},
    seconds,
    signal::Interrupts,
    table::{bytes, cut, span},
};
use crate::{
    cmd::output::printable,
    host::{
        AgentClient,
        terminal::{self, Screen},
    },
    protocol::{CpuSeconds, Metrics},
};

/// Between two looks, where nothing else is said.
const INTERVAL: f64 = 2.0;

/// Between the two looks of `--once`, and before the second one on a terminal.
const FIRST: f64 = 0.5;

/// Show how busy the guest is: processor, memory, disks, network, calls
///
/// On a terminal it goes on until `q` or Ctrl-C. Elsewhere, and with `--once`, it is what happened within half a second.
/// All rates are of the time between two looks, by the guest's clock that never jumps.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  podlink pod stats
  podlink pod stats --once
  podlink pod stats --json | jq .agent.calls_running    one look at the counters themselves")]
pub(super) struct StatsArgs {
    #[command(flatten)]
    pod: PodChoice,
    /// Show it once, on a terminal too
    #[arg(long)]
    once: bool,
    /// Seconds between two looks
    #[arg(long, value_name = "SECS", default_value_t = INTERVAL, value_parser = seconds)]
    interval: f64,
    /// Print one JSON object: one look, all counters
    #[arg(long)]
    pub(super) json: bool,
}

pub(super) fn run(args: &StatsArgs, printer: Printer) -> Outcome {
    let (_, client) = job::client_of(&args.pod)?;
    block_on(async {
        let mut interrupts = Interrupts::catch()?;
        if !args.once && !args.json && terminal::stdout_is_terminal() {
            return live(&mut interrupts, async |screen| look_again(&client, args, screen).await).await;
        }
        interrupts.or(once(&client, args, printer)).await
    })
}

async fn once(client: &AgentClient, args: &StatsArgs, printer: Printer) -> Outcome {
    let before = client.metrics().await?;
    if printer.is_json() {
        printer.json(&before);
        return Ok(Exit::SUCCESS);
    }
    tokio::time::sleep(Duration::from_secs_f64(args.interval.min(FIRST))).await;
    for line in lines(&client.metrics().await?, Some(&before)) {
        printer.line(&line);
    }
    Ok(Exit::SUCCESS)
}

async fn look_again(client: &AgentClient, args: &StatsArgs, screen: &mut Screen) -> Outcome {
    let mut before: Option<Metrics> = None;
    loop {
        let now = client.metrics().await?;
        let (rows, cols) = room();
        let mut shown: Vec<_> = lines(&now, before.as_ref()).iter().map(|line| cut(line, cols)).collect();
        shown.truncate(rows.saturating_sub(1));
        shown.push(cut("q quits", cols));
        screen.draw(&shown).await?;
        let pause = if before.is_none() { args.interval.min(FIRST) } else { args.interval };
        before = Some(now);
        tokio::time::sleep(Duration::from_secs_f64(pause)).await;
    }
}

/// What is shown: sums of now, and rates since the look before.
fn lines(now: &Metrics, before: Option<&Metrics>) -> Vec<String> {
    // another guest, or the same one started anew, has nothing to do with the look before
    let before = before.filter(|before| before.uptime_seconds < now.uptime_seconds);
    let passed = before.map(|before| now.uptime_seconds - before.uptime_seconds);
    let rate = |count: Option<u64>| match (count, passed) {
        (Some(count), Some(passed)) => per_second(count, passed),
        _ => "-".to_owned(),
    };
    let memory = &now.memory;
    let used = |total: u64, free: u64| format!("{} of {}", bytes(total.saturating_sub(free)), bytes(total));
    let load = now.load.map_or_else(|| "-".to_owned(), |load| load.map(|load| format!("{load:.2}")).join(" "));
    let mut lines = vec![
        format!(
            "cpu       {} of {} cpus, load {load}",
            before.map_or_else(|| "-".to_owned(), |before| busy(&now.cpu_seconds, &before.cpu_seconds)),
            now.cpus
        ),
        format!(
            "memory    {}, swap {}",
            used(memory.total, memory.available),
            used(memory.swap_total, memory.swap_free)
        ),
        format!(
            "processes {}, {} run, {} wait for a disk; up {}",
            now.processes,
            now.processes_running,
            now.processes_blocked,
            span(whole(now.uptime_seconds))
        ),
    ];
    for disk in &now.disks {
        lines.push(format!("space     {}  {}", used(disk.size_bytes, disk.available_bytes), disk.mount));
    }
    for disk in &now.disk_io {
        let earlier = before.and_then(|before| before.disk_io.iter().find(|earlier| earlier.device == disk.device));
        let since =
            |way: fn(&crate::protocol::DiskIo) -> u64| rate(earlier.map(|old| way(disk).saturating_sub(way(old))));
        let (read, written) = (since(|disk| disk.read_bytes), since(|disk| disk.written_bytes));
        lines.push(format!("disk      read {read}, written {written}  {}", disk.device));
    }
    for card in &now.network {
        let earlier = before.and_then(|before| before.network.iter().find(|old| old.interface == card.interface));
        let since =
            |way: fn(&crate::protocol::NetworkIo) -> u64| rate(earlier.map(|old| way(card).saturating_sub(way(old))));
        let (received, sent) = (since(|card| card.received_bytes), since(|card| card.sent_bytes));
        let errors = card.receive_errors.saturating_add(card.send_errors);
        let errors = if errors > 0 { format!(", {errors} errors") } else { String::new() };
        lines.push(format!("network   received {received}, sent {sent}{errors}  {}", card.interface));
    }
    let agent = &now.agent;
    lines.push(format!(
        "calls     {} run, {} wait; {} begun, {} failed, {} timed out",
        agent.calls_running, agent.calls_queued, agent.calls.started, agent.calls.failed, agent.calls.timed_out
    ));
    lines.push(format!(
        "agent     {}, {} files, {} connections, {} without the token; up {}",
        bytes(agent.resident_bytes),
        agent.open_files,
        agent.connections_open,
        agent.auth_failures,
        span(whole(agent.uptime_seconds))
    ));
    lines.into_iter().map(|line| printable(&line)).collect()
}

/// The share of the processors' time in which they did something.
fn busy(now: &CpuSeconds, before: &CpuSeconds) -> String {
    let idle = |cpu: &CpuSeconds| cpu.idle + cpu.iowait;
    let all = |cpu: &CpuSeconds| idle(cpu) + cpu.user + cpu.nice + cpu.system + cpu.irq + cpu.softirq + cpu.steal;
    let (idle, all) = (idle(now) - idle(before), all(now) - all(before));
    // the time of a processor that waits may go back a little
    if all > 0.0 { format!("{:.1} %", (100.0 * (1.0 - idle / all)).clamp(0.0, 100.0)) } else { "-".to_owned() }
}

fn per_second(count: u64, passed: f64) -> String {
    #[expect(clippy::cast_precision_loss, reason = "a rate for the eye")]
    let rate = count as f64 / passed;
    format!("{}/s", bytes(whole(rate)))
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "what is shown is whole and not negative")]
const fn whole(number: f64) -> u64 {
    number as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn look(uptime: f64, user: f64, idle: f64, read: u64, sent: u64) -> Metrics {
        serde_json::from_value(serde_json::json!({
            "taken_at": "", "uptime_seconds": uptime, "cpus": 2, "cpu_seconds": {"user": user, "idle": idle},
            "load": [0.5, 1.0, 1.25], "memory": {"total": 4096, "available": 1024},
            "processes": 9, "processes_running": 1, "processes_blocked": 0, "forks": 1,
            "disk_io": [{"device": "vda", "read_bytes": read, "written_bytes": 0, "reads": 1, "writes": 0, "busy_seconds": 0.0}],
            "network": [{"interface": "eth0", "received_bytes": 7, "received_packets": 1, "receive_errors": 2,
                         "receive_drops": 0, "sent_bytes": sent, "sent_packets": 1, "send_errors": 1, "send_drops": 0}],
        }))
        .unwrap()
    }

    #[test]
    fn rates_are_of_the_time_between_two_looks() {
        let shown = lines(&look(12.0, 1.5, 4.5, 6144, 20), Some(&look(10.0, 0.5, 1.5, 2048, 0))).join("\n");
        for part in [
            "cpu       25.0 % of 2 cpus, load 0.50 1.00 1.25",
            "memory    3.0 KiB of 4.0 KiB, swap 0 B of 0 B",
            "read 2.0 KiB/s, written 0 B/s  vda",
            "received 0 B/s, sent 10 B/s, 3 errors  eth0",
        ] {
            assert!(shown.contains(part), "{part:?} in {shown}");
        }
    }

    #[test]
    fn without_a_look_before_or_after_a_restart_there_are_no_rates() {
        let now = look(1.0, 1.0, 1.0, 1, 1);
        for before in [None, Some(look(100.0, 9.0, 9.0, 9, 9))] {
            let shown = lines(&now, before.as_ref()).join("\n");
            assert!(shown.contains("cpu       - of 2 cpus") && shown.contains("read -, written -"), "{shown}");
        }
    }
}
