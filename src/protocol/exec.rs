//! `POST /exec`: what to run, and what came of it.

use std::{collections::BTreeMap, fmt};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use utoipa::ToSchema;

/// Which interpreter runs a script.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Shell {
    /// PowerShell on Windows, `sh` elsewhere.
    #[default]
    Auto,
    /// Windows PowerShell 5.1.
    Powershell,
    /// PowerShell 7.
    Pwsh,
    /// The Windows command processor.
    Cmd,
    /// The POSIX shell.
    Sh,
    /// Bash.
    Bash,
}

impl Shell {
    /// The shell as it stands on the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Powershell => "powershell",
            Self::Pwsh => "pwsh",
            Self::Cmd => "cmd",
            Self::Sh => "sh",
            Self::Bash => "bash",
        }
    }
}

/// The body of `POST /exec`.
///
/// Exactly one of `script` and `argv`. A client that sends only `script` and `timeout_sec` is served.
#[derive(Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ExecRequest {
    /// The script's source, UTF-8, in base64.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub script: Option<String>,
    /// A program and its arguments, run without a shell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub argv: Option<Vec<String>>,
    /// Which interpreter runs `script`.
    #[serde(default)]
    pub shell: Shell,
    /// Seconds until the call is killed. Waiting for a slot is not part of it. Where absent: 60 for buffered and
    /// streamed calls, none for detached and attached ones. 0 is none, and for all but buffered calls.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<f64>)]
    pub timeout_sec: Option<TimeoutSec>,
    /// The working directory; the agent account's home where absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
    /// Variables added to the environment of this call alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub env: Option<BTreeMap<String, String>>,
    /// Start from an empty environment.
    #[serde(default)]
    pub env_clear: bool,
    /// What the program reads on stdin, in base64; an empty one where absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stdin: Option<String>,
    /// Keep the program's stdin open, to be fed by `POST /processes/{id}/stdin`; after what `stdin` holds. Not for
    /// buffered calls.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub open_stdin: bool,
    /// Calls of one session run one after the other in order of arrival; 1 to 64 of `[A-Za-z0-9_-]`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    /// False: answer 409 `busy` rather than wait for a turn in the session, or for a slot.
    #[serde(default = "yes", skip_serializing_if = "Clone::clone")]
    pub queue: bool,
    /// Answer 202 at once and let the program go on.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub detach: bool,
    /// On Windows: what the program starts with `CREATE_BREAKAWAY_FROM_JOB` is no part of the call, and lives on when
    /// the call is killed. Elsewhere it changes nothing.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub allow_breakaway: bool,
    /// Bytes kept of each of stdout and stderr; 8 MiB where absent; the agent's limits name the most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_output_bytes: Option<u64>,
}

const fn yes() -> bool {
    true
}

/// Nothing to run yet, and every other field as it is where absent.
impl Default for ExecRequest {
    fn default() -> Self {
        Self {
            script: None,
            argv: None,
            shell: Shell::Auto,
            timeout_sec: None,
            cwd: None,
            env: None,
            env_clear: false,
            stdin: None,
            open_stdin: false,
            session: None,
            queue: true,
            detach: false,
            allow_breakaway: false,
            max_output_bytes: None,
        }
    }
}

impl ExecRequest {
    /// A call that runs a script in the guest's own shell.
    ///
    /// # Example
    /// ```
    /// use podlink::protocol::ExecRequest;
    ///
    /// let request = ExecRequest { cwd: Some("/tmp".into()), ..ExecRequest::script("echo ok; exit 7") };
    /// assert_eq!(request.script.as_deref(), Some("ZWNobyBvazsgZXhpdCA3"));
    /// ```
    pub fn script(source: impl AsRef<str>) -> Self {
        Self { script: Some(STANDARD.encode(source.as_ref())), ..Self::default() }
    }

    /// A call that runs a program with its arguments, without a shell.
    ///
    /// # Example
    /// ```
    /// use podlink::protocol::ExecRequest;
    ///
    /// let request = ExecRequest::argv(["seq", "1", "10"]);
    /// assert_eq!(request.argv.unwrap().len(), 3);
    /// ```
    pub fn argv<T: Into<String>>(argv: impl IntoIterator<Item = T>) -> Self {
        Self { argv: Some(argv.into_iter().map(Into::into).collect()), ..Self::default() }
    }
}

/// Scripts, environments and input may hold secrets: only their shape is shown.
impl fmt::Debug for ExecRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ExecRequest")
            .field("script_len", &self.script.as_ref().map(String::len))
            .field("argv_len", &self.argv.as_ref().map(Vec::len))
            .field("shell", &self.shell)
            .field("timeout_sec", &self.timeout_sec)
            .finish_non_exhaustive()
    }
}

/// A time-out as a caller wrote it: any JSON value is taken, so that the answer to a wrong one can name the cap.
#[derive(Debug, Clone, PartialEq)]
pub enum TimeoutSec {
    /// A number of seconds, whole or not.
    Seconds(f64),
    /// Something else; what kind of thing it was.
    NotANumber(&'static str),
}

impl Serialize for TimeoutSec {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "whole and in range, as tested"
            )]
            Self::Seconds(seconds) if seconds.fract() == 0.0 && (0.0..1e15).contains(seconds) => {
                serializer.serialize_u64(*seconds as u64)
            }
            Self::Seconds(seconds) => serializer.serialize_f64(*seconds),
            Self::NotANumber(_) => serializer.serialize_none(),
        }
    }
}

impl<'de> Deserialize<'de> for TimeoutSec {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Any;
        impl<'de> de::Visitor<'de> for Any {
            type Value = TimeoutSec;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number of seconds")
            }
            fn visit_f64<E>(self, value: f64) -> Result<TimeoutSec, E> {
                Ok(TimeoutSec::Seconds(value))
            }
            #[expect(clippy::cast_precision_loss, reason = "a time-out of 2^53 seconds is over every cap")]
            fn visit_u64<E>(self, value: u64) -> Result<TimeoutSec, E> {
                Ok(TimeoutSec::Seconds(value as f64))
            }
            #[expect(clippy::cast_precision_loss, reason = "negative ones are refused whatever they are")]
            fn visit_i64<E>(self, value: i64) -> Result<TimeoutSec, E> {
                Ok(TimeoutSec::Seconds(value as f64))
            }
            fn visit_str<E>(self, _: &str) -> Result<TimeoutSec, E> {
                Ok(TimeoutSec::NotANumber("a string"))
            }
            fn visit_bool<E>(self, _: bool) -> Result<TimeoutSec, E> {
                Ok(TimeoutSec::NotANumber("a boolean"))
            }
            fn visit_unit<E>(self) -> Result<TimeoutSec, E> {
                Ok(TimeoutSec::NotANumber("null"))
            }
            fn visit_seq<A: de::SeqAccess<'de>>(self, mut seq: A) -> Result<TimeoutSec, A::Error> {
                while seq.next_element::<de::IgnoredAny>()?.is_some() {}
                Ok(TimeoutSec::NotANumber("an array"))
            }
            fn visit_map<A: de::MapAccess<'de>>(self, mut map: A) -> Result<TimeoutSec, A::Error> {
                while map.next_entry::<de::IgnoredAny, de::IgnoredAny>()?.is_some() {}
                Ok(TimeoutSec::NotANumber("an object"))
            }
        }
        deserializer.deserialize_any(Any)
    }
}

/// The buffered answer of `POST /exec`.
///
/// Clients of other agents read `rc`, `stdout` and `stderr` alone, and other agents send only those: the rest has
/// defaults.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ExecResult {
    /// The program's own exit code (on Windows up to 32 bits); 128+N where signal N killed it; 124 where it timed out.
    pub rc: i64,
    /// Standard output as text; lines that are not UTF-8 are read in the OEM code page on Windows, and have U+FFFD for
    /// what cannot be shown elsewhere.
    #[serde(default)]
    pub stdout: String,
    /// Standard error, likewise.
    #[serde(default)]
    pub stderr: String,
    /// The call was killed by its time-out.
    #[serde(default)]
    pub timed_out: bool,
    /// Some output is missing: more than `max_output_bytes` came on one stream.
    #[serde(default)]
    pub truncated: bool,
    /// Milliseconds from the program's start to its end.
    #[serde(default)]
    pub duration_ms: u64,
    /// The agent's name for the run.
    #[serde(default)]
    pub process_id: String,
    /// The bytes kept of stdout in base64, only where `stdout` does not give them back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stdout_b64: Option<String>,
    /// Likewise of stderr.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stderr_b64: Option<String>,
    /// All bytes that came on stdout, those that were cut included.
    #[serde(default)]
    pub stdout_bytes: u64,
    /// Likewise on stderr.
    #[serde(default)]
    pub stderr_bytes: u64,
    /// The signal that killed the program, if one did.
    #[serde(default)]
    pub signal: Option<i32>,
    /// Processes of the call that were ended by the agent: by its time-out, all that lived of its tree.
    #[serde(default)]
    pub killed: u64,
    /// Processes of a killed call that were still alive when the agent gave up killing; empty in all but broken guests.
    #[serde(default)]
    pub survivors: Vec<u32>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_client_is_understood() {
        let request: ExecRequest = serde_json::from_str(r#"{"script":"ZWNobyBvaw==","timeout_sec":5}"#).unwrap();
        assert_eq!(request.script.as_deref(), Some("ZWNobyBvaw=="));
        assert_eq!(request.timeout_sec, Some(TimeoutSec::Seconds(5.0)));
        assert_eq!(request.shell, Shell::Auto);
    }

    #[test]
    fn the_oldest_agent_is_understood() {
        let result: ExecResult = serde_json::from_str(r#"{"rc":5,"stderr":"","stdout":"ok\r\n"}"#).unwrap();
        assert_eq!((result.rc, result.stdout.as_str()), (5, "ok\r\n"));
    }

    #[test]
    fn a_timeout_that_is_no_number_is_kept_as_such() {
        for (text, kind) in
            [("\"60\"", "a string"), ("true", "a boolean"), ("[1]", "an array"), ("{\"a\":1}", "an object")]
        {
            let timeout: TimeoutSec = serde_json::from_str(text).unwrap();
            assert_eq!(timeout, TimeoutSec::NotANumber(kind));
        }
        assert_eq!(serde_json::to_string(&TimeoutSec::Seconds(5.0)).unwrap(), "5");
        assert_eq!(serde_json::to_string(&TimeoutSec::Seconds(0.5)).unwrap(), "0.5");
    }

    #[test]
    fn debug_text_shows_no_content() {
        let request =
            ExecRequest { script: Some("c2VjcmV0".into()), stdin: Some("c2VjcmV0".into()), ..Default::default() };
        assert!(!format!("{request:?}").contains("c2VjcmV0"));
    }
}
