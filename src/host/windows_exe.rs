//! What an executable for Windows says of itself, read without running it.

use thiserror::Error;

/// `x86_64`, as the header of an executable says it.
const MACHINE_AMD64: u16 = 0x8664;
/// A program that gets no console of its own.
const SUBSYSTEM_WINDOWS: u16 = 2;
const DIRECTORY_IMPORT: usize = 1;
const DIRECTORY_RESOURCE: usize = 2;
const RT_VERSION: u32 = 16;
/// More than any has; a loop in a table that was tampered with ends here.
const MAX_ENTRIES: usize = 1024;

/// An executable for Windows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WindowsExe {
    /// Whether it is for `x86_64`.
    pub is_x86_64: bool,
    /// Whether it gets no console, so that no window flashes where it starts.
    pub is_without_console: bool,
    /// `ProductName` of its version resource.
    pub product: Option<String>,
    /// `ProductVersion`.
    pub version: Option<String>,
    /// The DLLs that it cannot start without, in lower case.
    pub imports: Vec<String>,
}

/// Why it is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum NoWindowsExe {
    /// Something else.
    #[error("it is no executable for Windows")]
    NotPe,
    /// A part of one.
    #[error("it is cut short: a part of the file is missing")]
    CutShort,
}

impl WindowsExe {
    /// Reads the whole content of a file.
    ///
    /// # Errors
    /// When it is no executable, or not all of one.
    pub fn parse(bytes: &[u8]) -> Result<Self, NoWindowsExe> {
        let pe = Pe::parse(bytes)?;
        let resource = pe.version_resource();
        let text = |key| resource.and_then(|resource| version_text(resource, key));
        Ok(Self {
            is_x86_64: pe.machine == MACHINE_AMD64,
            is_without_console: pe.subsystem == SUBSYSTEM_WINDOWS,
            product: text("ProductName"),
            version: text("ProductVersion"),
            imports: pe.imports().ok_or(NoWindowsExe::CutShort)?,
        })
    }
}

/// The file, and where in it lies what.
struct Pe<'a> {
    bytes: &'a [u8],
    machine: u16,
    subsystem: u16,
    /// The tables' places in memory.
    directories: [Option<u32>; 2],
    sections: Vec<Section>,
}

/// A part of the file, and its place in memory.
struct Section {
    address: u32,
    offset: u32,
    size: u32,
}

impl<'a> Pe<'a> {
    fn parse(bytes: &'a [u8]) -> Result<Self, NoWindowsExe> {
        use NoWindowsExe::{CutShort, NotPe};
        if !bytes.starts_with(b"MZ") {
            return Err(NotPe);
        }
        let header = usize::try_from(u32_at(bytes, 0x3c).ok_or(NotPe)?).map_err(|_| NotPe)?;
        if bytes.get(header..).and_then(|rest| rest.get(..4)) != Some(b"PE\0\0") {
            return Err(NotPe);
        }
        let u16_of = |offset: usize| u16_at(bytes, header + offset).ok_or(CutShort);
        let (machine, section_count, optional_size) = (u16_of(4)?, u16_of(6)?, u16_of(20)?);
        let optional = header + 24;
        // of 32 and of 64 bits they differ by what lies between
        let directories_at = match u16_at(bytes, optional).ok_or(CutShort)? {
            0x10b => optional + 96,
            0x20b => optional + 112,
            _ => return Err(NotPe),
        };
        let subsystem = u16_at(bytes, optional + 68).ok_or(CutShort)?;
        let count = u32_at(bytes, directories_at - 4).ok_or(CutShort)?;
        let directory = |index: usize| {
            let is_there = u32::try_from(index).is_ok_and(|index| index < count);
            u32_at(bytes, directories_at + 8 * index).filter(|address| is_there && *address != 0)
        };
        let mut sections = Vec::new();
        for index in 0..usize::from(section_count) {
            let at = optional + usize::from(optional_size) + 40 * index;
            let field = |offset: usize| u32_at(bytes, at + offset).ok_or(CutShort);
            let section = Section { address: field(12)?, offset: field(20)?, size: field(16)? };
            let end = u64::from(section.offset) + u64::from(section.size);
            if section.size != 0 && end > bytes.len() as u64 {
                return Err(CutShort);
            }
            sections.push(section);
        }
        let directories = [directory(DIRECTORY_IMPORT), directory(DIRECTORY_RESOURCE)];
        Ok(Self { bytes, machine, subsystem, directories, sections })
    }

    /// What the file holds of the memory from this address on.
    fn at(&self, address: u32) -> Option<&'a [u8]> {
        let section = self
            .sections
            .iter()
            .find(|section| address.checked_sub(section.address).is_some_and(|into| into < section.size))?;
        let into = address - section.address;
        let from = usize::try_from(section.offset.checked_add(into)?).ok()?;
        let len = usize::try_from(section.size - into).ok()?;
        self.bytes.get(from..)?.get(..len)
    }

    /// `None` where the table is not as it must be.
    fn imports(&self) -> Option<Vec<String>> {
        let Some(address) = self.directories[0] else { return Some(vec![]) };
        let table = self.at(address)?;
        let mut names = Vec::new();
        for entry in table.chunks_exact(20).take(MAX_ENTRIES) {
            let name = u32_at(entry, 12)?;
            if name == 0 {
                break;
            }
            let text = self.at(name)?;
            let end = text.iter().position(|byte| *byte == 0)?;
            names.push(String::from_utf8_lossy(&text[..end]).to_ascii_lowercase());
        }
        names.sort();
        names.dedup();
        Some(names)
    }

    /// The version resource: a tree of three levels (kind, name, language) leads to it.
    fn version_resource(&self) -> Option<&'a [u8]> {
        const IS_FOLDER: u32 = 1 << 31;
        let tree = self.at(self.directories[1]?)?;
        let entries = |folder: usize| {
            let named = usize::from(u16_at(tree, folder + 12)?);
            let count = named + usize::from(u16_at(tree, folder + 14)?);
            let entry = |index| Some((u32_at(tree, folder + 16 + 8 * index)?, u32_at(tree, folder + 20 + 8 * index)?));
            Some((0..count.min(MAX_ENTRIES)).map_while(entry).collect::<Vec<_>>())
        };
        let below = |to: u32| usize::try_from(to & !IS_FOLDER).ok();
        let (_, names) = entries(0)?.into_iter().find(|(kind, _)| *kind == RT_VERSION)?;
        let (_, languages) = entries(below(names)?)?.into_iter().next()?;
        let (_, data) = entries(below(languages)?)?.into_iter().next()?;
        let data = below(data)?;
        let size = usize::try_from(u32_at(tree, data + 4)?).ok()?;
        self.at(u32_at(tree, data)?)?.get(..size)
    }
}

/// A text of the version resource: its key, filled up to four bytes, then the text; both end in a zero.
fn version_text(resource: &[u8], key: &str) -> Option<String> {
    let units: Vec<u16> = resource.chunks_exact(2).map(|unit| u16::from_le_bytes([unit[0], unit[1]])).collect();
    let key: Vec<u16> = key.encode_utf16().chain([0]).collect();
    let at = units.windows(key.len()).position(|window| *window == key)? + key.len();
    let text = units.get(at.next_multiple_of(2)..)?;
    let end = text.iter().position(|unit| *unit == 0)?;
    String::from_utf16(&text[..end]).ok()
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..)?.first_chunk().map(|bytes| u16::from_le_bytes(*bytes))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..)?.first_chunk().map(|bytes| u32::from_le_bytes(*bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_none_is_refused_whatever_it_holds() {
        assert_eq!(WindowsExe::parse(b""), Err(NoWindowsExe::NotPe));
        assert_eq!(WindowsExe::parse(b"\x7fELF and more"), Err(NoWindowsExe::NotPe));
        assert_eq!(WindowsExe::parse(b"MZ"), Err(NoWindowsExe::NotPe));
        let mut dos = vec![0; 128];
        dos[..2].copy_from_slice(b"MZ");
        dos[0x3c..0x40].copy_from_slice(&u32::MAX.to_le_bytes());
        assert_eq!(WindowsExe::parse(&dos), Err(NoWindowsExe::NotPe));
        dos[0x3c..0x40].copy_from_slice(&124_u32.to_le_bytes());
        dos[124..].copy_from_slice(b"PE\0\0");
        assert_eq!(WindowsExe::parse(&dos), Err(NoWindowsExe::CutShort));
    }

    proptest::proptest! {
        #[test]
        fn nothing_makes_it_panic(mut bytes in proptest::collection::vec(proptest::num::u8::ANY, 64..1024), at in 64_u32..200) {
            bytes[..2].copy_from_slice(b"MZ");
            bytes[0x3c..0x40].copy_from_slice(&at.to_le_bytes());
            let at = at as usize;
            if let Some(signature) = bytes.get_mut(at..at + 4) {
                signature.copy_from_slice(b"PE\0\0");
            }
            if let Some(magic) = bytes.get_mut(at + 24..at + 26) {
                magic.copy_from_slice(&[0x0b, 2]);
            }
            drop(WindowsExe::parse(&bytes));
        }
    }
}
