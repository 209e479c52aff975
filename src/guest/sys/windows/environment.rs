//! The variables that a call's program starts with: those of the agent, brought up to date from the registry, so that
//! what has been installed since the agent's start is found.
//!
//! UNSAFETY: a block of variables that the system makes is read up to the two NULs at its end, and given back.
#![expect(unsafe_code, reason = "Win32 has no safe form")]

use std::{
    collections::BTreeMap,
    ffi::{OsStr, OsString, c_void},
    io,
    os::windows::{
        ffi::{OsStrExt as _, OsStringExt as _},
        io::AsRawHandle as _,
    },
    ptr,
    sync::OnceLock,
};

use windows_sys::Win32::{
    Security::{TOKEN_DUPLICATE, TOKEN_QUERY},
    System::{
        Environment::{CreateEnvironmentBlock, DestroyEnvironmentBlock},
        Threading::{GetCurrentProcess, OpenProcessToken},
    },
};

use super::handle::{owned, worked};

/// Lists of folders or endings, of which both sides count.
const LISTS: [&str; 2] = ["PATH", "PATHEXT"];

/// Without which hardly any program starts: they stay where all others are taken away.
const NEEDED: [&str; 2] = ["SystemRoot", "SystemDrive"];

/// What the registry said when the agent began.
static AT_START: OnceLock<Environment> = OnceLock::new();

/// Variables, whose names are told apart without regard to case.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Environment(BTreeMap<String, (OsString, OsString)>);

/// Notes what the registry says, to be compared with what it says later.
pub(super) fn remember() {
    AT_START.get_or_init(registered);
}

impl Environment {
    /// What a call starts from.
    pub(super) fn current() -> Self {
        remember();
        let at_start = AT_START.get().cloned().unwrap_or_default();
        Self::own().updated(&at_start, &registered())
    }

    /// The least that a call starts from.
    pub(super) fn least() -> Self {
        let mut least = Self::default();
        for name in NEEDED {
            if let Some(value) = std::env::var_os(name) {
                least.set(name, &value);
            }
        }
        least
    }

    /// The agent's own.
    fn own() -> Self {
        let mut own = Self::default();
        // names that begin with `=` are the command processor's notes of its folders
        for (name, value) in std::env::vars_os().filter(|(name, _)| !name.to_string_lossy().starts_with('=')) {
            own.set(name, value);
        }
        own
    }

    /// Brought up to date: what the registry has got since `before`, or what is not here at all. Of a list that it has
    /// what is missing here comes behind what is here.
    fn updated(mut self, before: &Self, now: &Self) -> Self {
        for (key, (name, value)) in &now.0 {
            let is_news = before.0.get(key).is_none_or(|(_, earlier)| earlier != value);
            match self.get(name) {
                Some(own) if LISTS.contains(&key.as_str()) => {
                    let both = joined(own, value);
                    self.set(name, both);
                }
                Some(_) if !is_news => {}
                _ => self.set(name, value),
            }
        }
        self
    }

    /// A variable's value.
    pub(super) fn get(&self, name: impl AsRef<OsStr>) -> Option<&OsStr> {
        self.0.get(&key_of(name.as_ref())).map(|(_, value)| value.as_os_str())
    }

    /// Gives a variable another value. It keeps the name that it has.
    pub(super) fn set(&mut self, name: impl AsRef<OsStr>, value: impl AsRef<OsStr>) {
        let (name, value) = (name.as_ref(), value.as_ref());
        self.0
            .entry(key_of(name))
            .and_modify(|(_, known)| value.clone_into(known))
            .or_insert_with(|| (name.to_owned(), value.to_owned()));
    }

    /// As the system takes it: in the order of names, each ended by a NUL, and all by another.
    pub(super) fn to_block(&self) -> Vec<u16> {
        let mut block = Vec::new();
        for (name, value) in self.0.values() {
            block.extend(name.encode_wide());
            block.push(u16::from(b'='));
            block.extend(value.encode_wide());
            block.push(0);
        }
        if block.is_empty() {
            block.push(0);
        }
        block.push(0);
        block
    }
}

fn key_of(name: &OsStr) -> String {
    name.to_string_lossy().to_uppercase()
}

/// The first list, and behind it those of the second that are not in it.
fn joined(first: &OsStr, second: &OsStr) -> OsString {
    let same = |entry: &str| entry.trim_end_matches('\\').to_uppercase();
    let known: Vec<String> = first.to_string_lossy().split(';').map(same).collect();
    let mut both = first.to_owned();
    for entry in second.to_string_lossy().split(';').filter(|entry| !entry.is_empty()) {
        if !known.contains(&same(entry)) {
            if !both.is_empty() && !both.to_string_lossy().ends_with(';') {
                both.push(";");
            }
            both.push(entry);
        }
    }
    both
}

/// What a log-on of this account would start from, at this moment.
fn registered() -> Environment {
    read_registered().unwrap_or_else(|error| {
        tracing::debug!(%error, "the registry's variables cannot be read; calls get the agent's own");
        Environment::default()
    })
}

fn read_registered() -> io::Result<Environment> {
    let mut token = ptr::null_mut();
    // SAFETY: `token` lives as long as the call; the handle is new.
    let token = unsafe {
        worked(OpenProcessToken(GetCurrentProcess(), TOKEN_QUERY | TOKEN_DUPLICATE, &raw mut token))?;
        owned(token)
    }?;
    let mut block: *mut c_void = ptr::null_mut();
    // SAFETY: the token is open, and `block` lives as long as the call. 0: nothing of this process' own.
    worked(unsafe { CreateEnvironmentBlock(&raw mut block, token.as_raw_handle(), 0) })?;
    let mut environment = Environment::default();
    let mut at = block.cast::<u16>().cast_const();
    loop {
        // SAFETY: the block goes on until an empty text, which ends the loop.
        let text = unsafe { text_at(at) };
        if text.is_empty() {
            break;
        }
        // SAFETY: behind a text and its NUL the next begins.
        at = unsafe { at.add(text.len() + 1) };
        // from the second on: a name may begin with the sign
        if let Some(sign) = text.iter().skip(1).position(|unit| *unit == u16::from(b'=')) {
            let (name, value) = text.split_at(sign + 1);
            if name.first() != Some(&u16::from(b'=')) {
                environment.set(OsString::from_wide(name), OsString::from_wide(value.get(1..).unwrap_or_default()));
            }
        }
    }
    // SAFETY: the block is the system's, and nothing of it is used any more.
    unsafe { DestroyEnvironmentBlock(block) };
    Ok(environment)
}

/// The units up to the next NUL.
///
/// # Safety
/// There is one.
unsafe fn text_at<'a>(at: *const u16) -> &'a [u16] {
    let mut len = 0;
    // SAFETY: promised by whoever calls this.
    unsafe {
        while *at.add(len) != 0 {
            len += 1;
        }
        std::slice::from_raw_parts(at, len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(variables: &[(&str, &str)]) -> Environment {
        let mut environment = Environment::default();
        for (name, value) in variables {
            environment.set(name, value);
        }
        environment
    }

    #[test]
    fn what_the_registry_has_got_since_the_start_is_seen() {
        let own = of(&[("Path", r"Z:\own;C:\Windows"), ("A", "own"), ("B", "own"), ("C", "own")]);
        let before = of(&[("PATH", r"C:\Windows"), ("A", "registry"), ("B", "before")]);
        let now = of(&[("PATH", r"c:\windows\;C:\New"), ("A", "registry"), ("B", "now"), ("D", "new")]);
        let updated = own.updated(&before, &now);
        let expected =
            of(&[("Path", r"Z:\own;C:\Windows;C:\New"), ("A", "own"), ("B", "now"), ("C", "own"), ("D", "new")]);
        assert_eq!(updated, expected);
    }

    #[test]
    fn names_are_told_apart_without_regard_to_case() {
        let mut environment = of(&[("Path", "1"), ("päth", "2")]);
        environment.set("PATH", "3");
        environment.set("PÄTH", "4");
        let block = String::from_utf16(&environment.to_block()).unwrap();
        assert_eq!(block, "Path=3\0päth=4\0\0");
        assert_eq!(Environment::default().to_block(), [0, 0]);
    }

    #[test]
    fn the_registry_says_something() {
        let registered = read_registered().unwrap();
        assert!(registered.get("PATH").is_some(), "{registered:?}");
        assert!(Environment::least().get("systemroot").is_some());
    }
}
