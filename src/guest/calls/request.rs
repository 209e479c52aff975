//! From what a caller sent to what is run: decoded, checked, every refusal with its reason.

use std::time::Duration;

use base64::{Engine as _, prelude::BASE64_STANDARD};
use jiff::Timestamp;
use sha2::{Digest as _, Sha256};

use super::{
    super::{
        GuestError,
        process::{Environment, Output, Program, Ring, Spec, Stdin, Terminal},
        request_id::RequestId,
    },
    call::Facts,
    settings::Settings,
};
use crate::protocol::{
    DEFAULT_MAX_OUTPUT, DEFAULT_TIMEOUT_SEC, ErrorCode, ExecRequest, ProcessMode, Pty, Shell, TimeoutSec,
};

/// In which form the answer is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::guest) enum Form {
    /// One JSON object at the end.
    Buffered,
    /// Docker's frames, as the output comes.
    Frames,
    /// Server-sent events, as the output comes.
    Events,
    /// A WebSocket.
    Attached,
}

impl Form {
    /// A word for each.
    pub(in crate::guest) const fn as_str(self) -> &'static str {
        match self {
            Self::Buffered => "buffered",
            Self::Frames => "frames",
            Self::Events => "events",
            Self::Attached => "attached",
        }
    }
}

/// A request that can be run.
#[derive(Debug)]
pub(in crate::guest) struct Checked {
    pub(super) spec: Spec,
    pub(super) session: Option<String>,
    pub(super) may_wait: bool,
    pub(super) mode: ProcessMode,
}

/// Checks all of a request.
pub(in crate::guest) fn check(
    request: ExecRequest,
    pty: Option<&Pty>,
    form: Form,
    settings: &Settings,
) -> Result<Checked, GuestError> {
    let mode = match form {
        _ if request.detach => ProcessMode::Detached,
        Form::Buffered => ProcessMode::Buffered,
        Form::Frames | Form::Events => ProcessMode::Streamed,
        Form::Attached => ProcessMode::Attached,
    };
    if request.detach && form == Form::Attached {
        return Err(bad("an attached call cannot be made with `detach`").hint("detach from it later, by a message"));
    }
    if let Some(name) = &request.session {
        session(name)?;
    }
    let timeout = timeout(request.timeout_sec.as_ref(), mode, settings.timeout_cap)?;
    let max_output = max_output(request.max_output_bytes)?;
    let program = match (request.script, request.argv) {
        (Some(script), None) => script_of(&script, request.shell)?,
        (None, Some(argv)) => argv_of(argv)?,
        (Some(_), Some(_)) => return Err(bad("both script and argv were given").hint("give exactly one of the two")),
        // the field's name is what clients of other agents look for
        (None, None) => return Err(bad("missing script field").hint("give `script` (base64) or `argv`")),
    };
    let terminal = pty.map(terminal).transpose()?;
    let mut environment = Environment { clear: request.env_clear, add: request.env.unwrap_or_default() };
    for (key, value) in &environment.add {
        if key.is_empty() || key.contains(['=', '\0']) || value.contains('\0') {
            return Err(bad(format!("env: {key:?} cannot be a variable"))
                .hint("a name is not empty and holds no `=`, and neither name nor value holds a NUL"));
        }
    }
    if let Some(terminal) = &terminal {
        environment.add.entry("TERM".to_owned()).or_insert_with(|| terminal.term.clone());
    }
    if let Some(cwd) = &request.cwd
        && (cwd.is_empty() || cwd.contains('\0'))
    {
        return Err(bad("cwd is empty or holds a NUL"));
    }
    let buffered = mode == ProcessMode::Buffered;
    if request.open_stdin && buffered {
        return Err(bad("a buffered call's stdin cannot stay open: nobody knows the call before it has ended")
            .hint("make it with `detach`, or streamed by its Accept header"));
    }
    let bytes = request.stdin.map(|text| decode("stdin", &text)).transpose()?.unwrap_or_default();
    let stdin = Stdin { bytes, open: request.open_stdin || mode == ProcessMode::Attached };
    let output = if buffered {
        Output::Keep(max_output)
    } else {
        Output::Ring(Ring::new(settings.ring_size(mode), mode != ProcessMode::Detached))
    };
    let cwd = request.cwd.map(Into::into);
    let spec = Spec {
        process_id: process_id()?,
        program,
        cwd,
        environment,
        stdin,
        terminal,
        allow_breakaway: request.allow_breakaway,
        timeout,
        output,
    };
    Ok(Checked { spec, session: request.session, may_wait: request.queue, mode })
}

impl Spec {
    /// What is known of the call before anything runs.
    pub(super) fn facts(&self, request_id: &RequestId, session: Option<String>, mode: ProcessMode) -> Facts {
        let (argv, script_sha256) = match &self.program {
            Program::Argv(argv) => (Some(shown(argv)), None),
            Program::Script { source, .. } => (None, Some(hex::encode(Sha256::digest(source)))),
        };
        Facts {
            process_id: self.process_id.as_str().into(),
            request_id: request_id.id.clone(),
            mode,
            session,
            argv,
            script_sha256,
            pty: self.terminal.is_some(),
            created_at: Timestamp::now(),
            peer: None,
        }
    }
}

/// As much of a command line as is kept of each call for those who ask what it is.
fn shown(argv: &[String]) -> Vec<String> {
    const MOST: usize = 16 * 1024;
    const EACH: usize = 16;
    let (mut shown, mut room) = (Vec::new(), MOST);
    for arg in argv {
        if arg.len() + EACH > room {
            shown.push(format!("{}…", &arg[..arg.floor_char_boundary(room)]));
            break;
        }
        room -= arg.len() + EACH;
        shown.push(arg.clone());
    }
    shown
}

/// A session's name is 1 to 64 of `[A-Za-z0-9_-]`.
pub(in crate::guest) fn session(name: &str) -> Result<(), GuestError> {
    let good = (1..=64).contains(&name.len()) && name.bytes().all(|c| c.is_ascii_alphanumeric() || b"_-".contains(&c));
    if good {
        Ok(())
    } else {
        Err(bad(format!("session: {name:?} cannot be a name"))
            .hint("a name is 1 to 64 of A to Z, a to z, 0 to 9, _ and -"))
    }
}

fn terminal(pty: &Pty) -> Result<Terminal, GuestError> {
    if pty.term.is_empty() || !pty.term.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'=') {
        return Err(bad("pty.term is no terminal's name").hint("leave it out for xterm-256color"));
    }
    Ok(Terminal { rows: dimension(pty.rows), cols: dimension(pty.cols), term: pty.term.clone() })
}

/// Lines or columns of a terminal, taken to the nearest that there can be.
pub(in crate::guest) fn dimension(wanted: i64) -> u16 {
    u16::try_from(wanted.clamp(1, i64::from(u16::MAX))).unwrap_or(u16::MAX)
}

fn bad(detail: impl Into<String>) -> GuestError {
    GuestError::new(ErrorCode::BadRequest, detail)
}

fn timeout(asked: Option<&TimeoutSec>, mode: ProcessMode, cap: Duration) -> Result<Option<Duration>, GuestError> {
    let cap_sec = cap.as_secs_f64();
    let endless = mode != ProcessMode::Buffered;
    let refuse = |what: String| {
        let none = if endless { ", or 0 for none" } else { "" };
        Err(bad(format!("timeout_sec is {what}"))
            .hint(format!("give a number of seconds above 0 and up to this agent's cap of {cap_sec}{none}")))
    };
    match asked {
        None if matches!(mode, ProcessMode::Detached | ProcessMode::Attached) => Ok(None),
        None => Ok(Some(Duration::from_secs(DEFAULT_TIMEOUT_SEC).min(cap))),
        Some(TimeoutSec::NotANumber(kind)) => refuse(format!("{kind}, not a number")),
        Some(TimeoutSec::Seconds(seconds)) if *seconds == 0.0 && endless => Ok(None),
        Some(TimeoutSec::Seconds(seconds)) if seconds.is_nan() || *seconds <= 0.0 || *seconds > cap_sec => {
            refuse(seconds.to_string())
        }
        Some(TimeoutSec::Seconds(seconds)) => Ok(Some(Duration::from_secs_f64(*seconds))),
    }
}

fn max_output(asked: Option<u64>) -> Result<usize, GuestError> {
    let bytes = asked.unwrap_or(DEFAULT_MAX_OUTPUT);
    if bytes > Settings::MAX_OUTPUT {
        return Err(bad(format!("max_output_bytes is {bytes}"))
            .hint(format!("this agent keeps up to {} bytes of a stream", Settings::MAX_OUTPUT)));
    }
    usize::try_from(bytes).map_err(|_| bad("max_output_bytes is over what this machine can address"))
}

fn argv_of(argv: Vec<String>) -> Result<Program, GuestError> {
    match argv.first() {
        None => Err(bad("argv is empty").hint("its first element is the program")),
        Some(program) if program.is_empty() => Err(bad("argv names no program: its first element is empty")),
        Some(_) if argv.iter().any(|arg| arg.contains('\0')) => {
            Err(bad("argv holds a NUL, which no program can be given"))
        }
        Some(_) => Ok(Program::Argv(argv)),
    }
}

fn script_of(base64: &str, shell: Shell) -> Result<Program, GuestError> {
    let source = without_mark(decode("script", base64)?)?;
    if matches!(shell, Shell::Powershell | Shell::Pwsh) && std::str::from_utf8(&source).is_err() {
        return Err(bad("script is not UTF-8, which is what PowerShell scripts are taken as"));
    }
    Ok(Program::Script { shell, source })
}

/// Editors put byte-order marks in front of scripts; shells take them for part of the first command.
fn without_mark(source: Vec<u8>) -> Result<Vec<u8>, GuestError> {
    if let Some(rest) = source.strip_prefix(b"\xef\xbb\xbf") {
        return Ok(rest.to_vec());
    }
    let Some(rest) = source.strip_prefix(b"\xff\xfe") else { return Ok(source) };
    let units: Vec<u16> =
        rest.chunks(2).map(|unit| u16::from_le_bytes([unit[0], unit.get(1).copied().unwrap_or(0)])).collect();
    String::from_utf16(&units)
        .map(String::into_bytes)
        .map_err(|_| bad("script bears the mark of UTF-16 and is not UTF-16"))
}

fn decode(field: &str, text: &str) -> Result<Vec<u8>, GuestError> {
    BASE64_STANDARD
        .decode(text)
        .map_err(|error| GuestError::new(ErrorCode::BadBase64, format!("{field} is not base64: {error}")))
}

/// It marks the run's processes, so nobody may be able to guess it.
fn process_id() -> Result<String, GuestError> {
    super::super::random_hex::<12>()
        .map(|hex| format!("p-{hex}"))
        .map_err(|error| GuestError::new(ErrorCode::InternalError, "the system gave no random bytes").caused_by(error))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(json: &str) -> Result<Spec, GuestError> {
        in_form(json, Form::Buffered)
    }

    fn in_form(json: &str, form: Form) -> Result<Spec, GuestError> {
        check(serde_json::from_str(json).unwrap(), None, form, &Settings::new()).map(|checked| checked.spec)
    }

    #[test]
    fn nonsense_is_refused_by_name() {
        for (json, code) in [
            ("{}", ErrorCode::BadRequest),
            (r#"{"script":"","argv":["x"]}"#, ErrorCode::BadRequest),
            (r#"{"script":"%%%"}"#, ErrorCode::BadBase64),
            (r#"{"argv":[]}"#, ErrorCode::BadRequest),
            (r#"{"argv":[""]}"#, ErrorCode::BadRequest),
            (r#"{"argv":["a\u0000"]}"#, ErrorCode::BadRequest),
            (r#"{"argv":["a"],"env":{"A=B":"c"}}"#, ErrorCode::BadRequest),
            (r#"{"argv":["a"],"env":{"":"c"}}"#, ErrorCode::BadRequest),
            (r#"{"argv":["a"],"cwd":""}"#, ErrorCode::BadRequest),
            (r#"{"argv":["a"],"stdin":"%"}"#, ErrorCode::BadBase64),
            (r#"{"argv":["a"],"max_output_bytes":99999999999}"#, ErrorCode::BadRequest),
            (r#"{"argv":["a"],"open_stdin":true}"#, ErrorCode::BadRequest),
            (r#"{"argv":["a"],"session":""}"#, ErrorCode::BadRequest),
            (r#"{"argv":["a"],"session":"a/b"}"#, ErrorCode::BadRequest),
        ] {
            assert_eq!(request(json).unwrap_err().code(), code, "{json}");
        }
    }

    #[test]
    fn a_wrong_timeout_is_told_the_cap() {
        for value in ["0", "-1", "\"60\"", "1e18", "3601", "true", "[1]"] {
            let error = request(&format!(r#"{{"argv":["a"],"timeout_sec":{value}}}"#)).unwrap_err();
            assert_eq!(error.code(), ErrorCode::BadRequest, "{value}");
            assert!(format!("{error:?}").contains("3600"), "{error:?}");
        }
        assert_eq!(request(r#"{"argv":["a"],"timeout_sec":0.5}"#).unwrap().timeout, Some(Duration::from_millis(500)));
        assert_eq!(request(r#"{"argv":["a"],"timeout_sec":null}"#).unwrap().timeout, Some(Duration::from_mins(1)));
        assert_eq!(in_form(r#"{"argv":["a"],"timeout_sec":0}"#, Form::Frames).unwrap().timeout, None);
        assert_eq!(in_form(r#"{"argv":["a"]}"#, Form::Frames).unwrap().timeout, Some(Duration::from_mins(1)));
        assert_eq!(request(r#"{"argv":["a"],"detach":true}"#).unwrap().timeout, None);
        assert_eq!(in_form(r#"{"argv":["a"]}"#, Form::Attached).unwrap().timeout, None);
    }

    #[test]
    fn a_command_line_is_shown_up_to_a_bound() {
        let short: Vec<String> = ["a", "", "b c"].map(str::to_owned).into();
        assert_eq!(shown(&short), short);
        let long = vec!["x".to_owned(), "é".repeat(100_000)];
        assert_eq!(shown(&long)[0], "x");
        assert!(shown(&long)[1].len() < 17_000 && shown(&long)[1].ends_with("é…"));
        assert!(shown(&vec![String::new(); 100_000]).len() < 1100);
    }

    #[test]
    fn marks_before_a_script_are_taken_off() {
        for source in [&b"\xef\xbb\xbfecho \xc3\xa9"[..], b"\xff\xfee\0c\0h\0o\0 \0\xe9\0"] {
            let json = format!(r#"{{"script":"{}"}}"#, BASE64_STANDARD.encode(source));
            let Program::Script { source, .. } = request(&json).unwrap().program else { panic!() };
            assert_eq!(source, "echo é".as_bytes());
        }
    }
}
