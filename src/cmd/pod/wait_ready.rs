//! `podlink pod wait-ready`.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;

use super::{Exit, Outcome, PodChoice, Printer, block_on, seconds, signal::Interrupts};
use crate::{
    cmd::output::printable,
    host::{self, AgentClient, ClientSettings, Progress, WaitSettings},
    protocol::Health,
};

/// On a pipe an unchanged stage is told again after this long: a reader of the log sees that it is still alive.
const REPEAT: Duration = Duration::from_secs(30);

/// Wait until the guest takes calls
///
/// Exit codes: 0 ready, 10 time-out, 11 no container or it is gone, 12 token mismatch, 13 another program holds the
/// port, 14 the guest's installation failed, 130 Ctrl-C.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  podlink pod wait-ready                      up to ten minutes
  podlink pod wait-ready --timeout 7200       for a first installation of Windows
  podlink pod wait-ready --json               one JSON object at the end")]
pub(super) struct WaitReadyArgs {
    #[command(flatten)]
    pod: PodChoice,
    /// Seconds to wait
    #[arg(long, value_name = "SECS", default_value = "600", value_parser = seconds)]
    timeout: f64,
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
    let settings = WaitSettings { timeout: Duration::from_secs_f64(args.timeout), ..WaitSettings::DEFAULT };
    let begun = std::time::Instant::now();
    let mut display = Display::new(printer);
    let waited = block_on(async {
        let mut interrupts = Interrupts::catch()?;
        let waiting = async {
            let wait =
                host::wait_ready(&client, || host::engine::state(&pod), &settings, |progress| display.show(progress));
            Ok(wait.await?)
        };
        interrupts.or(waiting).await
    });
    display.end();
    let health = waited?;
    if printer.is_json() {
        printer.json(&Answer { ready: true, elapsed_ms: begun.elapsed().as_millis(), health: &health });
    } else {
        printer.line(&format!("ready after {:.1} s", begun.elapsed().as_secs_f64()));
    }
    Ok(Exit::SUCCESS)
}

/// Progress on stderr: a line that draws over itself on a terminal, plain lines elsewhere, nothing with `--json`.
struct Display {
    printer: Printer,
    spinner: Option<ProgressBar>,
    told: Option<(String, Duration)>,
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
        Self { printer, spinner, told: None }
    }

    fn show(&mut self, progress: &Progress) {
        let text = printable(&progress.stage.to_string());
        if let Some(spinner) = &self.spinner {
            spinner.set_message(text);
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

    fn end(&self) {
        if let Some(spinner) = &self.spinner {
            spinner.finish_and_clear();
        }
    }
}
