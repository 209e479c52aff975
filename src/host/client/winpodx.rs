//! winpodx' agent in our terms: what it is asked for it can do, and what it answers means what ours would.
//!
//! It reads `script` and `timeout_sec` and passes over everything else without a word. So a call that needs more is
//! refused here, rather than run in another shell or another folder than was asked for. Read from its source and from
//! its answers, version 0.2.3: whole seconds, 60 of them where none are given and 300 at most; a time-out is exit code
//! 124, and `timeout` on an otherwise empty stderr; exit codes are signed.

use std::time::Duration;

use super::{super::Result, AgentClient};
use crate::{
    host::AgentKind,
    protocol::{ExecRequest, ExecResult, Shell, TimeoutSec},
};

/// The most that it gives a script, in seconds, whatever it is asked for.
const CAP_SEC: f64 = 300.0;

/// Its exit code for a script that was ended by its time-out.
const TIMED_OUT: i64 = 124;

/// What it says of that where the script had said nothing.
const SAID: &str = "timeout";

impl AgentClient {
    /// The call as the pod's agent reads it.
    pub(super) fn in_its_terms(&self, request: &ExecRequest) -> Result<ExecRequest> {
        if self.place.kind == AgentKind::Podlink {
            return Ok(request.clone());
        }
        if let Some(what) = beyond(request) {
            return Err(self.unsupported(what));
        }
        let timeout_sec = request.timeout_sec.clone().map(|timeout| match timeout {
            // none is what it has not: the most is next to it
            TimeoutSec::Seconds(seconds) if seconds <= 0.0 => TimeoutSec::Seconds(CAP_SEC),
            TimeoutSec::Seconds(seconds) => TimeoutSec::Seconds(seconds.ceil()),
            other @ TimeoutSec::NotANumber(_) => other,
        });
        Ok(ExecRequest { script: request.script.clone(), timeout_sec, ..ExecRequest::default() })
    }

    /// Its answer as ours would be, to a call that was given so long and took so long.
    pub(super) fn in_our_terms(&self, result: &mut ExecResult, given: Duration, took: Duration) {
        if self.place.kind == AgentKind::Podlink {
            return;
        }
        result.rc = i32::try_from(result.rc).map_or(result.rc, |rc| i64::from(rc.cast_unsigned()));
        let cut = given.min(Duration::from_secs_f64(CAP_SEC));
        let said = result.stderr == SAID;
        if result.rc == TIMED_OUT && (said || took >= cut) {
            result.timed_out = true;
            result.killed = 1; // PowerShell itself; what that had started lives on
            if said {
                result.stderr.clear();
            }
        }
        result.duration_ms = u64::try_from(took.as_millis()).unwrap_or(u64::MAX);
        result.stdout_bytes = result.stdout.len() as u64;
        result.stderr_bytes = result.stderr.len() as u64;
    }
}

/// The first thing that a call needs and the agent would pass over.
fn beyond(request: &ExecRequest) -> Option<&'static str> {
    let needs = [
        (request.argv.is_some(), "start a program by its arguments: it runs scripts"),
        (!matches!(request.shell, Shell::Auto | Shell::Powershell), "run a script in another shell than PowerShell"),
        (request.cwd.is_some(), "run a script in a folder of its own: begin the script with Set-Location"),
        (
            request.env_clear || request.env.as_ref().is_some_and(|env| !env.is_empty()),
            "give a script variables: set them in the script, as $env:NAME = 'value'",
        ),
        (request.stdin.is_some() || request.open_stdin, "give a script anything to read on stdin"),
        (request.session.is_some(), "keep calls in the order of a session"),
        (request.detach, "run a script as a job"),
    ];
    needs.into_iter().find(|(needed, _)| *needed).map(|(_, what)| what)
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, SocketAddr};

    use super::*;
    use crate::{
        host::{ClientSettings, client::health::Place},
        token::Token,
    };

    fn client(kind: AgentKind) -> AgentClient {
        let place = Place {
            address: SocketAddr::from((Ipv4Addr::LOCALHOST, 1)),
            kind,
            pod_flag: String::new(),
            token_fix: String::new(),
        };
        AgentClient::at(place, Token::generate().unwrap(), ClientSettings::DEFAULT).unwrap()
    }

    #[test]
    fn time_outs_are_whole_seconds_and_none_is_the_most() {
        for (asked, sent) in [(0.0, 300.0), (0.2, 1.0), (2.0, 2.0), (2.5, 3.0), (4000.0, 4000.0)] {
            let request = ExecRequest { timeout_sec: Some(TimeoutSec::Seconds(asked)), ..ExecRequest::script("x") };
            let its = client(AgentKind::Winpodx).in_its_terms(&request).unwrap();
            assert_eq!(its.timeout_sec, Some(TimeoutSec::Seconds(sent)));
            assert_eq!(client(AgentKind::Podlink).in_its_terms(&request).unwrap(), request);
        }
        assert_eq!(client(AgentKind::Winpodx).in_its_terms(&ExecRequest::script("x")).unwrap().timeout_sec, None);
    }

    #[test]
    fn its_answers_mean_what_ours_would() {
        let (second, minute) = (Duration::from_secs(1), Duration::from_mins(1));
        let told = |rc: i64, stderr: &str, took| {
            let mut result = ExecResult { rc, stderr: stderr.to_owned(), ..ExecResult::default() };
            client(AgentKind::Winpodx).in_our_terms(&mut result, minute, took);
            (result.rc, result.timed_out, result.stderr)
        };
        assert_eq!(told(124, "timeout", second), (124, true, String::new()));
        assert_eq!(told(124, "so far", minute), (124, true, "so far".to_owned()));
        assert_eq!(told(124, "my own", second), (124, false, "my own".to_owned()));
        assert_eq!(told(-1_073_741_819, "", second).0, 0xC000_0005);
        assert_eq!(told(300, "", second).0, 300);
        let mut result = ExecResult { rc: -1, ..ExecResult::default() };
        client(AgentKind::Podlink).in_our_terms(&mut result, minute, second);
        assert_eq!((result.rc, result.duration_ms), (-1, 0));
    }
}
