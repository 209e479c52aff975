//! `podlink pod info`.

use super::{
    Exit, Failure, Outcome, PodChoice, Printer, block_on, job,
    signal::Interrupts,
    table::{Table, bytes, span},
};
use crate::{cmd::output::printable, host::terminal, protocol::SystemInfo};

/// Show what the guest is: system, processor, memory, disks, who is logged in
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  podlink pod info
  podlink pod info --packages | grep openssl
  podlink pod info --json | jq .os_version")]
pub(super) struct InfoArgs {
    #[command(flatten)]
    pod: PodChoice,
    /// List the installed packages too
    #[arg(long)]
    packages: bool,
    /// Print one JSON object
    #[arg(long)]
    pub(super) json: bool,
}

pub(super) fn run(args: &InfoArgs, printer: Printer) -> Outcome {
    let (_, client) = job::client_of(&args.pod)?;
    let info = block_on(async {
        let mut interrupts = Interrupts::catch()?;
        interrupts.or(async { client.system_info(args.packages).await.map_err(Failure::from) }).await
    })?;
    if printer.is_json() {
        printer.json(&info);
        return Ok(Exit::SUCCESS);
    }
    for line in lines(&info) {
        printer.line(&line);
    }
    let width = terminal::stdout_width();
    if let Some(packages) = &info.packages {
        let mut table = Table::new(&["package", "version", "arch"], &[]);
        for package in packages {
            table.row([package.name.clone(), package.version.clone(), package.arch.clone().unwrap_or_default()]);
        }
        printer.line("");
        table.print(printer, width);
    }
    if let Some(error) = &info.packages_error {
        printer.note(&format!("no list of packages: {}", printable(error)));
    }
    Ok(Exit::SUCCESS)
}

fn lines(info: &SystemInfo) -> Vec<String> {
    let unknown = || "-".to_owned();
    let mut rows = vec![
        ("host name", info.hostname.clone()),
        ("system", info.os_name.clone()),
        ("kernel", info.kernel.clone().unwrap_or_else(unknown)),
        ("processor", format!("{} × {}, {}", info.cpus, info.cpu_model.as_deref().unwrap_or("?"), info.arch)),
        ("memory", format!("{}, swap {}", bytes(info.memory_bytes), bytes(info.swap_bytes))),
        (
            "up",
            format!(
                "{}, since {}",
                span(info.uptime_ms / 1000),
                info.booted_at.as_deref().unwrap_or("an unknown time")
            ),
        ),
        ("agent", info.agent_version.clone()),
    ];
    for disk in &info.disks {
        let sizes = format!("{} of {} free", bytes(disk.available_bytes), bytes(disk.size_bytes));
        rows.push(("disk", format!("{}  {sizes}  {} {}", disk.mount, disk.filesystem, disk.device)));
    }
    for user in &info.users {
        let place = user.from.as_ref().map(|from| format!(" from {from}")).unwrap_or_default();
        let since = user.since.as_ref().map(|since| format!(" since {since}")).unwrap_or_default();
        rows.push(("user", format!("{} on {}{place}{since}", user.user, user.terminal.as_deref().unwrap_or("-"))));
    }
    rows.into_iter().map(|(name, value)| printable(&format!("{name:<10} {value}"))).collect()
}
