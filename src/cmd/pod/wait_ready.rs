//! `podlink pod wait-ready`.

use std::{cell::RefCell, convert::Infallible, time::Duration};

use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;

use super::{Exit, Outcome, PodChoice, Printer, block_on, seconds, signal::Interrupts, time_sync};
use crate::{
    cmd::output::{plain, printable},
    host::{
        self, AgentClient, ClientSettings, EngineKind, Pod, Progress, WaitSettings,
        engine::{self, EngineSettings},
    },
    protocol::Health,
};

/// On a pipe an unchanged stage is told again after this long: a reader of the log sees that it is still alive.
const REPEAT: Duration = Duration::from_secs(30);

/// Before the first look at the container's log.
const LOG_FIRST: Duration = Duration::from_secs(1);
/// Between two looks.
const LOG_INTERVAL: Duration = Duration::from_secs(5);
/// For the engine to show it.
const LOG_DEADLINE: Duration = Duration::from_secs(5);

/// Wait until the guest takes calls
///
/// Ten minutes, or two hours while a new disk is being installed; then the end of the container's log and the
/// viewer's address are shown meanwhile. Exit codes: 0 ready, 10 time-out, 11 no container or it is gone, 12 token mismatch, 13 another program holds the
/// port, 14 the guest's installation failed, 130 Ctrl-C.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  podlink pod wait-ready
  podlink pod wait-ready --timeout 60         no longer than a minute
  podlink pod wait-ready --json               one JSON object at the end")]
pub(super) struct WaitReadyArgs {
    #[command(flatten)]
    pod: PodChoice,
    /// Seconds to wait; 600, or 7200 for a disk whose guest has never been ready
    #[arg(long, value_name = "SECS", value_parser = seconds)]
    timeout: Option<f64>,
    /// Print one JSON object at the end
    #[arg(long)]
    pub(super) json: bool,
}

/// What `--json` prints.
#[derive(Debug, Serialize)]
struct Answer<'a> {
    ready: bool,
    elapsed_ms: u128,
    health: &'a Health,
}

pub(super) fn run(args: &WaitReadyArgs, printer: Printer) -> Outcome {
    let pod = args.pod.load()?;
    let client = AgentClient::for_pod(&pod, ClientSettings::DEFAULT)?;
    let timeout = match args.timeout {
        Some(seconds) => Duration::from_secs_f64(seconds),
        None if host::is_new_disk(&pod) => WaitSettings::NEW_DISK,
        None => WaitSettings::DEFAULT.timeout,
    };
    let settings = WaitSettings { timeout, ..WaitSettings::DEFAULT };
    let begun = std::time::Instant::now();
    let display = RefCell::new(Display::new(printer));
    let waited = block_on(async {
        let mut interrupts = Interrupts::catch()?;
        let waiting = async {
            let wait = host::wait_ready(
                &client,
                || host::engine::state(&pod),
                &settings,
                |progress| display.borrow_mut().show(progress),
            );
            tokio::select! {
                biased;
                health = wait => Ok(health?),
                never = accompany(&pod, printer, &display) => match never {},
            }
        };
        interrupts.or(waiting).await
    });
    display.borrow().end();
    let health = waited?;
    host::remember_ready(&pod);
    time_sync::along(&pod, printer)?;
    if printer.is_json() {
        printer.json(&Answer { ready: true, elapsed_ms: begun.elapsed().as_millis(), health: &health });
    } else {
        printer.line(&format!("ready after {:.1} s", begun.elapsed().as_secs_f64()));
    }
    Ok(Exit::SUCCESS)
}

/// Shows where to look and what the container said last, for as long as it is not dropped: for the eye alone, the
/// verdict never comes from it.
async fn accompany(pod: &Pod, printer: Printer, display: &RefCell<Display>) -> Infallible {
    if printer.is_json() || pod.settings().engine == EngineKind::Local {
        return std::future::pending().await;
    }
    // a pod that is ready already needs none of it
    tokio::time::sleep(LOG_FIRST).await;
    let viewer = pod.settings().ports.web;
    display.borrow_mut().note(&format!("viewer: http://127.0.0.1:{viewer}/"));
    loop {
        let asked = engine::last_log_lines(pod, 3, &EngineSettings::DEFAULT);
        if let Ok(Ok(lines)) = tokio::time::timeout(LOG_DEADLINE, asked).await
            && let Some(line) = lines.last()
        {
            display.borrow_mut().log(&plain(line));
        }
        tokio::time::sleep(LOG_INTERVAL).await;
    }
}

/// Progress on stderr: a line that draws over itself on a terminal, plain lines elsewhere, nothing with `--json`.
struct Display {
    printer: Printer,
    spinner: Option<ProgressBar>,
    told: Option<(String, Duration)>,
    /// The container's last line.
    said: String,
}

impl Display {
    fn new(printer: Printer) -> Self {
        let spinner = printer.is_interactive().then(|| {
            let spinner = ProgressBar::new_spinner();
            if let Ok(style) = ProgressStyle::with_template("{spinner} {elapsed} {wide_msg}") {
                spinner.set_style(style);
            }
            spinner.enable_steady_tick(Duration::from_millis(100));
            spinner
        });
        Self { printer, spinner, told: None, said: String::new() }
    }

    fn show(&mut self, progress: &Progress) {
        let text = printable(&progress.stage.to_string());
        if let Some(spinner) = &self.spinner {
            let said = if self.said.is_empty() { String::new() } else { format!(" · {}", self.said) };
            spinner.set_message(format!("{text}{said}"));
            return;
        }
        let due = match &self.told {
            Some((told, at)) => *told != text || progress.elapsed.saturating_sub(*at) >= REPEAT,
            None => true,
        };
        if due && !self.printer.is_json() {
            self.printer.note(&format!("{:6.1} s  {text}", progress.elapsed.as_secs_f64()));
            self.told = Some((text, progress.elapsed));
        }
    }

    /// A line that stays.
    fn note(&self, text: &str) {
        match &self.spinner {
            Some(spinner) => spinner.println(text),
            None => self.printer.note(text),
        }
    }

    /// The container's last line, where it is another than before.
    fn log(&mut self, line: &str) {
        if self.said != line {
            line.clone_into(&mut self.said);
            if self.spinner.is_none() {
                self.printer.note(&format!("container: {line}"));
            }
        }
    }

    fn end(&self) {
        if let Some(spinner) = &self.spinner {
            spinner.finish_and_clear();
        }
    }
}
