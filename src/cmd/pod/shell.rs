//! `podlink pod shell`.

use base64::{Engine as _, engine::general_purpose::STANDARD};

use super::{
    Outcome, PodChoice, Printer, block_on,
    detach_keys::DetachKeys,
    exec::Call,
    interactive::{Console, Stdin},
    job, seconds,
    signal::Interrupts,
};
use crate::{
    host::{GuestOs, terminal},
    protocol::{ExecRequest, Shell},
};

/// Becomes the login shell of the agent's account. Which one that is only the guest knows; an account that must not log
/// in has none, and gets the plain one.
const LOGIN_SHELL: &str = r#"
usable() { case "$1" in */nologin|*/false|'') return 1;; esac; command -v "$1" >/dev/null 2>&1; }
shell=$(getent passwd "$(id -un)" 2>/dev/null | cut -d: -f7)
usable "$shell" || shell=$(sed -n "s/^$(id -un):.*:\([^:]*\)$/\1/p" /etc/passwd 2>/dev/null)
usable "$shell" || shell=$SHELL
usable "$shell" || shell=$(command -v bash || command -v sh)
SHELL=$shell; export SHELL
exec "$shell" -l
"#;

/// Open a shell in the guest
///
/// In Linux the account's login shell, in Windows PowerShell, in a terminal where this command has one. All keys go to
/// it, Ctrl-C too; the detach keys (ctrl-p ctrl-q) leave it running as a job. Ends with the shell's exit code.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  podlink pod shell
  podlink pod shell --pod lab --shell zsh
  echo 'uname -a' | podlink pod shell            without a terminal: what is piped in is run")]
pub(super) struct ShellArgs {
    #[command(flatten)]
    pod: PodChoice,
    /// Another shell: a program of the guest
    #[arg(long, value_name = "PROG")]
    shell: Option<String>,
    /// The working directory in the guest
    #[arg(long, short = 'w', value_name = "DIR")]
    cwd: Option<String>,
    /// Keys that leave it running: characters or ctrl-X, with commas between, or `none`
    #[arg(long, value_name = "KEYS", default_value = DetachKeys::DEFAULT)]
    detach_keys: DetachKeys,
    /// Wait this many seconds for the guest to be ready
    #[arg(long, value_name = "SECS", value_parser = seconds)]
    wait: Option<f64>,
}

pub(super) fn run(args: &ShellArgs, printer: Printer) -> Outcome {
    let (pod, client) = job::client_of(&args.pod)?;
    let call = Call { pod: &pod, client: &client };
    let alone = |program: &str| Some(vec![program.to_owned()]);
    let mut request = ExecRequest { cwd: args.cwd.clone(), ..ExecRequest::default() };
    match (&args.shell, pod.settings().guest) {
        (Some(shell), _) => request.argv = alone(shell),
        (None, GuestOs::Windows) => request.argv = alone("powershell.exe"),
        (None, GuestOs::Linux) => {
            (request.script, request.shell) = (Some(STANDARD.encode(LOGIN_SHELL)), Shell::Sh);
        }
    }
    let console =
        Console { stdin: Stdin::Ours, terminal: terminal::stdin_is_terminal(), keys: args.detach_keys.clone() };
    block_on(async {
        let mut interrupts = Interrupts::catch()?;
        call.wait_ready(args.wait, &mut interrupts).await?;
        call.attached(request, &console, printer, &mut interrupts).await
    })
}
