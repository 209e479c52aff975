//! What a process shows of itself to those who may ask: its command line, its account, its environment.
//!
//! UNSAFETY: Win32 takes and gives pointers. Each that is given here points at a value that lives across the call; what
//! is read of another process' memory is copied, and only lengths are believed, within bounds.
#![expect(unsafe_code, reason = "processes have no safe form")]

use std::{
    io,
    os::windows::io::{AsRawHandle as _, FromRawHandle as _, OwnedHandle},
    ptr::null_mut,
};

use windows_sys::{
    Wdk::System::Threading::{
        NtQueryInformationProcess, PROCESSINFOCLASS, ProcessBasicInformation, ProcessCommandLineInformation,
    },
    Win32::{
        Foundation::{LocalFree, STATUS_BUFFER_OVERFLOW, STATUS_BUFFER_TOO_SMALL, STATUS_INFO_LENGTH_MISMATCH},
        Security::{GetTokenInformation, LookupAccountSidW, TOKEN_QUERY, TOKEN_USER, TokenUser},
        System::{
            Diagnostics::Debug::ReadProcessMemory,
            Threading::{OpenProcess, OpenProcessToken, PROCESS_QUERY_LIMITED_INFORMATION, PROCESS_VM_READ},
        },
        UI::Shell::CommandLineToArgvW,
    },
};

use super::nt::{self, number, small_number, until_zero};

/// A command line has 32,767 characters at most, and a head.
const MOST_OF_COMMAND_LINE: usize = 66 * 1024;

/// Where in what the kernel tells of a process its environment block's pointer stands.
const PEB_AT: usize = 8;

/// Where in that block the pointer to its parameters stands.
const PARAMETERS_AT: u64 = 0x20;

/// Where in those its command line stands: its length, and eight bytes further a pointer to it.
const COMMAND_LINE_AT: u64 = 0x70;

/// Where in those the pointer to its environment stands, and its length.
const ENVIRONMENT_AT: u64 = 0x80;

/// See [`ENVIRONMENT_AT`].
const ENVIRONMENT_LEN_AT: u64 = 0x3f0;

fn ask(process: &OwnedHandle, class: PROCESSINFOCLASS, buffer: &mut [u64]) -> io::Result<usize> {
    let size = u32::try_from(size_of_val(buffer)).unwrap_or(0);
    let mut len = 0;
    // SAFETY: the handle is open across the call, and the buffer as long as is said.
    let status = unsafe {
        NtQueryInformationProcess(process.as_raw_handle(), class, buffer.as_mut_ptr().cast(), size, &raw mut len)
    };
    if [STATUS_BUFFER_OVERFLOW, STATUS_BUFFER_TOO_SMALL, STATUS_INFO_LENGTH_MISMATCH].contains(&status) {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    nt::check(status)?;
    Ok(usize::try_from(len.min(size)).unwrap_or(0))
}

fn bytes_of(words: &[u64]) -> &[u8] {
    // SAFETY: the words are there, and every byte is a byte.
    unsafe { std::slice::from_raw_parts(words.as_ptr().cast(), size_of_val(words)) }
}

/// Its command line, as it was started with, by the kernel's word.
fn told_command_line(process: &OwnedHandle) -> io::Result<String> {
    let mut words = vec![0_u64; MOST_OF_COMMAND_LINE / 8];
    let len = ask(process, ProcessCommandLineInformation, &mut words)?;
    let base = words.as_ptr().addr();
    let bytes = bytes_of(&words).get(..len).unwrap_or_default();
    let text = || {
        let len = small_number(bytes, 0)? & 0xffff;
        let from = usize::try_from(number(bytes, 8)?).ok()?.checked_sub(base)?;
        bytes.get(from..from.checked_add(len as usize)?).map(nt::text)
    };
    text().ok_or_else(|| io::Error::other("the kernel's answer is too short"))
}

/// Its command line, as it was started with; Wine's kernel does not tell, and then it is looked for in its memory.
pub(super) fn command_line(process: &OwnedHandle, memory: Option<&Memory>) -> Option<String> {
    told_command_line(process).ok().or_else(|| memory?.command_line().ok())
}

/// A command line's arguments, as most programs read them.
pub(super) fn arguments(line: &str) -> Vec<String> {
    if line.trim().is_empty() {
        return Vec::new(); // of which the call would make this process' own name
    }
    let (line, mut count) = (nt::wide(line), 0);
    // SAFETY: the line ends with a zero, and the place is of its type.
    let list = unsafe { CommandLineToArgvW(line.as_ptr(), &raw mut count) };
    if list.is_null() {
        return Vec::new();
    }
    let mut arguments = Vec::new();
    for index in 0..usize::try_from(count).unwrap_or(0) {
        // SAFETY: so many pointers are in the list, each to text that ends with a zero.
        let argument = unsafe {
            let text = *list.add(index);
            let len = (0..).take_while(|at| *text.add(*at) != 0).count();
            String::from_utf16_lossy(std::slice::from_raw_parts(text, len))
        };
        arguments.push(argument);
    }
    // SAFETY: the call asks for this, and it is done once.
    unsafe { LocalFree(list.cast()) };
    arguments
}

/// The name of its account, without that of a domain.
pub(super) fn user(process: &OwnedHandle) -> Option<String> {
    let mut token = null_mut();
    // SAFETY: the handle is open across the call, and the place is one for a handle.
    if unsafe { OpenProcessToken(process.as_raw_handle(), TOKEN_QUERY, &raw mut token) } == 0 {
        return None;
    }
    // SAFETY: the handle is new, and nobody else's.
    let token = unsafe { OwnedHandle::from_raw_handle(token) };
    // the longest identity has 68 bytes
    let (mut buffer, mut len) = ([0_u64; 32], 0);
    let size = u32::try_from(size_of_val(&buffer)).unwrap_or(0);
    // SAFETY: the buffer is as long as is said, and aligned for the structure at its begin.
    let told = unsafe {
        GetTokenInformation(token.as_raw_handle(), TokenUser, buffer.as_mut_ptr().cast(), size, &raw mut len)
    };
    if told == 0 {
        return None;
    }
    // SAFETY: the call has filled the buffer with this structure.
    let sid = unsafe { (*buffer.as_ptr().cast::<TOKEN_USER>()).User.Sid };
    let (mut name, mut domain, mut kind) = ([0_u16; 257], [0_u16; 257], 0);
    let (mut name_len, mut domain_len) = (257, 257);
    // SAFETY: the identity lies in the buffer, and the places are as long as is said.
    let known = unsafe {
        LookupAccountSidW(
            std::ptr::null(),
            sid,
            name.as_mut_ptr(),
            &raw mut name_len,
            domain.as_mut_ptr(),
            &raw mut domain_len,
            &raw mut kind,
        )
    };
    (known != 0).then(|| until_zero(&name)).filter(|name| !name.is_empty())
}

/// A process whose memory may be read.
pub(super) struct Memory {
    process: OwnedHandle,
    /// Where the parameters stand that it was started with.
    parameters: u64,
}

impl Memory {
    /// Opens that of a process of 64 bits.
    pub(super) fn open(pid: u32) -> io::Result<Self> {
        // SAFETY: it takes no pointer.
        let handle = unsafe { OpenProcess(PROCESS_QUERY_LIMITED_INFORMATION | PROCESS_VM_READ, 0, pid) };
        if handle.is_null() {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the handle is new, and nobody else's.
        let process = unsafe { OwnedHandle::from_raw_handle(handle) };
        let mut basic = [0_u64; 6];
        ask(&process, ProcessBasicInformation, &mut basic)?;
        let block = number(bytes_of(&basic), PEB_AT).filter(|block| *block != 0);
        let block = block.ok_or_else(|| io::Error::other("its memory does not look as expected"))?;
        let mut memory = Self { process, parameters: 0 };
        memory.parameters = memory.word(block.wrapping_add(PARAMETERS_AT))?;
        Ok(memory)
    }

    fn command_line(&self) -> io::Result<String> {
        let len = self.word(self.parameters.wrapping_add(COMMAND_LINE_AT))? & 0xffff;
        let text = self.word(self.parameters.wrapping_add(COMMAND_LINE_AT + 8))?;
        let mut bytes = vec![0; usize::try_from(len).unwrap_or(0)];
        self.read(text, &mut bytes)?;
        Ok(nt::text(&bytes))
    }

    /// What the process was started with in its environment, as far as `most` bytes go.
    pub(super) fn environment(&self, most: usize) -> io::Result<Vec<u16>> {
        let environment = self.word(self.parameters.wrapping_add(ENVIRONMENT_AT))?;
        let len = self.word(self.parameters.wrapping_add(ENVIRONMENT_LEN_AT))?;
        let mut bytes = vec![0; usize::try_from(len).unwrap_or(usize::MAX).min(most) & !1];
        self.read(environment, &mut bytes)?;
        Ok(bytes.chunks_exact(2).map(|two| u16::from_le_bytes([two[0], two[1]])).collect())
    }

    fn word(&self, at: u64) -> io::Result<u64> {
        let mut word = [0_u8; 8];
        self.read(at, &mut word).map(|()| u64::from_le_bytes(word))
    }

    fn read(&self, at: u64, into: &mut [u8]) -> io::Result<()> {
        let at = usize::try_from(at).map_err(io::Error::other)?;
        let mut len = 0;
        // SAFETY: the handle is open across the call, which fails for what is not there; the buffer is as long as is said.
        let done = unsafe {
            ReadProcessMemory(
                self.process.as_raw_handle(),
                std::ptr::with_exposed_provenance(at),
                into.as_mut_ptr().cast(),
                into.len(),
                &raw mut len,
            )
        };
        if done == 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }
}

/// The value of a variable in an environment: text that ends with a zero, one after the other.
pub(super) fn variable(environment: &[u16], name: &str) -> Option<String> {
    let wanted: Vec<u16> = name.encode_utf16().chain([u16::from(b'=')]).collect();
    environment
        .split(|unit| *unit == 0)
        .take_while(|entry| !entry.is_empty())
        .find_map(|entry| Some(String::from_utf16_lossy(entry.strip_prefix(&*wanted)?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_shows_itself() {
        let own = super::super::process_table::open(std::process::id()).unwrap();
        let memory = Memory::open(std::process::id()).unwrap();
        let lines = [command_line(&own, Some(&memory)).unwrap(), memory.command_line().unwrap()];
        for line in lines {
            assert_eq!(arguments(&line), std::env::args().collect::<Vec<_>>());
        }
        assert_eq!(user(&own).map(|name| name.to_lowercase()), Some(super::super::account().user.to_lowercase()));
        let environment = memory.environment(1 << 20).unwrap();
        let (name, value) = std::env::vars().find(|(name, _)| name.eq_ignore_ascii_case("PATH")).unwrap();
        assert_eq!(variable(&environment, &name), Some(value));
        assert_eq!(variable(&environment, "PODLINK_NO_SUCH_VARIABLE"), None);
    }

    #[test]
    fn command_lines_are_taken_apart() {
        assert_eq!(arguments(r#"a.exe "b c" d\"e "" é"#), ["a.exe", "b c", "d\"e", "", "é"]);
        assert_eq!(arguments(" "), [""; 0]);
    }
}
