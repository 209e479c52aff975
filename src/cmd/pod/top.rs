//! `podlink pod top`.

use std::{collections::HashMap, time::Duration};

use super::{
    Exit, Outcome, PodChoice, Printer, block_on, job,
    live::{live, room},
    seconds,
    signal::Interrupts,
    table::{Table, bytes, cut, span},
};
use crate::{
    host::{
        AgentClient,
        terminal::{self, Screen},
    },
    protocol::{SocketOwner, SocketProtocol, SystemProcess, SystemProcesses, SystemSockets},
};

/// Between two looks, where nothing else is said.
const INTERVAL: f64 = 2.0;

/// Show the guest's processes, or the sockets that can be reached
///
/// On a terminal it goes on until `q` or Ctrl-C, the busiest first: %cpu is of one processor, since the look before.
/// Elsewhere it is one look, by the processor time used so far. All processes of the guest, not only podlink's; those
/// are marked with the id of their call.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  podlink pod top
  podlink pod top --once | head
  podlink pod top --sockets                      what listens, and who
  podlink pod top --json | jq '.processes[] | select(.cpu_ms > 60000) | .name'")]
pub(super) struct TopArgs {
    #[command(flatten)]
    pod: PodChoice,
    /// Show listening TCP and bound UDP sockets rather than processes
    #[arg(long)]
    sockets: bool,
    /// Look once, on a terminal too
    #[arg(long)]
    once: bool,
    /// Seconds between two looks
    #[arg(long, value_name = "SECS", default_value_t = INTERVAL, value_parser = seconds)]
    interval: f64,
    /// Print one JSON object: one look
    #[arg(long)]
    pub(super) json: bool,
}

pub(super) fn run(args: &TopArgs, printer: Printer) -> Outcome {
    let (_, client) = job::client_of(&args.pod)?;
    block_on(async {
        let mut interrupts = Interrupts::catch()?;
        if !args.once && !args.json && terminal::stdout_is_terminal() {
            return live(&mut interrupts, async |screen| look_again(&client, args, screen).await).await;
        }
        interrupts.or(once(&client, args, printer)).await
    })
}

async fn once(client: &AgentClient, args: &TopArgs, printer: Printer) -> Outcome {
    if args.sockets {
        let sockets = client.system_sockets().await?;
        if printer.is_json() {
            printer.json(&sockets);
        } else {
            of_sockets(&sockets).print(printer, terminal::stdout_width());
        }
    } else {
        let processes = client.system_processes().await?;
        if printer.is_json() {
            printer.json(&processes);
        } else {
            of_processes(&processes, None).print(printer, terminal::stdout_width());
        }
    }
    Ok(Exit::SUCCESS)
}

async fn look_again(client: &AgentClient, args: &TopArgs, screen: &mut Screen) -> Outcome {
    let mut before: Option<SystemProcesses> = None;
    let mut pause = Duration::from_secs_f64(args.interval);
    loop {
        let (summary, table) = if args.sockets {
            let sockets = client.system_sockets().await?;
            (format!("{} sockets", sockets.sockets.len()), of_sockets(&sockets))
        } else {
            let now = client.system_processes().await?;
            let table = of_processes(&now, before.as_ref());
            let held = now.processes.iter().map(|process| process.memory_bytes).sum();
            let summary = format!(
                "{} processes, {} cpus, {} of {} held",
                now.processes.len(),
                now.cpus,
                bytes(held),
                bytes(now.memory_bytes)
            );
            // the second look, which has percentages, is not long in coming
            pause = Duration::from_secs_f64(if before.is_none() { args.interval.min(0.5) } else { args.interval });
            before = Some(now);
            (summary, table)
        };
        let (rows, cols) = room();
        let mut lines = vec![cut(&format!("{summary}; q quits"), cols)];
        lines.extend(table.lines(Some(cols)).into_iter().take(rows.saturating_sub(1)));
        screen.draw(&lines).await?;
        tokio::time::sleep(pause).await;
    }
}

/// Percent of one processor since the look before; none for a process that is new.
fn percent(process: &SystemProcess, before: &HashMap<u32, &SystemProcess>, passed_ms: u64) -> Option<f64> {
    let earlier = before.get(&process.pid).filter(|earlier| earlier.started_at == process.started_at)?;
    #[expect(clippy::cast_precision_loss, reason = "a share for the eye")]
    let share = process.cpu_ms.saturating_sub(earlier.cpu_ms) as f64 * 100.0 / passed_ms.max(1) as f64;
    Some(share)
}

fn of_processes(now: &SystemProcesses, before: Option<&SystemProcesses>) -> Table {
    let mut table = Table::new(&["pid", "user", "state", "%cpu", "cpu", "memory", "call", "command"], &[0, 3, 4, 5]);
    let passed_ms = before.and_then(|before| passed(&before.taken_at, &now.taken_at)).unwrap_or_default();
    let earlier: HashMap<u32, &SystemProcess> =
        before.iter().flat_map(|before| &before.processes).map(|process| (process.pid, process)).collect();
    let mut rows: Vec<_> =
        now.processes.iter().map(|process| (percent(process, &earlier, passed_ms), process)).collect();
    rows.sort_by(|(a, left), (b, right)| {
        let by_share = b.unwrap_or_default().total_cmp(&a.unwrap_or_default());
        by_share.then(right.cpu_ms.cmp(&left.cpu_ms)).then(left.pid.cmp(&right.pid))
    });
    for (share, process) in rows {
        let command = if process.argv.is_empty() { format!("[{}]", process.name) } else { process.argv.join(" ") };
        table.row([
            process.pid.to_string(),
            process.user.clone().unwrap_or_else(|| "-".to_owned()),
            process.state.clone().unwrap_or_else(|| "-".to_owned()),
            share.map_or_else(|| "-".to_owned(), |share| format!("{share:.1}")),
            span(process.cpu_ms / 1000),
            bytes(process.memory_bytes),
            process.process_id.as_deref().map_or("-", |id| id.get(..10).unwrap_or(id)).to_owned(),
            command,
        ]);
    }
    table
}

/// Milliseconds between two RFC 3339 times of the guest's clock.
fn passed(before: &str, now: &str) -> Option<u64> {
    let (before, now) = (before.parse::<jiff::Timestamp>().ok()?, now.parse::<jiff::Timestamp>().ok()?);
    u64::try_from(now.as_millisecond() - before.as_millisecond()).ok()
}

fn of_sockets(sockets: &SystemSockets) -> Table {
    let mut table = Table::new(&["protocol", "address", "port", "user", "pid", "process"], &[2]);
    for socket in &sockets.sockets {
        let protocol = match socket.protocol {
            SocketProtocol::Tcp => "tcp",
            SocketProtocol::Udp => "udp",
            _ => "unknown",
        };
        let owners = |text: fn(&SocketOwner) -> String| {
            let owners: Vec<_> = socket.owners.iter().map(text).collect();
            if owners.is_empty() { "-".to_owned() } else { owners.join(",") }
        };
        table.row([
            protocol.to_owned(),
            socket.address.clone(),
            socket.port.to_string(),
            socket.user.clone().unwrap_or_else(|| "-".to_owned()),
            owners(|owner| owner.pid.to_string()),
            owners(|owner| owner.name.clone()),
        ]);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    fn look(taken_at: &str, processes: &[(u32, &str, u64)]) -> SystemProcesses {
        let processes = processes
            .iter()
            .map(|(pid, started_at, cpu_ms)| {
                serde_json::from_value(serde_json::json!({
                    "pid": pid, "ppid": 1, "name": format!("n{pid}"), "started_at": started_at, "cpu_ms": cpu_ms,
                }))
                .unwrap()
            })
            .collect();
        SystemProcesses { taken_at: taken_at.to_owned(), cpus: 1, memory_bytes: 1 << 30, processes }
    }

    #[test]
    fn the_busiest_since_the_look_before_is_first() {
        let before = look("2026-11-29T14:00:00Z", &[(1, "a", 90_000), (2, "a", 0), (3, "a", 500)]);
        // 3 is another process by the same number
        let now = look("2026-11-29T14:00:02Z", &[(1, "a", 90_100), (2, "a", 1_000), (3, "b", 1_800), (4, "b", 0)]);
        let lines = of_processes(&now, Some(&before)).lines(None);
        let cells: Vec<Vec<&str>> = lines.iter().skip(1).map(|line| line.split_whitespace().collect()).collect();
        let shown: Vec<_> = cells.iter().map(|cells| (cells[0], cells[3])).collect();
        assert_eq!(shown, [("2", "50.0"), ("1", "5.0"), ("3", "-"), ("4", "-")]);
        let lines = of_processes(&now, None).lines(None);
        assert!(lines[1].trim_start().starts_with("1 "), "by the time used so far: {lines:?}");
    }
}
