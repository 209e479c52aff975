//! `podlink demo`: the main job on a temporary pod, each step as a user would type it.

use std::time::{Duration, Instant};

use super::{
    Exit, Failure, Outcome, Printer,
    output::printable,
    pod::{block_on, signal::Interrupts},
};
use crate::host::{
    Error, ErrorKind, Home, PodName,
    engine::{Finished, run_this_program},
    ports,
};

/// For all steps together; they take about two seconds.
const WHOLE: Duration = Duration::from_mins(1);
/// For the pod's end, whatever happened before.
const CLEANUP: Duration = Duration::from_secs(30);
/// Where the time of a step stands.
const COLUMN: usize = 88;

/// See it work: do the main job on a temporary pod of this machine
///
/// Sets up a pod with the local engine in a temporary folder, starts its agent, runs a good, a failing and a hanging
/// script in it, and takes it down again. Nothing is left behind, on Ctrl-C and on failure neither.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  podlink demo")]
pub(super) struct DemoArgs {}

/// What a step has to give.
struct Expected {
    code: i32,
    stdout: &'static str,
    stderr: &'static str,
}

struct Demo {
    home: Home,
    pod: PodName,
    printer: Printer,
    interrupts: Interrupts,
    begun: Instant,
    wrong: Vec<String>,
}

pub(super) fn run(_args: &DemoArgs) -> Outcome {
    let printer = Printer::new(false);
    let folder = tempfile::Builder::new().prefix("podlink-demo-").tempdir().map_err(|error| {
        Error::new(ErrorKind::File, "could not make a temporary folder for the demo").with_source(error)
    })?;
    let home = Home::at(folder.path().to_owned())?;
    let pod: PodName = "demo".parse().map_err(Failure::usage)?;
    let begun = Instant::now();
    let outcome = block_on(async {
        let mut demo = Demo { home, pod, printer, interrupts: Interrupts::catch()?, begun, wrong: Vec::new() };
        let too_long =
            || Error::new(ErrorKind::WaitTimedOut, format!("the demo took longer than {} s", WHOLE.as_secs()));
        let outcome = tokio::time::timeout(WHOLE, demo.steps()).await.unwrap_or_else(|_| Err(too_long().into()));
        let cleaned = demo.clean_up(outcome.is_ok()).await;
        outcome.and(cleaned).map(|()| demo)
    });
    // before the last word, so that the word is true
    let removed = folder.close();
    let demo = outcome?;
    removed
        .map_err(|error| Error::new(ErrorKind::File, "the demo's folder could not be removed").with_source(error))?;
    if demo.wrong.is_empty() {
        printer.line(&format!(
            "\nAll as it should be, in {:.1} s. Nothing is left behind.",
            demo.begun.elapsed().as_secs_f32()
        ));
        return Ok(Exit::SUCCESS);
    }
    let detail = format!("the demo did not go as it should: {}", demo.wrong.join("; "));
    Err(Error::new(ErrorKind::Internal, detail).with_hint("the transcript above shows each step").into())
}

impl Demo {
    async fn steps(&mut self) -> Result<(), Failure> {
        let ok = |stdout| Expected { code: 0, stdout, stderr: "" };
        let port = ports::any_free()?.to_string();
        self.printer.line(&format!("$ export PODLINK_HOME={} PODLINK_POD={}", self.home.config().display(), self.pod));
        self.step(&["setup", "--engine", "local", "--agent-port", &port], &ok("is written")).await?;
        self.step(&["pod", "up"], &ok("is up")).await?;
        self.step(&["pod", "wait-ready", "--timeout", "20"], &ok("ready")).await?;

        let script =
            "echo \"hello from $(uname -s)\"; for i in 1 2 3; do echo \"line $i\"; done; echo \"a warning\" >&2";
        self.step(&["pod", "exec", script], &Expected { code: 0, stdout: "line 3", stderr: "a warning" }).await?;
        let script = "echo \"about to fail\"; exit 7";
        self.step(&["pod", "exec", script], &Expected { code: 7, stdout: "about to fail", stderr: "" }).await?;

        let script = "setsid sleep 600 & echo $!; sleep 600 & echo $!; wait";
        let timed_out = Expected { code: Exit::REMOTE_TIMED_OUT.0.into(), stdout: "", stderr: "" };
        let finished = self.step(&["pod", "exec", "--timeout", "1", script], &timed_out).await?;
        let pids: Vec<&str> = finished.stdout.lines().filter(|line| line.parse::<u32>().is_ok()).collect();
        if pids.len() != 2 {
            self.wrong.push("the timed-out script's output was lost".to_owned());
        }
        // a process that has ended and that nobody has waited for yet is not alive
        let script = format!(
            "for p in {}; do kill -0 $p 2>/dev/null && ! grep -qs \"^State:.*Z\" /proc/$p/status && echo \"$p lives\"; done; \
             echo \"looked for both\"",
            pids.join(" ")
        );
        let finished = self.step(&["pod", "exec", &script], &ok("looked for both")).await?;
        if finished.stdout.contains("lives") {
            self.wrong.push("a process of the timed-out script lives on".to_owned());
        }
        self.step(&["pod", "status"], &ok("yes")).await?;
        Ok(())
    }

    /// Takes the pod down: as the last step, or without a word where the steps did not get that far.
    async fn clean_up(&mut self, shown: bool) -> Result<(), Failure> {
        let args = ["pod", "down"];
        let down = async {
            if shown {
                return self.step(&args, &Expected { code: 0, stdout: "is down", stderr: "" }).await.map(drop);
            }
            run_this_program(&self.home, &self.pod, args, CLEANUP).await?;
            Ok(())
        };
        match tokio::time::timeout(CLEANUP, down).await {
            Ok(done) => done,
            Err(_) => Err(Error::new(ErrorKind::WaitTimedOut, "the demo's pod could not be taken down").into()),
        }
    }

    /// Runs a command, shows it with its time and what came back, and holds that against what should have come.
    ///
    /// Ctrl-C ends it at once, but for `up` and `down`, which are let finish: cut short, they could leave an agent.
    async fn step(&mut self, args: &[&str], expected: &Expected) -> Result<Finished, Failure> {
        let begun = Instant::now();
        let running = async { run_this_program(&self.home, &self.pod, args, WHOLE).await.map_err(Failure::from) };
        let finished =
            if matches!(args, ["pod", "up" | "down"]) { running.await? } else { self.interrupts.or(running).await? };
        let line = format!("$ podlink {}", args.iter().map(|arg| quoted(arg)).collect::<Vec<_>>().join(" "));
        let time = format!("{} ms", begun.elapsed().as_millis());
        self.printer.line("");
        if line.len() + time.len() < COLUMN {
            self.printer.line(&format!("{line}{time:>width$}", width = COLUMN - line.len()));
        } else {
            self.printer.line(&line);
            self.printer.line(&format!("{time:>COLUMN$}"));
        }
        for text in finished.stdout.lines() {
            self.printer.line(&format!("  {}", printable(text)));
        }
        for text in finished.stderr.lines() {
            self.printer.line(&format!("  stderr: {}", printable(text)));
        }
        let code = finished.code.map_or_else(|| "killed".to_owned(), |code| code.to_string());
        if finished.code != Some(0) {
            self.printer.line(&format!("  exit code {code}"));
        }
        let command = args.iter().take(2).copied().collect::<Vec<_>>().join(" ");
        if finished.code != Some(expected.code) {
            self.wrong.push(format!("`podlink {command}` ended with {code} instead of {}", expected.code));
        }
        for (name, text, wanted) in
            [("stdout", &finished.stdout, expected.stdout), ("stderr", &finished.stderr, expected.stderr)]
        {
            if !text.contains(wanted) {
                self.wrong.push(format!("`podlink {command}` did not print {wanted:?} on {name}"));
            }
        }
        Ok(finished)
    }
}

/// As it would have to be typed.
fn quoted(arg: &str) -> String {
    let plain = arg.bytes().all(|c| c.is_ascii_alphanumeric() || b"-_./:=,".contains(&c)) && !arg.is_empty();
    if plain { arg.to_owned() } else { format!("'{}'", arg.replace('\'', r"'\''")) }
}
