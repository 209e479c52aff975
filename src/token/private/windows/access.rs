//! Who may do what with a file: access control lists, set at the making and read back.
//!
//! UNSAFETY: Win32 takes and gives pointers. Each that is given here points at a value that lives across the call; what a
//! call allocates is let go of by an owner that is made at once; a handle becomes an `OwnedHandle` right where it is got.
#![expect(unsafe_code, reason = "security descriptors have no safe form")]

use std::{
    ffi::c_void,
    fs::File,
    io,
    mem::size_of,
    os::windows::{
        ffi::OsStrExt as _,
        io::{AsRawHandle as _, FromRawHandle as _, OwnedHandle},
    },
    path::Path,
    ptr::{null, null_mut},
};

use windows_sys::Win32::{
    Foundation::{ERROR_SUCCESS, HANDLE, INVALID_HANDLE_VALUE, LocalFree},
    Security::{
        ACCESS_ALLOWED_ACE, ACE_HEADER, ACL, Authorization as authorization, DACL_SECURITY_INFORMATION, GetAce,
        GetSecurityDescriptorDacl, OWNER_SECURITY_INFORMATION, PROTECTED_DACL_SECURITY_INFORMATION, PSID,
        SECURITY_ATTRIBUTES, SetKernelObjectSecurity,
    },
    Storage::FileSystem::{
        BY_HANDLE_FILE_INFORMATION, CreateDirectoryW, CreateFileW, FILE_CREATION_DISPOSITION,
        FILE_FLAGS_AND_ATTRIBUTES, FILE_TYPE_DISK, GetFileInformationByHandle, GetFileType,
        GetVolumeInformationByHandleW, MOVE_FILE_FLAGS, MoveFileExW,
    },
    System::SystemServices::{ACCESS_ALLOWED_ACE_TYPE, ACCESS_DENIED_ACE_TYPE, FILE_PERSISTENT_ACLS},
};

use super::identity::{ADMINISTRATORS, SYSTEM, is_elevated, may_do_all, own_sid, sid_text};

/// Longer paths need the prefix that lifts the bound.
const SHORT_PATH: usize = 240;

/// The path as Win32 takes it, ended by a zero.
fn wide(path: &Path) -> io::Result<Vec<u16>> {
    let mut text: Vec<u16> = path.as_os_str().encode_wide().collect();
    if text.contains(&0) {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "a path holds no zero"));
    }
    if text.len() > SHORT_PATH && !text.starts_with(&[u16::from(b'\\'), u16::from(b'\\')]) {
        // in this form nothing is made of `.`, `..` and `/` any more
        let absolute = std::path::absolute(path)?;
        text = r"\\?\".encode_utf16().chain(absolute.as_os_str().encode_wide()).collect();
    }
    text.push(0);
    Ok(text)
}

/// What lets in this account, SYSTEM and the administrators, and nobody else; nothing is inherited.
pub(crate) struct Privacy {
    descriptor: *mut c_void,
}

impl Privacy {
    /// That of a file.
    ///
    /// # Errors
    /// When the system does not tell who we are.
    pub(crate) fn of_file() -> io::Result<Self> {
        Self::new("", "FA")
    }

    /// That of a folder, and by inheritance of what is made in it.
    ///
    /// # Errors
    /// When the system does not tell who we are.
    pub(crate) fn of_folder() -> io::Result<Self> {
        Self::new("OICI", "FA")
    }

    /// That of an object of the kernel's that has a name.
    ///
    /// # Errors
    /// When the system does not tell who we are.
    pub(crate) fn of_object() -> io::Result<Self> {
        Self::new("", "GA")
    }

    fn new(inherited: &str, rights: &str) -> io::Result<Self> {
        let us = own_sid()?;
        // what an administrator makes belongs to all of them: another one may be the next to need it
        let owner = if is_elevated() { ADMINISTRATORS } else { us };
        let entry = |sid: &str| format!("(A;{inherited};{rights};;;{sid})");
        let text = format!("O:{owner}D:P{}{}{}\0", entry(us), entry(SYSTEM), entry(ADMINISTRATORS));
        let text: Vec<u16> = text.encode_utf16().collect();
        let mut descriptor = null_mut();
        // SAFETY: the text ends with a zero; the place is one for a pointer.
        let made = unsafe {
            authorization::ConvertStringSecurityDescriptorToSecurityDescriptorW(
                text.as_ptr(),
                authorization::SDDL_REVISION_1,
                &raw mut descriptor,
                null_mut(),
            )
        };
        if made == 0 { Err(io::Error::last_os_error()) } else { Ok(Self { descriptor }) }
    }

    /// For a call that makes something. It must not outlive `self`.
    pub(crate) fn attributes(&self) -> SECURITY_ATTRIBUTES {
        SECURITY_ATTRIBUTES {
            nLength: u32::try_from(size_of::<SECURITY_ATTRIBUTES>()).unwrap_or(0),
            lpSecurityDescriptor: self.descriptor,
            bInheritHandle: 0,
        }
    }

    /// Gives an open file this list, in the place of what it has.
    fn put_on_it_alone(&self, file: &File) -> io::Result<()> {
        let what = DACL_SECURITY_INFORMATION | PROTECTED_DACL_SECURITY_INFORMATION;
        // SAFETY: the handle is open across the call, and the descriptor is valid.
        if unsafe { SetKernelObjectSecurity(file.as_raw_handle(), what, self.descriptor) } == 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(())
    }

    /// Gives an open folder this list, in the place of what it has, and what inherits from it.
    fn put_on_all(&self, file: &File) -> io::Result<()> {
        let (mut present, mut list, mut defaulted) = (0, null_mut(), 0);
        // SAFETY: the descriptor is valid, and the places are of their types.
        let told =
            unsafe { GetSecurityDescriptorDacl(self.descriptor, &raw mut present, &raw mut list, &raw mut defaulted) };
        if told == 0 {
            return Err(io::Error::last_os_error());
        }
        let what = DACL_SECURITY_INFORMATION | PROTECTED_DACL_SECURITY_INFORMATION;
        // SAFETY: the handle is open across the call, and the list lives in the descriptor.
        let code = unsafe {
            authorization::SetSecurityInfo(
                file.as_raw_handle(),
                authorization::SE_FILE_OBJECT,
                what,
                null_mut(),
                null_mut(),
                list,
                null(),
            )
        };
        if code == ERROR_SUCCESS { Ok(()) } else { Err(of_code(code)) }
    }
}

impl Drop for Privacy {
    fn drop(&mut self) {
        // SAFETY: the call that made it asks for this, and it is done once.
        unsafe { LocalFree(self.descriptor) };
    }
}

fn of_code(code: u32) -> io::Error {
    io::Error::from_raw_os_error(code.cast_signed())
}

/// Opens or makes a file; what is made is given to us alone from its first instant.
///
/// # Errors
/// The system's.
pub(crate) fn open(
    path: &Path,
    access: u32,
    share: u32,
    disposition: FILE_CREATION_DISPOSITION,
    flags: FILE_FLAGS_AND_ATTRIBUTES,
) -> io::Result<File> {
    let (path, privacy) = (wide(path)?, Privacy::of_file()?);
    let attributes = privacy.attributes();
    // SAFETY: the path ends with a zero, and the attributes' descriptor lives until the end of this function.
    let handle =
        unsafe { CreateFileW(path.as_ptr(), access, share, &raw const attributes, disposition, flags, null_mut()) };
    if handle == INVALID_HANDLE_VALUE {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the handle is new, and nobody else's.
    Ok(File::from(unsafe { OwnedHandle::from_raw_handle(handle) }))
}

/// Makes a folder that only we, SYSTEM and the administrators may look into; an error where something of the name is there.
///
/// # Errors
/// The system's.
pub(crate) fn make_folder(path: &Path) -> io::Result<()> {
    let (path, privacy) = (wide(path)?, Privacy::of_folder()?);
    let attributes = privacy.attributes();
    // SAFETY: the path ends with a zero, and the attributes' descriptor lives until the end of this function.
    if unsafe { CreateDirectoryW(path.as_ptr(), &raw const attributes) } == 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// Gives a file another name.
pub(super) fn rename(from: &Path, to: &Path, flags: MOVE_FILE_FLAGS) -> io::Result<()> {
    let (from, to) = (wide(from)?, wide(to)?);
    // SAFETY: both paths end with a zero.
    if unsafe { MoveFileExW(from.as_ptr(), to.as_ptr(), flags) } == 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// Whether it lies on a disk: a pipe and a console do not.
pub(crate) fn is_on_disk(file: &File) -> bool {
    // SAFETY: the handle is open across the call.
    unsafe { GetFileType(file.as_raw_handle()) == FILE_TYPE_DISK }
}

/// The system's facts of an open file: its attributes, its number on its volume, its names.
///
/// # Errors
/// The system's.
pub(crate) fn facts(file: &File) -> io::Result<BY_HANDLE_FILE_INFORMATION> {
    let mut facts = BY_HANDLE_FILE_INFORMATION::default();
    // SAFETY: the handle is open across the call, and the place is of its type.
    if unsafe { GetFileInformationByHandle(file.as_raw_handle(), &raw mut facts) } == 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(facts)
}

/// Whether the file's volume keeps owners and lists at all: FAT does not.
pub(super) fn volume_keeps_lists(file: &File) -> bool {
    let mut flags = 0;
    // SAFETY: the handle is open across the call, and places that are not wanted may be null.
    let told = unsafe {
        GetVolumeInformationByHandleW(
            file.as_raw_handle(),
            null_mut(),
            0,
            null_mut(),
            null_mut(),
            &raw mut flags,
            null_mut(),
            0,
        )
    };
    // who cannot be asked is taken for one that does: it is then held to it
    told == 0 || flags & FILE_PERSISTENT_ACLS != 0
}

/// Who owns a file, and who may get at it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Access {
    /// The owner.
    pub(super) owner: String,
    /// Those who are let in besides this account and those who can do all in any case; `everyone` where there is no list.
    pub(super) others: Vec<String>,
}

impl Access {
    /// Reads it of an open file or folder.
    pub(super) fn of(file: &File) -> io::Result<Self> {
        let us = own_sid()?;
        let (mut owner, mut list, mut descriptor): (PSID, *mut ACL, *mut c_void) = (null_mut(), null_mut(), null_mut());
        let handle: HANDLE = file.as_raw_handle();
        let what = OWNER_SECURITY_INFORMATION | DACL_SECURITY_INFORMATION;
        // SAFETY: the handle is open across the call, and the places are of their types.
        let code = unsafe {
            authorization::GetSecurityInfo(
                handle,
                authorization::SE_FILE_OBJECT,
                what,
                &raw mut owner,
                null_mut(),
                &raw mut list,
                null_mut(),
                &raw mut descriptor,
            )
        };
        if code != ERROR_SUCCESS {
            return Err(of_code(code));
        }
        // owner and list point into it
        let _descriptor = Privacy { descriptor };
        if owner.is_null() {
            return Err(io::Error::other("it has no owner"));
        }
        // SAFETY: the call has told of a valid identity, which lives as long as the descriptor.
        let owner = unsafe { sid_text(owner) };
        let mut others = Vec::new();
        if list.is_null() {
            others.push("everyone".to_owned());
        } else {
            // SAFETY: the list is valid, and lives as long as the descriptor.
            let count = unsafe { (*list).AceCount };
            for index in 0..u32::from(count) {
                let mut entry = null_mut();
                // SAFETY: the index is below the count, and the place is one for a pointer.
                if unsafe { GetAce(list, index, &raw mut entry) } == 0 {
                    return Err(io::Error::last_os_error());
                }
                // SAFETY: the entry lives in the list.
                if let Some(sid) = unsafe { let_in(entry) }
                    && sid != us
                    && !may_do_all(&sid)
                    && !others.contains(&sid)
                {
                    others.push(sid);
                }
            }
        }
        Ok(Self { owner, others })
    }
}

/// Who is let in by an entry of a list.
///
/// # Safety
/// `entry` points at a valid entry.
unsafe fn let_in(entry: *const c_void) -> Option<String> {
    // SAFETY: every entry begins with this header.
    let header = unsafe { &*entry.cast::<ACE_HEADER>() };
    match u32::from(header.AceType) {
        ACCESS_ALLOWED_ACE_TYPE => {
            let entry = entry.cast::<ACCESS_ALLOWED_ACE>();
            // SAFETY: its kind says that it is this structure, at the end of which the identity begins.
            let (mask, sid) = unsafe { ((*entry).Mask, &raw const (*entry).SidStart) };
            // SAFETY: as said.
            (mask != 0).then(|| unsafe { sid_text(sid.cast_mut().cast()) })
        }
        ACCESS_DENIED_ACE_TYPE => None,
        // conditions and the like: nothing that we make
        kind => Some(format!("somebody by an entry of kind {kind}")),
    }
}

/// Takes away whatever lets others in than this account and those who can do all in any case, and makes sure of it.
///
/// # Errors
/// The system's; and where others are let in all the same.
pub(super) fn tighten(file: &File, is_folder: bool) -> io::Result<()> {
    if is_folder {
        Privacy::of_folder()?.put_on_all(file)?;
    } else {
        Privacy::of_file()?.put_on_it_alone(file)?;
    }
    match Access::of(file)?.others {
        others if others.is_empty() => Ok(()),
        others => Err(io::Error::other(format!("{} can read it all the same", others.join(", ")))),
    }
}
