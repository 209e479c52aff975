//! `podlink setup`.

use std::{fmt::Write as _, path::PathBuf};

use clap::ValueEnum;
use serde::Serialize;

use super::{
    Exit, Failure, Outcome, Printer,
    pod::{PodChoice, block_on},
};
use crate::host::{
    AgentKind, EngineKind, GuestOs, Home,
    setup::{self, Change, EngineChoice, Plan, SetupRequest, SetupSettings},
};

/// Make a pod, or change one
///
/// Writes the pod's folder: its settings, its token, what is staged for the guest, and compose.yaml for podman and
/// docker. What is not named stays as it was, so running it again changes nothing.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  podlink setup                                   a Windows pod in podman, or docker where there is no podman
  podlink setup --ram 8G --disk 128G --dry-run    what would change in it
  podlink setup --pod lab --engine local          a pod without a container: scripts run on this machine
  podlink setup --guest linux --image docker.io/qemux/qemu:7.29
  podlink setup --emit kubernetes | kubectl apply -f -")]
pub(super) struct SetupArgs {
    #[command(flatten)]
    pod: PodChoice,
    /// What runs it; for a new pod auto, which means podman where it is found, else docker, and never local
    #[arg(long, value_name = "ENGINE")]
    engine: Option<EngineArg>,
    /// The container's image; for Windows dockur/windows
    #[arg(long)]
    image: Option<String>,
    /// The guest's operating system; windows for a new pod in a container
    #[arg(long, value_name = "OS")]
    guest: Option<GuestArg>,
    /// What answers in the guest: this project's agent, or winpodx' in a guest that has that one; podlink for a new pod
    #[arg(long, value_name = "KIND")]
    agent: Option<AgentArg>,
    /// The agent's port on 127.0.0.1; for a new pod the first that is free from 8765 on
    #[arg(long, value_name = "PORT")]
    agent_port: Option<u16>,
    /// Remote desktop's port on 127.0.0.1; likewise from 3389 on
    #[arg(long, value_name = "PORT")]
    rdp_port: Option<u16>,
    /// The web viewer's port on 127.0.0.1; likewise from 8006 on
    #[arg(long, value_name = "PORT")]
    web_port: Option<u16>,
    /// Processors of the guest; 2 for a new pod
    #[arg(long, value_name = "COUNT")]
    cpus: Option<u32>,
    /// Memory of the guest; 4G for a new pod
    #[arg(long, value_name = "SIZE")]
    ram: Option<String>,
    /// Disk of the guest; 64G for a new pod
    #[arg(long, value_name = "SIZE")]
    disk: Option<String>,
    /// The user that the installation makes; Docker for a new pod
    #[arg(long, value_name = "NAME")]
    user: Option<String>,
    /// The file that holds that user's password; without it a random one is made and kept
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    password_file: Option<PathBuf>,
    /// The guest's time zone, such as Europe/Vienna; this machine's for a new pod
    #[arg(long, value_name = "ZONE")]
    timezone: Option<String>,
    /// The image's NETWORK, for machines where its own choice does not work
    #[arg(long, value_name = "MODE")]
    network: Option<String>,
    /// The podlink.exe that becomes the agent in Windows; without it the one that is staged stays, and a pod that has none
    /// gets the one beside this program, or the one that this program carries
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    agent_exe: Option<PathBuf>,
    /// Show what would change, without secrets, and write nothing
    #[arg(long)]
    dry_run: bool,
    /// Print the pod in another form than compose.yaml, with its secrets, and write nothing
    #[arg(long, value_name = "FORM", conflicts_with_all = ["dry_run", "json"])]
    emit: Option<EmitArg>,
    /// Print one JSON object
    #[arg(long)]
    pub(super) json: bool,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum EngineArg {
    Auto,
    Podman,
    Docker,
    Local,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum EmitArg {
    /// Objects for kubectl apply
    Kubernetes,
    /// A unit for podman's generator of systemd services
    Quadlet,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum GuestArg {
    Windows,
    Linux,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum AgentArg {
    Podlink,
    Winpodx,
}

/// What `--json` prints.
#[derive(Debug, Serialize)]
struct SetupJson<'a> {
    pod: &'a str,
    dir: String,
    dry_run: bool,
    engine: EngineKind,
    guest: GuestOs,
    agent: AgentKind,
    ports: &'a crate::host::Ports,
    #[serde(skip_serializing_if = "Option::is_none")]
    image: Option<&'a str>,
    token: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    agent_exe: Option<&'static str>,
    changed: bool,
    files: Vec<FileJson<'a>>,
    notes: &'a [String],
    warnings: &'a [String],
}

#[derive(Debug, Serialize)]
struct FileJson<'a> {
    path: String,
    change: &'static str,
    #[serde(skip_serializing_if = "str::is_empty")]
    diff: &'a str,
}

pub(super) fn run(args: SetupArgs) -> Outcome {
    let printer = Printer::new(args.json);
    let home = Home::from_env()?;
    let request = SetupRequest {
        engine: args.engine.map(|engine| match engine {
            EngineArg::Auto => EngineChoice::Auto,
            EngineArg::Podman => EngineChoice::Given(EngineKind::Podman),
            EngineArg::Docker => EngineChoice::Given(EngineKind::Docker),
            EngineArg::Local => EngineChoice::Given(EngineKind::Local),
        }),
        guest: args.guest.map(|guest| match guest {
            GuestArg::Windows => GuestOs::Windows,
            GuestArg::Linux => GuestOs::Linux,
        }),
        agent: args.agent.map(|agent| match agent {
            AgentArg::Podlink => AgentKind::Podlink,
            AgentArg::Winpodx => AgentKind::Winpodx,
        }),
        image: args.image,
        agent_port: args.agent_port,
        rdp_port: args.rdp_port,
        web_port: args.web_port,
        cpus: args.cpus,
        ram: args.ram,
        disk: args.disk,
        user: args.user,
        password: args.password_file.as_deref().map(setup::read_password).transpose()?,
        timezone: args.timezone,
        network: args.network,
        agent_exe: args.agent_exe,
    };
    if let Some(form) = args.emit {
        let form = match form {
            EmitArg::Kubernetes => setup::Form::Kubernetes,
            EmitArg::Quadlet => setup::Form::Quadlet,
        };
        let emitted = block_on(setup::emit(&home, &args.pod.name, &request, &SetupSettings::DEFAULT, form))?;
        printer.note(&emitted.note);
        printer.bytes(emitted.text.as_bytes());
        return Ok(Exit::SUCCESS);
    }
    let plan = block_on(async {
        let settings = SetupSettings::DEFAULT;
        if args.dry_run {
            setup::dry_run(&home, &args.pod.name, &request, &settings).await.map_err(Failure::from)
        } else {
            setup::run(&home, &args.pod.name, &request, &settings).await.map_err(Failure::from)
        }
    })?;
    if printer.is_json() {
        print_json(printer, &plan, args.dry_run);
    } else {
        print_text(printer, &plan, args.dry_run);
    }
    Ok(Exit::SUCCESS)
}

fn print_json(printer: Printer, plan: &Plan, dry_run: bool) {
    printer.json(&SetupJson {
        pod: plan.name.as_str(),
        dir: plan.dir.display().to_string(),
        dry_run,
        engine: plan.settings.engine,
        guest: plan.settings.guest,
        agent: plan.settings.agent,
        ports: &plan.settings.ports,
        image: image(plan),
        token: plan.token_fate.as_str(),
        agent_exe: plan.guest_exe.as_ref().map(setup::GuestExe::as_str),
        changed: changed(plan),
        files: plan
            .files
            .iter()
            .map(|file| FileJson {
                path: file.path.display().to_string(),
                change: file.change.as_str(),
                diff: if dry_run { &file.diff } else { "" },
            })
            .collect(),
        notes: &plan.notes,
        warnings: &plan.warnings,
    });
}

fn print_text(printer: Printer, plan: &Plan, dry_run: bool) {
    if dry_run {
        for file in &plan.files {
            printer.bytes(file.diff.as_bytes());
        }
    }
    let summary = summary(plan, dry_run).unwrap_or_default();
    if dry_run {
        printer.note(&summary);
    } else {
        printer.line(&summary);
    }
    for note in &plan.notes {
        printer.note(&format!("note: {note}"));
    }
    for warning in &plan.warnings {
        printer.note(&format!("WARNING: {warning}"));
    }
}

fn summary(plan: &Plan, dry_run: bool) -> Result<String, std::fmt::Error> {
    let what = match (dry_run, changed(plan)) {
        (_, false) => "is as it should be",
        (true, true) => "would be written",
        (false, true) => "is written",
    };
    let ports = &plan.settings.ports;
    let mut text = String::new();
    writeln!(text, "pod {} {what}: {}", plan.name, plan.dir.display())?;
    writeln!(text, "  engine  {}, {} guest", plan.settings.engine, plan.settings.guest)?;
    match image(plan) {
        Some(image) => {
            writeln!(text, "  image   {image}")?;
            let (agent, rdp, web) = (ports.agent, ports.rdp, ports.web);
            writeln!(text, "  ports   agent {agent}, remote desktop {rdp}, web viewer {web}")?;
        }
        None => writeln!(text, "  ports   agent {}", ports.agent)?,
    }
    if let Some(exe) = &plan.guest_exe {
        writeln!(text, "  agent   {exe}")?;
    }
    write!(text, "  token   {}", plan.token_fate.as_str())?;
    Ok(text)
}

fn image(plan: &Plan) -> Option<&str> {
    let machine = plan.settings.machine.as_ref().filter(|_| plan.settings.engine != EngineKind::Local);
    machine.map(|machine| machine.image.as_str())
}

fn changed(plan: &Plan) -> bool {
    plan.files.iter().any(|file| file.change != Change::Unchanged)
}
