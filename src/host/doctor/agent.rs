//! The checks of the agent itself: version, token, a real run, the clock.

use std::time::{Duration, Instant};

use base64::{Engine as _, engine::general_purpose::STANDARD};

use super::{
    AgentEvidence, Asked, DoctorSettings, Evidence, ExecEvidence, Try,
    check::{Advice, Check},
    words,
};
use crate::{
    host::{
        AgentClient, AgentKind, EngineKind, ErrorKind, GuestOs, Pod, Result, Seen,
        time_sync::{self, SyncSettings},
    },
    protocol::{ExecRequest, Health, PROTOCOL_VERSION, Stage, TimeoutSec, Whoami},
};

/// What the guest's default shell, whichever it is, ends well with at once.
const SCRIPT: &str = "exit 0";

/// Speaks to an agent that is ready; the client sends the token only to one that proves that it holds it.
///
/// # Errors
/// When no HTTP client can be built.
pub(super) async fn gather(pod: &Pod, settings: &DoctorSettings) -> Result<AgentEvidence> {
    let client = AgentClient::for_pod(pod, settings.of_client())?;
    let whoami = match pod.settings().agent {
        AgentKind::Podlink => client.whoami().await.map(Some),
        AgentKind::Winpodx => client.check_token().await.map(|()| None),
    };
    let whoami = whoami.map_err(|error| (error.to_string(), error.hint().map(str::to_owned)));
    let exec = if whoami.is_ok() { exec(&client, settings.exec).await } else { Asked::Skipped };
    let clock =
        if tells_time(whoami.as_ref().ok().and_then(Option::as_ref)) { clock(&client, settings).await } else { None };
    Ok(AgentEvidence { whoami, exec, clock })
}

/// Whether the agent has a path for its clocks.
fn tells_time(whoami: Option<&Whoami>) -> bool {
    whoami.is_some_and(|whoami| whoami.features.iter().any(|feature| feature == "system.time"))
}

async fn clock(client: &AgentClient, settings: &DoctorSettings) -> Option<f64> {
    let settings = SyncSettings { deadline: settings.call, ..SyncSettings::ALONG };
    let measured = time_sync::measure(client, &settings).await.ok()?;
    #[expect(clippy::cast_precision_loss, reason = "seconds for the eye")]
    Some(measured.surely_ns() as f64 / 1e9)
}

async fn exec(client: &AgentClient, deadline: Duration) -> Asked<ExecEvidence> {
    // the guest ends it by itself a little earlier; a turn is not waited for: that would look like silence
    let timeout = TimeoutSec::Seconds(deadline.as_secs_f64() * 0.75);
    let request = ExecRequest {
        script: Some(STANDARD.encode(SCRIPT)),
        timeout_sec: Some(timeout),
        queue: false,
        ..ExecRequest::default()
    };
    let begun = Instant::now();
    match tokio::time::timeout(deadline, client.exec(&request)).await {
        Err(_) => Asked::Failed(format!("`{SCRIPT}` gave no answer within {} s", deadline.as_secs_f64())),
        Ok(Err(error)) if error.kind() == ErrorKind::Busy => Asked::Answer(ExecEvidence::NoSlot(error.to_string())),
        Ok(Err(error)) => Asked::Failed(error.to_string()),
        Ok(Ok(outcome)) if outcome.result.timed_out => {
            Asked::Failed(format!("`{SCRIPT}` did not end within {} s", deadline.as_secs_f64() * 0.75))
        }
        Ok(Ok(outcome)) => Asked::Answer(ExecEvidence::Ran { rc: outcome.result.rc, took: begun.elapsed() }),
    }
}

/// The lines `version`, `token`, `exec` and `clock`.
pub(super) fn checks(evidence: &Evidence) -> Vec<Check> {
    let health = match evidence.outcome() {
        Some(Try::Answered(seen)) => seen.health().map(|health| (seen, health)),
        _ => None,
    };
    let Some((seen, health)) = health else {
        return ["version", "token", "exec", "clock"]
            .map(|name| Check::skipped(name, "because no agent answers"))
            .into();
    };
    vec![version_check(evidence, health), token_check(evidence, seen), exec_check(evidence), clock_check(evidence)]
}

fn version_check(evidence: &Evidence, health: &Health) -> Check {
    let ours = env!("CARGO_PKG_VERSION");
    let version = if health.version.is_empty() { "unknown" } else { &health.version };
    if health.protocol == 0 {
        let kind = format!("agent {version} of another kind, without podlink's protocol");
        return Check::ok(
            "version",
            AgentKind::Winpodx.limits().map_or(kind.clone(), |limits| format!("{kind}: {limits}")),
        );
    }
    let seen =
        format!("agent {version}, protocol {}; this podlink {ours}, protocol {PROTOCOL_VERSION}", health.protocol);
    let update = format!(
        "copy this podlink into the guest and start it there{}",
        match evidence.pod.engine {
            EngineKind::Local =>
                format!(" ({}, then {})", words::command(evidence, "down"), words::command(evidence, "up")),
            _ => String::new(),
        }
    );
    if health.protocol != PROTOCOL_VERSION {
        let what = format!("the agent speaks protocol {} and this podlink {PROTOCOL_VERSION}", health.protocol);
        Check::failed("version", seen, Advice::new(what, update))
    } else if version != ours {
        let what = format!("the agent is version {version} and this podlink {ours}");
        Check::warning("version", seen, Advice::new(what, update))
    } else {
        Check::ok("version", seen)
    }
}

/// What to do where the agent has another token.
pub(super) fn mismatch(evidence: &Evidence) -> Advice {
    let staged = evidence.pod.dir.join(Pod::OEM_DIR).join(crate::token::STAGED_NAME);
    let what = "token mismatch: the agent holds another token than this pod";
    let setup = words::setup(evidence, "");
    match (evidence.pod.engine, evidence.pod.guest) {
        (EngineKind::Local, _) => Advice::new(
            what,
            format!(
                "{setup} stages this pod's token, which the agent takes within 2 s; else {} and {}",
                words::command(evidence, "down"),
                words::command(evidence, "up")
            ),
        ),
        (_, GuestOs::Windows) => Advice::new(
            what,
            format!(
                "copy {} to C:\\OEM\\agent_token.txt in the guest ({setup} stages it anew); the agent takes it within 2 s",
                staged.display()
            ),
        ),
        (_, GuestOs::Linux) => Advice::new(
            what,
            format!(
                "copy {} to the agent's token file in the guest ({setup} stages it anew); the agent takes it within 2 s",
                staged.display()
            ),
        ),
    }
}

fn who(whoami: &Whoami) -> String {
    let session = if whoami.interactive { "a session that a person can see" } else { "a session without a desktop" };
    let rights = if whoami.elevated { ", with all rights" } else { "" };
    format!("calls run as {} in {session}{rights}", whoami.user)
}

fn token_check(evidence: &Evidence, seen: &Seen) -> Check {
    if let Seen::TokenMismatch(_) = seen {
        return Check::failed("token", "the agent's proof is not made with this pod's token", mismatch(evidence));
    }
    if evidence.token.is_err() {
        return Check::skipped("token", "because this pod's own token cannot be read");
    }
    match (&evidence.agent, seen) {
        (Some(AgentEvidence { whoami: Ok(Some(whoami)), .. }), _) => {
            Check::ok("token", format!("proved and taken; {}", who(whoami)))
        }
        (Some(AgentEvidence { whoami: Ok(None), .. }), _) => {
            Check::ok("token", "taken; such an agent cannot prove that it holds it, so whoever has the port is sent it")
        }
        (Some(AgentEvidence { whoami: Err((why, fix)), .. }), _) => {
            Check::failed("token", why, refused(evidence, why, fix.as_deref()))
        }
        (None, Seen::NotReady(health)) if health.stage == Stage::WaitingForToken => {
            Check::skipped("token", "because the agent has none yet")
        }
        (None, Seen::NotReady(health)) if !health.stage.implies_token() => {
            Check::skipped("token", "because an agent whose installation failed need not have one")
        }
        (None, Seen::NotReady(_)) => Check::ok("token", "proved by the agent; not tried, because it is not ready"),
        (None, _) => Check::skipped("token", "because the agent went away"),
    }
}

/// What to do where the authorized call failed.
pub(super) fn refused(evidence: &Evidence, why: &str, fix: Option<&str>) -> Advice {
    let fix = fix.map_or_else(
        || format!("look at the agent's log in the guest, then try {}", words::command(evidence, "doctor")),
        str::to_owned,
    );
    Advice::new(format!("the agent answers and a call fails: {why}"), fix)
}

/// What to do where a run of a script failed.
pub(super) fn exec_advice(evidence: &Evidence, why: &str) -> Advice {
    let shell = match evidence.pod.guest {
        GuestOs::Windows => "PowerShell",
        GuestOs::Linux => "sh",
    };
    Advice::new(
        format!("the agent takes calls and cannot run a script: {why}"),
        format!("look whether {shell} works in the guest, and at the agent's log there"),
    )
}

fn exec_check(evidence: &Evidence) -> Check {
    match evidence.agent.as_ref().map(|agent| &agent.exec) {
        Some(Asked::Answer(ExecEvidence::Ran { rc: 0, took })) => Check::ok(
            "exec",
            format!("`{SCRIPT}` in the guest's shell: there and back in {:.1} ms", took.as_secs_f64() * 1e3),
        ),
        Some(Asked::Answer(ExecEvidence::Ran { rc, .. })) => {
            let why = format!("`{SCRIPT}` ended with code {rc}");
            Check::failed("exec", &why, exec_advice(evidence, &why))
        }
        Some(Asked::Failed(why)) => Check::failed("exec", why, exec_advice(evidence, why)),
        Some(Asked::Answer(ExecEvidence::NoSlot(why))) => Check::warning(
            "exec",
            why,
            Advice::new(
                "its agent is busy: all slots for calls are taken at this moment",
                format!("{} shows what runs; a call waits some seconds for a slot", words::command(evidence, "ps")),
            ),
        ),
        Some(Asked::Skipped) => Check::skipped("exec", "because the agent did not take the token"),
        None if evidence.token.is_err() => Check::skipped("exec", "because there is no token to make the call with"),
        None => Check::skipped("exec", "because the agent is not ready"),
    }
}

fn clock_check(evidence: &Evidence) -> Check {
    let Some(ahead) = evidence.clock else {
        return Check::skipped("clock", "the agent's answers bear no date that is known to be its own");
    };
    if ahead.abs() <= evidence.pod.clock_tolerance.as_secs_f64() {
        return Check::ok("clock", format!("within {} s of this host's", evidence.pod.clock_tolerance.as_secs()));
    }
    let way = if ahead > 0.0 { "ahead of" } else { "behind" };
    let seen = format!("the guest's clock is {:.0} s {way} this host's", ahead.abs());
    let pod = &evidence.pod.name;
    let whoami = evidence.agent.as_ref().and_then(|agent| agent.whoami.as_ref().ok()?.as_ref());
    let fix = match evidence.pod.guest {
        _ if tells_time(whoami) => words::command(evidence, "time-sync"),
        GuestOs::Windows => format!("`podlink pod exec --pod {pod} 'w32tm /resync /force'`"),
        GuestOs::Linux => format!("`podlink pod exec --pod {pod} -- date -s \"@$(date +%s)\"`"),
    };
    let why = match evidence.pod.guest {
        GuestOs::Windows => {
            "a pause or the host's sleep leaves it behind, and Windows takes the machine's clock for local time; TLS and \
             tokens fail by it"
        }
        GuestOs::Linux if ahead < 0.0 => "a pause or the host's sleep leaves it behind; TLS and tokens fail by it",
        GuestOs::Linux => "TLS and tokens fail by it",
    };
    Check::warning("clock", &seen, Advice::new(format!("{seen} ({why})"), fix))
}
